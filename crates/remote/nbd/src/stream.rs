//! Connections: a socket with or without TLS, made and used within a time.

use crate::address::Place;
use crate::socket::Socket;
use crate::tls::{Tls, TlsClient, TlsServer};
use crate::{Error, Result, os};
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A connection.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: Socket,
    tls: Option<Arc<Tls>>,
}

impl Stream {
    /// A connection without TLS.
    pub(crate) const fn plain(socket: Socket) -> Self {
        Self { socket, tls: None }
    }

    /// Connects, within a time for each address that the host has; these are looked up if none are `known`.
    pub(crate) fn connect(place: &Place, known: &[SocketAddr], within: Duration) -> Result<Self> {
        let within = within.max(Duration::from_millis(1));
        match place {
            #[cfg(unix)]
            Place::Unix(path) => {
                os::connect_unix(path, within).map(Socket::Unix).map(Self::plain).map_err(Error::Io)
            }
            #[cfg(not(unix))]
            Place::Unix(_) => Err(os::no_unix_sockets()),
            Place::Tcp(host, port) => {
                let looked_up = match known {
                    [] => (host.as_str(), *port).to_socket_addrs()?.collect(),
                    known => known.to_vec(),
                };
                let mut failed = None;
                for address in looked_up {
                    match TcpStream::connect_timeout(&address, within) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            return Ok(Self::plain(Socket::Tcp(stream)));
                        }
                        Err(error) => failed = Some(error),
                    }
                }
                Err(failed.map_or(Error::Address("its host has no address"), Error::Io))
            }
        }
    }

    /// Begins TLS with the server of that name; everything goes through it from here on.
    pub(crate) fn secure(&mut self, client: &TlsClient, name: &str, deadline: Instant) -> Result<()> {
        let tls = client.connect(name, &mut SocketUntil { socket: &self.socket, deadline })?;
        self.tls = Some(Arc::new(tls));
        Ok(())
    }

    /// Begins TLS with a client; everything goes through it from here on.
    pub(crate) fn secure_for(&mut self, server: &TlsServer, deadline: Instant) -> Result<()> {
        let tls = server.accept(&mut SocketUntil { socket: &self.socket, deadline })?;
        self.tls = Some(Arc::new(tls));
        Ok(())
    }

    /// Another handle for the same connection.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone()?, tls: self.tls.clone() })
    }

    /// How long a read may take.
    pub(crate) fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.socket.set_read_timeout(limit)
    }

    /// How long a write may take.
    pub(crate) fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.socket.set_write_timeout(limit)
    }

    /// Whether the other side has closed it, or its direction to this side.
    pub(crate) fn is_gone(&self) -> bool {
        os::is_gone(&self.socket)
    }

    /// Ends it, in one direction or both; threads that wait for it wake up.
    pub(crate) fn shutdown(&self, how: Shutdown) {
        // It may have ended by itself.
        let _ = self.socket.shutdown(how);
    }
}

impl Read for &Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match &self.tls {
            Some(tls) => tls.read(&mut &self.socket, buf),
            None => (&self.socket).read(buf),
        }
    }
}

/// Writes all of two buffers, in one system call where that takes them.
pub(crate) fn write_both(stream: &Stream, head: &[u8], body: &[u8]) -> io::Result<()> {
    let mut socket = &stream.socket;
    if let Some(tls) = &stream.tls {
        return tls.write_all(&mut socket, &[head, body]);
    }
    let mut sent = 0;
    while sent < head.len() {
        match socket.write_vectored(&[IoSlice::new(&head[sent..]), IoSlice::new(body)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => sent += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    socket.write_all(&body[sent - head.len()..])
}

/// A socket of which every read and write must be over by a time.
struct SocketUntil<'a> {
    socket: &'a Socket,
    deadline: Instant,
}

impl SocketUntil<'_> {
    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for SocketUntil<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.left()?))?;
        self.socket.read(buf)
    }
}

impl Write for SocketUntil<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(self.left()?))?;
        self.socket.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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

    fn socket(&self) -> SocketUntil<'a> {
        SocketUntil { socket: &self.stream.socket, deadline: self.deadline }
    }
}

impl Read for Until<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match &self.stream.tls {
            Some(tls) => tls.read(&mut self.socket(), buf),
            None => self.socket().read(buf),
        }
    }
}

impl Write for Until<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match &self.stream.tls {
            Some(tls) => tls.write_all(&mut self.socket(), &[buf]).map(|()| buf.len()),
            None => self.socket().write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
