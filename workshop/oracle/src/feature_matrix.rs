//! The volumes to read: mke2fs arguments for every feature and block size that matters.
//!
//! Each [`Combo`] names one. Whether the kernel here can mount it is tested by mounting an empty one, once
//! per process; the result is no constant (it depends on the kernel's version, its configuration and the page
//! size).

mod drawn;

pub use drawn::{Drawn, drawn};

use crate::e2fsprogs::own_uuid;
use crate::mount::KernelMount;
use crate::{Skip, debugfs_write, mke2fs, scratch};
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};

/// One way to make a volume.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Combo {
    /// Its name, for test names.
    pub name: &'static str,
    /// The arguments of mke2fs, without image and size.
    pub args: &'static [&'static str],
    /// The size given to mke2fs.
    pub size: &'static str,
    /// Bytes in a block.
    pub block_size: u32,
    /// Bytes in an inode. 128-byte inodes hold times to the second only.
    pub inode_size: u16,
    /// Whether it maps files by extents; otherwise by indirect blocks.
    pub extents: bool,
}

macro_rules! combo {
    ($name:literal, $kind:literal, $block:literal, $inode:literal, $extents:literal, $size:literal
     $(, $($arg:literal)+)?) => {
        Combo {
            name: $name,
            args: &["-t", $kind, "-b", stringify!($block), "-I", stringify!($inode) $($(, $arg)+)?],
            size: $size,
            block_size: $block,
            inode_size: $inode,
            extents: $extents,
        }
    };
}

// Name, type, block size, inode size, extents, volume size, further arguments. One row each.
#[rustfmt::skip]
const COMBOS: &[Combo] = &[
    combo!("ext2", "ext2", 4096, 256, false, "64M"),
    combo!("ext2-1k-128", "ext2", 1024, 128, false, "64M"),
    combo!("ext2-rev-0", "ext2", 1024, 128, false, "64M", "-r" "0" "-O" "none"),
    combo!("ext2-plain", "ext2", 1024, 128, false, "64M", "-O" "^dir_index,^resize_inode,^large_file"),
    combo!("ext2-no-filetype", "ext2", 2048, 128, false, "64M", "-O" "^filetype"),
    combo!("ext3", "ext3", 4096, 256, false, "64M"),
    combo!("ext3-1k", "ext3", 1024, 128, false, "64M"),
    combo!("ext4", "ext4", 4096, 256, true, "64M"),
    combo!("ext4-1k", "ext4", 1024, 256, true, "64M"),
    combo!("ext4-2k", "ext4", 2048, 256, true, "64M"),
    combo!("ext4-64k", "ext4", 65536, 256, true, "256M", "-N" "8192"),
    combo!("ext4-inode-128", "ext4", 4096, 128, true, "64M"),
    combo!("ext4-inode-512", "ext4", 4096, 512, true, "64M"),
    combo!("ext4-inode-1024", "ext4", 4096, 1024, true, "64M"),
    combo!("ext4-inode-1024-1k", "ext4", 1024, 1024, true, "64M"),
    combo!("no-csum", "ext4", 4096, 256, true, "64M", "-O" "^metadata_csum"),
    combo!("uninit-bg", "ext4", 4096, 256, true, "64M", "-O" "^metadata_csum,uninit_bg"),
    combo!("uninit-bg-1k", "ext4", 1024, 256, true, "64M", "-O" "^metadata_csum,uninit_bg,^64bit"),
    combo!("csum-seed", "ext4", 4096, 256, true, "64M", "-O" "metadata_csum_seed"),
    combo!("meta-bg", "ext4", 4096, 256, true, "64M", "-O" "meta_bg,^resize_inode"),
    combo!("meta-bg-1k", "ext4", 1024, 256, true, "256M", "-g" "1024" "-O" "meta_bg,^resize_inode,^flex_bg"),
    combo!("no-flex-bg", "ext4", 1024, 256, true, "64M", "-O" "^flex_bg"),
    combo!("sparse-super2", "ext4", 1024, 256, true, "64M", "-O" "sparse_super2,^resize_inode"),
    combo!("no-sparse-super", "ext4", 1024, 256, true, "64M", "-O" "^sparse_super,^resize_inode"),
    combo!("bigalloc", "ext4", 4096, 256, true, "256M", "-O" "bigalloc" "-C" "16384" "-N" "16384"),
    combo!("bigalloc-1k", "ext4", 1024, 256, true, "256M", "-O" "bigalloc" "-C" "16384" "-N" "8192"),
    combo!("no-64bit", "ext4", 4096, 256, true, "64M", "-O" "^64bit"),
    combo!("no-resize-inode", "ext4", 4096, 256, true, "64M", "-O" "^resize_inode"),
    combo!("no-dir-index", "ext4", 1024, 256, true, "64M", "-O" "^dir_index"),
    combo!("large-dir", "ext4", 1024, 256, true, "64M", "-O" "large_dir"),
    combo!("inline-data", "ext4", 4096, 256, true, "64M", "-O" "inline_data"),
    combo!("inline-data-512", "ext4", 1024, 512, true, "64M", "-O" "inline_data"),
    combo!("inline-data-1024", "ext4", 4096, 1024, true, "64M", "-O" "inline_data"),
    combo!("ea-inode", "ext4", 4096, 256, true, "64M", "-O" "ea_inode"),
    combo!("orphan-file", "ext4", 4096, 256, true, "64M", "-O" "orphan_file"),
    combo!("mmp", "ext4", 4096, 256, true, "64M", "-O" "mmp" "-E" "mmp_update_interval=1"),
    combo!("no-journal", "ext4", 4096, 256, true, "64M", "-O" "^has_journal"),
    combo!("fast-commit", "ext4", 4096, 256, true, "64M", "-O" "fast_commit"),
    combo!("no-extents", "ext4", 4096, 256, false, "64M", "-O" "^extents,^64bit"),
    combo!("no-filetype", "ext4", 4096, 256, true, "64M", "-O" "^filetype"),
    combo!("no-extra-isize", "ext4", 4096, 256, true, "64M", "-O" "^extra_isize,^dir_nlink,^huge_file"),
    combo!("quota", "ext4", 4096, 256, true, "64M", "-O" "quota"),
    combo!("project", "ext4", 4096, 256, true, "64M", "-O" "quota,project"),
    combo!("casefold", "ext4", 4096, 256, true, "64M", "-O" "casefold" "-E" "encoding=utf8"),
    combo!("encrypt", "ext4", 4096, 256, true, "64M", "-O" "encrypt,stable_inodes"),
    combo!("verity", "ext4", 4096, 256, true, "64M", "-O" "verity"),
    combo!("stripe", "ext4", 4096, 256, true, "64M", "-E" "stride=16,stripe_width=64"),
    combo!("packed-meta", "ext4", 4096, 256, true, "256M", "-G" "4" "-E" "packed_meta_blocks=1"),
    combo!("eager-itable", "ext4", 4096, 256, true, "64M", "-E" "lazy_itable_init=0,lazy_journal_init=0"),
    combo!("lazy-itable", "ext4", 4096, 256, true, "64M", "-E" "lazy_itable_init=1,lazy_journal_init=1"),
    combo!("small-groups", "ext4", 1024, 256, true, "64M", "-g" "512" "-G" "8"),
    combo!("modern", "ext4", 4096, 256, true, "64M", "-O" "metadata_csum_seed,orphan_file,ea_inode"),
];

/// All of them.
#[must_use]
pub const fn combos() -> &'static [Combo] {
    COMBOS
}

impl Combo {
    /// The combination of a name.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    #[track_caller]
    pub fn named(name: &str) -> Self {
        let found = COMBOS.iter().find(|combo| combo.name == name);
        *found.unwrap_or_else(|| panic!("no combination is named {name}"))
    }

    /// Makes an empty volume.
    ///
    /// # Errors
    /// A [`Skip`] if mke2fs is not installed.
    ///
    /// # Panics
    /// If mke2fs refuses the arguments.
    #[track_caller]
    pub fn make(&self, image: &Path) -> Result<(), Skip> {
        mke2fs(self.args, image, self.size)
    }

    /// Whether a feature is among the arguments.
    #[must_use]
    pub fn has(&self, feature: &str) -> bool {
        self.args.iter().flat_map(|arg| arg.split(',')).any(|name| name == feature)
    }

    /// Whether it has a journal.
    #[must_use]
    pub fn has_journal(&self) -> bool {
        !self.has("ext2") && !self.has("^has_journal")
    }

    /// Whether the kernel here mounts it for writing, with the reason if not.
    ///
    /// # Errors
    /// A [`Skip`] if it can't be asked, or lacks a feature.
    ///
    /// # Panics
    /// If the kernel refuses it for another reason.
    pub fn mountable(&self) -> Result<(), Skip> {
        static KNOWN: LazyLock<Mutex<HashMap<&str, Result<(), Skip>>>> = LazyLock::new(Mutex::default);
        let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known().get(self.name).cloned();
        before.unwrap_or_else(|| {
            let answer = self.ask();
            known().insert(self.name, answer.clone());
            answer
        })
    }

    fn ask(&self) -> Result<(), Skip> {
        crate::mount::can_mount()?;
        let image = scratch::fresh("empty");
        self.make(&image)?;
        let answer = KernelMount::new(&image, "").map(drop);
        let _ = fs::remove_file(&image); // the scratch directory is removed anyway
        answer
    }
}

/// Gives a volume without a journal one on another device, a new file; mke2fs itself takes block devices only.
/// e2fsck looks for a journal by its UUID among all devices of the host: each one has its own.
///
/// # Errors
/// A [`Skip`] if e2fsprogs is not installed.
///
/// # Panics
/// If that fails.
pub fn attach_journal(image: &Path, journal: &Path, block_size: u32) -> Result<(), Skip> {
    let _ = fs::remove_file(journal); // of the volume before
    let uuid = own_uuid();
    mke2fs(&["-O", "journal_dev", "-b", &block_size.to_string(), "-U", &uuid], journal, "32M")?;
    let uuid = format!("ssv journal_uuid {uuid}");
    debugfs_write(image, &["feature has_journal", "ssv journal_inum 0", "ssv journal_dev 1", &uuid])?;
    name_user(image, journal, block_size).unwrap_or_else(|error| panic!("{}: {error}", journal.display()));
    Ok(())
}

/// Enters a volume as the one user of a journal, which the kernel expects.
fn name_user(image: &Path, journal: &Path, block_size: u32) -> std::io::Result<()> {
    let mut user = [0; 16];
    fs::File::open(image)?.read_exact_at(&mut user, 1024 + 0x68)?;
    // The journal's superblock is in the block behind the one with the device's.
    let at = u64::from(block_size.max(2048));
    let journal = fs::File::options().write(true).open(journal)?;
    journal.write_all_at(&1_u32.to_be_bytes(), at + 0x40)?;
    journal.write_all_at(&user, at + 0x100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{dumpe2fs, e2fsck, skip, skip_part, superblock};
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_many() {
        let names: BTreeSet<_> = combos().iter().map(|combo| combo.name).collect();
        assert_eq!(names.len(), combos().len());
        assert!(names.len() >= 28);
    }

    #[test]
    fn each_is_what_it_says_and_clean() {
        if let Err(reason) = crate::tool::need("mke2fs") {
            skip!("feature_matrix::each_is_what_it_says_and_clean", reason);
        }
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        for combo in combos() {
            let _ = fs::remove_file(&image);
            combo.make(&image).unwrap();
            let dump = dumpe2fs(&image).unwrap();
            assert_eq!(dump.number("Block size"), u64::from(combo.block_size), "{}", combo.name);
            // Revision 0 has no such field; its inodes have 128 bytes.
            let inode_size =
                if dump.fields.contains_key("Inode size") { dump.number("Inode size") } else { 128 };
            assert_eq!(inode_size, u64::from(combo.inode_size), "{}", combo.name);
            assert_eq!(dump.has("extent"), combo.extents, "{}", combo.name);
            assert_eq!(superblock::read(&image).unwrap().block_size, u64::from(combo.block_size));
            let report = e2fsck(&image).unwrap();
            assert!(report.clean, "{}: {}", combo.name, report.output);
        }
    }

    #[test]
    fn the_kernel_mounts_most() {
        if let Err(reason) = crate::mount::can_mount() {
            skip!("feature_matrix::the_kernel_mounts_most", reason);
        }
        let mut mounted = 0;
        for combo in combos() {
            match combo.mountable() {
                Ok(()) => mounted += 1,
                Err(reason) => skip_part!(format!("combos, {}", combo.name), reason),
            }
        }
        assert!(mounted >= 28, "only {mounted}");
        assert!(Combo::named("ext4").mountable().is_ok());
    }
}
