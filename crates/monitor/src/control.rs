//! The control socket: how [`ask`] finds the process that serves a mount, and gets its figures.
//!
//! A mount's socket is named by the device number of its files, which the kernel gives to no other mount at
//! the time. So a socket of that name that is there already belongs to a mount that is gone: killed, or off
//! the tree and about to end; it is replaced, and whoever ends removes only what is its own. It lies in a
//! folder that only the user who mounts can use ([`folders`]); who asks looks into the folders of the user
//! who mounted, which the table of mounts tells, and trusts none that belongs to another. Root can ask about
//! every mount.
//!
//! There is no request: who connects is sent the [`Report`] as JSON, and that is all. One client at a time is
//! served, for [`PATIENCE`] at most.

use crate::report::Report;
use crate::watch::{Shared, json};
use hectare_fuse::{MountedImage, mounted_image};
use log::debug;
use rustix::fs::{Mode, chmod};
use rustix::net::Shutdown;
use std::fs::DirBuilder;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How long a client, or who serves, may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the socket rests if there is no descriptor left for a client.
const REST: Duration = Duration::from_millis(100);
/// The longest report.
const REPORT_MAX: u64 = 16 << 20;

/// Why a mount has not told its figures.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// There is no mount of ours.
    #[error(transparent)]
    NotMounted(io::Error),
    /// It is mounted, but there is no socket.
    #[error("whoever serves it can't be reached: was it killed, or does it belong to another user?")]
    NoSocket,
    /// There is a socket, and nobody answers.
    #[error("whoever serves it does not answer: {0}")]
    NoAnswer(io::Error),
    /// The answer is none.
    #[error("the answer of whoever serves it is of another version: {0}")]
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
                    Ok((client, _)) => tell(client, &shared),
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

fn tell(mut client: UnixStream, shared: &Shared) {
    let told =
        client.set_write_timeout(Some(PATIENCE)).and_then(|()| client.write_all(&json(&shared.report())));
    if let Err(error) = told {
        debug!(error:%; "a client of the control socket went away");
    }
}

/// The figures of the mount that a folder, or something below it, belongs to.
///
/// # Errors
/// If no image of ours is mounted there, or whoever serves it does not tell.
pub fn ask(dir: &Path) -> Result<Report, AskError> {
    let mount = mounted_image(dir).map_err(AskError::NotMounted)?;
    let socket = find(&mount).ok_or(AskError::NoSocket)?;
    let mut text = Vec::new();
    let mut read = || -> io::Result<()> {
        let server = UnixStream::connect(&socket)?;
        server.set_read_timeout(Some(PATIENCE))?;
        server.take(REPORT_MAX).read_to_end(&mut text)?;
        Ok(())
    };
    read().map_err(AskError::NoAnswer)?;
    serde_json::from_slice(&text).map_err(AskError::Odd)
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
