//! Images that are one object: on a web server, and in a store.

use crate::setup::content;
use crate::web::{Manners, Web};
use hectare_device::Device;
use hectare_store::{Address, Bucket, Kind, Opened, Options, kind_of, open};
use hectare_units::Bytes;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes that differ by place, a bit more than some blocks.
fn image(seed: u8) -> Vec<u8> {
    (0..3_000_001_u32).map(|n| (n / 1000) as u8 ^ (n as u8).wrapping_mul(31) ^ seed).collect()
}

fn opened(web: &Web) -> hectare_device::Result<Arc<dyn Device>> {
    opened_at(&web.address)
}

fn opened_at(address: &str) -> hectare_device::Result<Arc<dyn Device>> {
    let address = Address::parse(address.as_bytes()).unwrap();
    let options = Options { cache: Bytes::mib(1), ..Options::default() };
    let bucket = Arc::new(Bucket::connect(&address, &options).unwrap());
    open(bucket, &address, &options).map(Opened::into_device)
}

#[test]
fn an_image_on_a_web_server_is_read_in_parts() {
    for manners in [
        Manners::default(),
        Manners { weak: true, ..Manners::default() },
        Manners { careless: true, ..Manners::default() },
        Manners { error_every: 3, ..Manners::default() },
    ] {
        let web = Web::start(image(0), manners);
        let device = opened(&web).unwrap();
        assert!(content(&*device) == image(0), "{manners:?}");
        let mut part = [0; 70_000];
        for at in [0, 262_100, 1, 2_930_001] {
            device.read_at(Bytes::of(at), &mut part).unwrap();
            assert!(part == image(0)[at..at + 70_000], "{manners:?} at {at}");
        }
        assert!(device.is_read_only() && device.write_at(Bytes::ZERO, b"x").is_err());
        device.read_at(Bytes::of(3_000_000), &mut [0; 2]).unwrap_err();
    }
}

#[test]
fn a_sequential_read_asks_for_each_block_once() {
    let web = Web::start(image(0), Manners::default());
    let device = opened(&web).unwrap();
    for (n, expected) in image(0).chunks(4096).enumerate() {
        let mut found = vec![0; expected.len()];
        device.read_at(Bytes::of(n * 4096), &mut found).unwrap();
        assert!(found == expected, "piece {n}");
    }
    // Twice HEAD, and twelve blocks.
    assert_eq!(web.requests.load(Ordering::SeqCst), 14);
}

#[test]
fn a_change_while_it_is_read_is_reported_and_never_mixed_in() {
    for manners in [
        Manners::default(),
        Manners { weak: true, ..Manners::default() },
        Manners { careless: true, ..Manners::default() },
    ] {
        let web = Web::start(image(0), manners);
        let device = opened(&web).unwrap();
        device.read_at(Bytes::ZERO, &mut [0; 10]).unwrap();
        web.change(image(1));
        let error = device.read_at(Bytes::mib(2), &mut [0; 10]).unwrap_err().to_string();
        assert!(error.contains("changed or removed while it was read"), "{error}");
        // From here on nothing is read, not even what was kept.
        device.read_at(Bytes::ZERO, &mut [0; 10]).unwrap_err();
        assert!(content(&*opened(&web).unwrap()) == image(1));
    }
}

#[test]
fn servers_without_ranges_or_versions_are_refused_by_name() {
    let refused = |manners| {
        let web = Web::start(image(0), manners);
        let text = opened(&web).err().unwrap().to_string();
        assert!(text.starts_with(&web.address), "{text}");
        text
    };
    let text = refused(Manners { no_ranges: true, ..Manners::default() });
    assert!(text.contains("sends no ranges"), "{text}");
    let text = refused(Manners { no_version: true, ..Manners::default() });
    assert!(text.contains("names no version"), "{text}");
    let web = Web::start(image(0), Manners::default());
    let text = opened_at(&web.address.replace("disk", "none")).err().unwrap().to_string();
    assert!(text.contains("neither a volume nor an image"), "{text}");
}

#[test]
fn an_object_of_a_store_is_an_image_and_read_only() {
    let store = Arc::new(InMemory::new());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(store.put(&Path::from("dir/disk.img"), image(0).into())).unwrap();
    let address = Address::parse(b"s3://bucket/dir/disk.img").unwrap();
    let options = Options::default();
    let bucket = || {
        let store: Arc<dyn ObjectStore> = Arc::clone(&store) as _;
        Arc::new(Bucket::new(store, &address.path, &address.to_string(), &options).unwrap())
    };
    assert_eq!(kind_of(&bucket(), &address).unwrap(), Some(Kind::Image));
    let device = open(bucket(), &address, &options).unwrap().into_device();
    assert!(content(&*device) == image(0));
    let write = Options { write: true, ..options.clone() };
    let text = open(bucket(), &address, &write).err().unwrap().to_string();
    assert!(text.contains("for reading only"), "{text}");
    runtime.block_on(store.put(&Path::from("dir/disk.img"), image(2).into())).unwrap();
    let device = open(bucket(), &address, &options).unwrap().into_device();
    runtime.block_on(store.delete(&Path::from("dir/disk.img"))).unwrap();
    let text = device.read_at(Bytes::mib(1), &mut [0; 9]).unwrap_err().to_string();
    assert!(text.contains("changed or removed"), "{text}");
}
