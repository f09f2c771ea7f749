//! Sockets: TCP or Unix behind one type.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A socket that is connected.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

macro_rules! either {
    ($socket:expr, $stream:ident => $body:expr) => {
        match $socket {
            Socket::Tcp($stream) => $body,
            #[cfg(unix)]
            Socket::Unix($stream) => $body,
        }
    };
}

impl Socket {
    /// Another handle for the same socket.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
            #[cfg(unix)]
            Self::Unix(stream) => stream.try_clone().map(Self::Unix),
        }
    }

    /// How long a read may take.
    pub(crate) fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        either!(self, stream => stream.set_read_timeout(limit))
    }

    /// How long a write may take.
    pub(crate) fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        either!(self, stream => stream.set_write_timeout(limit))
    }

    /// Ends it, in one direction or both.
    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        either!(self, stream => stream.shutdown(how))
    }
}

impl Read for &Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        either!(*self, stream => (&*stream).read(buf))
    }
}

impl Write for &Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        either!(*self, stream => (&*stream).write(buf))
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        either!(*self, stream => (&*stream).write_vectored(bufs))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
