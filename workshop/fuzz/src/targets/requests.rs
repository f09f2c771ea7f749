//! Fuzz target: FUSE requests to the adapter of a mount, well-formed or not, about inodes that exist or not.
//!
//! Every request that expects a reply gets one, an error number or something else; only the client ends the
//! session; afterwards the volume closes, and the checker finds nothing.

use crate::input::Input;
use crate::requests::Request;
use hectare_check::{Options, check};
use hectare_device::MemoryDevice;
use hectare_engine::{Creation, NewNode, OpenOptions, Overwrite, Volume};
use hectare_fuse::client::Client;
use hectare_fuse::{Adapter, Atime, Behaviour};
use hectare_mkfs::FormatOptions;
use hectare_units::{Bytes, InodeNr};
use std::sync::{Arc, OnceLock};

const LOOKUP: u32 = 1;
const STATFS: u32 = 17;
const ROOT: u64 = 1;
/// Requests an input, so that each is quick.
const REQUESTS: usize = 64;

pub(super) fn target(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let flags = input.byte();
    let device = Arc::new(MemoryDevice::from_bytes(base()));
    let options =
        OpenOptions { seed: Some(1), commit_interval: None, mmp_wait: false, ..OpenOptions::default() };
    let volume = Volume::open(Arc::clone(&device) as _, options).expect("it is sound");
    let behaviour = Behaviour {
        read_only: flags & 1 != 0,
        atime: if flags & 2 == 0 { Atime::Relative } else { Atime::Always },
        check_permissions: flags & 4 == 0,
        writeback: flags & 8 != 0,
        no_open: flags & 16 != 0,
        creation_times: flags & 32 != 0,
        ..Behaviour::default()
    };
    let adapter = Adapter::new(volume.clone(), behaviour, Arc::default()).expect("there is a root");
    let mut client = Client::start(adapter);
    let mut known = vec![ROOT];
    for name in [&b"a\0"[..], b"b\0", b"d\0"] {
        let found = client.ask(LOOKUP, ROOT, name).expect("it is there");
        known.push(u64::from_le_bytes(*found.first_chunk().expect("an entry")));
    }
    for _ in 0..REQUESTS {
        if input.is_empty() {
            break;
        }
        let request = Request::next(&mut input, &known);
        if request.is_answered() {
            let _ = client.ask(request.operation, request.node, &request.body);
        } else {
            client.tell(request.operation, request.node, &request.body);
        }
    }
    client.ask(STATFS, ROOT, &[]).expect("the volume is there");
    drop(client);
    volume.close().expect("it can be closed");
    drop(volume);
    let report = check(&*device, &Options::default()).expect("it can be checked");
    assert!(report.is_clean(), "{:?}", report.problems);
}

/// A small volume with two files and a directory in it.
fn base() -> &'static [u8] {
    static BASE: OnceLock<Vec<u8>> = OnceLock::new();
    BASE.get_or_init(|| {
        let device = Arc::new(MemoryDevice::new(Bytes::mib(4)));
        let volume = Volume::format(
            Arc::clone(&device) as _,
            &FormatOptions::default(),
            Overwrite::Refuse,
            OpenOptions::default(),
        )
        .expect("it can be made");
        for (name, node) in [("a", NewNode::File), ("b", NewNode::File), ("d", NewNode::Directory)] {
            let made = volume.create(InodeNr::ROOT, name.as_bytes(), node, Creation::default());
            made.expect("there is room");
        }
        volume.close().expect("it can be closed");
        device.to_vec()
    })
}
