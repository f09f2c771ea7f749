//! What any store must be good for: run on each.

use crate::behaviour::{behaves, neighbours_stay_apart};
use crate::setup::{made, objects, opened, options, stored};
use hectare_device::Device;
use hectare_store::{Options, sweep};
use hectare_units::Bytes;
use object_store::ObjectStore;
use std::sync::Arc;

/// A volume's whole life: random operations beside a model, closing, opening, a second writer, a small log
/// that makes the device flush by itself, garbage.
pub(crate) fn serves(store: &Arc<dyn ObjectStore>, seeds: u64, steps: u32) {
    let logs = tempfile::tempdir().unwrap();
    let options = options(logs.path());
    let len = Bytes::new((1 << 20) + 3 * 4096 + 77);
    drop(made(store, len, &options));
    for seed in 0..seeds {
        let small_log = Options { log_max: Bytes::kib(300), ..options.clone() };
        let device = opened(store, if seed % 2 == 0 { &options } else { &small_log }).unwrap();
        device.zero(Bytes::ZERO, device.len()).unwrap();
        behaves(&device, seed, steps, 1);
        device.zero(Bytes::ZERO, device.len()).unwrap();
        neighbours_stay_apart(&device);
        device.flush().unwrap();
        let expected = crate::setup::content(&device);
        assert!(stored(store) == expected, "seed {seed}");
        let error = opened(store, &options).err().unwrap().to_string();
        assert!(error.contains("it is written by") && error.contains("process"), "{error}");
    }
    let swept = sweep(&crate::setup::bucket(store, &options), &options, false).unwrap();
    assert_eq!((swept.garbage, swept.left), (0, 0), "{swept:?}");
    assert_eq!(swept.used, objects(store).len() as u64);
    // No logs are left, nor anything else that grows.
    let left = walk(logs.path());
    assert!(left.iter().all(|name| name.ends_with("lock")), "{left:?}");
}

/// The names of all files below a directory.
pub(crate) fn walk(path: &std::path::Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path).unwrap() {
        let entry = entry.unwrap().path();
        if entry.is_dir() { names.extend(walk(&entry)) } else { names.push(entry.display().to_string()) }
    }
    names
}
