//! A monitor over HTTP, without a mount: the form of the documents, that they contain what was counted, and
//! that hostile clients do no harm.

use crate::{Monitor, ServerReport, Watched, bind};
use hectare_device::{Device, MemoryDevice, StatsDevice};
use hectare_engine::{Creation, OpenOptions, Overwrite, Volume};
use hectare_mkfs::FormatOptions;
use hectare_oracle::{Metrics, until};
use hectare_units::Bytes;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Served {
    monitor: Monitor,
    volume: Volume,
    address: SocketAddr,
}

impl Served {
    fn new() -> Self {
        let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new(Bytes::mib(64)));
        let device = Arc::new(StatsDevice::new(memory));
        let below: Arc<dyn Device> = Arc::clone(&device) as _;
        let format = FormatOptions::default();
        let volume = Volume::format(below, &format, Overwrite::Refuse, OpenOptions::default()).unwrap();
        let mut monitor = Monitor::start(Watched {
            volume: volume.clone(),
            device,
            server: Some(Box::new(|| ServerReport { requests: 71, reconnects: 3 })),
            operations: Arc::default(),
            image: "an \"odd\"\nimage".into(),
            dir: "/mnt".into(),
            options: hectare_fuse::MountOptions::default(),
        })
        .unwrap();
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0)), false).unwrap();
        let address = monitor.serve_http(listener).unwrap();
        Self { monitor, volume, address }
    }

    /// The body at a path.
    fn get(&self, path: &str) -> String {
        let mut client = TcpStream::connect(self.address).unwrap();
        write!(client, "GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
        body.to_owned()
    }

    fn metrics(&self) -> Metrics {
        Metrics::parse(&self.get("/metrics")).unwrap()
    }
}

fn is(found: f64, expected: u64) {
    assert!((found - f64::from(u32::try_from(expected).unwrap())).abs() < 1e-9, "{found} is not {expected}");
}

#[test]
fn metrics_have_their_form_and_are_what_was_counted() {
    let served = Served::new();
    let before = served.metrics();
    assert_eq!(before.of("hectare_info")[0].0["image"], "an \"odd\"\nimage");
    for name in 0..50 {
        let path = format!("/file-{name}");
        served.volume.write_file(&path, &vec![1; 100_000], Creation::default()).unwrap();
    }
    served.volume.sync().unwrap();
    let after = served.metrics();
    after.not_below(&before).unwrap();
    let (allocator, journal) = (served.volume.allocator_stats(), served.volume.journal_stats());
    assert!(allocator.reqs >= 50 && journal.commits >= 1);
    is(after.get("hectare_allocator_reqs_total", &[]), allocator.reqs);
    is(after.get("hectare_server_requests_total", &[]), 71);
    is(after.get("hectare_server_reconnects_total", &[]), 3);
    is(after.get("hectare_allocator_pass_hits_total", &[("pass", "goal")]), allocator.passes.goal.hits);
    is(after.get("hectare_journal_commits_total", &[]), journal.commits);
    is(after.get("hectare_journal_pause_seconds_count", &[]), journal.commits);
    let written = |of: &Metrics| of.get("hectare_device_bytes_total", &[("operation", "write")]);
    assert!(written(&after) - written(&before) >= 5_000_000.0);
    let free = |of: &Metrics| of.get("hectare_free_bytes", &[]);
    assert!(free(&before) - free(&after) >= 5_000_000.0);
    is(after.get("hectare_operation_duration_seconds_count", &[("operation", "read")]), 0);
    is(after.get("hectare_stopped", &[]), 0);
}

#[test]
fn the_page_and_what_it_shows_are_served() {
    let served = Served::new();
    assert!(served.get("/").starts_with("<!doctype html>"));
    let live: serde_json::Value = serde_json::from_str(&served.get("/live.json")).unwrap();
    assert_eq!(live["state"], "working");
    let cells = live["survey"]["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 1024);
    assert!(cells[0] == 1000 && cells.iter().any(|cell| cell == 0), "metadata first, and free space");
    let free = served.volume.statfs().unwrap();
    let bytes = free.free.get() * u64::from(free.block_size.get());
    assert_eq!(live["survey"]["free"]["bytes"], bytes, "all free space is in some extent");
    // A second passes.
    until(|| {
        let live: serde_json::Value = serde_json::from_str(&served.get("/live.json")).unwrap();
        !live["history"].as_array().unwrap().is_empty()
    });
}

#[test]
fn clients_that_do_nothing_keep_nobody_waiting() {
    let served = Served::new();
    let idle: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(served.address).unwrap()).collect();
    let began = Instant::now();
    served.get("/metrics");
    assert!(began.elapsed() < Duration::from_secs(5), "the time that an idle client has");
    drop(idle);
    // A client that sends a request and never reads its answer.
    let mut deaf = TcpStream::connect(served.address).unwrap();
    deaf.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    served.get("/metrics");
    let Served { monitor, volume, address } = served;
    drop(monitor);
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
    volume.close().unwrap();
}
