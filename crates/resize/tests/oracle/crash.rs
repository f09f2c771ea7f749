//! Power cuts at any moment of a resize: the volume is the old one, the new one, or one that e2fsck -p mends
//! without loss.

use crate::support::{OPTIONS, Pair};
use hectare_device::{CrashStates, Device, MemoryDevice, RecordDevice};
use hectare_oracle::{Skip, assert_same, fsck, scratch, skip_part};
use hectare_resize::Target;
use hectare_units::{Bytes, index_of};
use std::fs;
use std::sync::Arc;

/// States of one resize that are judged, about.
const STATES: usize = 24;

fn judge(pair: &Pair) -> Result<(), Skip> {
    let image = pair.make()?;
    let before = pair.entries(&image)?;
    let bytes = fs::read(&image).unwrap();
    let recorded = Arc::new(RecordDevice::new(MemoryDevice::from_bytes(&bytes)));
    let disk: Arc<dyn Device> = Arc::<RecordDevice<MemoryDevice>>::clone(&recorded);
    let done = hectare_resize::resize(&disk, Target::Bytes(Bytes::mib(pair.to)), true, &OPTIONS)
        .unwrap_or_else(|error| panic!("{pair:?}: {error}"));
    assert!(!done.in_place, "{pair:?}: the journal takes it");
    let mut states = CrashStates::new(MemoryDevice::from_bytes(&bytes), recorded.log());
    let points: Vec<usize> = states.points().collect();
    // All moments around flushes matter, and most points lie in the copying of data: the last ones are dense.
    let step = (points.len() / STATES).max(1);
    let tail = points.len().saturating_sub(STATES);
    for (nr, point) in points.iter().copied().enumerate().filter(|(nr, _)| nr % step == 0 || *nr >= tail) {
        let seed = hectare_units::u64_of(nr);
        let state = if nr % 3 == 0 { states.prefix(point) } else { states.torn(point, seed) }.unwrap();
        let mut bytes = vec![0; index_of(state.len().get())];
        state.read_at(Bytes::ZERO, &mut bytes).unwrap();
        drop(state);
        let file = scratch::fresh("crashed");
        fs::write(&file, &bytes).unwrap();
        let mended = fsck::e2fsck_with(&file, &["-p"])?;
        assert!(matches!(mended.exit, Some(0 | 1)), "{pair:?}, point {point}: e2fsck -p: {}", mended.output);
        fsck::assert_clean(&file)?;
        assert_same(&pair.entries(&file)?, &before, pair.compared());
        fs::remove_file(file).unwrap();
    }
    fs::remove_file(image).unwrap();
    Ok(())
}

#[test]
fn a_power_cut_loses_nothing() {
    let only = std::env::var("HECTARE_RESIZE_ONLY").unwrap_or_default();
    let pairs = [
        Pair::new("ext4", &["-g", "2048", "-J", "size=16"], 120, 60),
        Pair::new("ext4", &["-g", "2048"], 60, 120),
        Pair::new("ext3-1k", &["-J", "size=8"], 90, 50),
    ];
    for pair in pairs.iter().filter(|pair| pair.combo.name.contains(&only)) {
        if let Err(skip) = judge(pair) {
            skip_part!(format!("a_power_cut_loses_nothing, {}", pair.combo.name), skip);
        }
    }
}
