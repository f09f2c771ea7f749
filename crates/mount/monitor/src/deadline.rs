//! A conversation with an untrusted server: one deadline for all of it, and a limit of its length.
//!
//! A time limit for each read lets a server that sends a byte now and then block its client for ever, and one
//! that never stops sending fill the client's memory. Here the deadline is a moment: nothing is waited for
//! after it.
//!
//! What it is not: protection for the path of the socket. A directory of the path that is itself a mount of
//! the other user's can make the lookup hang, which only a signal ends.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes read at a time.
const CHUNK: usize = 1 << 16;

/// Connects to a socket before the deadline. Writes to the stream have the time that was left at the
/// beginning as their limit.
///
/// # Errors
/// `TimedOut` if the server does not accept in time; otherwise what connect(2) says.
pub(crate) fn connected(socket: &Path, until: Instant) -> io::Result<UnixStream> {
    let family = AddressFamily::UNIX;
    let stream = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let (stream, address) = (UnixStream::from(stream), SocketAddrUnix::new(socket)?);
    loop {
        // Waiting in a full queue of connections has the limit of a write.
        stream.set_write_timeout(Some(left(until)?))?;
        match rustix::net::connect(&stream, &address) {
            Ok(()) => return Ok(stream),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(timed_out()),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Reads until the server closes its side.
///
/// # Errors
/// `TimedOut` if the end does not come in time, `InvalidData` if there are more than `len_max` bytes.
pub(crate) fn read_within(mut stream: &UnixStream, until: Instant, len_max: usize) -> io::Result<Vec<u8>> {
    let (mut answer, mut chunk) = (Vec::new(), vec![0; CHUNK]);
    loop {
        stream.set_read_timeout(Some(left(until)?))?;
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(answer),
            Ok(len) => answer.extend_from_slice(&chunk[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(timed_out()),
            Err(error) => return Err(error),
        }
        if answer.len() > len_max {
            let reason = format!("what it says is longer than {len_max} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
    }
}

/// The remaining time, never zero.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(timed_out()) } else { Ok(left) }
}

fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it takes too long")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{bind, listen};
    use std::io::{ErrorKind, Write};
    use std::thread;

    const SHORT: Duration = Duration::from_millis(300);
    /// Much longer than anything here that ends.
    const LONG: Duration = Duration::from_secs(60);

    /// The data read from a server that runs `serve` on its end of a connection.
    fn heard(patience: Duration, serve: impl FnOnce(UnixStream) + Send + 'static) -> io::Result<Vec<u8>> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let server = thread::spawn(move || serve(theirs));
        let heard = read_within(&ours, Instant::now() + patience, 1 << 20);
        drop(ours);
        server.join().unwrap();
        heard
    }

    #[test]
    fn an_answer_is_read_to_its_end() {
        let long = vec![7; 1 << 20];
        let sent = long.clone();
        assert_eq!(heard(LONG, move |mut to| to.write_all(&sent).unwrap()).unwrap(), long);
        assert_eq!(heard(LONG, drop).unwrap(), b"");
    }

    #[test]
    fn regression_a_server_that_drips_does_not_hold_its_client() {
        let began = Instant::now();
        let drip = move |mut to: UnixStream| {
            while began.elapsed() < LONG && to.write_all(b" ").is_ok() {
                thread::sleep(SHORT / 20);
            }
        };
        assert_eq!(heard(SHORT, drip).unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(began.elapsed() < LONG);
    }

    #[test]
    fn regression_an_answer_without_end_is_no_answer() {
        let endless = |mut to: UnixStream| while to.write_all(&[b' '; 4096]).is_ok() {};
        assert_eq!(heard(LONG, endless).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn regression_a_server_that_does_not_accept_is_given_up() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("socket");
        let none = connected(&path, Instant::now() + LONG).unwrap_err();
        assert_eq!(none.kind(), ErrorKind::NotFound);
        let server = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        bind(&server, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&server, 0).unwrap();
        let _queued = connected(&path, Instant::now() + LONG).unwrap();
        let (began, refused) = (Instant::now(), connected(&path, Instant::now() + SHORT).unwrap_err());
        assert_eq!(refused.kind(), ErrorKind::TimedOut);
        assert!(began.elapsed() < LONG);
    }
}
