//! A temporary directory of this process for mount points, cached images and configuration, removed after the
//! process has ended.
//!
//! A static is never dropped, and a killed test drops nothing. So each process holds a file lock inside its
//! directory, and every process first removes the directories whose lock is free: their owner is gone. What
//! such an owner left mounted there is unmounted first. Who removes a directory holds its lock and removes the
//! lock's file last: of many processes that begin at once only one does it, and if that is killed, the next
//! continues.
//!
//! Hazard: only directories with this crate's prefix that belong to this user are touched.

use crate::tool;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

const PREFIX: &str = "hectare-oracle.";
const LOCK: &str = "lock";

struct Owned {
    folder: PathBuf,
    _lock: File, // held as long as the process lives
}

/// Bytes that memory must have free to be used for temporary files.
const ROOMY: u64 = 6 << 30;

/// The parent of temporary directories: `TMPDIR`, else memory if there is plenty, else the system's temporary
/// directory. Volumes for tests are sparse, fragmented and short-lived; a disk, above all one that discards
/// each freed extent at once, takes minutes to delete what memory frees in a moment.
fn parent() -> PathBuf {
    let asked = std::env::var_os("TMPDIR").is_some();
    memory(ROOMY).filter(|_| !asked).unwrap_or_else(std::env::temp_dir)
}

/// A directory in memory, if one can be written to and has this many bytes free.
#[must_use]
pub fn memory(bytes: u64) -> Option<PathBuf> {
    let memory = PathBuf::from("/dev/shm");
    let stat = rustix::fs::statvfs(&memory).ok()?;
    rustix::fs::access(&memory, rustix::fs::Access::WRITE_OK).ok()?;
    (stat.f_bavail.saturating_mul(stat.f_frsize) >= bytes).then_some(memory)
}

/// This process's directory, made on first use.
///
/// # Panics
/// If it can't be made.
pub fn folder() -> &'static Path {
    static OWNED: OnceLock<Owned> = OnceLock::new();
    let owned = OWNED.get_or_init(|| {
        sweep();
        make().unwrap_or_else(|error| panic!("can't make a directory for temporary files: {error}"))
    });
    &owned.folder
}

fn make() -> io::Result<Owned> {
    // Locked before it gets its name, so that no other process ever sees it without its owner.
    let parent = parent();
    let hidden = tempfile::Builder::new().prefix(".hectare-oracle-new.").tempdir_in(&parent)?;
    let lock = File::create(hidden.path().join(LOCK))?;
    lock.try_lock().map_err(io::Error::from)?;
    let folder = parent.join(format!("{PREFIX}{}.{:08x}", std::process::id(), nonce()));
    fs::rename(hidden.keep(), &folder)?;
    Ok(Owned { folder, _lock: lock })
}

fn nonce() -> u32 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.subsec_nanos())
}

/// A path in this process's directory that was never returned before.
///
/// # Panics
/// If the directory can't be made.
#[must_use]
pub fn fresh(stem: &str) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    folder().join(format!("{stem}-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// Removes the directories of processes that are gone, with what they left mounted. Failures are left for
/// later.
pub fn sweep() {
    let Ok(entries) = fs::read_dir(parent()) else { return };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry.metadata().is_ok_and(|m| m.is_dir() && m.uid() == rustix::process::geteuid().as_raw());
        if ours
            && let Ok(lock) = File::open(entry.path().join(LOCK))
            && lock.try_lock().is_ok()
        {
            remove(&entry.path());
        }
    }
}

/// Removes a directory whose lock this process holds, the lock last.
fn remove(folder: &Path) {
    for point in mounts_below(folder) {
        if let Some(mut umount) = tool("umount") {
            tool::run(umount.arg(point));
        }
    }
    // A mount that could not be removed must not be emptied: its files may be evidence.
    if !mounts_below(folder).is_empty() {
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name() != LOCK {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let gone =
                if is_folder { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) };
            if gone.is_err() {
                return; // the next sweep tries again
            }
        }
    }
    let _ = fs::remove_dir_all(folder);
}

fn mounts_below(folder: &Path) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // Field 5 is the mount point; this crate's mount points need no escapes.
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    points.filter(|point| point.starts_with(folder)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::until;

    #[test]
    fn a_sweep_removes_the_abandoned_and_keeps_the_living() {
        let mine = folder();
        let dead = parent().join(format!("{PREFIX}0.{:08x}", nonce()));
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join("left"), "x").unwrap();
        fs::write(dead.join(LOCK), "").unwrap();
        sweep();
        until(|| !dead.exists()); // another process may be at it
        assert!(mine.join(LOCK).exists());
        assert_ne!(fresh("a"), fresh("a"));
    }
}
