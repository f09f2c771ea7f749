//! An ext4 volume on a store: made, filled, checked, by the engine and by e2fsck on the downloaded bytes;
//! and crashed at many requests.

use crate::fault_store::{Fate, FaultStore};
use crate::setup::{copied, impatient, made, opened, options, release, stored};
use hectare_device::{Device, MemoryDevice};
use hectare_engine::{Creation, OpenOptions, Volume};
use hectare_mkfs::FormatOptions;
use hectare_oracle::{assert_clean, skip_part};
use hectare_store::Options;
use hectare_units::Bytes;
use hectare_units::random::SplitMix64;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use std::sync::Arc;

const LEN: Bytes = Bytes::mib(24);

fn quiet() -> OpenOptions {
    // No thread that commits at a time of its own: requests come in the same order each time.
    OpenOptions { commit_interval: None, seed: Some(1), ..OpenOptions::default() }
}

fn formatted(device: impl Device + 'static) -> Volume {
    let overwrite = hectare_engine::Overwrite::Refuse;
    Volume::format(Arc::new(device), &FormatOptions::default(), overwrite, quiet()).unwrap()
}

/// What is in the store is a clean volume: for us and for e2fsck.
fn check(store: &Arc<dyn ObjectStore>, part: &str) {
    let bytes = stored(store);
    let report = hectare_check::check(&MemoryDevice::from_bytes(&bytes), &hectare_check::Options::default());
    let report = report.unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("downloaded.img");
    std::fs::write(&image, bytes).unwrap();
    if let Err(reason) = assert_clean(&image) {
        skip_part!(&format!("store::{part}, e2fsck"), reason);
    }
}

#[test]
fn a_volume_on_a_store_is_used_at_random_beside_a_model() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let logs = tempfile::tempdir().unwrap();
    let options = Options { log_max: Bytes::mib(2), cache: Bytes::kib(128), ..options(logs.path()) };
    let mut volume = formatted(made(&store, LEN, &options));
    volume.create_dir("/d", Creation::default()).unwrap();
    volume.create_file("/d/model", Creation::default()).unwrap().close().unwrap();
    let (mut model, mut random) = (Vec::<u8>::new(), SplitMix64::new(7));
    for turn in 0..8_u8 {
        let file = volume.open_file("/d/model").unwrap();
        for step in 0..60_u8 {
            let (at, len) = (random.below(900_000) as usize, random.below(60_000) as usize);
            match random.below(6) {
                0 => {
                    file.set_len(at as u64).unwrap();
                    model.resize(at, 0);
                }
                1 => file.sync().unwrap(),
                2 => {
                    let mut found = vec![0; len];
                    let read = file.read_at(at as u64, &mut found).unwrap();
                    let expected = model.get(at..(at + len).min(model.len())).unwrap_or_default();
                    assert!(found[..read] == *expected, "turn {turn}, step {step}");
                }
                _ => {
                    file.write_all_at(at as u64, &vec![turn ^ step.wrapping_mul(5); len]).unwrap();
                    model.resize(model.len().max(at + len), 0);
                    model[at..at + len].fill(turn ^ step.wrapping_mul(5));
                }
            }
        }
        drop(file);
        let name = format!("/d/copy {turn}");
        volume.write_file(&name, &model, Creation::default()).unwrap();
        volume.close().unwrap();
        drop(volume);
        check(&store, "a_volume_on_a_store_is_used_at_random_beside_a_model");
        let reader = Arc::new(opened(&store, &Options::default()).unwrap());
        let reader = Volume::open(reader, OpenOptions { read_only: true, ..quiet() }).unwrap();
        assert!(reader.read("/d/model").unwrap() == model && reader.read(&name).unwrap() == model);
        drop(reader);
        volume = Volume::open(Arc::new(opened(&store, &options).unwrap()), quiet()).unwrap();
    }
}

/// Makes files and syncs each; returns how many were synced.
fn work(volume: &Volume) -> u8 {
    for n in 0..5_u8 {
        let written = volume.create_file(format!("/{n}"), Creation::default()).and_then(|file| {
            file.write_all_at(0, &vec![n + 1; 30_000])?;
            file.sync()
        });
        if written.is_err() {
            return n;
        }
    }
    5
}

#[test]
fn a_crash_at_a_request_leaves_a_volume_with_all_that_was_synced() {
    let clean: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let logs = tempfile::tempdir().unwrap();
    formatted(made(&clean, LEN, &options(logs.path()))).close().unwrap();
    let mut synced_counts = Vec::new();
    for (fate, crash_at) in (0..).step_by(5).flat_map(|n| [(Fate::Refused, n), (Fate::Lost, n + 2)]) {
        let honest = copied(&clean);
        release(&honest);
        let faults = FaultStore::new(Arc::clone(&honest));
        let store: Arc<dyn ObjectStore> = faults.clone();
        let logs = tempfile::tempdir().unwrap();
        let device = opened(&store, &impatient(logs.path())).unwrap();
        let volume = Volume::open(Arc::new(device), quiet()).unwrap();
        faults.rule(move |request| match request.number {
            n if n < crash_at => Fate::Done,
            n if n == crash_at => fate,
            _ => Fate::Refused,
        });
        let synced = work(&volume);
        let over = faults.seen().len() as u64 <= crash_at;
        drop(volume);
        release(&honest);
        // Without the log, which may be lost, and with it.
        let elsewhere = tempfile::tempdir().unwrap();
        for (store, logs) in [(copied(&honest), elsewhere.path()), (copied(&honest), logs.path())] {
            let device = opened(&store, &options(logs)).unwrap();
            let volume = Volume::open(Arc::new(device), quiet()).unwrap();
            for n in 0..synced {
                assert!(
                    volume.read(format!("/{n}")).unwrap() == vec![n + 1; 30_000],
                    "{fate:?} at {crash_at}"
                );
            }
            volume.close().unwrap();
            drop(volume);
            check(&store, "a_crash_at_a_request_leaves_a_volume_with_all_that_was_synced");
        }
        synced_counts.push(synced);
        if over {
            break;
        }
    }
    assert!(
        synced_counts.len() > 10 && synced_counts.contains(&5) && synced_counts[0] == 0,
        "{synced_counts:?}"
    );
}
