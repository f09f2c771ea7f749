//! The control socket: how [`ask`] finds the server of a mount, and gets its metrics.
//!
//! A mount's socket is named after the device number of its files, which the kernel gives to no other mount
//! at the time. So an existing socket of that name belongs to a mount that is gone: killed, or off the tree
//! and about to end; it is replaced, and a server that ends removes only its own socket. It lies in a
//! directory that only the mounting user can access ([`folders`]); a client looks into the directories of
//! that user, whom the mount table names, and trusts none that belongs to another. Root can query every
//! mount.
//!
//! A client sends a request in one line and shuts down its side: an empty request returns the [`Report`] as
//! JSON; `explain` returns the record of the last allocation requests, or `null`; `sync` makes everything
//! durable that has reached the server; `remount LIST` checks whether the options can be changed while
//! mounted; `tune NAME=VALUE ...` sets these tunables, all or none. An empty answer means success, a text is
//! the reason why not. `gather INODE` moves the blocks of a file or directory together, `places INODE` only
//! looks; both return a [`GatherReport`] as JSON. `free GROUP`, `extents INODE` and `move ...` are the steps
//! of making free space whole ([`crate::moves`]). One client at a time is sent metrics, for [`PATIENCE`] at
//! most; a request that may take longer has a thread of its own.

use crate::deadline::{connected, read_within};
use crate::moves::{Free, GatherReport, Moved, Refusable};
use crate::report::Report;
use crate::shared::{Shared, json};
use hectare_engine::Explanation;
use hectare_ext4::extent::Extent;
use hectare_fuse::{MountedImage, mounted_image};
use hectare_units::{BlockNr, GroupNr, InodeNr};
use log::{debug, info};
use rustix::fs::{Mode, chmod};
use rustix::net::Shutdown;
use rustix::net::sockopt::socket_peercred;
use serde::de::DeserializeOwned;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long a client, or the server, may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait if there is no descriptor left for a client.
const REST: Duration = Duration::from_millis(100);
/// The longest report, in bytes.
const REPORT_MAX: usize = 16 << 20;
/// The longest record of allocation requests, in bytes: 100,000 events, and 10,000 requests.
const EXPLANATION_MAX: usize = 64 << 20;
/// The longest reason for a refusal, in bytes.
const REFUSAL_MAX: usize = 16 << 10;
/// The longest request: the kernel's limit for the options of a mount.
const REQUEST_MAX: u64 = 4096;
/// How long a client waits for an operation: the data in memory may have to be written to a slow device.
const WORK_PATIENCE: Duration = Duration::from_secs(600);
/// How long no write must come before all writes in flight count as received, and the limit of that wait
/// where programs keep writing.
const QUIET: Duration = Duration::from_millis(20);
const QUIET_PATIENCE: Duration = Duration::from_secs(10);
const EXPLAIN: &str = "explain";
const SYNC: &str = "sync";
const REMOUNT: &str = "remount ";
const TUNE: &str = "tune ";

/// Why a mount did not report its metrics.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// There is no mount of ours.
    #[error(transparent)]
    NotMounted(io::Error),
    /// It is mounted, but there is no socket.
    #[error("its server can't be reached: was it killed, or does it belong to another user?")]
    NoSocket,
    /// There is a socket, but no complete answer in time.
    #[error("its server does not answer: {0}")]
    NoAnswer(io::Error),
    /// The server's reason for a refusal.
    #[error("{0}")]
    Refused(String),
    /// The volume takes no changes any more; the server's reason.
    #[error("{0}")]
    Ended(String),
    /// The answer can't be parsed.
    #[error("its server is of another version: {0}")]
    Odd(serde_json::Error),
}

/// The possible directories for a user's sockets, the best first.
fn folders(user: u32) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| user == rustix::process::geteuid().as_raw());
    folders.extend(own.map(|folder| Path::new(&folder).join("hectare")));
    if user == 0 {
        folders.push("/run/hectare".into());
    }
    folders.push(format!("/run/user/{user}/hectare").into());
    folders.push(format!("/tmp/hectare-{user}").into());
    folders
}

/// Whether a directory is private to a user, and no link.
fn is_private(folder: &Path, user: u32) -> bool {
    folder
        .symlink_metadata()
        .is_ok_and(|found| found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0)
}

fn socket_name((major, minor): (u32, u32)) -> String {
    format!("{major}-{minor}.sock")
}

/// The directory for this user's control sockets: the first that exists, or can be created.
///
/// # Errors
/// If there is none.
pub fn own_folder() -> io::Result<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let made = |folder: &PathBuf| {
        let _ = DirBuilder::new().mode(0o700).create(folder);
        is_private(folder, user)
    };
    let none = || io::Error::new(io::ErrorKind::NotFound, "there is no directory for a control socket");
    folders(user).into_iter().find(made).ok_or_else(none)
}

/// A socket that serves the metrics of a mount; dropping it removes it.
pub(crate) struct Control {
    path: PathBuf,
    /// The socket's inode number, which no other file has while it is open.
    inode: u64,
    listener: Arc<UnixListener>,
    stop: Arc<AtomicBool>,
}

impl Control {
    /// Begins to serve the mount on a directory.
    pub(crate) fn start(dir: &Path, shared: Arc<Shared>) -> io::Result<Self> {
        let path = own_folder()?.join(socket_name(mounted_image(dir)?.device));
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = Arc::new(UnixListener::bind(&path)?);
        chmod(&path, Mode::RUSR | Mode::WUSR)?;
        let inode = path.symlink_metadata()?.ino();
        let stop = Arc::new(AtomicBool::new(false));
        let (accepting, ended) = (Arc::clone(&listener), Arc::clone(&stop));
        let work = move || {
            while !ended.load(Ordering::Acquire) {
                match accepting.accept() {
                    Ok((client, _)) => serve(client, &shared),
                    Err(_) => thread::sleep(REST),
                }
            }
        };
        thread::Builder::new().name("hectare-control".into()).spawn(work)?;
        Ok(Self { path, inode, listener, stop })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // A later mount may have its socket there already.
        if self.path.symlink_metadata().is_ok_and(|found| found.ino() == self.inode) {
            // If that fails, the next mount removes it.
            let _ = std::fs::remove_file(&self.path);
        }
        self.stop.store(true, Ordering::Release);
        // The thread that waits for a client gets an error. A client that is being served is not waited for.
        let _ = rustix::net::shutdown(&self.listener, Shutdown::Both);
    }
}

fn serve(client: UnixStream, shared: &Arc<Shared>) {
    let served = request(&client).and_then(|request| {
        if request.is_empty() {
            return tell(&client, &json(&shared.report()));
        }
        let shared = Arc::clone(shared);
        let work = move || drop(tell(&client, &shared.answer(&request)));
        thread::Builder::new().name("hectare-control-work".into()).spawn(work).map(drop)
    });
    if let Err(error) = served {
        debug!(error:%; "a client of the control socket went away");
    }
}

fn request(client: &UnixStream) -> io::Result<String> {
    client.set_read_timeout(Some(PATIENCE))?;
    let mut text = String::new();
    client.take(REQUEST_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn tell(mut client: &UnixStream, answer: &[u8]) -> io::Result<()> {
    client.set_write_timeout(Some(PATIENCE))?;
    client.write_all(answer)
}

impl Shared {
    /// The answer to a request that may take longer.
    fn answer(&self, request: &str) -> Vec<u8> {
        if request == EXPLAIN {
            return json(&self.watched.volume.explanation());
        }
        if let Some(answer) = self.moving(request) {
            return answer;
        }
        self.work(request).err().unwrap_or_default().into_bytes()
    }

    /// Executes a request, or returns why not.
    fn work(&self, request: &str) -> Result<(), String> {
        if request == SYNC {
            return self.sync().map_err(|error| error.to_string());
        }
        if let Some(given) = request.strip_prefix(TUNE) {
            let set = self.watched.volume.set_tunables(given.split(' '));
            return set.inspect(|()| info!(given; "tunables are set")).map_err(|error| error.to_string());
        }
        let list = request.strip_prefix(REMOUNT).ok_or("the server does not know that request")?;
        self.watched.options.check_remount(list).map_err(|error| error.to_string())
    }

    /// Makes all received writes durable, until no more come: there are kernels whose `syncfs` returns while
    /// they still send what a plain FUSE mount has buffered.
    fn sync(&self) -> hectare_engine::Result<()> {
        let written = || self.watched.operations.snapshot().bytes_written;
        let until = Instant::now() + QUIET_PATIENCE;
        loop {
            let before = written();
            self.watched.volume.sync()?;
            thread::sleep(QUIET);
            if written() == before || Instant::now() > until {
                return Ok(());
            }
        }
    }
}

/// The metrics of the mount that a directory, or a path below it, belongs to.
///
/// # Errors
/// If no image of ours is mounted there, or its server does not answer.
pub fn ask(dir: &Path) -> Result<Report, AskError> {
    let mount = mounted_image(dir).map_err(AskError::NotMounted)?;
    serde_json::from_slice(&answer(&mount, "", (PATIENCE, REPORT_MAX))?).map_err(AskError::Odd)
}

/// The record of the last allocation requests of the mount that a directory, or a path below it, belongs to;
/// `None` if they are not recorded.
///
/// # Errors
/// As [`ask`].
pub fn explanation(dir: &Path) -> Result<Option<Explanation>, AskError> {
    let mount = mounted_image(dir).map_err(AskError::NotMounted)?;
    let answer = answer(&mount, EXPLAIN, (PATIENCE, EXPLANATION_MAX))?;
    serde_json::from_slice(&answer).map_err(AskError::Odd)
}

/// Makes everything durable that has reached the server of the mount that a directory belongs to; the kernel
/// first writes back what it buffers.
///
/// # Errors
/// If no image of ours is mounted there, its server does not answer, or a write fails.
pub fn sync(dir: &Path) -> Result<(), AskError> {
    let mount = mounted_image(dir).map_err(AskError::NotMounted)?;
    let brought = File::open(dir).and_then(|dir| Ok(rustix::fs::syncfs(dir)?));
    brought.map_err(|error| AskError::Refused(error.to_string()))?;
    have_done(&mount, SYNC)
}

/// Sets allocator tunables of the mount that a directory belongs to, each as `NAME=VALUE`; all or none. They
/// are in effect from the next allocation request on.
///
/// # Errors
/// If no image of ours is mounted there, its server does not answer, or a tunable can't be set: the reason.
pub fn tune(dir: &Path, given: &[String]) -> Result<(), AskError> {
    let mount = mounted_image(dir).map_err(AskError::NotMounted)?;
    have_done(&mount, &format!("{TUNE}{}", given.join(" ")))
}

/// Has the server of a mount move the blocks of a file or directory together, or only say in how many places
/// they are, by the number that the mount shows for it.
///
/// # Errors
/// If the server does not answer; [`AskError::Refused`] with its reason if they can't be moved.
pub fn gather(mount: &MountedImage, inode: u64, dry_run: bool) -> Result<GatherReport, AskError> {
    let request = if dry_run { "places" } else { "gather" };
    reported(mount, &format!("{request} {inode}"), REFUSAL_MAX)
}

/// The free runs of a group of a mounted volume, and how the volume is laid out.
///
/// # Errors
/// If the server does not answer, or answers what can't be; [`AskError::Refused`] with its reason.
pub fn free_runs(mount: &MountedImage, group: GroupNr) -> Result<Free, AskError> {
    let free: Free = reported(mount, &format!("free {group}"), REPORT_MAX)?;
    if free.is_possible() { Ok(free) } else { Err(odd()) }
}

/// The extents of a file of a mounted volume, in order.
///
/// # Errors
/// As [`free_runs`].
pub fn extents(mount: &MountedImage, inode: InodeNr) -> Result<Vec<Extent>, AskError> {
    let found: crate::moves::Extents = reported(mount, &format!("extents {inode}"), REPORT_MAX)?;
    found.extents().ok_or_else(odd)
}

/// Has the server of a mount move an extent to free blocks; returns whether it was moved: not if the file lies
/// elsewhere by now, or if the blocks are in use.
///
/// # Errors
/// If the server does not answer; [`AskError::Refused`] with its reason if this extent can't be moved;
/// [`AskError::Ended`] if the volume takes no changes any more.
pub fn move_extent(
    mount: &MountedImage,
    inode: InodeNr,
    extent: Extent,
    to: BlockNr,
) -> Result<bool, AskError> {
    let Extent { logical, len, physical, unwritten } = extent;
    let request = format!("move {inode} {logical} {len} {physical} {} {to}", u8::from(unwritten));
    match reported(mount, &request, REFUSAL_MAX)? {
        Moved { ended: Some(reason), .. } => Err(AskError::Ended(reason)),
        Moved { moved, .. } => Ok(moved),
    }
}

fn odd() -> AskError {
    AskError::Odd(serde::de::Error::custom("it names blocks that can't be"))
}

/// The answer to a request that may be refused.
fn reported<T: Refusable + DeserializeOwned>(
    mount: &MountedImage,
    request: &str,
    len_max: usize,
) -> Result<T, AskError> {
    let answer = answer(mount, request, (WORK_PATIENCE, len_max))?;
    let mut report: T = serde_json::from_slice(&answer).map_err(AskError::Odd)?;
    match report.refused().take() {
        Some(reason) => Err(AskError::Refused(reason)),
        None => Ok(report),
    }
}

/// Asks the server of a mount whether options can be changed while it is mounted.
///
/// # Errors
/// If the server does not answer, or an option can't be changed: the reason.
pub fn may_remount(mount: &MountedImage, list: &str) -> Result<(), AskError> {
    have_done(mount, &format!("{REMOUNT}{list}"))
}

fn have_done(mount: &MountedImage, request: &str) -> Result<(), AskError> {
    match &answer(mount, request, (WORK_PATIENCE, REFUSAL_MAX))?[..] {
        [] => Ok(()),
        refusal => Err(AskError::Refused(String::from_utf8_lossy(refusal).into_owned())),
    }
}

/// The server's answer to a request, limited in time and bytes. The client may be root, and the server
/// another user's program: it is not trusted to end.
fn answer(mount: &MountedImage, request: &str, limits: (Duration, usize)) -> Result<Vec<u8>, AskError> {
    let (patience, len_max) = limits;
    let until = Instant::now() + patience;
    let socket = find(mount).ok_or(AskError::NoSocket)?;
    let ask = || {
        let mut server = connected(&socket, until)?;
        // The user owns the name of the socket, so it may lead to another user's socket.
        if socket_peercred(&server)?.uid.as_raw() != mount.user {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the socket is another user's"));
        }
        server.write_all(request.as_bytes())?;
        rustix::net::shutdown(&server, Shutdown::Write)?;
        read_within(&server, until, len_max)
    };
    ask().map_err(AskError::NoAnswer)
}

fn find(mount: &MountedImage) -> Option<PathBuf> {
    let name = socket_name(mount.device);
    let private = folders(mount.user).into_iter().filter(|folder| is_private(folder, mount.user));
    private.map(|folder| folder.join(&name)).find(|socket| socket.exists())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_folder_that_others_can_use_is_not_trusted() {
        let user = rustix::process::geteuid().as_raw();
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("folder");
        assert!(!is_private(&folder, user));
        DirBuilder::new().mode(0o700).create(&folder).unwrap();
        assert!(is_private(&folder, user) && !is_private(&folder, user + 1));
        symlink(&folder, scratch.path().join("link")).unwrap();
        assert!(!is_private(&scratch.path().join("link"), user));
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o770)).unwrap();
        assert!(!is_private(&folder, user));
    }

    #[test]
    fn what_is_not_mounted_is_told() {
        let scratch = tempfile::tempdir().unwrap();
        let error = ask(scratch.path()).unwrap_err();
        assert_eq!(error.to_string(), "no image is mounted there by hectare");
    }
}
