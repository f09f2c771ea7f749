//! The targets: what each does with the bytes of one input, in a module of its own.
//!
//! [`with_targets`](crate::with_targets) is the one list of them.

mod check;
mod container;
mod contexts;
mod directory;
mod disk;
mod disk_spec;
mod extent;
mod fast_commit;
mod fold_write;
mod group_desc;
mod indirect;
mod inline_write;
mod inode;
mod journal;
mod lvm;
mod manifest;
mod map_write;
mod nbd;
mod quota;
mod quota_write;
mod requests;
mod salvage;
mod shift;
mod small;
mod spec;
mod superblock;
mod synced;
mod tar;
mod walk;
mod write;
mod xattr;

/// Calls a macro with the names of all targets; those that must be clean before a release come first.
#[macro_export]
macro_rules! with_targets {
    ($macro:ident) => {
        $macro![
            walk,
            write,
            superblock,
            inode,
            extent,
            directory,
            xattr,
            group_desc,
            indirect,
            small,
            tar,
            spec,
            disk_spec,
            container,
            contexts,
            check,
            salvage,
            journal,
            fast_commit,
            synced,
            shift,
            requests,
            quota,
            map_write,
            inline_write,
            fold_write,
            quota_write,
            nbd,
            manifest,
            lvm,
            disk,
        ];
    };
}

/// What a target does with an input.
pub type Target = fn(&[u8]);

macro_rules! table {
    ($($name:ident),* $(,)?) => {
        /// The names of the targets.
        pub const NAMES: &[&str] = &[$(stringify!($name)),*];
        /// The targets, in the order of [`NAMES`].
        const TARGETS: &[Target] = &[$($name::target),*];
    };
}
with_targets!(table);

/// The target of a name. Asked for by a constant, it is the only one that a program is linked with.
#[must_use]
pub const fn named(name: &str) -> Option<Target> {
    let mut at = 0;
    while at < NAMES.len() {
        if is_same(NAMES[at].as_bytes(), name.as_bytes()) {
            return Some(TARGETS[at]);
        }
        at += 1;
    }
    None
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}
