//! The cache file: what is in it saves requests, and nothing out of date or damaged ever comes from it.

use crate::fault_store::{Fate, FaultStore};
use crate::setup::{PREFIX, bucket, content, made, opened, options, wait};
use hectare_device::Device;
use hectare_store::{ImageDevice, Options};
use hectare_units::Bytes;
use hectare_units::random::SplitMix64;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const LEN: u64 = 400_000;

fn gets(faults: &FaultStore) -> usize {
    let count = faults.seen().iter().filter(|request| request.kind == "get").count();
    faults.rule(|_| Fate::Done);
    count
}

fn keeping(options: Options, file: &std::path::Path) -> Options {
    keeping_in(options, file, Bytes::mib(16))
}

fn keeping_in(options: Options, file: &std::path::Path, size: Bytes) -> Options {
    Options { cache_file: Some((file.to_owned(), size)), ..options }
}

#[test]
fn what_is_kept_saves_requests_for_readers_and_writers() {
    let faults = FaultStore::new(Arc::new(InMemory::new()));
    let store: Arc<dyn ObjectStore> = faults.clone();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cache");
    let device = made(&store, Bytes::new(LEN), &options(folder.path()));
    device.write_at(Bytes::ZERO, &vec![7; LEN as usize]).unwrap();
    device.flush().unwrap();
    drop(device);
    let reading = keeping(Options::default(), &file);
    for (turn, expected) in [27, 1, 1].into_iter().enumerate() {
        faults.rule(|_| Fate::Done);
        let device = opened(&store, &reading).unwrap();
        assert!(content(&device).iter().all(|byte| *byte == 7));
        assert_eq!(gets(&faults), expected, "turn {turn}");
        assert_eq!(device.cost().kept > 0, turn > 0);
    }
    // A writer reads a chunk that it changes in part; what it puts is not kept.
    let device = opened(&store, &keeping(options(folder.path()), &file)).unwrap();
    faults.rule(|_| Fate::Done);
    device.write_at(Bytes::new(5), &[8; 9000]).unwrap();
    device.flush().unwrap();
    assert_eq!(gets(&faults), 0);
    drop(device);
    let device = opened(&store, &reading).unwrap();
    assert_eq!(content(&device)[4..9006], [&[7][..], &[8; 9000], &[7]].concat());
    assert_eq!(gets(&faults), 3);
    // A file in use by another is done without.
    let second = opened(&store, &reading).unwrap();
    assert!(second.notes()[0].contains("is in use"), "{:?}", second.notes());
    assert_eq!(content(&second), content(&device));
}

/// Others change the volume, with and without the cache file, and the file is damaged: what is read is what
/// was flushed.
#[test]
fn nothing_out_of_date_or_damaged_is_read() {
    for seed in 0..4 {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cache");
        let mut random = SplitMix64::new(seed);
        // With room for all of it, and for less.
        let size = Bytes::mib(if seed % 2 == 0 { 16 } else { 3 });
        drop(made(&store, Bytes::new(LEN), &options(folder.path())));
        let mut model = vec![0; LEN as usize];
        for turn in 0..30_u8 {
            let plain = options(folder.path());
            let writing = if random.below(2) == 0 { plain } else { keeping_in(plain, &file, size) };
            let device = opened(&store, &writing).unwrap();
            for _ in 0..random.below(4) {
                let long = if random.below(2) == 0 { 60_000 } else { 300 };
                let (at, len) = (random.below(LEN - long), 1 + random.below(long));
                device.write_at(Bytes::new(at), &vec![turn + 1; len as usize]).unwrap();
                model[at as usize..(at + len) as usize].fill(turn + 1);
                device.flush().unwrap();
            }
            drop(device);
            damage(&file, &mut random);
            let reader = opened(&store, &keeping_in(Options::default(), &file, size)).unwrap();
            assert!(content(&reader) == model, "seed {seed}, turn {turn}");
        }
    }
}

/// Another volume by the same name, as after it was removed and made again.
#[test]
fn a_volume_that_was_made_again_is_another() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cache");
    for turn in 1..4_u8 {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let device = made(&store, Bytes::new(LEN), &options(folder.path()));
        device.write_at(Bytes::ZERO, &[turn; 100_000]).unwrap();
        device.flush().unwrap();
        drop(device);
        for _ in 0..2 {
            let reader = opened(&store, &keeping(Options::default(), &file)).unwrap();
            assert!(content(&reader)[..100_000].iter().all(|byte| *byte == turn));
        }
    }
}

fn damage(file: &std::path::Path, random: &mut SplitMix64) {
    let Ok(raw) = fs::OpenOptions::new().write(true).open(file) else { return };
    let len = raw.metadata().unwrap().len();
    match random.below(6) {
        0 => raw.set_len(random.below(len + 1)).unwrap(),
        1 if len > 8 => {
            let at = 8 + random.below(len - 8);
            let bytes = vec![random.below(256) as u8; 1 + random.below(5000) as usize];
            raw.write_all_at(&bytes[..bytes.len().min((len - at) as usize)], at).unwrap();
        }
        2 => fs::remove_file(file).unwrap(),
        _ => {}
    }
}

#[test]
fn an_image_is_kept_as_long_as_it_is_the_same_version() {
    let faults = FaultStore::new(Arc::new(InMemory::new()));
    let store: Arc<dyn ObjectStore> = faults.clone();
    let folder = tempfile::tempdir().unwrap();
    let options = keeping(Options::default(), &folder.path().join("cache"));
    for version in 1..4_u8 {
        wait(store.put(&Path::from(PREFIX), vec![version; 1 << 20].into())).unwrap();
        for expected in [4, 0] {
            faults.rule(|_| Fate::Done);
            let image = ImageDevice::open(bucket(&store, &options), &options).unwrap();
            assert!(content(&image).iter().all(|byte| *byte == version));
            // One more asks for the version.
            assert_eq!(gets(&faults), expected + 1, "version {version}");
        }
    }
}
