//! File locks that a user's test processes share: several run at once, and some of what they use belongs to the
//! machine.
//!
//! The files lie in one directory whatever `TMPDIR` says, and are never removed: another process may be about to
//! lock one. A lock ends with its process, however that ends.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

/// The file of a lock, made on first use.
fn file(name: &str) -> io::Result<File> {
    let folder = PathBuf::from(format!("/tmp/hectare-oracle-locks.{}", rustix::process::geteuid().as_raw()));
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => File::options().create(true).write(true).truncate(false).open(folder.join(name)),
    }
}

/// A lock of a name; panics if there is no such file to be had.
#[track_caller]
pub(crate) fn named(name: &str) -> File {
    file(name).unwrap_or_else(|error| panic!("can't open the lock {name}: {error}"))
}
