//! A process that has lost an export to another host: it writes nothing any more, neither new requests nor those
//! that it had made before.

use crate::proxy::Proxy;
use crate::servers::{Ours, on, options};
use hectare_device::{Device, Fence, Mark, MemoryDevice};
use hectare_nbd::NbdDevice;
use hectare_units::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The mark is a word at byte 3000: ours as long as it is zero.
#[derive(Default)]
struct Word {
    fresh: AtomicBool,
    judged: AtomicU32,
}

const AT: Bytes = Bytes::new(3000);

impl Fence for Word {
    fn mark_len(&self) -> usize {
        4
    }

    fn is_fresh(&self) -> bool {
        self.fresh.load(Ordering::SeqCst)
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn judge(&self, _: Duration, mark: &[u8]) -> Mark {
        self.judged.fetch_add(1, Ordering::SeqCst);
        if mark == [0; 4] { Mark::Ours } else { Mark::Lost("host b has it (MMP)".to_owned()) }
    }
}

#[test]
fn what_was_written_before_is_not_written_again_over_the_next_owners() {
    let folder = tempfile::tempdir().unwrap();
    let [socket, behind] = ["front", "behind"].map(|name| folder.path().join(name));
    let memory = Arc::new(MemoryDevice::new(Bytes::mib(1)));
    let _server = Ours::start(Arc::clone(&memory) as _, &behind, false);
    let proxy = Proxy::start(&socket, &behind, || u64::MAX / 2);
    let client = NbdDevice::open(&on(&socket, "vol"), &options()).unwrap();
    let word = Arc::new(Word::default());
    let fence: Arc<dyn Fence> = Arc::clone(&word) as _;
    client.add_fence(AT, &fence);
    client.write_at(Bytes::kib(100), b"unflushed").unwrap();
    assert_eq!(word.judged.load(Ordering::SeqCst), 1, "not fresh: it was read");
    word.fresh.store(true, Ordering::SeqCst);
    client.write_at(Bytes::kib(200), b"unflushed").unwrap();
    assert_eq!(word.judged.load(Ordering::SeqCst), 1, "fresh: it was not");

    // Stopped, with the connection lost; another host takes the export and changes it.
    word.fresh.store(false, Ordering::SeqCst);
    proxy.block();
    memory.write_at(AT, b"host").unwrap();
    memory.write_at(Bytes::kib(100), b"the next!").unwrap();
    memory.write_at(Bytes::kib(200), b"the next!").unwrap();
    let before = memory.to_vec();
    proxy.unblock();
    let began = Instant::now();
    let error = client.read_at(Bytes::ZERO, &mut [0; 1]).unwrap_err().to_string();
    assert!(error.contains("host b has it (MMP)"), "{error}");
    assert!(client.write_at(Bytes::kib(300), b"new").is_err() && client.flush().is_err());
    assert!(began.elapsed() < options().reconnect_timeout, "it is not tried again");
    assert!(memory.to_vec() == before);
}

#[test]
fn changes_of_all_kinds_are_refused_and_a_fence_can_be_taken_away() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let memory = Arc::new(MemoryDevice::new(Bytes::mib(1)));
    let _server = Ours::start(Arc::clone(&memory) as _, &socket, false);
    type Change = fn(&dyn Device) -> hectare_device::Result<()>;
    let changes: [Change; 4] = [
        |device| device.write_at(Bytes::ZERO, b"x"),
        |device| device.write_durable(Bytes::ZERO, &[std::io::IoSlice::new(b"x")]),
        |device| device.zero(Bytes::ZERO, Bytes::kib(8)),
        |device| device.discard(Bytes::ZERO, Bytes::kib(8)),
    ];
    for change in changes {
        memory.zero(Bytes::ZERO, memory.len()).unwrap();
        let client = NbdDevice::open(&on(&socket, "vol"), &options()).unwrap();
        let fence: Arc<dyn Fence> = Arc::new(Word::default());
        client.add_fence(AT, &fence);
        client.remove_fence(&fence);
        memory.write_at(AT, b"host").unwrap();
        memory.write_at(Bytes::ZERO, b"y").unwrap();
        client.flush().unwrap();
        let before = memory.to_vec();
        client.add_fence(AT, &fence);
        let error = change(&client).unwrap_err().to_string();
        assert!(error.contains("host b has it"), "{error}");
        assert!(memory.to_vec() == before);
        // It has ended for good.
        assert!(client.read_at(Bytes::ZERO, &mut [0; 1]).is_err());
    }
}
