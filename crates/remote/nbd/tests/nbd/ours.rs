//! Our client and our server with each other, and our server with the clients of others.

use crate::behaviour::{behaves, neighbours_stay_apart};
use crate::servers::{Ours, on, open, options};
use hectare_device::{
    Device, FaultDevice, FileOptions, MemoryDevice, Operation, Outcome, Overwrite, Rule, SparseDevice,
};
use hectare_nbd::{Listener, NbdDevice, Options, Place};
use hectare_oracle::skip;
use hectare_oracle::tool::{need, run};
use hectare_units::Bytes;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

#[test]
fn it_is_a_device_over_any_kind_of_device() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let len = Bytes::new((8 << 20) + 1234);
    let path = folder.path().join("file");
    let file = FileOptions::new().write(true).create(&path, len, Overwrite::Refuse).unwrap();
    let devices: [Arc<dyn Device>; 3] =
        [Arc::new(file), Arc::new(MemoryDevice::new(len)), Arc::new(SparseDevice::new(len))];
    for device in devices {
        let server = Ours::start(Arc::clone(&device), &socket, false);
        let client = open(&socket, "vol");
        // Other hosts don't say where the holes of a file are.
        assert!(client.is_zeroed() || cfg!(hectare_portable), "{}", device.name());
        assert!(client.len() == len && !client.is_read_only());
        behaves(&client, 1, 400, 1);
        let (mut ours, mut theirs) = (vec![0; 8 << 20], vec![1; 8 << 20]);
        client.read_at(Bytes::new(1234), &mut ours).unwrap();
        device.read_at(Bytes::new(1234), &mut theirs).unwrap();
        assert!(ours == theirs, "{}", device.name());
        neighbours_stay_apart(&client);
        assert!(!open(&socket, "").is_zeroed(), "it has data now");
        drop(client);
        server.stop().unwrap();
    }
}

#[test]
fn an_exabyte_is_handled_in_few_requests() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let len = Bytes::gib(1 << 30);
    let device = Arc::new(SparseDevice::new(len));
    let _server = Ours::start(device, &socket, false);
    let client = open(&socket, "vol");
    assert!(client.is_zeroed());
    client.write_at(len - Bytes::new(3), b"end").unwrap();
    assert_eq!(client.extent_at(Bytes::ZERO, len).unwrap().len, len - Bytes::kib(4));
    client.discard(Bytes::ZERO, len).unwrap();
    client.zero(len - Bytes::gib(1), Bytes::gib(1)).unwrap();
    assert!(client.extent_at(Bytes::ZERO, len).unwrap().is_zero);
    assert!(client.requests() < 20, "{} requests", client.requests());
}

#[test]
fn holes_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let device = Arc::new(hectare_device::StatsDevice::new(MemoryDevice::new(Bytes::mib(64))));
    device.write_at(Bytes::mib(40), &[7; 1 << 20]).unwrap();
    let _server = Ours::start(Arc::clone(&device) as _, &socket, true);
    let client = NbdDevice::open(&on(&socket, "vol"), &Options::default()).unwrap();
    let before = device.snapshot();
    let mut found = vec![1; 64 << 20];
    client.read_at(Bytes::ZERO, &mut found).unwrap();
    assert!(found[40 << 20..41 << 20].iter().all(|byte| *byte == 7));
    assert_eq!(found.iter().map(|byte| u64::from(*byte)).sum::<u64>(), 7 << 20);
    let read = device.snapshot().since(&before).of(Operation::Read).bytes;
    assert_eq!(read, Bytes::mib(1), "of 64 MiB");
}

#[test]
fn a_read_only_export_is_refused_for_writing_and_serves_reading() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let device = Arc::new(MemoryDevice::from_bytes(&[5; 10_000]));
    let _server = Ours::start(device, &socket, true);
    let error = NbdDevice::open(&on(&socket, "vol"), &options()).err().unwrap().to_string();
    assert!(error.ends_with("cannot open: the server exports it for reading only"), "{error}");
    let client = NbdDevice::open(&on(&socket, "vol"), &Options::default()).unwrap();
    let mut found = [0; 100];
    client.read_at(Bytes::new(9_900), &mut found).unwrap();
    assert_eq!(found, [5; 100]);
    assert!(client.is_read_only() && client.write_at(Bytes::ZERO, &[1]).is_err());
    client.flush().unwrap();
    let error = NbdDevice::open(&on(&socket, "other"), &Options::default()).err().unwrap().to_string();
    assert!(error.contains("it has no export of that name"), "{error}");
}

#[test]
fn failures_of_the_device_reach_the_client_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let device = Arc::new(FaultDevice::new(MemoryDevice::new(Bytes::mib(1))));
    let server = Ours::start(Arc::clone(&device) as _, &socket, false);
    let client = open(&socket, "vol");
    device.add(Rule::new(Outcome::NO_SPACE).on(&[Operation::Write]).times(1));
    let error = client.write_at(Bytes::kib(4), &[1; 512]).unwrap_err();
    assert!(error.is_no_space(), "{error}");
    for operation in [Operation::Read, Operation::Flush, Operation::Zero] {
        device.add(Rule::new(Outcome::IO).on(&[operation]).times(1));
        let failed = match operation {
            Operation::Read => client.read_at(Bytes::ZERO, &mut [0; 512]),
            Operation::Flush => client.flush(),
            _ => client.zero(Bytes::ZERO, Bytes::kib(8)),
        };
        let error = failed.unwrap_err();
        assert!(error.to_string().ends_with("Input/output error"), "{error}");
    }
    client.write_at(Bytes::ZERO, b"it goes on").unwrap();
    drop(client);
    device.add(Rule::new(Outcome::IO).on(&[Operation::Flush]));
    assert!(server.stop().is_err(), "the last flush fails, which must show");
}

#[test]
fn a_socket_is_its_owners_and_a_dead_one_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let place = Place::Unix(socket.clone());
    drop(UnixListener::bind(&socket).unwrap());
    let listener = Listener::bind(&place, false).unwrap();
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(Listener::bind(&place, false).is_err(), "a server listens there");
    drop(listener);
    assert!(!socket.exists());
    std::fs::write(&socket, "a file").unwrap();
    assert!(Listener::bind(&place, false).is_err());
    assert_eq!(std::fs::read(&socket).unwrap(), b"a file");
    let anywhere = Place::Tcp("0.0.0.0".to_owned(), 0);
    assert!(Listener::bind(&anywhere, false).err().unwrap().to_string().contains("--public"));
    assert!(Listener::bind(&Place::Tcp("127.0.0.1".to_owned(), 0), false).is_ok());
}

#[test]
fn hostile_clients_are_sent_away_and_others_served() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let _server = Ours::start(Arc::new(MemoryDevice::new(Bytes::mib(1))), &socket, false);
    let client = open(&socket, "vol");
    let option = |number: u32, len: u32| {
        [&1_u32.to_be_bytes()[..], b"IHAVEOPT", &number.to_be_bytes(), &len.to_be_bytes()].concat()
    };
    let chosen = [&option(1, 3)[..], b"vol"].concat();
    let request = |command: u16, len: u32| {
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend([0; 2]);
        bytes.extend(command.to_be_bytes());
        bytes.extend([0; 16]);
        bytes.extend(len.to_be_bytes());
        bytes
    };
    let hostile: [Vec<u8>; 6] = [
        vec![0xff; 4096],
        option(7, u32::MAX),
        std::iter::once(1_u32.to_be_bytes().to_vec())
            .chain(std::iter::repeat_n(option(99, 0)[4..].to_vec(), 1000))
            .flatten()
            .collect(),
        [&chosen[..], &request(1, u32::MAX)].concat(),
        [&chosen[..], &request(0, u32::MAX)].concat(),
        [&chosen[..], &request(77, 5)].concat(),
    ];
    for bytes in hostile {
        let mut stream = UnixStream::connect(&socket).unwrap();
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        assert!(said.len() < 1 << 20);
        client.write_at(Bytes::ZERO, b"still here").unwrap();
    }
    assert_eq!(client.reconnects(), 0);
}

#[test]
fn the_clients_of_others_read_write_and_map_it() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let device = Arc::new(MemoryDevice::new(Bytes::mib(16)));
    device.write_at(Bytes::mib(4), &[9; 1 << 20]).unwrap();
    let _server = Ours::start(Arc::clone(&device) as _, &socket, false);
    let address = on(&socket, "vol").to_string();
    let (mut info, mut copy, mut io) = match (need("nbdinfo"), need("nbdcopy"), need("qemu-io")) {
        (Ok(info), Ok(copy), Ok(io)) => (info, copy, io),
        (Err(reason), ..) | (_, Err(reason), _) | (.., Err(reason)) => {
            skip!("ours::the_clients_of_others_read_write_and_map_it", reason)
        }
    };
    let said = run(info.arg(&address)).expect_success().stdout;
    for line in [
        "export-size: 16777216",
        "can_flush: true",
        "can_fua: true",
        "can_multi_conn: true",
        "can_trim: true",
        "can_zero: true",
        "base:allocation",
        "a volume",
    ] {
        assert!(said.contains(line), "{line} in {said}");
    }
    let said = run(need("nbdinfo").unwrap().args(["--map", &address])).expect_success().stdout;
    let words: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        words,
        [
            vec!["0", "4194304", "3", "hole,zero"],
            vec!["4194304", "1048576", "0", "data"],
            vec!["5242880", "11534336", "3", "hole,zero"],
        ]
    );
    let said =
        run(need("nbdinfo").unwrap().args(["--list", &format!("nbd+unix:///?socket={}", socket.display())]));
    assert!(said.expect_success().stdout.contains("export=\"vol\""));
    let copied = folder.path().join("copy");
    let _ = run(copy.arg(&address).arg(&copied)).expect_success();
    assert!(std::fs::read(&copied).unwrap() == device.to_vec());
    let commands =
        ["write -P 17 5M 70000", "write -z 4M 64k", "discard 12M 1M", "aio_write -P 3 -f 9M 4k", "flush"];
    io.args(["-f", "raw"]).args(commands.iter().flat_map(|command| ["-c", command])).arg(&address);
    let _ = run(&mut io).expect_success();
    let bytes = device.to_vec();
    assert!(bytes[5 << 20..(5 << 20) + 70_000].iter().all(|byte| *byte == 17));
    assert!(bytes[4 << 20..(4 << 20) + 65_536].iter().all(|byte| *byte == 0));
    assert!(bytes[9 << 20..(9 << 20) + 4096].iter().all(|byte| *byte == 3));
    let back = folder.path().join("back");
    std::fs::write(&back, vec![0x42; 16 << 20]).unwrap();
    let _ = run(need("nbdcopy").unwrap().arg("--flush").arg(&back).arg(&address)).expect_success();
    assert!(device.to_vec().iter().all(|byte| *byte == 0x42));
}
