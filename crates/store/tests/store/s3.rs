//! An S3 server, where one is installed: `minio`, or `moto_server` (a simulation, in Python).

use hectare_oracle::skip;
use hectare_oracle::tool::{find, tool};
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

fn start() -> Option<Server> {
    let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
    let mut command = if find("minio").is_some() {
        let mut minio = tool("minio")?;
        minio.args(["server", "--quiet", "--address", &format!("127.0.0.1:{port}")]).arg(folder.path());
        minio.envs([("MINIO_ROOT_USER", "access"), ("MINIO_ROOT_PASSWORD", "secret-secret")]);
        minio
    } else {
        let mut moto = tool("moto_server")?;
        moto.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        moto
    };
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let server = Server { child, port, _folder: folder };
    let started = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(started.elapsed() < Duration::from_secs(120), "the S3 server does not listen");
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
fn an_s3_server_serves() {
    let Some(server) = start() else {
        skip!("store::an_s3_server_serves", "there is neither minio nor moto_server");
    };
    let _ = rustls::crypto::ring::default_provider().install_default();
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
