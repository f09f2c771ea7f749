//! Repairs that are cancelled at any of their checkpoints: the volume is as it was, or mended.

use crate::damage::damage;
use crate::trial::{NOW, bytes_of};
use crate::volumes::small;
use hectare_device::{Cancel, CancelDevice, Device, MemoryDevice, Until};
use hectare_oracle::skip;
use hectare_repair::{Options, Staged, write_out};
use hectare_units::random::SplitMix64 as Random;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Repairs a volume, cancelled at a checkpoint; gives what it holds afterwards, and whether it is mended. `None`
/// if it can't be repaired for another reason.
fn repaired(old: &[u8], checkpoint: u64) -> Option<(Vec<u8>, bool)> {
    let memory = Arc::new(MemoryDevice::from_bytes(old));
    let passed = AtomicU64::new(0);
    let cancel = Cancel::polling(move || passed.fetch_add(1, Ordering::Relaxed) >= checkpoint);
    let device = Arc::new(CancelDevice::new(Arc::clone(&memory), cancel.clone(), Until::FirstChange));
    let staged = Staged::new(Arc::clone(&device) as Arc<dyn Device>);
    let mut undo = Vec::new();
    let options = Options { now: NOW, ..Options::default() };
    let done = staged.repair(&options).map_err(|error| error.to_string()).and_then(|repaired| {
        let written = write_out(&staged, &repaired.order, NOW, Some(&mut undo), || Ok(()));
        written.map(|_| ()).map_err(|error| error.to_string())
    });
    if done.is_err() && !cancel.is_cancelled() {
        return None;
    }
    assert!(done.is_ok() || !device.is_past(), "what was begun came to its end: {done:?}");
    Some((bytes_of(&*memory), done.is_ok()))
}

#[test]
fn a_cancelled_repair_leaves_the_volume_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let bases = match small(folder.path()) {
        Ok(bases) => bases,
        Err(reason) => skip!("repair cancel::a_cancelled_repair_leaves_the_volume_as_it_was", reason),
    };
    let mut refused = 0;
    for (seed, base) in (1..).zip(bases.iter().take(3)) {
        let mut old = base.bytes.clone();
        let how = damage(&mut old, &mut Random::new(seed));
        let Some((new, true)) = repaired(&old, u64::MAX) else { continue };
        let mut checkpoint = 0;
        loop {
            let (found, is_done) = repaired(&old, checkpoint).unwrap();
            if is_done {
                assert!(found == new, "{}, {how}, checkpoint {checkpoint}", base.name);
                break;
            }
            assert!(found == old, "{}, {how}, checkpoint {checkpoint}", base.name);
            refused += 1;
            checkpoint += 1 + checkpoint / 8;
        }
    }
    assert!(refused > 60, "{refused} checkpoints");
}
