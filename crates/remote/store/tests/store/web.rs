//! A web server for one file, with the faults of real ones.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// How the server answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Manners {
    /// It ignores `Range`.
    pub(crate) no_ranges: bool,
    /// It names no version.
    pub(crate) no_version: bool,
    /// Its ETag is weak.
    pub(crate) weak: bool,
    /// It does not look at `If-Match`.
    pub(crate) careless: bool,
    /// Every n-th answer is an error.
    pub(crate) error_every: u64,
}

/// A server on loopback that is stopped when it is dropped.
pub(crate) struct Web {
    pub(crate) address: String,
    file: Arc<Mutex<(Vec<u8>, u32)>>,
    pub(crate) requests: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    place: String,
}

impl Web {
    pub(crate) fn start(bytes: Vec<u8>, manners: Manners) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = listener.local_addr().unwrap().to_string();
        let file = Arc::new(Mutex::new((bytes, 1)));
        let (stop, requests) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (shared, stopping, counted) = (Arc::clone(&file), Arc::clone(&stop), Arc::clone(&requests));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopping.load(Ordering::SeqCst) {
                    return;
                }
                let (shared, counted) = (Arc::clone(&shared), Arc::clone(&counted));
                std::thread::spawn(move || {
                    let _ = serve(&stream.unwrap(), &shared, manners, &counted);
                });
            }
        });
        Self { address: format!("http://{place}/dir/disk.img"), file, requests, stop, place }
    }

    /// Puts another version in the place of the file.
    pub(crate) fn change(&self, bytes: Vec<u8>) {
        let mut file = self.file.lock().unwrap();
        *file = (bytes, file.1 + 1);
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(&self.place);
    }
}

fn serve(
    stream: &TcpStream,
    file: &Mutex<(Vec<u8>, u32)>,
    manners: Manners,
    requests: &AtomicU64,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    loop {
        let Some(first) = lines.next().transpose()? else { return Ok(()) };
        let mut headers = Vec::new();
        while let Some(line) = lines.next().transpose()?.filter(|line| !line.is_empty()) {
            headers.push(line.to_ascii_lowercase());
        }
        let header = |name: &str| headers.iter().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let number = requests.fetch_add(1, Ordering::SeqCst);
        let (bytes, version) = file.lock().unwrap().clone();
        let tag = format!("{}\"v{version}\"", if manners.weak { "W/" } else { "" });
        let mut head = String::new();
        let mut body: &[u8] = &[];
        let head_only = first.starts_with("HEAD");
        let matches = header("if-match:").is_none_or(|want| want == tag && !manners.weak);
        let range = header("range: bytes=").and_then(|range| range.split_once('-'));
        let range = range.map(|(from, to)| (from.parse().unwrap(), to.parse::<usize>().unwrap() + 1));
        if manners.error_every > 0 && number % manners.error_every == 1 {
            head += "HTTP/1.1 503 Busy\r\n";
        } else if !first.contains(" /dir/disk.img ") {
            head += "HTTP/1.1 404 Not Found\r\n";
        } else if !matches && !manners.careless {
            head += "HTTP/1.1 412 Precondition Failed\r\n";
        } else if let Some((from, to)) = range.filter(|_| !manners.no_ranges) {
            body = &bytes[from..to.min(bytes.len())];
            head += "HTTP/1.1 206 Partial Content\r\n";
            head += &format!("Content-Range: bytes {from}-{}/{}\r\n", from + body.len() - 1, bytes.len());
        } else {
            body = &bytes;
            head += "HTTP/1.1 200 OK\r\n";
        }
        if !manners.no_version {
            head += &format!("ETag: {tag}\r\n");
        }
        head += &format!("Content-Length: {}\r\n\r\n", body.len());
        let mut out = stream;
        out.write_all(head.as_bytes())?;
        if !head_only {
            out.write_all(body)?;
        }
    }
}
