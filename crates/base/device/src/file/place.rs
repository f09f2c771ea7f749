//! Where a new file may be made: not among the host's device nodes, nor on a file system of the kernel's own.
//!
//! A target such as `/dev/sdb`, of a disk that does not exist, would otherwise become a regular file that
//! fills the host's memory, and the next program takes it for the disk. Existing files are not checked.

use crate::beside::parent_of;
use crate::{Error, Operation, Reason, Result};
use rustix::io::Errno;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// File systems that the kernel makes up (numbers of statfs(2) and `linux/magic.h`): proc, sysfs, devpts,
/// cgroup and cgroup2, debugfs, tracefs, securityfs, configfs, bpf, pstore, efivarfs, fusectl, mqueue,
/// binfmt_misc, selinuxfs.
const MADE_UP: [u32; 16] = [
    0x9fa0,
    0x6265_6572,
    0x1cd1,
    0x0027_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0x6265_6570,
    0xcafe_4a11,
    0x6165_676c,
    0xde5e_81e4,
    0x6573_5543,
    0x1980_0202,
    0x4249_4e4d,
    0xf97c_ff8c,
];
const DEV: &str = "/dev";
/// What lies below it and is meant for files.
const DEV_FILES: &str = "/dev/shm";
/// As many symbolic links as the kernel follows.
const LINKS_MAX: usize = 40;

/// Refuses to make a file at a path that does not exist and lies where none may be made. Symbolic links are
/// followed, those that lead nowhere, too.
///
/// # Errors
/// [`Reason::NotADevice`] with what to do. Whatever else is wrong with the path is left for its opening to
/// find.
pub fn check(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    if !matches!(rustix::fs::stat(path), Err(Errno::NOENT)) {
        return Ok(());
    }
    let Some(parent) = folder_of(path) else { return Ok(()) };
    let refuse =
        |what| Err(Error::new(&path.to_string_lossy(), Operation::Create, None, Reason::NotADevice(what)));
    if is_made_up(&parent) {
        return refuse("there is no such file, and none can be made on a file system of the kernel's own");
    }
    if is_among_devices(&parent) {
        return refuse("there is no such device, and no file is made among devices; is it attached?");
    }
    Ok(())
}

/// The directory in which opening a path would make a file.
fn folder_of(path: &Path) -> Option<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let folder = parent_of(&path).canonicalize().ok()?;
        match std::fs::read_link(&path) {
            Ok(target) => path = folder.join(target),
            Err(_) => return Some(folder),
        }
    }
    None
}

fn is_made_up(folder: &Path) -> bool {
    let kind = rustix::fs::statfs(folder).map(|stat| crate::os::magic_of(&stat));
    kind.is_ok_and(|kind| MADE_UP.contains(&kind))
}

/// Whether a directory is that of devices, or on the file system mounted there: devtmpfs calls itself
/// tmpfs.
fn is_among_devices(folder: &Path) -> bool {
    let device = |path: &Path| std::fs::metadata(path).ok().map(|meta| meta.dev());
    let here = device(folder);
    if here.is_none() || here != device(Path::new(DEV)) {
        return false;
    }
    let is_mounted = here != device(Path::new("/"));
    (is_mounted || folder.starts_with(DEV)) && !folder.starts_with(DEV_FILES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_no_file_is_made_among_devices() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/hectare-no-such-disk", &link).unwrap();
        for (path, words) in [
            (Path::new("/dev/hectare-no-such-disk"), "is it attached?"),
            (&link, "is it attached?"),
            (Path::new("/dev/../dev/hectare-no-such-disk"), "is it attached?"),
            (Path::new("/proc/hectare"), "of the kernel's own"),
            (Path::new("/sys/hectare"), "of the kernel's own"),
        ] {
            let error = check(path).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        for path in [Path::new("/dev/null"), &folder.path().join("new"), Path::new("/no/such/folder/x")] {
            check(path).unwrap();
        }
        if Path::new(DEV_FILES).is_dir() {
            check(Path::new("/dev/shm/hectare-new")).unwrap();
        }
    }
}
