//! Completes the command line where `mount`, `umount` and `fstab` call the program as their helper.
//!
//! Type `hectare` makes `mount` run `mount.hectare IMAGE DIR -o OPTIONS`, and type `fuse.hectare`
//! `mount.fuse.hectare`, if links of these names are installed (docs/operating.md); otherwise the latter
//! makes it run `mount.fuse3`, and that `hectare IMAGE DIR -o OPTIONS`. `umount` runs `umount.fuseblk.hectare
//! DIR` or `umount.fuse.hectare DIR`. None of them says `hectare mount` or `hectare umount`, which is
//! inserted here. Links with the names of other formatters (mke2fs, mkfs.ext4, mkfs.xfs) run those commands.
//!
//! Hazard: `mount.fuse3` adds `dev,suid` whenever root mounts, so options that come that way are marked as
//! such.

use std::env::consts::EXE_SUFFIX;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Prefixes of the names by which helpers are called, and their commands.
const HELPERS: [(&str, &str); 2] = [("mount.", "mount"), ("umount.", "umount")];
/// Names of formatters, their commands, and the type in the name.
const FORMATTERS: [(&str, &str, Option<&str>); 5] = [
    ("mke2fs", "mke2fs", None),
    ("mkfs.ext2", "mke2fs", Some("ext2")),
    ("mkfs.ext3", "mke2fs", Some("ext3")),
    ("mkfs.ext4", "mke2fs", Some("ext4")),
    ("mkfs.xfs", "mkfs.xfs", None),
];
/// Marks options to which `mount.fuse` has added some.
pub(crate) const ADDED: &str = "by-mount-fuse";

/// The name by which the program was called, without the ending that a host gives programs.
pub(crate) fn called(arguments: &[OsString]) -> Option<String> {
    let name = Path::new(arguments.first()?).file_name()?.to_string_lossy();
    Some(name.strip_suffix(EXE_SUFFIX).unwrap_or(&name).to_owned())
}

/// The arguments, the program's name first, with the implied command inserted.
pub(crate) fn complete(mut arguments: Vec<OsString>, is_command: impl Fn(&OsStr) -> bool) -> Vec<OsString> {
    let called = called(&arguments);
    let helper =
        HELPERS.iter().find(|(start, _)| called.as_ref().is_some_and(|name| name.starts_with(start)));
    let formatter = FORMATTERS.iter().find(|(name, ..)| called.as_deref() == Some(*name));
    if let Some((_, command, named)) = formatter {
        let named = named.map(|named| format!("--named={named}").into());
        arguments.splice(1..1, std::iter::once((*command).into()).chain(named));
    } else if let Some((_, command)) = helper {
        arguments.insert(1, command.into());
    } else if is_mount_form(&arguments, is_command) {
        arguments.splice(1..1, ["mount".into(), format!("--{ADDED}").into()]);
    }
    arguments
}

/// Whether the arguments are an image, a directory, which need not exist, and `-o`.
fn is_mount_form(arguments: &[OsString], is_command: impl Fn(&OsStr) -> bool) -> bool {
    let [_, image, dir, option, _, ..] = arguments else { return false };
    !is_command(image) && option == "-o" && Path::new(dir).is_absolute()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(arguments: &[&str]) -> Vec<OsString> {
        complete(arguments.iter().map(OsString::from).collect(), |name| name == "ls")
    }

    #[test]
    fn what_is_meant_is_put_in() {
        let (mount, by_fuse) = (&["mount"][..], &["mount", "--by-mount-fuse"][..]);
        for (given, put_in) in [
            (&["hectare", "/disk.img", "/", "-o", "rw"][..], by_fuse),
            (&["hectare", "/disk.img", "/no such directory", "-o", "rw"][..], by_fuse),
            (&["/sbin/mount.hectare", "/disk.img", "/"][..], mount),
            (&["/sbin/mount.fuse.hectare", "/disk.img", "/", "-o", "rw,suid"][..], mount),
            (&["/sbin/umount.fuseblk.hectare", "/mnt", "-l"][..], &["umount"][..]),
            (&["/usr/sbin/mkfs.ext4", "-q", "a"][..], &["mke2fs", "--named=ext4"][..]),
            (&["mke2fs", "a"][..], &["mke2fs"][..]),
            (&["./mkfs.xfs", "a"][..], &["mkfs.xfs"][..]),
            (&["mke2fs.real", "ls"][..], &[]),
            (&["hectare", "ls", "/", "-o", "rw"][..], &[]),
            (&["hectare", "/disk.img", "folder", "-o", "rw"][..], &[]),
            (&["hectare", "ls"][..], &[]),
            (&["hectare"][..], &[]),
        ] {
            let expected = [&given[..1], put_in, &given[1..]].concat();
            assert_eq!(completed(given), expected.iter().map(OsString::from).collect::<Vec<_>>());
        }
    }
}
