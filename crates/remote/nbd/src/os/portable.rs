//! Any host: the standard library. A thread that accepts is woken by a connection, which it drops. Connecting to
//! a socket in the file system takes as long as the system wants.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
#[cfg(unix)]
use std::os::unix::net::{UnixListener, UnixStream};
#[cfg(unix)]
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long waking may take.
const WITHIN: Duration = Duration::from_secs(1);

/// Connects to a socket in the file system.
#[cfg(unix)]
pub(crate) fn connect_unix(path: &Path, _: Duration) -> io::Result<UnixStream> {
    UnixStream::connect(path)
}

/// Where a connection wakes the thread that accepts.
pub(crate) enum Waker {
    Tcp(SocketAddr),
    #[cfg(unix)]
    Unix(PathBuf),
}

impl Waker {
    pub(crate) fn of_tcp(listener: &TcpListener) -> io::Result<Self> {
        let mut address = listener.local_addr()?;
        // A listener at all addresses is reached at this machine's own.
        match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        Ok(Self::Tcp(address))
    }

    #[cfg(unix)]
    pub(crate) fn of_unix(_: &UnixListener, path: &Path) -> io::Result<Self> {
        std::path::absolute(path).map(Self::Unix)
    }

    pub(crate) fn wake(&self) {
        // What is not listening any more needs no waking.
        match self {
            Self::Tcp(address) => drop(TcpStream::connect_timeout(address, WITHIN)),
            #[cfg(unix)]
            Self::Unix(path) => drop(UnixStream::connect(path)),
        }
    }
}
