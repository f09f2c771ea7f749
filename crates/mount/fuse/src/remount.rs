//! Changes a mount in place: `mount -o remount`.
//!
//! Whether the mount is read-only, and whether set-ID bits, programs and device nodes are honoured, is up to
//! the kernel: [`remount`] passes that on. Everything else was fixed with the server when it was mounted:
//! [`MountOptions::check_remount`] finds an option that would change that, which is refused by name.
//!
//! Hazard: a list can hold more than the user gave. `mount` adds the options of the mount table and of
//! `fstab`, and `mount.fuse` adds `dev,suid`.

use crate::mountinfo::{MountedImage, mount_flags};
use crate::options::{BadOption, MountOptions};
use crate::root::is_root;
use rustix::mount::{MountFlags, mount_remount};
use std::io;

/// The option that requests it.
pub const REMOUNT: &str = "remount";
/// Options that the mount table shows for every mount, or for every one of root's.
const OF_THE_TABLE: [&str; 7] =
    [REMOUNT, "relatime", "default_permissions", "user_id", "group_id", "blksize", "fsname"];

impl MountOptions {
    /// Whether a list can be added to the options of an existing mount.
    ///
    /// # Errors
    /// The first option that is unknown, or that requests a change that can't be made.
    pub fn check_remount(&self, list: &str) -> Result<(), BadOption> {
        let mut all = self.clone();
        for option in list.split(',') {
            if OF_THE_TABLE.contains(&option.split('=').next().unwrap_or_default()) {
                continue;
            }
            let before = all.clone();
            all.add(option)?;
            let fixed = Self {
                read_only: all.read_only,
                dev: all.dev,
                suid: all.suid,
                allow_dev: all.allow_dev,
                allow_suid: all.allow_suid,
                exec: all.exec,
                notes: all.notes.clone(), // an option without effect has none now, either
                ..before
            };
            let bad = |reason: &str| BadOption { option: option.to_owned(), reason: reason.to_owned() };
            if fixed != all {
                return Err(bad("it can't change while it is mounted: unmount, and mount with it"));
            }
            if self.read_only && !all.read_only {
                return Err(bad("it was mounted to take no change: unmount, and mount with rw"));
            }
        }
        Ok(())
    }
}

/// Applies a list of options, already approved by the server, in the kernel. With `added`, `dev` and `suid`
/// don't count, as `mount.fuse` adds them.
///
/// # Errors
/// If this process is not root, or the kernel refuses: files open for writing keep a mount from becoming
/// read-only.
pub fn remount(mounted: &MountedImage, list: &str, added: bool) -> io::Result<()> {
    if !is_root() {
        return Err(io::Error::other("only root may remount"));
    }
    let flags = list.split(',').fold(mount_flags(mounted)?, |flags, option| changed(flags, option, added));
    Ok(mount_remount(&mounted.dir, flags, "")?)
}

fn changed(flags: MountFlags, option: &str, added: bool) -> MountFlags {
    match option {
        "ro" => flags | MountFlags::RDONLY,
        "rw" => flags - MountFlags::RDONLY,
        "nodev" => flags | MountFlags::NODEV,
        "nosuid" => flags | MountFlags::NOSUID,
        "noexec" => flags | MountFlags::NOEXEC,
        "exec" => flags - MountFlags::NOEXEC,
        "dev" if added => flags,
        "suid" if added => flags,
        "dev" | "allow_dev" => flags - MountFlags::NODEV,
        "suid" | "allow_suid" => flags - MountFlags::NOSUID,
        _ => flags,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(list: &str) -> MountOptions {
        let mut options = MountOptions::default();
        options.add(list).unwrap();
        options
    }

    #[test]
    fn what_can_not_change_is_refused_by_name() {
        let mounted = options("commit=30,allow_other");
        let table =
            "remount,rw,relatime,user_id=0,group_id=0,default_permissions,allow_other,max_read=524288";
        for list in [
            "remount,ro",
            "remount,ro,nosuid,commit=30",
            "remount,allow_suid,noexec",
            "remount,ro,barrier=1",
            table,
        ] {
            assert_eq!(mounted.check_remount(list), Ok(()), "{list}");
        }
        for (list, told) in [
            ("remount,ro,commit=5", "mount option 'commit=5': it can't change while it is mounted"),
            ("remount,noatime", "mount option 'noatime': it can't change while it is mounted"),
            ("remount,quickly", "mount option 'quickly': there is no such option"),
        ] {
            let error = mounted.check_remount(list).unwrap_err().to_string();
            assert!(error.starts_with(told), "{error}");
        }
        let error = options("ro").check_remount("remount,rw").unwrap_err().to_string();
        assert!(error.contains("unmount, and mount with rw"), "{error}");
    }

    #[test]
    fn what_mount_fuse_adds_does_not_count() {
        let off = MountFlags::NODEV | MountFlags::NOSUID;
        let after =
            |list: &str, added| list.split(',').fold(off, |flags, option| changed(flags, option, added));
        assert_eq!(after("remount,ro,dev,suid", true), off | MountFlags::RDONLY);
        assert_eq!(after("remount,dev,suid", false), MountFlags::empty());
        assert_eq!(after("allow_dev,suid", true), MountFlags::NOSUID);
    }
}
