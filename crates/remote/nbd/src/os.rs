//! What connections need of the operating system beyond the standard library. Unix sockets are refused by name
//! on hosts without them.
//!
//! `rustix` asks whether the other side is gone on every host, since what outlives a client depends on it. Waking
//! a thread that accepts takes a way of its own on Linux.

#[cfg(all(target_os = "linux", not(hectare_portable)))]
mod linux;
#[cfg(not(all(target_os = "linux", not(hectare_portable))))]
mod portable;

#[cfg(all(target_os = "linux", not(hectare_portable)))]
pub(crate) use linux::{Waker, connect_unix};
#[cfg(not(all(target_os = "linux", not(hectare_portable))))]
pub(crate) use portable::Waker;
#[cfg(all(unix, not(all(target_os = "linux", not(hectare_portable)))))]
pub(crate) use portable::connect_unix;

use crate::socket::Socket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The error for a socket in the file system on a host that has none.
#[cfg(not(unix))]
pub(crate) fn no_unix_sockets() -> crate::Error {
    crate::Error::Address("this host has no Unix sockets: use HOST:PORT")
}

/// How `poll` says that the other side has closed a connection, or its direction to this side.
#[cfg(target_os = "linux")]
const CLOSED: PollFlags = PollFlags::RDHUP;
/// On macOS and Windows a hangup is both.
#[cfg(not(target_os = "linux"))]
const CLOSED: PollFlags = PollFlags::HUP;

/// Whether the other side has closed a connection, or its direction to this side.
pub(crate) fn is_gone(socket: &Socket) -> bool {
    let asked = if cfg!(target_os = "linux") { CLOSED } else { PollFlags::IN };
    let mut polled = [match socket {
        Socket::Tcp(stream) => PollFd::new(stream, asked),
        #[cfg(unix)]
        Socket::Unix(stream) => PollFd::new(stream, asked),
    }];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let failed = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
    poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().intersects(CLOSED | failed)
}
