//! The control socket: how [`ask`] finds the process that serves a mount, and gets its figures.
//!
//! A mount's socket is named by the device number of its files, which the kernel gives to no other mount at
//! the time. So a socket of that name that is there already belongs to a mount that is gone: killed, or off
//! the tree and about to end; it is replaced, and whoever ends removes only what is its own. It lies in a
//! folder that only the user who mounts can use ([`folders`]); who asks looks into the folders of the user
//! who mounted, which the table of mounts tells, and trusts none that belongs to another. Root can ask about
//! every mount.
//!
//! A client says in a line what it wants, and ends what it sends: nothing, and it is sent the [`Report`] as
//! JSON; `explain`, and it is sent what the last requests for space went through, or `null`; `sync`, and what
//! has reached the server is made durable; `remount LIST`, and it hears whether the options can be changed
//! while it is mounted; `tune NAME=VALUE ...`, and these tunables are set, all or none. An empty answer says
//! that something is done, a text why not.
//! One client at a time is told figures, for [`PATIENCE`] at most; what may take longer has a thread of its
//! own.

use crate::deadline::{connected, read_within};
use crate::report::Report;
use crate::watch::{Shared, json};
use hectare_engine::Explanation;
use hectare_fuse::{MountedImage, mounted_image};
use log::{debug, info};
use rustix::fs::{Mode, chmod};
use rustix::net::Shutdown;
use rustix::net::sockopt::socket_peercred;
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
/// How long the socket rests if there is no descriptor left for a client.
const REST: Duration = Duration::from_millis(100);
/// The longest report, in bytes.
const REPORT_MAX: usize = 16 << 20;
/// The longest explanation of requests, in bytes: 100,000 events, and 10,000 requests.
const EXPLANATION_MAX: usize = 64 << 20;
/// The longest text that says why something can't be done, in bytes.
const REFUSAL_MAX: usize = 16 << 10;
/// The longest request: what the kernel takes as options of a mount.
const REQUEST_MAX: u64 = 4096;
/// How long a client waits until something is done: what is in memory may have to be written to a slow
/// device.
const WORK_PATIENCE: Duration = Duration::from_secs(600);
/// How long nothing is written when all has come that is under way, and how long that is waited for where
/// programs go on writing.
const QUIET: Duration = Duration::from_millis(20);
const QUIET_PATIENCE: Duration = Duration::from_secs(10);
const EXPLAIN: &str = "explain";
const SYNC: &str = "sync";
const REMOUNT: &str = "remount ";
const TUNE: &str = "tune ";

/// Why a mount has not told its figures.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// There is no mount of ours.
    #[error(transparent)]
    NotMounted(io::Error),
    /// It is mounted, but there is no socket.
    #[error("its server can't be reached: was it killed, or does it belong to another user?")]
    NoSocket,
    /// There is a socket, and no answer, or not all of it in time.
    #[error("its server does not answer: {0}")]
    NoAnswer(io::Error),
    /// It says why something can't be done.
    #[error("{0}")]
    Refused(String),
    /// The answer is none.
    #[error("its server is of another version: {0}")]
    Odd(serde_json::Error),
}

/// Where sockets of a user may lie, the best place first.
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

/// Whether a folder is a user's own, and no link.
fn is_private(folder: &Path, user: u32) -> bool {
    folder
        .symlink_metadata()
        .is_ok_and(|found| found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0)
}

fn socket_name((major, minor): (u32, u32)) -> String {
    format!("{major}-{minor}.sock")
}

/// The folder for control sockets of this user: the first that there is, or can be made.
///
/// # Errors
/// If there is none.
pub fn own_folder() -> io::Result<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let made = |folder: &PathBuf| {
        let _ = DirBuilder::new().mode(0o700).create(folder);
        is_private(folder, user)
    };
    let none = || io::Error::new(io::ErrorKind::NotFound, "there is no folder for a control socket");
    folders(user).into_iter().find(made).ok_or_else(none)
}

/// A socket that tells the figures of a mount; dropped, it is gone.
pub(crate) struct Control {
    path: PathBuf,
    /// The socket's inode, which is nobody else's while it is open.
    inode: u64,
    listener: Arc<UnixListener>,
    stop: Arc<AtomicBool>,
}

impl Control {
    /// Begins to answer for what is mounted on a folder.
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
        // A mount that came after this one may have its socket there already.
        if self.path.symlink_metadata().is_ok_and(|found| found.ino() == self.inode) {
            // If that fails, whoever mounts next removes it.
            let _ = std::fs::remove_file(&self.path);
        }
        self.stop.store(true, Ordering::Release);
        // Whoever waits for a client gets an error. A client that is being told is not waited for.
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
    /// What is answered to a request that may take longer.
    fn answer(&self, request: &str) -> Vec<u8> {
        if request == EXPLAIN {
            return json(&self.watched.volume.explanation());
        }
        self.work(request).err().unwrap_or_default().into_bytes()
    }

    /// Does what a request says, or says why not.
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

    /// Makes durable what has come, until nothing comes any more: there are kernels whose `syncfs` returns
    /// while they still bring what a plain FUSE mount has gathered.
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

/// The figures of the mount that a folder, or something below it, belongs to.
///
/// # Errors
/// If no image of ours is mounted there, or whoever serves it does not tell.
pub fn ask(dir: &Path) -> Result<Report, AskError> {
    let mount = mounted_image(dir).map_err(AskError::NotMounted)?;
    serde_json::from_slice(&answer(&mount, "", (PATIENCE, REPORT_MAX))?).map_err(AskError::Odd)
}

/// What the last requests for space of a mount went through, which a folder, or something below it, belongs
/// to; `None` if that is not recorded.
///
/// # Errors
/// As [`ask`].
pub fn explanation(dir: &Path) -> Result<Option<Explanation>, AskError> {
    let mount = mounted_image(dir).map_err(AskError::NotMounted)?;
    let answer = answer(&mount, EXPLAIN, (PATIENCE, EXPLANATION_MAX))?;
    serde_json::from_slice(&answer).map_err(AskError::Odd)
}

/// Has everything made durable that has reached whoever serves the mount to which a folder belongs: what the
/// kernel has gathered is first brought there.
///
/// # Errors
/// If no image of ours is mounted there, whoever serves it does not answer, or something can't be written.
pub fn sync(dir: &Path) -> Result<(), AskError> {
    let mount = mounted_image(dir).map_err(AskError::NotMounted)?;
    let brought = File::open(dir).and_then(|dir| Ok(rustix::fs::syncfs(dir)?));
    brought.map_err(|error| AskError::Refused(error.to_string()))?;
    have_done(&mount, SYNC)
}

/// Sets tunables of the search for space of the mount to which a folder belongs, each as `NAME=VALUE`; all or
/// none. They are in effect from the next request for space on.
///
/// # Errors
/// If no image of ours is mounted there, its server does not answer, or a tunable can't be set so: why not.
pub fn tune(dir: &Path, given: &[String]) -> Result<(), AskError> {
    let mount = mounted_image(dir).map_err(AskError::NotMounted)?;
    have_done(&mount, &format!("{TUNE}{}", given.join(" ")))
}

/// Asks whoever serves a mount whether options can be changed while it is there.
///
/// # Errors
/// If nobody answers, or an option can't be changed: why not.
pub fn may_remount(mount: &MountedImage, list: &str) -> Result<(), AskError> {
    have_done(mount, &format!("{REMOUNT}{list}"))
}

fn have_done(mount: &MountedImage, request: &str) -> Result<(), AskError> {
    match &answer(mount, request, (WORK_PATIENCE, REFUSAL_MAX))?[..] {
        [] => Ok(()),
        refusal => Err(AskError::Refused(String::from_utf8_lossy(refusal).into_owned())),
    }
}

/// What the server says to a request, within a time and so many bytes. Whoever asks may be root, and the
/// server another user's program: it is not trusted to end.
fn answer(mount: &MountedImage, request: &str, limits: (Duration, usize)) -> Result<Vec<u8>, AskError> {
    let (patience, len_max) = limits;
    let until = Instant::now() + patience;
    let socket = find(mount).ok_or(AskError::NoSocket)?;
    let ask = || {
        let mut server = connected(&socket, until)?;
        // The name of the socket is the user's, so it may lead to a socket of somebody else.
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
