//! Devices that fail at any moment of a resize, for once or for good: as after a power cut, the volume is the old
//! one, the new one, or one that `e2fsck -p` mends without loss.

use crate::crash::{Case, First, mend};
use crate::support::OPTIONS;
use hectare_device::{Device, FaultDevice, MemoryDevice, Operation, Outcome as Fault, Rule};
use hectare_oracle::{Skip, scratch, skip};
use hectare_resize::{Outcome, Target};
use hectare_units::Bytes;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a resize is tried on.
fn faulty(bytes: &[u8]) -> Arc<FaultDevice<MemoryDevice>> {
    Arc::new(FaultDevice::new(MemoryDevice::from_bytes(bytes)))
}

fn resize(device: &Arc<FaultDevice<MemoryDevice>>, case: &Case) -> hectare_resize::Result<Outcome> {
    let disk: Arc<dyn Device> = Arc::<FaultDevice<_>>::clone(device);
    hectare_resize::resize(&disk, Target::Bytes(Bytes::mib(case.pair.to)), true, &OPTIONS)
}

/// How often a resize changes the device.
fn changes(bytes: &[u8], case: &Case) -> u64 {
    let (device, changes) = (faulty(bytes), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&changes);
    device.add(Rule::new(Fault::IO).when(move |request| {
        counted.fetch_add(u64::from(request.operation != Operation::Read), Ordering::Relaxed);
        false
    }));
    resize(&device, case).unwrap();
    changes.load(Ordering::Relaxed)
}

/// Fails some change of the device, once, or with all after it; returns how many resizes failed.
fn fail_each(case: &Case, once: bool) -> Result<u64, Skip> {
    const TRIED: u64 = 12;
    let pair = &case.pair;
    let image = pair.make()?;
    let before = case.entries(&image)?;
    let bytes = fs::read(&image).unwrap();
    fs::remove_file(image).unwrap();
    let all = changes(&bytes, case);
    for nth in (0..TRIED).map(|n| all * n / TRIED) {
        let device = faulty(&bytes);
        let rule = Rule::new(Fault::IO).when(|request| request.operation != Operation::Read).after(nth);
        device.add(if once { rule.times(1) } else { rule });
        let done = resize(&device, case);
        let left = device.inner().to_vec();
        let what = format!("{pair:?}, change {nth} of {all}, once: {once}, {} bytes: {done:?}", left.len());
        assert!(done.is_err() && left.len() >= bytes.len(), "{what}");
        let file = scratch::fresh("failed");
        fs::write(&file, left).unwrap();
        mend(case, (&file, None), &before, First::Fsck, &what)?;
        fs::remove_file(file).unwrap();
    }
    Ok(TRIED)
}

#[test]
fn regression_a_write_error_after_the_commit_cut_the_new_volume() {
    const TEST: &str = "resize failing::regression_a_write_error_after_the_commit";
    let mut failed = 0;
    for (combo, more, from, to) in [
        ("ext4", &["-g", "2048", "-J", "size=4"][..], 40, 90),
        ("ext4-1k", &["-J", "size=4"], 24, 60),
        ("ext4", &["-g", "2048", "-J", "size=4"], 60, 34),
    ] {
        let case = Case::new(combo, more, from, to);
        for once in [true, false] {
            match fail_each(&case, once) {
                Ok(more) => failed += more,
                Err(reason) => skip!(TEST, reason),
            }
        }
    }
    assert_eq!(failed, 72);
}
