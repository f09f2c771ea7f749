//! Servers that break the rules: an error in time, and no more memory than was asked for. A server that is
//! silent is given up by the real clock, the others by a fast one.

use crate::servers::on;
use hectare_device::{Clock, Device};
use hectare_nbd::{NbdDevice, Options};
use hectare_units::Bytes;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

const GREETING: &[u8] = b"NBDMAGICIHAVEOPT\0\x03";

/// What a server answers to an option: a reply of a kind with data.
fn reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
    bytes.extend(data);
    bytes
}

const UNSUPPORTED: u32 = 1 << 31 | 1;

/// A handshake without any extension, for an export of 1 MiB.
fn plain(flags: u8) -> Vec<u8> {
    let export = [&[0, 0][..], &(1_u64 << 20).to_be_bytes(), &[0, flags]].concat();
    [
        GREETING,
        &reply(11, UNSUPPORTED, &[]),
        &reply(8, UNSUPPORTED, &[]),
        &reply(7, 3, &export),
        &reply(7, 1, &[]),
    ]
    .concat()
}

/// A handshake with replies in chunks, for an export of 1 MiB.
fn chunked() -> Vec<u8> {
    sized(1 << 20, None)
}

fn chunk(kind: u16, cookie: u64, payload: &[u8], claimed: u32) -> Vec<u8> {
    let mut bytes = 0x668e_33ef_u32.to_be_bytes().to_vec();
    bytes.extend([0, 1]);
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(claimed.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Serves the same bytes to every client: `first` at once, `then` after some request came.
fn serve(listener: UnixListener, first: Vec<u8>, then: Vec<u8>, asked: usize) {
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let (first, then) = (first.clone(), then.clone());
            std::thread::spawn(move || talk(&mut stream, &first, &then, asked));
        }
    });
}

fn talk(stream: &mut UnixStream, first: &[u8], then: &[u8], asked: usize) {
    let _ = stream.write_all(first);
    let mut heard = 0;
    let mut buf = [0; 4096];
    while heard < asked {
        match stream.read(&mut buf) {
            Ok(n @ 1..) => heard += n,
            _ => return,
        }
    }
    let _ = stream.write_all(then);
    while matches!(stream.read(&mut buf), Ok(1..)) {}
}

fn short() -> Options {
    let clock = Clock::fast(4);
    Options { reconnect_timeout: Duration::from_millis(300), clock, ..Options::default() }
}

#[test]
fn handshakes_that_make_no_sense_end_in_time() {
    let endless = [GREETING, &reply(11, UNSUPPORTED, &[]), &reply(8, UNSUPPORTED, &[])].concat();
    let info = reply(7, 3, &[0, 9]);
    let sizes = [&[0, 3][..], &[0; 4], &4096_u32.to_be_bytes(), &4096_u32.to_be_bytes()].concat();
    let long =
        [GREETING, &0x0003_e889_0455_65a9_u64.to_be_bytes(), &[0, 0, 0, 11], &[0, 0, 0, 1], &[0xff; 4]]
            .concat();
    let cases: [(Vec<u8>, &str); 9] = [
        (Vec::new(), "no answer in time"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "does not greet"),
        (b"NBDMAGIC\x00\x00\x42\x02\x81\x86\x12\x53".to_vec(), "before 2011"),
        (b"NBDMAGICIHAVEOPT\0\0".to_vec(), "fixed newstyle"),
        (long, "longer than any can be"),
        ([&endless[..], &info.repeat(1000)].concat(), "do not end"),
        ([&endless[..], &reply(7, 3, &sizes)].concat(), "contradict"),
        ([&endless[..], &reply(7, 1, &[])].concat(), "how long the export is"),
        ([&endless[..], &reply(7, 1 << 31 | 5, b"no\x1b[31m")].concat(), "it wants TLS"),
    ];
    for (bytes, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        serve(UnixListener::bind(&socket).unwrap(), bytes, Vec::new(), usize::MAX);
        let began = Instant::now();
        let error = NbdDevice::open(&on(&socket, "x"), &short()).err().unwrap().to_string();
        assert!(began.elapsed() < Duration::from_secs(5), "{expected}: {:?}", began.elapsed());
        assert!(error.contains(expected), "{expected}: {error}");
        assert!(!error.contains('\x1b'));
    }
}

#[test]
fn replies_that_make_no_sense_end_the_connection_and_then_the_device() {
    // What the client sends before its first request: its flags, three or four options; the request has 28.
    let simple = |error: u32, cookie: u64, data: &[u8]| {
        [&0x6744_6698_u32.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes(), data].concat()
    };
    let at = |offset: u64, len: usize| [&offset.to_be_bytes()[..], &vec![1; len]].concat();
    let cases: [(Vec<u8>, Vec<u8>); 11] = [
        (plain(1), b"garbage garbage garbage".to_vec()),
        (plain(1), simple(0, 99, &[])),
        (plain(1), chunk(0, 1, &[], 0)),
        (chunked(), simple(0, 1, &[0; 512])),
        (chunked(), chunk(1, 1, &at(0, 4096), 4104)),
        (chunked(), chunk(1, 1, &at(1 << 60, 512), 520)),
        (chunked(), chunk(1, 1, &[], u32::MAX)),
        (chunked(), chunk(2, 1, &[0; 12], 12)),
        (chunked(), chunk(0, 1, &[], 0)),
        (chunked(), chunk(5, 1, &[0; 12], 12)),
        (chunked(), chunk(0x8001, 1, &[0, 0, 0, 5, 0xff, 0xff], 6)),
    ];
    for (number, (hello, answer)) in cases.into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        // All that comes before the request is at least this long.
        serve(UnixListener::bind(&socket).unwrap(), hello, answer, 4 + 3 * 16 + 28 + 7);
        let client = NbdDevice::open(&on(&socket, "x"), &short()).unwrap();
        let began = Instant::now();
        let error = client.read_at(Bytes::ZERO, &mut [0; 512]).unwrap_err().to_string();
        assert!(began.elapsed() < Duration::from_secs(8), "case {number}: {:?}", began.elapsed());
        assert!(error.contains("could not be made again within 0.3 s"), "case {number}: {error}");
    }
}

#[test]
fn a_server_that_never_replies_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    serve(UnixListener::bind(&socket).unwrap(), plain(1), Vec::new(), usize::MAX);
    let patient = Options { reconnect_timeout: Duration::from_secs(2), ..Options::default() };
    let client = NbdDevice::open(&on(&socket, "x"), &patient).unwrap();
    let began = Instant::now();
    let error = client.read_at(Bytes::ZERO, &mut [0; 512]).unwrap_err().to_string();
    assert!(
        began.elapsed() >= Duration::from_secs(2) && began.elapsed() < Duration::from_secs(7),
        "{:?}",
        began.elapsed()
    );
    assert!(error.contains("the server does not answer"), "{error}");
}

/// A handshake in chunks for an export of this length, with these flags and block sizes.
fn sized(len: u64, sizes: Option<[u32; 3]>) -> Vec<u8> {
    let export = [&[0, 0][..], &len.to_be_bytes(), &[0, 5]].concat();
    let sizes = sizes.map(|sizes| [&[0, 3][..], &sizes.map(u32::to_be_bytes).concat()].concat());
    let sizes = sizes.map(|sizes| reply(7, 3, &sizes)).unwrap_or_default();
    let context = [&7_u32.to_be_bytes()[..], b"base:allocation"].concat();
    [
        GREETING,
        &reply(11, UNSUPPORTED, &[]),
        &reply(8, 1, &[]),
        &reply(10, 4, &context),
        &reply(10, 1, &[]),
        &reply(7, 3, &export),
        &sizes,
        &reply(7, 1, &[]),
    ]
    .concat()
}

#[test]
fn sizes_that_lie_are_refused_or_harmless() {
    let opened = |hello: Vec<u8>| {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        serve(UnixListener::bind(&socket).unwrap(), hello, Vec::new(), usize::MAX);
        NbdDevice::open(&on(&socket, "x"), &short()).map_err(|error| error.to_string())
    };
    for (len, sizes) in [
        (1000, Some([512, 4096, 1 << 20])),
        (1 << 20, Some([0, 4096, 1 << 20])),
        (1 << 20, Some([3, 4096, 1 << 20])),
        (1 << 20, Some([4096, 512, 1 << 20])),
        (1 << 20, Some([512, 4096, 0])),
        (1 << 20, Some([1 << 31, 1 << 31, 1 << 31])),
    ] {
        let error = opened(sized(len, sizes)).err().unwrap();
        assert!(error.contains("block size") || error.contains("contradict"), "{sizes:?}: {error}");
    }
    // As long as can be: no place in it overflows, and nothing of that size is made.
    let device = opened(sized(u64::MAX, None)).unwrap();
    assert_eq!(device.len(), Bytes::new(u64::MAX));
    assert!(device.read_at(Bytes::new(u64::MAX), &mut [0; 2]).is_err());
    assert!(device.read_at(Bytes::new(u64::MAX - 512), &mut [0; 512]).is_err(), "nobody answers");
}

#[test]
fn extents_that_lie_end_nothing_but_themselves() {
    let status = |extents: &[(u32, u32)]| {
        let list: Vec<u8> = extents
            .iter()
            .flat_map(|(len, state)| [len.to_be_bytes(), state.to_be_bytes()].concat())
            .collect();
        let payload = [&7_u32.to_be_bytes()[..], &list].concat();
        chunk(5, 1, &payload, u32::try_from(payload.len()).unwrap())
    };
    for extents in [&[(0, 3)][..], &[(u32::MAX, 3), (u32::MAX, 3)], &[], &[(512, 3), (0, 0)]] {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        serve(UnixListener::bind(&socket).unwrap(), sized(1 << 20, None), status(extents), 4 + 5 * 16);
        let device = NbdDevice::open(&on(&socket, "x"), &short()).unwrap();
        let began = Instant::now();
        if let Ok(extent) = device.extent_at(Bytes::new(4096), Bytes::new(8192)) {
            assert!(extent.len > Bytes::ZERO && extent.len <= Bytes::new(8192), "{extents:?}: {extent:?}");
        }
        assert!(began.elapsed() < Duration::from_secs(8), "{extents:?}");
    }
}

/// Byte by byte, each in time, and no end in sight.
#[test]
fn a_handshake_that_trickles_ends_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            std::thread::spawn(move || {
                let refusal = reply(11, UNSUPPORTED, &[0; 4096]);
                for byte in GREETING.iter().chain(&refusal) {
                    std::thread::sleep(Duration::from_millis(30));
                    if stream.write_all(&[*byte]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let began = Instant::now();
    let error = NbdDevice::open(&on(&socket, "x"), &short()).err().unwrap().to_string();
    assert!(error.contains("no answer in time"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

/// Reads exactly so many bytes; none at the end.
fn take<const N: usize>(stream: &mut UnixStream) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).ok().map(|()| bytes)
}

/// Serves one client, whose first flush it fails and forgets.
fn fail_one_flush(mut stream: UnixStream) -> Option<()> {
    const HAS_FLUSH: u8 = 1 | 4;
    const GO: u32 = 7;
    stream.write_all(&plain(HAS_FLUSH)).ok()?;
    take::<4>(&mut stream)?;
    loop {
        let option: [u8; 16] = take(&mut stream)?;
        let [kind, len] = [8, 12].map(|at| u32::from_be_bytes(option[at..at + 4].try_into().unwrap()));
        stream.read_exact(&mut vec![0; usize::try_from(len).unwrap()]).ok()?;
        if kind == GO {
            break;
        }
    }
    let mut error = 5_u32;
    loop {
        let request: [u8; 28] = take(&mut stream)?;
        let len = u32::from_be_bytes(request[24..].try_into().unwrap());
        let said = match request[7] {
            1 => stream.read_exact(&mut vec![0; usize::try_from(len).unwrap()]).ok().map(|()| 0)?,
            3 => std::mem::take(&mut error),
            _ => 0,
        };
        let reply = [&0x6744_6698_u32.to_be_bytes()[..], &said.to_be_bytes(), &request[8..16]].concat();
        stream.write_all(&reply).ok()?;
    }
}

#[test]
fn regression_the_failure_of_a_flush_of_its_own_was_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            std::thread::spawn(move || fail_one_flush(stream));
        }
    });
    let few = Options { write: true, connections: 1, unflushed_max: 64 << 10, ..short() };
    let client = NbdDevice::open(&on(&socket, "x"), &few).unwrap();
    client.write_at(Bytes::ZERO, &[1; 4096]).unwrap();
    // Too much is kept: the device flushes, and this write is told that it failed.
    let error = client.write_at(Bytes::kib(64), &[2; 64 << 10]).unwrap_err().to_string();
    assert!(error.contains("flush"), "{error}");
    // So is whoever wrote the bytes before.
    client.flush().unwrap_err();
    client.write_durable(Bytes::ZERO, &[std::io::IoSlice::new(&[3; 512])]).unwrap_err();
}
