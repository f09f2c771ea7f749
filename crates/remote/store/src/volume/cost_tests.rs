//! What a flush of 4 KiB uploads to full volumes of 1 TB and 1 PB. `docs/remote.md` has these figures.

use super::*;
use crate::manifest::{MANIFEST, ObjectId, Slot};
use hectare_units::random::SplitMix64;
use object_store::ObjectStore;
use object_store::memory::InMemory;

const CHUNK: u64 = 4 << 20;

/// A store with the manifest of a full volume, and with the list of its tables; these themselves are
/// missing.
fn full(len: u64) -> Arc<dyn ObjectStore> {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let bucket = Bucket::new(Arc::clone(&store), "v", "v", &Options::default()).unwrap();
    let mut manifest = Manifest::new([5; 16], len, CHUNK, 1).unwrap();
    let tables = u32::try_from(len.div_ceil(CHUNK << manifest.table_shift)).unwrap();
    let slot = |number, len| Slot { id: ObjectId { session: 9, number }, len, sum: number };
    manifest.tables = (0..tables).map(|index| (index, slot(u64::from(index), 131_120))).collect();
    let list = manifest.encode_list();
    runtime::wait(async {
        if manifest.tables.len() > crate::manifest::INLINE_TABLES {
            let sum = crate::codec::sum(&list);
            let listed = Slot { sum, ..slot(1 << 40, u32::try_from(list.len()).unwrap()) };
            bucket.put(&listed.id.key(), list.into()).await?;
            manifest.list = Some(listed);
        }
        bucket.put(MANIFEST, manifest.encode().into()).await
    })
    .unwrap();
    store
}

/// Flushes single blocks of 4 KiB at places of 1 GiB; returns the most and the mean of what one uploaded.
fn flushes(len: u64, count: u64) -> (u64, u64) {
    let store = full(len);
    let logs = tempfile::tempdir().unwrap();
    let options = Options { write: true, log: Some(logs.path().to_owned()), ..Options::default() };
    let bucket = || Arc::new(Bucket::new(Arc::clone(&store), "v", "v", &options).unwrap());
    let device = StoreDevice::open(bucket(), &options).unwrap();
    let (mut random, mut places) = (SplitMix64::new(1), Vec::new());
    let began = device.cost();
    let mut most = 0;
    for turn in 0..count {
        let place = random.below(1 << 18) << 12;
        let bytes = [u8::try_from(turn % 255 + 1).unwrap(); 4096];
        device.write_at(Bytes::new(place), &bytes).unwrap();
        let before = device.cost();
        device.flush().unwrap();
        let cost = device.cost() - before;
        assert_eq!((cost.puts, cost.gets), (2, 0), "turn {turn}");
        most = most.max(cost.sent);
        places.retain(|(other, _)| *other != place);
        places.push((place, bytes));
    }
    let sent = (device.cost() - began).sent;
    let patches = device.state.read().manifest.patches.len();
    assert!(patches <= 40, "{patches}");
    drop(device);
    let reader = StoreDevice::open(bucket(), &Options::default()).unwrap();
    for (place, bytes) in places {
        let mut found = [0; 4096];
        reader.read_at(Bytes::new(place), &mut found).unwrap();
        assert!(found == bytes, "at {place}");
    }
    (most, sent / count)
}

#[test]
fn a_flush_of_a_block_costs_little_however_large_the_volume_is() {
    // A single one: the block, its patch's frame, and a manifest of at most 128 tables.
    for (len, manifest) in [(1_000_000_000_000, 96 + 60 * 32 + 8), (1_000_000_000_000_000, 96 + 2 * 32 + 8)] {
        let (most, _) = flushes(len, 1);
        assert_eq!(most, 4096 + 64 + manifest, "{len}");
    }
    // Many of one size: patches are merged. docs/remote.md has these figures.
    for (len, wanted) in [(1_000_000_000_000, 17_200), (1_000_000_000_000_000, 15_300)] {
        let (most, mean) = flushes(len, 520);
        println!("{len}: {mean} bytes on average, {most} at most");
        assert!(mean.abs_diff(wanted) < wanted / 20 && most < 3 << 20, "{len}: {mean}, {most}");
    }
}
