//! S3 servers, those that are installed: `minio`, and two simulations, `moto_server` (in Python) and `gofakes3` (in
//! Go), which know conditional puts as well.

use hectare_oracle::skip;
use hectare_oracle::tool::tool;
use object_store::ObjectStore;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::signer::Signer;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Server {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that is free at this moment.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The servers that are tried; those that are simulations accept any secret.
const SERVERS: [&str; 3] = ["minio", "moto_server", "gofakes3"];

/// Starts a server; `None` if it is not installed.
fn start(name: &str) -> Option<Server> {
    let mut command = tool(name)?;
    let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
    let address = format!("127.0.0.1:{port}");
    match name {
        "minio" => {
            command.args(["server", "--quiet", "--address", &address]).arg(folder.path());
            command.envs([("MINIO_ROOT_USER", "access"), ("MINIO_ROOT_PASSWORD", "secret-secret")])
        }
        "moto_server" => command.args(["-H", "127.0.0.1", "-p", &port.to_string()]),
        _ => command.args(["-backend", "bolt", "-host", &address, "-bolt.db"]).arg(folder.path().join("db")),
    };
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let server = Server { child, port, _folder: folder };
    let started = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(started.elapsed() < Duration::from_secs(120), "{name} does not listen");
        std::thread::sleep(Duration::from_millis(50));
    }
    Some(server)
}

/// Makes the bucket of a client, which the library can't.
fn make_bucket(client: &AmazonS3, port: u16) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let root = Path::default();
    let signed = client.signed_url(reqwest::Method::PUT, &root, Duration::from_secs(60));
    let url = runtime.block_on(signed).unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let target = format!("{}?{}", url.path(), url.query().unwrap_or_default());
    let head = format!("PUT {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 0\r\n");
    stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(" 200 "), "{answer}");
}

#[test]
fn s3_servers_serve() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let servers: Vec<_> = SERVERS.iter().filter_map(|name| start(name)).collect();
    if servers.is_empty() {
        skip!("store::s3_servers_serve", format!("none is installed of {}", SERVERS.join(", ")));
    }
    servers.iter().for_each(serves);
}

fn serves(server: &Server) {
    let endpoint = format!("http://127.0.0.1:{}", server.port);
    let client = || {
        AmazonS3Builder::new()
            .with_endpoint(&endpoint)
            .with_allow_http(true)
            .with_region("us-east-1")
            .with_access_key_id("access")
            .with_secret_access_key("secret-secret")
            .with_bucket_name("bucket")
            .build()
            .unwrap()
    };
    make_bucket(&client(), server.port);
    let store: Arc<dyn ObjectStore> = Arc::new(client());
    crate::suite::serves(&store, 2, 60);
}
