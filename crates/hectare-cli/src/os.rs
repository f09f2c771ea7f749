//! What the command line uses of the operating system, with one implementation for Linux and one of the
//! standard library for every other host (and for Linux with `--cfg hectare_portable`).
//!
//! Bytes and names, open files and errors come from [`hectare_device::os`], metadata from `hectare-host`;
//! copying out of and into directories of the host has a directory of its own (`copy/host`). What needs
//! Linux altogether is in `command/for_linux.rs`.
//!
//! - Arguments are Unicode where the host's names are: one that is not is refused before it is parsed
//!   ([`check_arguments`]), so no path of the host is ever made of a part of one.
//! - A drive letter belongs to the path, not to what ends at a colon ([`drive_len`]).

#[cfg(all(target_os = "linux", not(hectare_portable)))]
mod linux;
#[cfg(not(all(target_os = "linux", not(hectare_portable))))]
mod portable;
#[cfg(unix)]
mod signals;
#[cfg(windows)]
mod signals_windows;

#[cfg(all(target_os = "linux", not(hectare_portable)))]
pub(crate) use linux::{
    FUSE_PROTOCOL, RANDOM, allocated, block_devices, caller, device_number, ending_signals,
    explanation_of_mount, identity_of, is_block_device, is_mount, is_open, is_root, is_stream, limit_memory,
    memory_limit, new_file, note_umask, open_files, owner, random_uuid, same_file, sync_directory, times,
    umask,
};
#[cfg(all(unix, not(all(target_os = "linux", not(hectare_portable)))))]
pub(crate) use portable::ending_signals;
#[cfg(not(all(target_os = "linux", not(hectare_portable))))]
pub(crate) use portable::{
    FUSE_PROTOCOL, RANDOM, allocated, block_devices, caller, device_number, explanation_of_mount,
    identity_of, is_block_device, is_mount, is_open, is_root, is_stream, limit_memory, memory_limit,
    new_file, note_umask, open_to_set_times, owner, random_uuid, same_file, set_mode, set_owner, symlink,
    sync_directory, times, umask,
};
#[cfg(unix)]
pub(crate) use signals::Ending;
#[cfg(windows)]
pub(crate) use signals_windows::Ending;

use crate::failure::{Failure, Outcome};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// Refuses arguments that are no names on this host.
pub(crate) fn check_arguments(arguments: &[OsString]) -> Outcome {
    match arguments.iter().find(|word| hectare_device::os::name_bytes(word).is_err()) {
        Some(word) => Err(Failure::Usage(format!("{}: it is not Unicode", word.display()))),
        None => Ok(()),
    }
}

/// A path without links, also that of a file that is not there in a directory that is.
fn resolved(path: &Path) -> PathBuf {
    let parent = path.parent().map(|parent| if parent == Path::new("") { Path::new(".") } else { parent });
    let beside = || Some(parent?.canonicalize().ok()?.join(path.file_name()?));
    path.canonicalize().ok().or_else(beside).unwrap_or_else(|| path.to_owned())
}

/// The length of the drive or share that a path begins with (`C:`); 0 on hosts that have none.
pub(crate) fn drive_len(path: &Path) -> usize {
    match path.components().next() {
        Some(Component::Prefix(prefix)) => prefix.as_os_str().len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_are_parts_of_paths() {
        let len = |path: &str| drive_len(Path::new(path));
        assert_eq!([len("a:b"), len("/c:"), len("")], [if cfg!(windows) { 2 } else { 0 }, 0, 0]);
        assert_eq!(len(r"C:\x.img:/etc"), if cfg!(windows) { 2 } else { 0 });
        assert_eq!(len(r"\\?\C:\x.img:/etc"), if cfg!(windows) { 6 } else { 0 });
    }

    #[test]
    fn what_a_new_file_gets_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let stat = hectare_host::Folder::open(folder.path()).unwrap().stat_itself().unwrap();
        assert_eq!(owner().0, stat.uid);
        assert!(same_file(folder.path(), &folder.path().join(".")));
        assert!(!same_file(folder.path(), &std::env::temp_dir()));
    }

    #[test]
    fn no_two_uuids_are_the_same() {
        assert_ne!(random_uuid().unwrap(), random_uuid().unwrap());
    }
}
