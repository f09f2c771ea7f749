//! Connections: TCP or a Unix socket behind one type, made and used within a time.

use crate::address::Place;
use crate::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

macro_rules! either {
    ($self:expr, $stream:ident => $body:expr) => {
        match $self {
            Stream::Tcp($stream) => $body,
            Stream::Unix($stream) => $body,
        }
    };
}

impl Stream {
    /// Connects, within a time for each address that the host has.
    pub(crate) fn connect(place: &Place, within: Duration) -> Result<Self> {
        let within = within.max(Duration::from_millis(1));
        match place {
            Place::Unix(path) => {
                let stream = connect_unix(path, within);
                stream.map(Self::Unix).map_err(|errno| Error::Io(errno.into()))
            }
            Place::Tcp(host, port) => {
                let mut failed = None;
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, within) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            return Ok(Self::Tcp(stream));
                        }
                        Err(error) => failed = Some(error),
                    }
                }
                Err(failed.map_or(Error::Address("its host has no address"), Error::Io))
            }
        }
    }

    /// Another handle for the same connection.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
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

    /// Whether the other side has closed it, or its direction to this side.
    pub(crate) fn is_gone(&self) -> bool {
        let fd = either!(self, stream => stream.as_fd());
        let mut polled = [PollFd::new(&fd, PollFlags::RDHUP)];
        let now = Timespec::default();
        poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Ends it, in one direction or both; threads that wait for it wake up.
    pub(crate) fn shutdown(&self, how: Shutdown) {
        // It may have ended by itself.
        let _ = either!(self, stream => stream.shutdown(how));
    }
}

fn connect_unix(path: &std::path::Path, within: Duration) -> rustix::io::Result<UnixStream> {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Connecting waits while the server's queue is full.
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(within))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

impl Read for &Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&*stream).read(buf),
            Stream::Unix(stream) => (&*stream).read(buf),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&*stream).write(buf),
            Stream::Unix(stream) => (&*stream).write(buf),
        }
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&*stream).write_vectored(bufs),
            Stream::Unix(stream) => (&*stream).write_vectored(bufs),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes all of two buffers, in one system call where that takes them.
pub(crate) fn write_both(mut stream: &Stream, head: &[u8], body: &[u8]) -> io::Result<()> {
    let mut sent = 0;
    while sent < head.len() {
        match stream.write_vectored(&[IoSlice::new(&head[sent..]), IoSlice::new(body)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => sent += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    stream.write_all(&body[sent - head.len()..])
}

/// A connection of which every read and write must be over by a time.
pub(crate) struct Until<'a> {
    stream: &'a Stream,
    deadline: Instant,
}

impl<'a> Until<'a> {
    /// Until `deadline`.
    pub(crate) const fn new(stream: &'a Stream, deadline: Instant) -> Self {
        Self { stream, deadline }
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for Until<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(buf)
    }
}

impl Write for Until<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
