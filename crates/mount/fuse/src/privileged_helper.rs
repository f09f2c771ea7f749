//! The privileged helper of a mount: a process beside the server that alone may mount and unmount.
//!
//! It mounts before the server has read a byte of the image, hands over the connection, and waits. So the
//! server needs no privileges ([`crate::sandbox`]), neither root's nor those of `fusermount3`; and a system
//! call that waits for an answer of the mount does not wait in the process that has to give it.
//!
//! What to mount, where and how is passed by the process that starts it, not by the server, which can only
//! say when: the messages are single bytes. A compromised server can have its own mount unmounted.
//!
//! It ends when the server's end of the socket closes, in whatever way the socket reports that, and leaves
//! the mount as it is: if the server was killed, programs get errors until a user unmounts it, instead of the
//! directory below.
//!
//! Hazard: it must outlive the server's last request. So it ignores the signals that end the server, and is
//! in no process group of a terminal.

use crate::fd_passing::{MESSAGE_MAX, receive, send};
use crate::mount::{Mounted, Mounting, attach};
use crate::options::MountOptions;
use crate::root::is_root;
use log::warn;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The server's messages: mount, with the image's descriptor if it is to be `fuseblk`.
const MOUNT: u8 = b'm';
/// The same, but read-only, whatever the options say.
const MOUNT_READ_ONLY: u8 = b'r';
/// The session has begun: set what the kernel sets only then.
const TUNE: u8 = b't';
/// Write everything back, and unmount.
const DETACH: u8 = b'd';
/// Unmount: there is no session.
const ABANDON: u8 = b'x';
/// The first byte of an answer: done. Otherwise a text follows.
const DONE: u8 = b'+';
const FAILED: u8 = b'-';

/// A privileged helper, as the server sees it.
pub struct Keeper {
    socket: OwnedFd,
    is_mounted: bool,
}

impl Keeper {
    /// Starts a privileged helper: a program that calls [`keep`] with its standard input.
    ///
    /// # Errors
    /// If it can't be started.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        command.stdin(theirs).stdout(Stdio::null()).stderr(Stdio::null());
        command.process_group(0).current_dir("/").spawn()?;
        Ok(Self { socket, is_mounted: false })
    }

    /// Makes it mount, `read_only` if the options did not say so anyway; returns the connection.
    pub(crate) fn mount(&mut self, image: Option<BorrowedFd<'_>>, read_only: bool) -> io::Result<OwnedFd> {
        let connection = self.ask(if read_only { MOUNT_READ_ONLY } else { MOUNT }, image)?;
        self.is_mounted = true;
        connection.ok_or_else(|| io::Error::other("the privileged helper gave no connection"))
    }

    pub(crate) fn tune(&self) -> io::Result<()> {
        self.ask(TUNE, None).map(drop)
    }

    pub(crate) fn detach(&mut self) {
        if !std::mem::take(&mut self.is_mounted) {
            return;
        }
        if let Err(error) = self.ask(DETACH, None) {
            warn!(error:%; "it can't be unmounted and stays; is something mounted over it?");
        }
    }

    pub(crate) fn forget(&mut self) {
        self.is_mounted = false;
    }

    fn ask(&self, what: u8, file: Option<BorrowedFd<'_>>) -> io::Result<Option<OwnedFd>> {
        let gone = |errno| match errno {
            Errno::PIPE | Errno::CONNRESET => io::Error::other("the privileged helper is gone"),
            errno => errno.into(),
        };
        send(&self.socket, &[what], file).map_err(gone)?;
        let (answer, file) = receive(&self.socket).map_err(gone)?;
        match answer.split_first() {
            Some((&DONE, _)) => Ok(file),
            Some((_, reason)) => Err(io::Error::other(String::from_utf8_lossy(reason).into_owned())),
            None => Err(gone(Errno::PIPE)),
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = self.ask(ABANDON, None); // fails where the helper is gone; then nobody can
        }
    }
}

/// Runs a privileged helper: does what the server says over standard input, until the server ends.
///
/// # Errors
/// If standard input is no socket of a server.
pub fn keep(what: &Mounting<'_>) -> io::Result<()> {
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    if is_root() {
        // To mount, and to reach image and directory wherever they are.
        let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::DAC_OVERRIDE;
        let none = CapabilitySet::empty();
        set_capabilities(None, CapabilitySets { effective: needed, permitted: needed, inheritable: none })?;
    }
    let mut mounted = None;
    let ended = obey(io::stdin().as_fd(), what, &mut mounted);
    // Whether the server has left or was killed: the helper must not unmount on its own.
    mounted.iter_mut().for_each(Mounted::forget);
    match ended {
        // A server that is killed before it has read an answer.
        Err(Errno::CONNRESET | Errno::PIPE) => Ok(()),
        ended => Ok(ended?),
    }
}

/// Does what the server says, until it is gone.
fn obey(
    socket: BorrowedFd<'_>,
    what: &Mounting<'_>,
    mounted: &mut Option<Mounted>,
) -> rustix::io::Result<()> {
    loop {
        let (message, file) = receive(socket)?;
        let done = match message.first() {
            Some(&how @ (MOUNT | MOUNT_READ_ONLY)) => {
                let read_only = what.options.read_only || how == MOUNT_READ_ONLY;
                let options = &MountOptions { read_only, ..what.options.clone() };
                let what = Mounting { options, ..*what };
                attach(&what, file.as_ref().map(AsFd::as_fd)).map(|(connection, attached)| {
                    *mounted = Some(attached);
                    Some(connection)
                })
            }
            Some(&TUNE) => {
                mounted.iter().for_each(|mounted: &Mounted| mounted.tune(what.options));
                Ok(None)
            }
            Some(&DETACH) => {
                let reached = mounted.take().is_none_or(|mut mounted| mounted.detach());
                let unreached = || io::Error::other(format!("{} can't be reached", what.dir.display()));
                reached.then_some(None).ok_or_else(unreached)
            }
            Some(&ABANDON) => {
                drop(mounted.take());
                Ok(None)
            }
            Some(_) => Err(io::Error::other("unknown message to the privileged helper")),
            None => return Ok(()),
        };
        match done {
            Ok(file) => send(socket, &[DONE], file.as_ref().map(AsFd::as_fd))?,
            Err(error) => {
                let text = error.to_string();
                let text = &text.as_bytes()[..text.len().min(MESSAGE_MAX - 1)];
                send(socket, &[&[FAILED], text].concat(), None)?;
            }
        }
    }
}
