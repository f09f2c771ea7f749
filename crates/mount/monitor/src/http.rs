//! A server of three documents over HTTP/1.1, for scrapers and browsers.
//!
//! The crate `httparse` parses the request; the rest is our own and small, because what matters most here is
//! what a client can *not* do, which small servers on crates.io leave open (they start a thread per
//! connection and wait for it as long as it likes):
//!
//! - one thread serves all connections as they become ready, one request each, so that an idle one costs a
//!   descriptor and blocks no other ([`connections`]); there are at most [`CONNECTIONS_MAX`], and another one
//!   replaces the oldest without a complete request;
//! - a connection ends after [`PATIENCE`], however slowly its client sends or reads, or at once if it sends
//!   more than [`REQUEST_MAX`] bytes; a body is never read;
//! - only `GET` and `HEAD` are answered, and no request changes anything.
//!
//! By default it can be reached from this machine only ([`bind`]). A web page from elsewhere whose own name
//! resolves to this machine (DNS rebinding) is refused by its `Host` header; one that sends a request under
//! our name gets an answer that its browser does not show it, since we allow no other origin.

mod connections;

use crate::shared::Shared;
use connections::Connections;
use rustix::net::Shutdown;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The most connections at a time.
const CONNECTIONS_MAX: usize = 64;
/// The longest lifetime of a connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest request, its headers included, in bytes.
const REQUEST_MAX: usize = 8 << 10;
/// The most headers of a request.
const HEADERS_MAX: usize = 64;
/// How long nothing is accepted if there is no descriptor left for a connection.
const REST: Duration = Duration::from_millis(100);

/// Sent with every document: it is self-contained, and must not be cached.
const HEADERS: &str = "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: \
    no-referrer\r\nContent-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src \
    'unsafe-inline'; connect-src 'self'; img-src data:\r\nConnection: close\r\n";

/// Why metrics can't be served at an address.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Other machines could reach it.
    #[error(
        "{0} can be reached from other machines, which then see all metrics: name a loopback \
             address, or allow it with -o metrics_public"
    )]
    Public(SocketAddr),
    /// The system refuses.
    #[error("metrics can't be served at {0}: {1}")]
    Refused(SocketAddr, #[source] io::Error),
}

/// Binds an address for [`Monitor::serve_http`](crate::Monitor::serve_http); port 0 is any free port.
///
/// # Errors
/// If other machines can reach the address and that is not requested with `public`, or if it is in use.
pub fn bind(address: SocketAddr, public: bool) -> Result<TcpListener, BindError> {
    if !public && !address.ip().is_loopback() {
        return Err(BindError::Public(address));
    }
    TcpListener::bind(address).map_err(|error| BindError::Refused(address, error))
}

/// The server; dropping it ends all connections and accepts no more.
pub(crate) struct Server {
    listener: Arc<TcpListener>,
    stop: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn start(listener: TcpListener, shared: Arc<Shared>) -> io::Result<Self> {
        Self::serving(listener, move |path| shared.document(path))
    }

    fn serving(
        listener: TcpListener,
        document: impl Fn(&str) -> Document + Send + 'static,
    ) -> io::Result<Self> {
        let local_only = listener.local_addr()?.ip().is_loopback();
        listener.set_nonblocking(true)?;
        let server = Self { listener: Arc::new(listener), stop: Arc::default() };
        let (listener, stop) = (Arc::clone(&server.listener), Arc::clone(&server.stop));
        let work = move || {
            let mut connections = Connections::default();
            while !stop.load(Ordering::Acquire) {
                connections.turn(&listener, |request| answer(request, local_only, &document).bytes());
            }
        };
        thread::Builder::new().name("hectare-http".into()).spawn(work)?;
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // The thread that waits for connections finds the listener closed.
        let _ = rustix::net::shutdown(&self.listener, Shutdown::Both);
    }
}

/// The answer to a request.
struct Answer {
    status: &'static str,
    kind: &'static str,
    body: Vec<u8>,
    /// Whether the body is sent, too.
    with_body: bool,
}

impl Answer {
    fn refusal(status: &'static str, why: &str) -> Self {
        let body = format!("{why}\n").into_bytes();
        Self { status, kind: "text/plain; charset=utf-8", body, with_body: true }
    }

    /// The bytes to send.
    fn bytes(&self) -> Vec<u8> {
        let Self { status, kind, body, with_body } = self;
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{HEADERS}\r\n",
            body.len()
        );
        [head.as_bytes(), if *with_body { body } else { &[] }].concat()
    }
}

/// The document at a path: its type and content.
type Document = Option<(&'static str, Vec<u8>)>;

fn answer(request: &[u8], local_only: bool, document: impl Fn(&str) -> Document) -> Answer {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let complete = parsed.parse(request).is_ok_and(|status| status.is_complete());
    let (Some(method), Some(target)) = (parsed.method.filter(|_| complete), parsed.path) else {
        let why = "this is no request, or it is too long";
        return Answer::refusal("400 Bad Request", why);
    };
    if !matches!(method, "GET" | "HEAD") {
        return Answer::refusal("405 Method Not Allowed", "there is only GET and HEAD");
    }
    let host = parsed.headers.iter().find(|header| header.name.eq_ignore_ascii_case("host"));
    if local_only && host.is_some_and(|host| !is_local(host.value)) {
        return Answer::refusal("421 Misdirected Request", "this is served on the local machine only");
    }
    let path = target.split('?').next().unwrap_or_default();
    match document(path) {
        Some((kind, body)) => Answer { status: "200 OK", kind, body, with_body: method == "GET" },
        None => Answer::refusal("404 Not Found", "there are /, /metrics and /live.json"),
    }
}

/// Whether a `Host`, with or without a port, names this machine in one of the usual ways.
fn is_local(host: &[u8]) -> bool {
    let host = std::str::from_utf8(host).unwrap_or_default();
    let name =
        host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(name, _)| name);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Whether the headers have ended; lines may end without a carriage return.
fn has_ended(request: &[u8]) -> bool {
    request.windows(4).any(|end| end == b"\r\n\r\n") || request.windows(2).any(|end| end == b"\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read, Write};
    use std::net::TcpStream;
    use std::time::Instant;

    fn document(path: &str) -> Document {
        (path == "/").then(|| ("text/plain", b"hello".to_vec()))
    }

    /// A server, and its address.
    fn served() -> (Server, SocketAddr) {
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0)), false).unwrap();
        let address = listener.local_addr().unwrap();
        (Server::serving(listener, document).unwrap(), address)
    }

    /// The answer to a client that sends some bytes, and then nothing more.
    fn exchange(address: SocketAddr, request: &[u8]) -> String {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(request).unwrap();
        let mut answer = Vec::new();
        // After too much data the client may find the connection reset.
        let _ = client.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    #[test]
    fn documents_are_served_and_nothing_else() {
        let (_server, address) = served();
        let exchange = |request: &[u8]| exchange(address, request);
        let page = exchange(b"GET /?x HTTP/1.1\r\nHost: localhost:9100\r\n\r\n");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("\r\n\r\nhello"), "{page}");
        assert!(page.contains("\r\nContent-Length: 5\r\n") && page.contains("default-src 'none'"), "{page}");
        assert!(exchange(b"HEAD / HTTP/1.1\nHost: [::1]:80\n\n").ends_with("\r\n\r\n"));
        for (request, status) in [
            (&b"GET /none HTTP/1.1\r\n\r\n"[..], "404"),
            (b"POST / HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n", "405"),
            (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421"),
            (b"GET / HTTP/1.1\r\nHost: 127.0.0.1.evil.example:80\r\n\r\n", "421"),
            (b"\x16\x03\x01\x02\n\n", "400"),
        ] {
            let answer = exchange(request);
            assert_eq!(answer.get(9..12), Some(status), "{answer}");
        }
    }

    #[test]
    fn too_long_and_too_slow_are_over_soon() {
        let (_server, address) = served();
        let exchange = |request: &[u8]| exchange(address, request);
        let long = [&b"GET / HTTP/1.1\r\nA: "[..], &[b'a'; REQUEST_MAX]].concat();
        assert_eq!(exchange(&long).get(9..12), Some("400"));
        let many = [&b"GET / HTTP/1.1\r\n"[..], &b"A: b\r\n".repeat(HEADERS_MAX + 1), b"\r\n"].concat();
        assert_eq!(exchange(&many).get(9..12), Some("400"));
        let began = Instant::now();
        assert_eq!(exchange(b"GET / HT"), "");
        assert!(began.elapsed() >= PATIENCE && began.elapsed() < PATIENCE * 12);
    }

    #[test]
    fn regression_idle_clients_hold_up_nobody() {
        let (_server, address) = served();
        let connect = || TcpStream::connect(address).unwrap();
        let idle: Vec<TcpStream> = std::iter::repeat_with(connect).take(CONNECTIONS_MAX * 3).collect();
        for (nr, mut client) in idle.iter().enumerate().filter(|(nr, _)| nr % 2 == 0) {
            // A connection that is closed by now is no failure.
            let _ = client.write_all(&b"GET / HTTP/1.1\r\nA: "[..nr % 20]);
        }
        let began = Instant::now();
        for _ in 0..20 {
            assert!(exchange(address, b"GET / HTTP/1.1\r\n\r\n").ends_with("hello"));
        }
        assert!(began.elapsed() < PATIENCE, "no idle client was waited for: {:?}", began.elapsed());
        let mut newest = &idle[idle.len() - 1];
        newest.set_nonblocking(true).unwrap();
        assert_eq!(newest.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }

    #[test]
    fn a_server_that_is_dropped_is_gone() {
        let (server, address) = served();
        let mut waiting = TcpStream::connect(address).unwrap();
        drop(server);
        let _ = waiting.read(&mut [0]); // an end or a reset, long before its deadline
        assert!(TcpStream::connect(address).is_err());
    }

    #[test]
    fn others_can_reach_it_only_if_that_is_wanted() {
        let anywhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let refused = bind(anywhere, false).unwrap_err().to_string();
        assert!(refused.contains("-o metrics_public") && !refused.contains('\n'), "{refused}");
        let taken = bind(anywhere, true).unwrap().local_addr().unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let again = bind(listener.local_addr().unwrap(), false).unwrap_err().to_string();
        assert!(again.contains("in use"), "{again}");
        assert!(taken.port() != 0);
    }
}
