//! Linux: system calls, by `rustix` and the standard library, and the mounts of this program.

use hectare_engine::{Explanation, Timestamp};
pub(crate) use hectare_fuse::ending_signals;
use hectare_host::Identity;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::SIGABRT;
use std::collections::HashSet;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// The version of FUSE that is spoken.
pub(crate) const FUSE_PROTOCOL: Option<(u32, u32)> = Some(hectare_fuse::PROTOCOL);

/// Where random bytes come from.
pub(crate) const RANDOM: &str = "/dev/urandom";

const BLOCK_DEVICES: &str = "/sys/class/block";
/// Taken if the umask was not noted.
const UMASK: u16 = 0o022;

static MASK: OnceLock<u16> = OnceLock::new();

/// Reads the process's umask. The system only lets it be read by setting it, so this comes before any
/// thread.
pub(crate) fn note_umask() {
    let mask = rustix::process::umask(Mode::empty());
    rustix::process::umask(mask);
    let _ = MASK.set(u16::try_from(mask.bits() & 0o777).unwrap_or(UMASK));
}

/// The process's umask.
pub(crate) fn umask() -> u16 {
    MASK.get().copied().unwrap_or(UMASK)
}

/// The owner and group of what this process makes.
pub(crate) fn owner() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// The user and group who called it.
pub(crate) fn caller() -> (u32, u32) {
    (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
}

/// Whether it may do anything on the host.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The limit of the process's memory, if there is one.
pub(crate) fn memory_limit() -> Option<u64> {
    getrlimit(Resource::Data).current
}

/// Sets that limit, permanently; an abort then ends with exit code 1.
pub(crate) fn limit_memory(bytes: u64) -> io::Result<()> {
    setrlimit(Resource::Data, Rlimit { current: Some(bytes), maximum: Some(bytes) })?;
    let always = Arc::new(AtomicBool::new(true));
    signal_hook::flag::register_conditional_shutdown(SIGABRT, 1, always).map(drop)
}

/// Makes a new file, for which no link is followed, with this mode.
pub(crate) fn new_file(path: &Path, mode: u16) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(mode.into()).open(path)
}

/// Whether it is a block device.
pub(crate) fn is_block_device(metadata: &Metadata) -> bool {
    metadata.file_type().is_block_device()
}

/// Major and minor number of a device.
pub(crate) fn device_number(metadata: &Metadata) -> (u32, u32) {
    (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()))
}

/// Whether two paths lead to one file, or would if it was made.
pub(crate) fn same_file(a: &Path, b: &Path) -> bool {
    match (fs::metadata(a), fs::metadata(b)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => super::resolved(a) == super::resolved(b),
    }
}

/// The regular files and block devices that this process has open: images, what they rest on, its outputs. None
/// are known without `/proc`.
pub(crate) fn open_files() -> HashSet<Identity> {
    let numbers = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    numbers.filter_map(|number| identity(&fs::metadata(number.path()).ok()?)).collect()
}

/// Whether this process has a file open.
pub(crate) fn is_open(path: &Path) -> bool {
    identity_of(path).is_some_and(|found| open_files().contains(&found))
}

/// Which regular file or block device a path leads to.
pub(crate) fn identity_of(path: &Path) -> Option<Identity> {
    identity(&fs::metadata(path).ok()?)
}

fn identity(meta: &Metadata) -> Option<Identity> {
    let counts = meta.is_file() || is_block_device(meta);
    counts.then(|| Identity { device: meta.dev(), inode: meta.ino() })
}

/// Whether it is written to and never replaced: a terminal, a pipe, or another device without blocks.
pub(crate) fn is_stream(path: &Path) -> bool {
    let kind = fs::metadata(path).map(|meta| meta.file_type());
    kind.is_ok_and(|kind| kind.is_char_device() || kind.is_fifo())
}

/// The bytes that a file takes.
pub(crate) fn allocated(metadata: &Metadata) -> Option<u64> {
    Some(metadata.blocks().saturating_mul(512))
}

/// The times of access and of change.
pub(crate) fn times(metadata: &Metadata) -> (Timestamp, Timestamp) {
    let at = |seconds, nanoseconds: i64| Timestamp {
        seconds,
        nanoseconds: u32::try_from(nanoseconds).unwrap_or_default(),
    };
    (at(metadata.atime(), metadata.atime_nsec()), at(metadata.mtime(), metadata.mtime_nsec()))
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// A UUID of version 4.
pub(crate) fn random_uuid() -> io::Result<[u8; 16]> {
    let mut uuid = [0; 16];
    File::open(RANDOM)?.read_exact(&mut uuid)?;
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Ok(uuid)
}

/// The block devices that have a size, that `/dev` has under their name and number, and that this process
/// may read; one is open at a time.
pub(crate) fn block_devices() -> impl Iterator<Item = (PathBuf, File)> {
    let names = fs::read_dir(BLOCK_DEVICES).into_iter().flatten().flatten();
    names.filter_map(|name| open_device(&name.path()))
}

/// The path of a device of `/sys/class/block`, and the open device.
fn open_device(entry: &Path) -> Option<(PathBuf, File)> {
    let text = |name: &str| fs::read_to_string(entry.join(name)).ok();
    if text("size")?.trim() == "0" {
        return None;
    }
    let path = Path::new("/dev").join(entry.file_name()?.to_str()?.replace('!', "/"));
    let (major, minor) = device_number(&fs::metadata(&path).ok().filter(is_block_device)?);
    if text("dev")?.trim() != format!("{major}:{minor}") {
        return None;
    }
    // Without waiting for a medium.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, Mode::empty()).ok()?;
    Some((path, file.into()))
}

/// Whether a path belongs to a mount of this program.
pub(crate) fn is_mount(path: &Path) -> bool {
    hectare_fuse::mounted_image(path).is_ok()
}

/// The last requests of the mount that a path belongs to; `None` if they are not recorded.
pub(crate) fn explanation_of_mount(path: &Path) -> Result<Option<Explanation>, String> {
    hectare_monitor::explanation(path).map_err(|error| error.to_string())
}
