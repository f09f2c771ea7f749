//! TLS: our client with the servers of others, our server with the clients of others and with ours, and
//! attackers on the network.
//!
//! Certificates are made anew by `openssl` for each test, and are good for two days.

use crate::behaviour::{behaves, neighbours_stay_apart};
use crate::servers::{Ours, Theirs, on, options};
use hectare_device::{Device, MemoryDevice};
use hectare_nbd::{Address, Export, Listener, NbdDevice, Options, Place, Server, TlsClient, TlsServer};
use hectare_oracle::tool::{need, run};
use hectare_oracle::{Skip, skip};
use hectare_units::Bytes;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A directory with an authority (`ca-cert.pem`), a server (`server-cert.pem`, `server-key.pem`) for the names
/// `localhost` and `127.0.0.1`, and a client (`client-cert.pem`, `client-key.pem`): as qemu, nbdkit and libnbd
/// want them.
struct Certificates(tempfile::TempDir);

impl Certificates {
    fn new() -> Result<Self, Skip> {
        let made = Self(tempfile::tempdir().unwrap());
        let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-batch"];
        let ca = [
            "-x509",
            "-subj",
            "/CN=an authority of tests",
            "-days",
            "2",
            "-keyout",
            "ca-key.pem",
            "-out",
            "ca-cert.pem",
        ];
        made.openssl(&[&["req"][..], &curve, &ca].concat())?;
        for (number, name, usage) in [("2", "server", "serverAuth"), ("3", "client", "clientAuth")] {
            let [key, request, out] =
                ["key.pem", "request.pem", "cert.pem"].map(|end| format!("{name}-{end}"));
            let subject = format!("/CN={name}");
            made.openssl(
                &[&["req"][..], &curve, &["-subj", &subject, "-keyout", &key, "-out", &request]].concat(),
            )?;
            let more = format!(
                "basicConstraints=CA:FALSE\nextendedKeyUsage={usage}\n\
                 subjectAltName=DNS:localhost,IP:127.0.0.1\n"
            );
            std::fs::write(made.path("extensions"), more).unwrap();
            let signed = [
                "x509",
                "-req",
                "-days",
                "2",
                "-CA",
                "ca-cert.pem",
                "-CAkey",
                "ca-key.pem",
                "-set_serial",
                number,
            ];
            made.openssl(
                &[&signed[..], &["-extfile", "extensions", "-in", &request, "-out", &out]].concat(),
            )?;
        }
        Ok(made)
    }

    fn openssl(&self, words: &[&str]) -> Result<(), Skip> {
        let _ = run(need("openssl")?.current_dir(self.0.path()).args(words)).expect_success();
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn folder(&self) -> &str {
        self.0.path().to_str().unwrap()
    }

    fn client(&self, with_certificate: bool) -> TlsClient {
        let (certificate, key) = (self.path("client-cert.pem"), self.path("client-key.pem"));
        let identity = with_certificate.then_some((certificate.as_path(), key.as_path()));
        TlsClient::new(Some(&self.path("ca-cert.pem")), identity).unwrap()
    }

    fn server(&self, asks: bool) -> TlsServer {
        let ca = self.path("ca-cert.pem");
        let (certificate, key) = (self.path("server-cert.pem"), self.path("server-key.pem"));
        TlsServer::new(&certificate, &key, asks.then_some(ca.as_path())).unwrap()
    }

    fn options(&self, with_certificate: bool) -> Options {
        Options { tls: Some(self.client(with_certificate)), ..options() }
    }
}

macro_rules! certificates {
    ($name:expr) => {
        match Certificates::new() {
            Ok(made) => made,
            Err(reason) => skip!($name, reason),
        }
    };
}

fn secure(socket: &Path, export: &str) -> Address {
    Address { tls: Some("localhost".to_owned()), ..on(socket, export) }
}

fn refusal(address: &Address, options: &Options) -> String {
    NbdDevice::open(address, options).err().unwrap().to_string()
}

/// A server of ours on a socket, with TLS.
fn ours(certificates: &Certificates, asks: bool, device: &Arc<MemoryDevice>, socket: &Path) -> Ours {
    let device = Arc::clone(device) as Arc<dyn Device>;
    let export = Export { device, name: b"vol".to_vec(), description: String::new(), read_only: false };
    let listener = Listener::bind(&Place::Unix(socket.to_owned()), false).unwrap();
    Ours::run(Server::new(export, listener).unwrap().with_tls(certificates.server(asks)))
}

#[test]
fn ours_with_each_other() {
    let certificates = certificates!("tls::ours_with_each_other");
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    for asks in [false, true] {
        let device = Arc::new(MemoryDevice::new(Bytes::mib(8)));
        let server = ours(&certificates, asks, &device, &socket);
        let client = NbdDevice::open(&secure(&socket, "vol"), &certificates.options(asks)).unwrap();
        behaves(&client, 1, 300, 1);
        neighbours_stay_apart(&client);
        assert_eq!(client.reconnects(), 0);
        let mut through = vec![0; 8 << 20];
        client.read_at(Bytes::ZERO, &mut through).unwrap();
        assert!(through == device.to_vec());
        // The wrong name, the wrong authority, no certificate, no TLS at all.
        let wrong_name = Address { tls: Some("other.example".to_owned()), ..on(&socket, "vol") };
        let error = refusal(&wrong_name, &certificates.options(asks));
        assert!(error.contains("TLS with the server failed") && error.contains("tls-hostname"), "{error}");
        let by_number = Address { tls: Some("127.0.0.1".to_owned()), ..on(&socket, "vol") };
        drop(NbdDevice::open(&by_number, &certificates.options(asks)).unwrap());
        let stranger = Certificates::new().unwrap();
        let error = refusal(&secure(&socket, "vol"), &stranger.options(asks));
        assert!(error.contains("TLS with the server failed") && error.contains("--tls-ca"), "{error}");
        let plain = refusal(&on(&socket, "vol"), &options());
        assert!(plain.contains("it wants TLS: write nbds://"), "{plain}");
        if asks {
            // Of TLS 1.3 the client hears of it with the first reply only.
            let error = refusal(&secure(&socket, "vol"), &certificates.options(false));
            assert!(error.contains("ertificate"), "{error}");
        }
        client.write_at(Bytes::ZERO, b"to the last").unwrap();
        client.flush().unwrap();
        drop(client);
        server.stop().unwrap();
    }
}

#[test]
fn a_connection_that_breaks_is_made_again() {
    let certificates = certificates!("tls::a_connection_that_breaks_is_made_again");
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let device = Arc::new(MemoryDevice::new(Bytes::mib(8)));
    let server = ours(&certificates, false, &device, &socket);
    let client = NbdDevice::open(&secure(&socket, "vol"), &certificates.options(false)).unwrap();
    client.write_at(Bytes::ZERO, b"before").unwrap();
    server.stop().unwrap();
    let server = ours(&certificates, false, &device, &socket);
    client.write_at(Bytes::mib(1), &[7; 300_000]).unwrap();
    client.flush().unwrap();
    assert!(client.reconnects() > 0);
    // One without TLS in its place is none.
    server.stop().unwrap();
    let _plain = Ours::start(Arc::clone(&device) as _, &socket, false);
    let short = Options { reconnect_timeout: Duration::from_secs(1), ..certificates.options(false) };
    let error = refusal(&secure(&socket, "vol"), &short);
    assert!(error.contains("the server refuses TLS, without which nothing is sent"), "{error}");
}

#[test]
fn servers_of_others() {
    let certificates = certificates!("tls::servers_of_others");
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let credentials = format!("--tls-certificates={}", certificates.folder());
    for verify in [false, true] {
        let mut arguments = vec!["--tls=require", &credentials, "memory", "16M"];
        if verify {
            arguments.insert(0, "--tls-verify-peer");
        }
        let server = match Theirs::nbdkit(&arguments, &socket) {
            Ok(server) => server,
            Err(reason) => skip!("tls::servers_of_others", reason),
        };
        let client = NbdDevice::open(&secure(&socket, ""), &certificates.options(verify)).unwrap();
        behaves(&client, 2, 200, 1);
        neighbours_stay_apart(&client);
        assert_eq!(client.reconnects(), 0);
        assert!(refusal(&on(&socket, ""), &options()).contains("write nbds://"));
        drop(client);
        server.kill();
        std::fs::remove_file(&socket).unwrap();
    }
    let mut qemu = match need("qemu-nbd") {
        Ok(qemu) => qemu,
        Err(reason) => skip!("tls::servers_of_others", reason),
    };
    let file = folder.path().join("file");
    std::fs::write(&file, vec![0; 4 << 20]).unwrap();
    let object = format!("tls-creds-x509,id=t,endpoint=server,verify-peer=yes,dir={}", certificates.folder());
    qemu.args(["-t", "-f", "raw", "-e", "4", "-x", "vol", "--object", &object, "--tls-creds", "t", "-k"])
        .arg(&socket);
    let _server = Theirs::start(qemu.arg(&file), &socket);
    let client = NbdDevice::open(&secure(&socket, "vol"), &certificates.options(true)).unwrap();
    behaves(&client, 3, 200, 1);
    client.write_at(Bytes::new(77), b"encrypted on the way only").unwrap();
    client.flush().unwrap();
    assert_eq!(&std::fs::read(&file).unwrap()[77..102], b"encrypted on the way only");
}

#[test]
fn clients_of_others() {
    let certificates = certificates!("tls::clients_of_others");
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let device = Arc::new(MemoryDevice::new(Bytes::mib(4)));
    let server = ours(&certificates, true, &device, &socket);
    let (mut info, mut copy, mut qemu) = match (need("nbdinfo"), need("nbdcopy"), need("qemu-img")) {
        (Ok(info), Ok(copy), Ok(qemu)) => (info, copy, qemu),
        (info, copy, qemu) => {
            let reason = [info.err(), copy.err(), qemu.err()].into_iter().flatten().next().unwrap();
            skip!("tls::clients_of_others", reason)
        }
    };
    let address = format!(
        "nbds+unix:///vol?socket={}&tls-certificates={}&tls-hostname=localhost",
        socket.display(),
        certificates.folder()
    );
    let said = run(info.arg(&address)).expect_success().stdout;
    assert!(said.contains("4194304") && said.contains("with TLS"), "{said}");
    let file = folder.path().join("file");
    let content: Vec<u8> = (0..4_u32 << 18).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&file, &content).unwrap();
    let _ = run(copy.arg("--flush").arg(&file).arg(&address)).expect_success();
    assert!(device.to_vec() == content);
    let object = format!("tls-creds-x509,id=t,endpoint=client,dir={}", certificates.folder());
    let options = format!(
        "driver=nbd,server.type=unix,server.path={},export=vol,tls-creds=t,tls-hostname=localhost",
        socket.display()
    );
    let back = folder.path().join("back");
    qemu.args(["convert", "--object", &object, "--image-opts", &options, "-O", "raw"]).arg(&back);
    let _ = run(&mut qemu).expect_success();
    assert!(std::fs::read(&back).unwrap() == content);
    server.stop().unwrap();
}

const GREETING: &[u8] = b"NBDMAGICIHAVEOPT\0\x03";

/// A reply to the wish for TLS.
fn reply(kind: u32) -> Vec<u8> {
    [&0x0003_e889_0455_65a9_u64.to_be_bytes()[..], &5_u32.to_be_bytes(), &kind.to_be_bytes(), &[0; 4]]
        .concat()
}

/// A server that says these bytes, whatever it hears; what it heard goes to a channel when the client leaves.
fn scripted(socket: &Path, bytes: Vec<u8>) -> std::sync::mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.write_all(&bytes);
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard);
        let _ = sender.send(heard);
    });
    receiver
}

#[test]
fn what_comes_in_between_is_never_taken_for_the_servers_word() {
    let certificates = certificates!("tls::what_comes_in_between");
    let short = Options { reconnect_timeout: Duration::from_millis(300), ..certificates.options(false) };
    // An export, said before TLS: the replies that end a handshake without it.
    let go =
        [&0x0003_e889_0455_65a9_u64.to_be_bytes()[..], &7_u32.to_be_bytes(), &1_u32.to_be_bytes(), &[0; 4]]
            .concat();
    let cases: [(Vec<u8>, &str); 6] = [
        ([GREETING, &reply(1 << 31 | 1)].concat(), "the server refuses TLS, without which nothing is sent"),
        ([GREETING, &reply(1 << 31 | 2)].concat(), "its policy forbids that"),
        ([GREETING, &reply(3)].concat(), "the wish for TLS is answered with something else"),
        ([GREETING, &go].concat(), "a reply names an option that was not sent"),
        ([GREETING, &reply(1), &go].concat(), "TLS with the server failed"),
        ([GREETING, &reply(1)].concat(), "no answer in time"),
    ];
    for (bytes, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let heard = scripted(&socket, bytes);
        let began = Instant::now();
        let error = refusal(&secure(&socket, "the-export"), &short);
        assert!(error.contains(expected), "{expected}: {error}");
        assert!(began.elapsed() < Duration::from_secs(8), "{expected}: {:?}", began.elapsed());
        let heard = heard.recv().unwrap();
        assert!(
            !heard.windows(10).any(|part| part == b"the-export"),
            "{expected}: the name went out in the clear"
        );
    }
}

/// What a client says before TLS has no effect after it, and what it sends along with the wish is not taken for
/// a part of what is encrypted.
#[test]
fn our_server_forgets_what_came_before() {
    let certificates = certificates!("tls::our_server_forgets_what_came_before");
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let device = Arc::new(MemoryDevice::new(Bytes::mib(1)));
    let _server = ours(&certificates, false, &device, &socket);
    let option = |number: u32, data: &[u8]| {
        let len = u32::try_from(data.len()).unwrap();
        [b"IHAVEOPT", &number.to_be_bytes()[..], &len.to_be_bytes(), data].concat()
    };
    let talk = |sent: &[u8]| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(&[&[0, 0, 0, 3], sent].concat()).unwrap();
        let mut heard = Vec::new();
        // An end by reset counts as an end.
        let _ = stream.read_to_end(&mut heard);
        heard[18..].to_vec()
    };
    let kind = |heard: &[u8]| u32::from_be_bytes(heard[12..16].try_into().unwrap());
    // Structured replies, a list, the export: nothing without TLS; then it leaves.
    for number in [3, 6, 7, 8, 9, 10, 11, 99] {
        let heard = talk(&[option(number, &[]), option(2, &[])].concat());
        assert_eq!((kind(&heard), heard.len()), (1 << 31 | 5, 40), "{number}");
    }
    assert!(talk(&option(1, b"vol")).is_empty());
    assert_eq!(kind(&talk(&[option(5, b"x"), option(2, &[])].concat())), 1 << 31 | 3);
    // Plain options behind the wish: TLS fails, and none of them is answered.
    let heard = talk(&[option(5, &[]), option(8, &[]), option(7, &[0, 0, 0, 0, 0, 0])].concat());
    assert_eq!(kind(&heard), 1);
    assert!(
        !heard[20..].windows(8).any(|part| part == 0x0003_e889_0455_65a9_u64.to_be_bytes()),
        "{heard:x?}"
    );
}

#[test]
fn files_that_are_none_are_named() {
    let certificates = certificates!("tls::files_that_are_none_are_named");
    let [ca, certificate, key] =
        ["ca-cert.pem", "server-cert.pem", "server-key.pem"].map(|name| certificates.path(name));
    let missing = TlsClient::new(Some(&certificates.path("none")), None).err().unwrap().to_string();
    assert!(missing.contains("none: No such file"), "{missing}");
    let wrong = TlsClient::new(Some(&key), None).err().unwrap().to_string();
    assert!(wrong.contains("server-key.pem: it has nothing of that kind"), "{wrong}");
    let swapped = TlsServer::new(&key, &certificate, None).err().unwrap().to_string();
    assert!(swapped.contains("nothing of that kind"), "{swapped}");
    let other = TlsServer::new(&ca, &key, None).err().unwrap().to_string();
    assert!(other.contains("the certificate or its key can't be used"), "{other}");
}
