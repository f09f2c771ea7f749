//! Connections that break and servers that crash: what was acknowledged stays, what was flushed is durable.

use crate::proxy::Proxy;
use crate::servers::{Ours, on, options};
use crate::volatile::Volatile;
use hectare_device::{Clock, Device, MemoryDevice};
use hectare_nbd::{NbdDevice, Options};
use hectare_oracle::hunt;
use hectare_units::random::SplitMix64;
use hectare_units::{Bytes, index_of, u64_of};
use std::io::IoSlice;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Each thread has as many bytes of its own.
const OWN: u64 = 1 << 20;
const THREADS: u64 = 4;

/// Changes bytes of one's own and checks them, and says what they are in the end.
fn works(device: &dyn Device, thread: u64, seed: u64, steps: u32) -> Vec<u8> {
    let mut random = SplitMix64::new(seed * 1000 + thread);
    let mut model = vec![0; index_of(OWN)];
    for step in 0..steps {
        let count = 1 + random.below(30_000);
        let at = random.below(OWN - count);
        let place = Bytes::new(thread * OWN + at);
        let range = index_of(at)..index_of(at + count);
        let data = vec![u8::try_from(1 + (u64::from(step) + thread * 50) % 255).unwrap(); index_of(count)];
        match random.below(8) {
            0..=3 => {
                device.write_at(place, &data).unwrap();
                model[range].copy_from_slice(&data);
            }
            4 => {
                device.write_durable(place, &[IoSlice::new(&data)]).unwrap();
                model[range].copy_from_slice(&data);
            }
            5 => {
                device.zero(place, Bytes::new(count)).unwrap();
                model[range].fill(0);
            }
            6 => device.flush().unwrap(),
            _ => {
                let mut found = vec![0; data.len()];
                device.read_at(place, &mut found).unwrap();
                assert!(found == model[range], "seed {seed}: thread {thread}, step {step}");
            }
        }
    }
    model
}

/// All threads at once; the bytes that all of them expect.
fn all_work(device: &dyn Device, seed: u64, steps: u32) -> Vec<u8> {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || works(device, thread, seed, steps))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// The seeds of a test: so many, or twenty times as many in a long run.
fn seeds(test: &str, short: u64) -> Range<u64> {
    let first = hunt::seed(test) % 1_000_000;
    first..first + if hunt::is_long() { short * 20 } else { short }
}

#[test]
fn connections_that_break_anywhere_lose_nothing() {
    for seed in seeds("nbd, connections that break", 12) {
        let folder = tempfile::tempdir().unwrap();
        let [socket, behind] = ["front", "behind"].map(|name| folder.path().join(name));
        let device = Arc::new(Volatile::new(Bytes::new(OWN * THREADS)));
        let _server = Ours::start(Arc::clone(&device) as _, &behind, false);
        let mut random = SplitMix64::new(seed);
        // A handshake takes some hundred bytes, so that there is some progress.
        let _proxy = Proxy::start(&socket, &behind, move || 3000 + random.below(400_000));
        let few = Options { unflushed_max: 100_000, connections: 1 + index_of(seed % 4), ..options() };
        let client = NbdDevice::open(&on(&socket, "vol"), &few).unwrap();
        let expected = all_work(&client, seed, 60);
        client.flush().unwrap();
        assert!(client.reconnects() > 0, "seed {seed}: nothing was cut");
        assert!(device.durable() == expected, "seed {seed}");
    }
}

#[test]
fn a_server_that_crashes_and_forgets_loses_nothing() {
    for seed in seeds("nbd, a server that crashes", 8) {
        let folder = tempfile::tempdir().unwrap();
        let [socket, behind] = ["front", "behind"].map(|name| folder.path().join(name));
        let device = Arc::new(Volatile::new(Bytes::new(OWN * THREADS)));
        let proxy = Proxy::start(&socket, &behind, || u64::MAX / 2);
        let start = || Ours::start(Arc::clone(&device) as _, &behind, false);
        let mut server = Some(start());
        // A crash comes after so many changes, not after a time: a fast machine would be done before it.
        device.wait_after(20);
        let client = NbdDevice::open(&on(&socket, "vol"), &options()).unwrap();
        let (expected, crashes) = std::thread::scope(|scope| {
            let working = scope.spawn(|| all_work(&client, seed, 150));
            let mut random = SplitMix64::new(seed + 77);
            let mut crashes = 0_u64;
            while !working.is_finished() {
                if !device.waits() {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                }
                // No reply gets through that says what is not so.
                proxy.block();
                device.die();
                server.take().expect("one runs").stop().unwrap();
                device.revive(|| random.below(2) == 0);
                // What is replayed counts as well, so later crashes leave room for more of it.
                device.wait_after((30 + random.below(30)) * (1 + crashes / 8));
                server = Some(start());
                proxy.unblock();
                crashes += 1;
            }
            (working.join().unwrap(), crashes)
        });
        device.wait_after(u64::MAX);
        client.flush().unwrap();
        assert!(crashes > 1 && client.reconnects() > 0, "seed {seed}: {crashes} crashes");
        assert!(device.durable() == expected, "seed {seed}: after {crashes} crashes");
        assert_eq!(proxy.cuts(), 0);
        drop(server);
    }
}

/// What was flushed needs no client: it is durable when the flush returns.
#[test]
fn what_was_flushed_is_durable_without_the_client() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let device = Arc::new(Volatile::new(Bytes::mib(4)));
    let server = Ours::start(Arc::clone(&device) as _, &socket, false);
    let client = NbdDevice::open(&on(&socket, "vol"), &options()).unwrap();
    client.write_at(Bytes::kib(100), &[1; 300_000]).unwrap();
    client.flush().unwrap();
    client.write_durable(Bytes::kib(50), &[IoSlice::new(&[2; 70_000])]).unwrap();
    client.write_at(Bytes::mib(2), &[3; 70_000]).unwrap();
    device.die();
    server.stop().unwrap();
    device.revive(|| false);
    let durable = device.durable();
    let at = |kib: usize, len: usize| &durable[kib << 10..(kib << 10) + len];
    assert!(at(50, 70_000).iter().all(|byte| *byte == 2));
    assert!(at(120, 200_000).iter().all(|byte| *byte == 1));
    assert!(at(2048, 70_000).iter().all(|byte| *byte == 0), "that was promised to nobody");
    assert!(u64_of(durable.len()) == 4 << 20);
}

#[test]
fn a_server_that_comes_back_with_something_else_is_refused() {
    type Change = fn(&Path) -> Ours;
    let shorter: Change = |socket| Ours::start(Arc::new(MemoryDevice::new(Bytes::mib(1))), socket, false);
    let read_only: Change = |socket| Ours::start(Arc::new(MemoryDevice::new(Bytes::mib(2))), socket, true);
    for change in [shorter, read_only] {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let server = Ours::start(Arc::new(MemoryDevice::new(Bytes::mib(2))), &socket, false);
        let (reconnect_timeout, clock) = (Duration::from_secs(2), Clock::fast(4));
        let short = Options { reconnect_timeout, clock, ..options() };
        let client = NbdDevice::open(&on(&socket, "vol"), &short).unwrap();
        client.write_at(Bytes::ZERO, b"unflushed").unwrap();
        server.stop().unwrap();
        let _other = change(&socket);
        let error = client.flush().unwrap_err().to_string();
        assert!(error.contains("another export by that name"), "{error}");
        assert!(client.read_at(Bytes::ZERO, &mut [0; 9]).is_err());
    }
}

#[test]
fn a_late_request_of_a_broken_connection_undoes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let [socket, behind] = ["front", "behind"].map(|name| folder.path().join(name));
    let device = Arc::new(Volatile::new(Bytes::mib(1)));
    let _server = Ours::start(Arc::clone(&device) as _, &behind, false);
    let proxy = Proxy::start(&socket, &behind, || u64::MAX / 2);
    let client = NbdDevice::open(&on(&socket, "vol"), &options()).unwrap();
    device.delay_next_write(500);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            client.write_at(Bytes::ZERO, b"first").unwrap();
            client.write_at(Bytes::ZERO, b"after").unwrap();
            client.flush().unwrap();
        });
        // The request has reached the device by then, which has not done it.
        std::thread::sleep(Duration::from_millis(150));
        proxy.block();
        proxy.unblock();
    });
    std::thread::sleep(Duration::from_millis(700));
    let mut found = [0; 5];
    device.read_at(Bytes::ZERO, &mut found).unwrap();
    assert_eq!((&found, client.reconnects()), (b"after", 1));
}
