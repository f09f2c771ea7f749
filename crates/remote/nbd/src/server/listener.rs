//! Where a server listens.

use crate::address::Place;
use crate::os::Waker;
use crate::socket::Socket;
use crate::stream::Stream;
use crate::{Error, Result};
use std::io;
use std::net::{TcpListener, ToSocketAddrs};
#[cfg(unix)]
use std::os::unix::net::UnixListener;
#[cfg(unix)]
use unix::{Name, remove_dead};

/// A bound socket.
pub struct Listener(Kind);

enum Kind {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(UnixListener, Name),
}

impl Listener {
    /// Binds to a place: a socket file for its owner alone, or a port, on loopback unless `public`.
    ///
    /// # Errors
    /// If the place is taken, or is a port that others can reach and `public` is not set.
    pub fn bind(place: &Place, public: bool) -> Result<Self> {
        match place {
            #[cfg(unix)]
            Place::Unix(path) => {
                remove_dead(path)?;
                let listener = UnixListener::bind(path)?;
                Ok(Self(Kind::Unix(listener, Name::of_owner(path)?)))
            }
            #[cfg(not(unix))]
            Place::Unix(_) => Err(crate::os::no_unix_sockets()),
            Place::Tcp(host, port) => {
                let addresses: Vec<_> = (host.as_str(), *port).to_socket_addrs()?.collect();
                if !public && addresses.iter().any(|address| !address.ip().is_loopback()) {
                    let text = "others could reach that address and read and change everything: there is no \
                                password; use 127.0.0.1 or a socket, or say --public";
                    return Err(Error::Refused(text.to_owned()));
                }
                Ok(Self(Kind::Tcp(TcpListener::bind(&addresses[..])?)))
            }
        }
    }

    /// Where it is: with the port that the system chose if none was given.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn place(&self) -> Result<Place> {
        match &self.0 {
            Kind::Tcp(listener) => {
                let address = listener.local_addr()?;
                Ok(Place::Tcp(address.ip().to_string(), address.port()))
            }
            #[cfg(unix)]
            Kind::Unix(_, name) => Ok(Place::Unix(std::path::absolute(&name.path)?)),
        }
    }

    pub(super) fn accept(&self) -> io::Result<Stream> {
        match &self.0 {
            Kind::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(Stream::plain(Socket::Tcp(stream)))
            }
            #[cfg(unix)]
            Kind::Unix(listener, _) => Ok(Stream::plain(Socket::Unix(listener.accept()?.0))),
        }
    }

    /// To wake the thread that accepts.
    pub(super) fn waker(&self) -> Result<Waker> {
        Ok(match &self.0 {
            Kind::Tcp(listener) => Waker::of_tcp(listener)?,
            #[cfg(unix)]
            Kind::Unix(listener, name) => Waker::of_unix(listener, &name.path)?,
        })
    }
}

/// Sockets in the file system.
#[cfg(unix)]
mod unix {
    use crate::Result;
    use std::fs::{Permissions, remove_file, set_permissions, symlink_metadata};
    use std::io;
    use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
    use std::os::unix::net::UnixStream;
    use std::path::{Path, PathBuf};

    /// A socket's name in the file system, removed with it if it still is that socket's.
    pub(super) struct Name {
        pub(super) path: PathBuf,
        device_and_inode: (u64, u64),
    }

    impl Name {
        /// That of a socket just made, which becomes its owner's alone.
        pub(super) fn of_owner(path: &Path) -> io::Result<Self> {
            set_permissions(path, Permissions::from_mode(0o600))?;
            Ok(Self { path: path.to_owned(), device_and_inode: identity(path)? })
        }
    }

    impl Drop for Name {
        fn drop(&mut self) {
            if identity(&self.path).is_ok_and(|found| found == self.device_and_inode) {
                // A name that stays is one of a socket on which nobody listens, which the next server removes.
                let _ = remove_file(&self.path);
            }
        }
    }

    fn identity(path: &Path) -> io::Result<(u64, u64)> {
        symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()))
    }

    /// Removes a socket on which nobody listens.
    pub(super) fn remove_dead(path: &Path) -> Result<()> {
        let is_socket = symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
        let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if is_socket && UnixStream::connect(path).is_err_and(refused) {
            remove_file(path)?;
        }
        Ok(())
    }
}
