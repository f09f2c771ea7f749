//! Volumes on stores that are at hand: in memory and in a directory.

use crate::setup::{CHUNK, bucket, content, made, objects, opened, options, stored, whole};
use hectare_device::{Device, Reason};
use hectare_store::{DirectoryStore, Options, create, summary};
use hectare_units::Bytes;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use std::sync::Arc;

#[test]
fn a_store_in_memory_serves() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    crate::suite::serves(&store, 6, 150);
}

#[test]
fn a_store_in_a_directory_serves() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn ObjectStore> =
        Arc::new(DirectoryStore::open(&folder.path().join("new"), true).unwrap());
    crate::suite::serves(&store, 2, 60);
    let missing = DirectoryStore::open(&folder.path().join("missing"), false).unwrap_err().to_string();
    assert!(missing.contains("no such directory"), "{missing}");
}

#[test]
fn zeros_have_no_objects_and_old_objects_are_deleted() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let logs = tempfile::tempdir().unwrap();
    let device = made(&store, Bytes::gib(1 << 16), &whole(logs.path()));
    assert!(device.is_zeroed());
    device.discard(Bytes::ZERO, device.len()).unwrap();
    device.flush().unwrap();
    assert!(objects(&store).is_empty());
    // A chunk and its table, 64 TiB apart from another pair.
    device.write_at(Bytes::new(5), b"x").unwrap();
    device.write_at(device.len() - Bytes::new(1), b"y").unwrap();
    device.flush().unwrap();
    let first = objects(&store);
    assert_eq!(first.len(), 4);
    let extent = device.extent_at(Bytes::ZERO, device.len()).unwrap();
    assert_eq!((extent.is_zero, extent.len), (false, CHUNK));
    let extent = device.extent_at(CHUNK, device.len() - CHUNK).unwrap();
    assert_eq!((extent.is_zero, extent.len), (true, device.len() - CHUNK - CHUNK));
    device.write_at(Bytes::new(5), b"z").unwrap();
    device.flush().unwrap();
    let second = objects(&store);
    assert_eq!(second.iter().filter(|name| first.contains(name)).count(), 2);
    assert_eq!(second.len(), 4);
    device.zero(Bytes::ZERO, device.len()).unwrap();
    device.flush().unwrap();
    assert!(objects(&store).is_empty());
}

#[test]
fn a_volume_grows_and_shrinks_without_old_bytes_coming_back() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let logs = tempfile::tempdir().unwrap();
    let options = options(logs.path());
    for flushed in [false, true] {
        let device = match flushed {
            false => made(&store, Bytes::kib(100), &options),
            true => opened(&store, &options).unwrap(),
        };
        let flush = || {
            if flushed {
                device.flush().unwrap();
            }
        };
        device.resize(Bytes::kib(100)).unwrap();
        device.write_at(Bytes::ZERO, &[7; 100 << 10]).unwrap();
        flush();
        device.resize(Bytes::new(5000)).unwrap();
        flush();
        device.resize(Bytes::kib(200)).unwrap();
        flush();
        let mut expected = vec![0; 200 << 10];
        expected[..5000].fill(7);
        assert!(content(&device) == expected);
        device.flush().unwrap();
        drop(device);
        assert!(stored(&store) == expected);
        assert_eq!(summary(&bucket(&store, &options)).unwrap().len, Bytes::kib(200));
    }
    let device = opened(&store, &options).unwrap();
    device.resize(Bytes::new(u64::MAX)).unwrap_err();
}

#[test]
fn a_reader_sees_what_was_flushed_and_notices_when_it_is_gone() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let logs = tempfile::tempdir().unwrap();
    let device = made(&store, Bytes::mib(1), &whole(logs.path()));
    device.write_at(Bytes::ZERO, b"one").unwrap();
    assert!(stored(&store).iter().all(|byte| *byte == 0));
    device.flush().unwrap();
    let reader = opened(&store, &Options::default()).unwrap();
    assert!(reader.is_read_only());
    assert_eq!(*reader.write_at(Bytes::ZERO, b"x").unwrap_err().reason(), Reason::ReadOnly);
    device.write_at(Bytes::ZERO, b"two").unwrap();
    device.flush().unwrap();
    let error = reader.read_at(Bytes::ZERO, &mut [0; 3]).unwrap_err().to_string();
    assert!(error.contains("open it again"), "{error}");
    assert_eq!(&stored(&store)[..3], b"two");
}

#[test]
fn damage_of_any_object_is_reported_and_never_read() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let logs = tempfile::tempdir().unwrap();
    let device = made(&store, Bytes::mib(1), &whole(logs.path()));
    device.write_at(Bytes::new(3), &[9; 5000]).unwrap();
    device.flush().unwrap();
    drop(device);
    // And a patch.
    let device = opened(&store, &options(logs.path())).unwrap();
    device.write_at(Bytes::new(3), &[9]).unwrap();
    device.flush().unwrap();
    drop(device);
    assert_eq!(objects(&store).len(), 3);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for name in objects(&store).into_iter().chain([format!("{}/manifest", crate::setup::PREFIX)]) {
        use object_store::ObjectStoreExt;
        let path = object_store::path::Path::from(name.as_str());
        let bytes = runtime.block_on(async { store.get(&path).await.unwrap().bytes().await.unwrap() });
        let mut changed = bytes.to_vec();
        changed[20] ^= 1;
        for wrong in [changed, bytes[..bytes.len() - 1].to_vec(), [&bytes[..], b"0"].concat()] {
            runtime.block_on(store.put(&path, wrong.into())).unwrap();
            let reader = opened(&store, &Options::default());
            let read = reader.map(|reader| reader.read_at(Bytes::ZERO, &mut [0; 10]));
            let error = match read {
                Ok(read) => read.unwrap_err().to_string(),
                Err(error) => error.to_string(),
            };
            assert!(error.contains("the volume is damaged"), "{name}: {error}");
        }
        runtime.block_on(store.put(&path, bytes.into())).unwrap();
    }
    assert_eq!(stored(&store)[3], 9);
}

/// `docs/remote.md` has these figures.
#[test]
fn opening_and_flushing_take_the_requests_that_are_documented() {
    use crate::fault_store::{Fate, FaultStore};
    let faults = FaultStore::new(Arc::new(InMemory::new()));
    let store: Arc<dyn ObjectStore> = faults.clone();
    let logs = tempfile::tempdir().unwrap();
    let options = options(logs.path());
    let device = made(&store, Bytes::mib(1), &options);
    device.write_at(Bytes::ZERO, &vec![1; 1 << 20]).unwrap();
    device.flush().unwrap();
    drop(device);
    let seen = |what: &str| {
        let kinds = faults.seen().into_iter().map(|request| request.kind);
        let count = |kind| kinds.clone().filter(|other| *other == kind).count();
        let found = ["get", "put", "swap", "list", "delete"].map(count);
        faults.rule(|_| Fate::Done);
        (what.to_owned(), found)
    };
    faults.rule(|_| Fate::Done);
    let device = opened(&store, &options).unwrap();
    assert_eq!(seen("opening"), ("opening".to_owned(), [3, 0, 4, 1, 0]));
    device.write_at(Bytes::new(5), &[1; 9000]).unwrap();
    device.flush().unwrap();
    assert_eq!(seen("chunks"), ("chunks".to_owned(), [2, 2, 1, 0, 1]));
    device.write_at(Bytes::new(5), &[2; 9000]).unwrap();
    device.write_at(CHUNK, &[2; 9000]).unwrap();
    device.flush().unwrap();
    assert_eq!(seen("in memory"), ("in memory".to_owned(), [1, 3, 1, 0, 1]));
    device.write_at(Bytes::new(5), b"part of a chunk").unwrap();
    device.flush().unwrap();
    assert_eq!(seen("a patch"), ("a patch".to_owned(), [0, 1, 1, 0, 0]));
    device.flush().unwrap();
    assert_eq!(seen("nothing"), ("nothing".to_owned(), [0; 5]));
    drop(device);
    assert_eq!(seen("closing"), ("closing".to_owned(), [0, 0, 1, 0, 0]));
    drop(opened(&store, &Options::default()).unwrap());
    assert_eq!(seen("reading"), ("reading".to_owned(), [2, 0, 0, 0, 0]));
}

#[test]
fn what_can_not_be_made_is_refused() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let bucket = bucket(&store, &Options::default());
    let text = opened(&store, &Options::default()).err().unwrap().to_string();
    assert!(text.contains("mkfs"), "{text}");
    create(&bucket, Bytes::ZERO, CHUNK).unwrap_err();
    create(&bucket, Bytes::mib(1), Bytes::new(5000)).unwrap_err();
    create(&bucket, Bytes::mib(1), CHUNK).unwrap();
    let text = create(&bucket, Bytes::mib(1), CHUNK).unwrap_err().to_string();
    assert!(text.contains("already"), "{text}");
}
