//! Attaches a FUSE connection to a directory, and detaches it.
//!
//! Root mounts directly, other users through `fusermount3`, which is set-user-ID root and returns the
//! descriptor over a socket (its standard input here). Requests of users other than the mounting one are not
//! refused here: the kernel does that already, and the data that its own threads write back comes as root.
//!
//! Root mounts an image as `fuseblk`, on a loop device ([`loops`]). Then the kernel passes on `sync(2)` and
//! `syncfs(2)` (since Linux 6.18), and unmounting waits until the server has closed the volume. Where there
//! are no loop devices, and for users other than root, it is plain `fuse`, which has neither.
//!
//! Hazard: a server must neither use its own mount nor unmount it. A thread that waits for an answer can't be
//! killed, and while it is there its process keeps the connection open: if the process is killed, no request
//! is answered, no caller gets an error, and the mount hangs until root ends it (`umount -f`). So mounts are
//! looked up in the mount table, and another process waits until the kernel has written back what it buffers;
//! where there is a [privileged helper](crate::privileged_helper), it also unmounts.

use crate::event_loop::DEVICE;
use crate::fd_passing::receive;
use crate::loops;
use crate::mountinfo::{device_on, dir_of};
use crate::options::{Atime, MountOptions};
use crate::root::is_root;
use log::{debug, info};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, open, statx};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const HELPER: &str = "fusermount3";
/// The variable that names the descriptor to which `fusermount3` sends the connection, and its value here.
const HELPER_SOCKET: (&str, &str) = ("_FUSE_COMMFD", "0");
/// The subtype in `/proc/mounts`, after `fuse.` or `fuseblk.`.
const SUBTYPE: &str = "hectare";
/// The block size of a `fuseblk` mount: reported to programs as the unit to read and write in. All devices
/// have such blocks.
const BLOCK: u32 = 4096;
/// `AT_STATX_DONT_SYNC` (linux/stat.h), which rustix does not name for musl.
const STATX_DONT_SYNC: AtFlags = AtFlags::from_bits_retain(0x4000);

/// A mounted connection; dropping it detaches it.
pub(crate) struct Mounted {
    dir: PathBuf,
    by_helper: bool,
    /// The file system's device number, major and minor: to check that it is still mounted.
    device: (u32, u32),
    attached: bool,
}

/// The arguments of a mount.
#[derive(Clone, Copy)]
pub struct Mounting<'a> {
    /// The source to show in the mount table: the image's path.
    pub source: &'a str,
    /// The directory to mount on.
    pub dir: &'a Path,
    /// The mount options.
    pub options: &'a MountOptions,
}

/// Opens a connection and attaches it to a directory. With an image, it is mounted as `fuseblk` where
/// possible.
pub(crate) fn attach(what: &Mounting<'_>, image: Option<BorrowedFd<'_>>) -> io::Result<(OwnedFd, Mounted)> {
    let Mounting { source, options, .. } = *what;
    let dir = what.dir.canonicalize()?;
    if !dir.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotADirectory, "it is not a directory"));
    }
    let by_helper = !is_root();
    let connection = if by_helper {
        by_fusermount(source, &dir, options)?
    } else {
        by_root(source, image.filter(|_| options.block), &dir, options)?
    };
    // From here on it is unmounted again if anything fails.
    let mut mounted = Mounted { dir, by_helper, device: (0, 0), attached: true };
    let unseen = || io::Error::other("the new mount is not in the table of mounts; is /proc mounted?");
    mounted.device = device_on(&mounted.dir)?.ok_or_else(unseen)?;
    Ok((connection, mounted))
}

fn by_root(
    source: &str,
    image: Option<BorrowedFd<'_>>,
    dir: &Path,
    options: &MountOptions,
) -> io::Result<OwnedFd> {
    let connection = open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| {
        let error = io::Error::from(errno);
        io::Error::new(error.kind(), format!("{DEVICE}: {error}; try `modprobe fuse`"))
    })?;
    let mut data = format!("fd={},rootmode=40000,user_id=0,group_id=0", connection.as_raw_fd());
    for option in kernel_options(options) {
        data.push(',');
        data.push_str(&option);
    }
    if let Some(image) = image {
        let data = CString::new(format!("{data},blksize={BLOCK}"))?;
        match by_loop(source, image, dir, options, &data) {
            Ok(()) => return Ok(connection),
            Err(error) => info!(error:%; "no fuseblk mount, so plain fuse: sync(1) will not reach it"),
        }
    }
    let data = CString::new(data)?;
    mount(source, dir, format!("fuse.{SUBTYPE}"), flags(options), &*data)?;
    Ok(connection)
}

/// Mounts as `fuseblk` on a loop device, which is removed with the mount.
fn by_loop(
    source: &str,
    image: BorrowedFd<'_>,
    dir: &Path,
    options: &MountOptions,
    data: &CStr,
) -> io::Result<()> {
    let key = loops::attach(image, source, options.read_only)?;
    Ok(mount(&key.path, dir, format!("fuseblk.{SUBTYPE}"), flags(options), data)?)
}

/// The options of the kernel's FUSE.
fn kernel_options(options: &MountOptions) -> Vec<String> {
    let mut told = vec![format!("max_read={}", options.read_max)];
    if checks_permissions(options) {
        told.push("default_permissions".to_owned());
    }
    if options.allow_other {
        told.push("allow_other".to_owned());
    }
    told
}

/// Whether the kernel checks permissions: always where more than one user has access.
pub(crate) fn checks_permissions(options: &MountOptions) -> bool {
    options.default_permissions || options.allow_other || is_root()
}

fn flags(options: &MountOptions) -> MountFlags {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NOEXEC, !options.exec);
    flags.set(MountFlags::NOATIME, options.atime == Atime::Never);
    flags.set(MountFlags::SYNCHRONOUS, options.sync);
    flags.set(MountFlags::DIRSYNC, options.dirsync);
    flags
}

fn by_fusermount(source: &str, dir: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut list = vec![format!("fsname={}", escaped(source)), format!("subtype={SUBTYPE}")];
    list.extend(kernel_options(options));
    for (given, name) in [
        (options.read_only, "ro"),
        (!options.exec, "noexec"),
        (options.sync, "sync"),
        (options.dirsync, "dirsync"),
    ] {
        if given {
            list.push(name.to_owned());
        }
    }
    let helper = Command::new(HELPER)
        .args(["-o", &list.join(","), "--"])
        .arg(dir)
        .env(HELPER_SOCKET.0, HELPER_SOCKET.1)
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("{HELPER}: {error}; install fuse3")))?;
    let received = receive(&ours).map(|(_, connection)| connection);
    let output = helper.wait_with_output()?;
    match received? {
        Some(connection) if output.status.success() => Ok(connection),
        _ => Err(refused(&output)),
    }
}

/// Escapes the name: commas and backslashes would end it.
fn escaped(source: &str) -> String {
    source.replace('\\', "\\\\").replace(',', "\\,")
}

impl Mounted {
    /// Sets what can be set only after a session has begun.
    pub(crate) fn tune(&self, options: &MountOptions) {
        self.read_ahead(options.read_ahead);
        if self.device.0 != 0 {
            self.show_sync();
        }
    }

    /// Calls sync, so that the server sees whether the kernel passes that on. Only in another process.
    fn show_sync(&self) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let synced = open(&self.dir, flags, Mode::empty()).and_then(rustix::fs::syncfs);
        if let Err(error) = synced {
            debug!(error:%; "whether the kernel passes sync on is unknown");
        }
    }

    /// Sets the kernel's readahead: a new mount gets no more than 128 KiB, and large reads are split
    /// accordingly. Only root may change that.
    fn read_ahead(&self, bytes: u32) {
        let (major, minor) = self.device;
        // A fuseblk mount has settings of its own, besides those of its block device.
        let kind = if major == 0 { "" } else { "-fuseblk" };
        let setting = format!("/sys/class/bdi/{major}:{minor}{kind}/read_ahead_kb");
        if let Err(error) = std::fs::write(&setting, (bytes / 1024).to_string()) {
            debug!(setting, error:%; "the readahead is unchanged");
        }
    }

    /// Has the kernel write back what it buffers, and detaches: from the tree at once, and altogether when
    /// the last program has left. Requests must be answered meanwhile. Returns whether the mount could be
    /// reached.
    pub(crate) fn detach(&mut self) -> bool {
        if !std::mem::take(&mut self.attached) {
            return true;
        }
        let Ok(Some(dir)) = dir_of(self.device) else {
            // What covers it can't be unmounted, but written data can be kept.
            self.write_back_all();
            return false;
        };
        self.dir = dir;
        // Another file system may be mounted there when everything is written.
        let held = self.hold();
        self.write_back();
        match held {
            _ if self.by_helper => self.detach_unchecked(),
            Some(root) => return unmount(magic_link(&root), UnmountFlags::DETACH).is_ok(),
            None => return false,
        }
        true
    }

    /// The root of the mount, for a process that may unmount without a helper. Sends no request to the
    /// server.
    fn hold(&self) -> Option<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = open(&self.dir, flags, Mode::empty()).ok().filter(|_| !self.by_helper)?;
        let unasked = AtFlags::EMPTY_PATH | STATX_DONT_SYNC;
        let found = statx(&root, c"", unasked, StatxFlags::empty()).ok()?;
        ((found.stx_dev_major, found.stx_dev_minor) == self.device).then_some(root)
    }

    /// Has the kernel write back what it buffers.
    fn write_back(&self) {
        if sync_elsewhere(&["-f".as_ref(), "--".as_ref(), self.dir.as_os_str()]) {
            return;
        }
        // No such program: better a while in which this process can't be killed than lost data.
        if let Ok(dir) = open(&self.dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        {
            let _ = rustix::fs::syncfs(&dir);
        }
    }

    /// Has the kernel write back all file systems, for want of a name for this one.
    fn write_back_all(&self) {
        if !sync_elsewhere(&[]) {
            rustix::fs::sync();
        }
    }

    fn detach_unchecked(&self) {
        if self.by_helper {
            let _ = Command::new(HELPER).args(["-u", "-q", "-z", "--"]).arg(&self.dir).status();
        } else {
            let _ = unmount(&*self.dir, UnmountFlags::DETACH);
        }
    }

    /// Leaves it alone: it has been unmounted already.
    pub(crate) fn forget(&mut self) {
        self.attached = false;
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.attached {
            self.detach_unchecked();
        }
    }
}

/// A path to the file that a descriptor has open, whatever is at its original path now.
fn magic_link(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// How to unmount, as the options of umount(8).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct How {
    /// Remove it from the tree at once, even if it is in use; it ends when its last user leaves.
    pub lazy: bool,
    /// End unanswered requests with an error (root only).
    pub force: bool,
}

/// Runs `sync`, which can be killed while it waits for us; returns whether that worked.
fn sync_elsewhere(arguments: &[&OsStr]) -> bool {
    let mut sync = Command::new("sync");
    sync.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    sync.status().is_ok_and(|status| status.success())
}

/// Unmounts a directory; by default only if it is not in use.
pub(crate) fn detach(dir: &Path, by_helper: bool, how: How) -> io::Result<()> {
    if !by_helper {
        let mut flags = UnmountFlags::NOFOLLOW;
        flags.set(UnmountFlags::DETACH, how.lazy);
        flags.set(UnmountFlags::FORCE, how.force);
        return Ok(unmount(dir, flags)?);
    }
    let mut helper = Command::new(HELPER);
    helper.arg("-u").args(how.lazy.then_some("-z")).arg("--").arg(dir);
    let output =
        helper.output().map_err(|error| io::Error::new(error.kind(), format!("{HELPER}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(refused(&output))
}

/// The error that the helper reported.
fn refused(output: &Output) -> io::Error {
    let said = String::from_utf8_lossy(&output.stderr);
    io::Error::other(format!("{HELPER} refuses: {}", said.lines().next().unwrap_or("no reason given")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_with_commas_stays_one_option() {
        assert_eq!(escaped("a,b\\c.img"), "a\\,b\\\\c.img");
    }
}
