//! Temporary directories that are removed after their process has ended, however it ended; and one of this
//! process for mount points, cached images and configuration.
//!
//! A static is never dropped, and a killed process drops nothing. So who makes a directory holds a lock on
//! it, and first removes those of the same name whose lock is free: their owner is gone. What such an owner
//! left mounted there is unmounted first. Who removes a directory holds its lock: of many processes that
//! begin at once only one does it, and if that is killed, the next continues.
//!
//! Hazard: only directories whose name has this form and that belong to this user are touched.

use crate::tool;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const NAME: &str = "hectare-test";
const MEMORY: &str = "/dev/shm";

/// A directory, locked as long as this value lives.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) folder: PathBuf,
    _lock: File,
}

impl Owned {
    /// Makes a directory below `parent`, named `NAME.PROCESS.ANYTHING`.
    pub(crate) fn new(parent: &Path, name: &str) -> io::Result<Self> {
        // Locked before it gets its name, so that no other process ever sees it without its owner.
        let prefix = format!(".{name}-new.");
        let mut hidden = tempfile::Builder::new();
        hidden.prefix(&prefix).permissions(Permissions::from_mode(0o755)); // for jobs with other users
        let hidden = hidden.tempdir_in(parent)?;
        let lock = File::open(hidden.path())?;
        lock.try_lock().map_err(io::Error::from)?;
        let folder = parent.join(format!("{name}.{}.{:08x}", std::process::id(), nonce()));
        fs::rename(hidden.keep(), &folder)?;
        Ok(Self { folder, _lock: lock })
    }

    /// Removes it now, with what is mounted in it.
    pub(crate) fn remove(&self) {
        remove(&self.folder);
    }
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
    let memory = PathBuf::from(MEMORY);
    let stat = rustix::fs::statvfs(&memory).ok()?;
    rustix::fs::access(&memory, rustix::fs::Access::WRITE_OK).ok()?;
    (stat.f_bavail.saturating_mul(stat.f_frsize) >= bytes).then_some(memory)
}

/// This process's directory, made on first use.
///
/// # Panics
/// If it can't be made.
pub fn folder() -> &'static Path {
    &owned().folder
}

/// Removes this process's directory, which the next one would do: for the end of a process.
pub fn leave_nothing() {
    owned().remove();
}

fn owned() -> &'static Owned {
    static OWNED: OnceLock<Owned> = OnceLock::new();
    OWNED.get_or_init(|| {
        sweep();
        let made = Owned::new(&parent(), NAME);
        made.unwrap_or_else(|error| panic!("can't make a directory for temporary files: {error}"))
    })
}

fn nonce() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.subsec_nanos()).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed))
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

/// Removes the directories of processes that are gone, with what they left mounted, wherever they were.
/// Failures are left for later.
pub fn sweep() {
    for parent in [Path::new(MEMORY), &std::env::temp_dir()] {
        sweep_in(parent, NAME);
    }
}

/// Removes those of a name below one directory.
pub(crate) fn sweep_in(parent: &Path, name: &str) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let ours = has_form(&entry.file_name().to_string_lossy(), name)
            && entry.metadata().is_ok_and(|m| m.is_dir() && m.uid() == rustix::process::geteuid().as_raw());
        if ours
            && let Ok(lock) = File::open(entry.path())
            && lock.try_lock().is_ok()
        {
            remove(&entry.path());
        }
    }
}

fn has_form(found: &str, name: &str) -> bool {
    let numbers = found.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')?.split_once('.'));
    numbers.is_some_and(|(process, any)| {
        process.parse::<u32>().is_ok() && u32::from_str_radix(any, 16).is_ok() && any.len() == 8
    })
}

/// Removes a directory whose lock this process holds.
fn remove(folder: &Path) {
    let Ok(folder) = folder.canonicalize() else { return };
    // What is mounted on another mount comes after it.
    for point in mounts_below(&folder).iter().rev() {
        if let Some(mut umount) = tool("umount") {
            tool::run(umount.arg("-l").arg(point));
        }
    }
    // Never through a mount that stays: its files may be evidence, or not ours at all.
    if mounts_below(&folder).is_empty() {
        let _ = fs::remove_dir_all(folder); // the next sweep tries again
    }
}

fn mounts_below(folder: &Path) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // Field 5 is the mount point, with escapes.
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(|point| {
        let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
        let unescaped = escapes.iter().fold(point.to_owned(), |text, (from, to)| text.replace(from, to));
        PathBuf::from(unescaped)
    });
    points.filter(|point| point.starts_with(folder)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{skip, until};

    #[test]
    fn a_sweep_removes_the_abandoned_wherever_they_are_and_keeps_the_living() {
        let mine = folder();
        let parents = [Path::new(MEMORY), &std::env::temp_dir()];
        let dead = parents.map(|parent| parent.join(format!("{NAME}.0.{:08x}", nonce())));
        for dead in &dead {
            fs::create_dir(dead).unwrap();
            fs::write(dead.join("left"), "x").unwrap();
        }
        sweep();
        until(|| !dead.iter().any(|dead| dead.exists())); // another process may be at it
        assert!(mine.is_dir());
        assert_ne!(fresh("a"), fresh("a"));
    }

    #[test]
    fn names_of_another_form_are_not_ours() {
        assert!(has_form("a.7.0000abcd", "a"));
        for other in ["a.7", "a.x.0000abcd", "a.7.abcd", "a-b.7.0000abcd", "a.7.0000abcd.x"] {
            assert!(!has_form(other, "a"), "{other}");
        }
    }

    #[test]
    fn what_is_mounted_in_a_directory_is_unmounted_and_not_emptied() {
        let (outside, inside) = (fresh("out"), Owned::new(folder(), "mounts").unwrap());
        let point = inside.folder.join("a point");
        fs::create_dir_all(&outside).unwrap();
        fs::create_dir(&point).unwrap();
        fs::write(outside.join("kept"), "x").unwrap();
        let Some(mut mount) = tool("mount") else {
            skip!("scratch::what_is_mounted", "mount is not installed")
        };
        let said = tool::run(mount.arg("--bind").args([&outside, &point]));
        if !said.succeeded() {
            skip!("scratch::what_is_mounted", said.stderr);
        }
        inside.remove();
        assert!(!inside.folder.exists() && outside.join("kept").exists());
    }
}
