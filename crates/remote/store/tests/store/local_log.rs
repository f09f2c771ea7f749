//! The local log: what it brings back, and that nothing that was flushed needs it.

use crate::setup::{content, copied, made, opened, options, stored};
use crate::suite::walk;
use hectare_device::Device;
use hectare_store::Options;
use hectare_units::Bytes;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use std::sync::Arc;

#[test]
fn what_was_not_flushed_comes_back_from_the_log_and_what_was_flushed_needs_none() {
    for lose_log in [false, true] {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let logs = tempfile::tempdir().unwrap();
        let options = options(logs.path());
        let device = made(&store, Bytes::kib(100), &options);
        device.write_at(Bytes::ZERO, &[1; 50_000]).unwrap();
        device.flush().unwrap();
        device.write_at(Bytes::new(10), &[2; 30_000]).unwrap();
        device.zero(Bytes::new(40_000), Bytes::new(50)).unwrap();
        device.resize(Bytes::kib(200)).unwrap();
        let newest = content(&device);
        drop(device);
        let mut flushed = vec![1; 50_000];
        flushed.resize(100 << 10, 0);
        assert!(stored(&store) == flushed);
        if lose_log {
            std::fs::remove_dir_all(logs.path()).unwrap();
        }
        let device = opened(&store, &options).unwrap();
        assert!(content(&device) == if lose_log { flushed } else { newest.clone() });
        assert!(!device.is_zeroed());
        assert_eq!(device.notes().len(), usize::from(!lose_log), "{:?}", device.notes());
        // It is in the store by now, too.
        assert!(lose_log || stored(&store) == newest);
        drop(device);
        assert!(walk(logs.path()).iter().all(|name| name.ends_with("lock")));
    }
}

#[test]
fn a_log_that_is_torn_anywhere_gives_the_writes_before_the_tear() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let logs = tempfile::tempdir().unwrap();
    let device = made(&store, Bytes::kib(64), &options(logs.path()));
    // Each write is at another place, so that it shows which are there.
    for turn in 0..6_u8 {
        device.write_at(Bytes::new(u64::from(turn) * 1000), &[turn + 1; 500]).unwrap();
    }
    drop(device);
    let log = walk(logs.path()).into_iter().find(|name| name.ends_with(".log")).unwrap();
    let bytes = std::fs::read(&log).unwrap();
    let mut counts = Vec::new();
    for cut in (0..bytes.len()).step_by(97).rev() {
        std::fs::write(&log, &bytes[..cut]).unwrap();
        // Only looked at: a copy of the store would be needed to do it again.
        let copy = tempfile::tempdir().unwrap();
        let place = copy.path().join(std::path::Path::new(&log).parent().unwrap().file_name().unwrap());
        std::fs::create_dir(&place).unwrap();
        std::fs::copy(&log, place.join("0000000000000000.log")).unwrap();
        let fresh = copied(&store);
        let device = opened(&fresh, &Options { log: Some(copy.path().to_owned()), ..options(logs.path()) });
        let found = content(&device.unwrap());
        let there = (0..6_u8).filter(|turn| {
            let part = &found[usize::from(*turn) * 1000..][..500];
            assert!(part.iter().all(|byte| *byte == part[0]), "a write is there as a whole or not at all");
            part[0] == turn + 1
        });
        let there: Vec<u8> = there.collect();
        assert_eq!(there, (0..u8::try_from(there.len()).unwrap()).collect::<Vec<_>>(), "cut at {cut}");
        counts.push(there.len());
    }
    assert!(counts.is_sorted_by(|a, b| a >= b), "{counts:?}");
    assert_eq!((counts[0], *counts.last().unwrap()), (5, 0));
}
