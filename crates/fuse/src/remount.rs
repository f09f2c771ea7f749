//! Changing a mount while it is there: `mount -o remount`.
//!
//! Whether it takes changes, and what its programs and device nodes mean, the kernel decides by itself:
//! [`remount`] tells it. All else was settled with whoever serves when it was mounted:
//! [`MountOptions::check_remount`] says whether a list asks for something of that to change, which is refused
//! by name.
//!
//! Hazard: a list can hold more than the user gave. `mount` adds what the table of mounts and `fstab` say of
//! the mount, and `mount.fuse` adds `dev,suid`.

use crate::mount::is_root;
use crate::mountinfo::{MountedImage, mount_flags};
use crate::options::{BadOption, MountOptions};
use rustix::mount::{MountFlags, mount_remount};
use std::io;

/// The option that asks for it.
pub const REMOUNT: &str = "remount";
/// What the table of mounts says of every mount, or of every one of root's.
const OF_THE_TABLE: [&str; 7] =
    [REMOUNT, "relatime", "default_permissions", "user_id", "group_id", "blksize", "fsname"];

impl MountOptions {
    /// Whether a list can be added to the options with which something was mounted, while it is.
    ///
    /// # Errors
    /// The first option that is not known, or that asks for what can't change.
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
                notes: all.notes.clone(), // what changes nothing does so now as well
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

/// Tells the kernel what a list, of which whoever serves the mount approves, changes. With `added`, `dev` and
/// `suid` don't count, as `mount.fuse` adds them.
///
/// # Errors
/// If this process is not root, or the kernel refuses: what is open for writing keeps a mount from becoming
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
