//! Small changes: flushed as patches, seen by readers, merged, and made chunks in the end.

use crate::fault_store::{Fate, FaultStore};
use crate::setup::{CHUNK, bucket, content, made, objects, opened, options, stored};
use hectare_device::Device;
use hectare_store::{Options, summary, sweep};
use hectare_units::Bytes;
use hectare_units::random::SplitMix64;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use std::sync::Arc;

const LEN: u64 = 300_000;

/// A volume beside a model, with small changes for the most part, each flush seen by a reader; opened again
/// now and then, with other limits. In the end no object is left that nothing names.
#[test]
fn small_changes_are_flushed_beside_a_model() {
    for seed in 0..6 {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let logs = tempfile::tempdir().unwrap();
        let mut random = SplitMix64::new(seed);
        let mut device = made(&store, Bytes::new(LEN), &options(logs.path()));
        let mut model = vec![0; LEN as usize];
        let mut most = 0;
        for turn in 0..120_u8 {
            for _ in 0..1 + random.below(4) {
                let long = if random.below(15) == 0 { 50_000 } else { 400 };
                let (at, len) = (random.below(LEN - long), 1 + random.below(long));
                let range = at as usize..(at + len) as usize;
                if random.below(4) == 0 {
                    device.zero(Bytes::new(at), Bytes::new(len)).unwrap();
                    model[range].fill(0);
                } else {
                    device.write_at(Bytes::new(at), &vec![turn + 1; len as usize]).unwrap();
                    model[range].fill(turn + 1);
                }
            }
            device.flush().unwrap();
            assert!(content(&device) == model, "seed {seed}, turn {turn}");
            assert!(stored(&store) == model, "seed {seed}, turn {turn}: a reader");
            let patches = summary(&bucket(&store, &options(logs.path()))).unwrap().patches;
            most = most.max(patches);
            if random.below(20) == 0 {
                drop(device);
                let patches = Bytes::new(random.below(3) * 6000);
                device = opened(&store, &Options { patches, ..options(logs.path()) }).unwrap();
                assert!(content(&device) == model && !device.is_zeroed(), "seed {seed}, turn {turn}: again");
            }
        }
        drop(device);
        assert!((3..40).contains(&most), "{most}");
        let options = options(logs.path());
        let swept = sweep(&bucket(&store, &options), &options, false).unwrap();
        assert_eq!((swept.garbage, swept.used), (0, objects(&store).len() as u64), "seed {seed}");
        assert!(stored(&store) == model, "seed {seed}");
    }
}

/// The patch had a range beyond the volume: neither a flush nor a later opening succeeded.
#[test]
fn regression_a_volume_that_was_longer_for_a_while_is_flushed() {
    for again in [false, true] {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let logs = tempfile::tempdir().unwrap();
        let options = options(logs.path());
        let mut device = made(&store, Bytes::new(LEN), &options);
        device.write_at(Bytes::new(LEN - 9), b"x").unwrap();
        device.resize(Bytes::new(LEN + 1000)).unwrap();
        device.write_at(Bytes::new(LEN + 500), b"beyond").unwrap();
        device.resize(Bytes::new(LEN)).unwrap();
        if again {
            drop(device);
            device = opened(&store, &options).unwrap();
        }
        device.flush().unwrap();
        assert_eq!(stored(&store)[LEN as usize - 9..], *b"x\0\0\0\0\0\0\0\0");
    }
}

/// Beyond 128 tables they are in a list, which flushes of chunks put anew, patches keep, and a sweep counts.
#[test]
fn many_tables_are_in_a_list() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let logs = tempfile::tempdir().unwrap();
    let options = options(logs.path());
    let table = CHUNK.get() << 12;
    let device = made(&store, Bytes::new(140 * table), &options);
    for n in 0..130 {
        device.write_at(Bytes::new(n * table), &[7; 16 << 10]).unwrap();
    }
    device.flush().unwrap();
    assert_eq!(objects(&store).len(), 130 + 130 + 1);
    device.write_at(Bytes::new(5), b"patch").unwrap();
    device.flush().unwrap();
    device.write_at(CHUNK, &[8; 16 << 10]).unwrap();
    device.flush().unwrap();
    assert_eq!(objects(&store).len(), 131 + 130 + 1);
    drop(device);
    let swept = sweep(&bucket(&store, &options), &options, false).unwrap();
    assert_eq!((swept.used, swept.garbage), (262, 0));
    let device = opened(&store, &options).unwrap();
    device.zero(Bytes::ZERO, Bytes::new(5 * table)).unwrap();
    device.flush().unwrap();
    assert_eq!(objects(&store).len(), 2 * 125);
}

/// What has no patches is as it was before there were any: an earlier program can read it.
#[test]
fn a_change_of_whole_chunks_leaves_no_patch() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let logs = tempfile::tempdir().unwrap();
    let options = options(logs.path());
    let device = made(&store, Bytes::new(LEN), &options);
    let patches = || summary(&bucket(&store, &options)).unwrap().patches;
    device.write_at(Bytes::new(5), b"small").unwrap();
    device.flush().unwrap();
    assert_eq!((patches(), objects(&store).len()), (1, 1));
    let extent = device.extent_at(Bytes::ZERO, Bytes::new(LEN)).unwrap();
    assert_eq!((extent.is_zero, extent.len), (true, Bytes::new(5)));
    // A part of a chunk that becomes zeros is a patch, a whole one is its end.
    device.zero(Bytes::new(7), Bytes::new(2)).unwrap();
    device.flush().unwrap();
    assert_eq!((patches(), stored(&store)[..12].to_vec()), (2, b"\0\0\0\0\0sm\0\0l\0\0".to_vec()));
    device.zero(CHUNK, CHUNK).unwrap();
    device.flush().unwrap();
    assert_eq!((patches(), objects(&store).len()), (0, 2));
    assert_eq!(&stored(&store)[..12], b"\0\0\0\0\0sm\0\0l\0\0");
    device.write_at(Bytes::new(5), b"S").unwrap();
    device.flush().unwrap();
    device.resize(Bytes::new(LEN + 1)).unwrap();
    device.flush().unwrap();
    assert_eq!((patches(), &stored(&store)[4..10]), (0, &b"\0Sm\0\0l"[..]));
    device.write_at(Bytes::new(5), b"x").unwrap();
    device.flush().unwrap();
    device.resize(Bytes::new(4)).unwrap();
    device.resize(Bytes::new(LEN)).unwrap();
    device.flush().unwrap();
    assert!(stored(&store).iter().all(|byte| *byte == 0));
}

/// A reader that opens while a writer flushes looks again until it has a manifest whose objects are there.
#[test]
fn a_reader_that_opens_during_flushes_gets_one_state() {
    let honest: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let logs = tempfile::tempdir().unwrap();
    let writer = Arc::new(made(&honest, Bytes::new(LEN), &options(logs.path())));
    writer.write_at(Bytes::ZERO, &[1; 100]).unwrap();
    writer.flush().unwrap();
    let faults = FaultStore::new(Arc::clone(&honest));
    let store: Arc<dyn ObjectStore> = faults.clone();
    let mut left = 3_u8;
    let busy = Arc::clone(&writer);
    faults.rule(move |request| {
        // Before the patch is fetched, it becomes part of a chunk.
        if request.kind == "get" && request.name.contains("/objects/") && left > 0 {
            left -= 1;
            let (busy, left) = (Arc::clone(&busy), left);
            let flushing = std::thread::spawn(move || {
                busy.write_at(Bytes::ZERO, &vec![20 - left; 50_000]).unwrap();
                busy.flush().unwrap();
                busy.write_at(Bytes::ZERO, &[10 - left; 100]).unwrap();
                busy.flush().unwrap();
            });
            flushing.join().unwrap();
        }
        Fate::Done
    });
    let reader = opened(&store, &Options { cache_file: None, ..Options::default() }).unwrap();
    assert!(content(&reader)[..100].iter().all(|byte| *byte == 10));
}
