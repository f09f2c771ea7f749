//! Linux: by `rustix`.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

/// Connects to a socket in the file system, within a time.
pub(crate) fn connect_unix(path: &Path, within: Duration) -> io::Result<UnixStream> {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Connecting waits while the server's queue is full.
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(within))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

/// A listening socket that can be made to accept no more.
pub(crate) struct Waker(OwnedFd);

impl Waker {
    pub(crate) fn of_tcp(listener: &TcpListener) -> io::Result<Self> {
        Ok(Self(listener.try_clone()?.into()))
    }

    pub(crate) fn of_unix(listener: &UnixListener, _: &Path) -> io::Result<Self> {
        Ok(Self(listener.try_clone()?.into()))
    }

    pub(crate) fn wake(&self) {
        // What is not listening any more needs no waking.
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
    }
}
