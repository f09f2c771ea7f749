//! Power cuts at any moment of a change: the volume is the old one, the new one, or one that e2fsck -p
//! finishes; and no file is lost.

use crate::support::{Base, changes, long};
use hectare_device::{CrashStates, Device, MemoryDevice, RecordDevice};
use hectare_oracle::{Skip, assert_same, fsck, scratch, skip_part};
use hectare_tune::tune;
use hectare_units::{Bytes, index_of};
use std::fs;
use std::sync::Arc;

/// States of one change that are judged, about; of the long version ten times as many.
const STATES: usize = 10;

type Options = &'static [(&'static str, &'static str)];

fn judge(base: &Base, options: Options) -> Result<usize, Skip> {
    let image = base.make()?;
    let before = base.entries(&image)?;
    let bytes = fs::read(&image).unwrap();
    let recorded = Arc::new(RecordDevice::new(MemoryDevice::from_bytes(&bytes)));
    let disk: Arc<dyn Device> = Arc::<RecordDevice<MemoryDevice>>::clone(&recorded);
    let done = tune(&disk, &changes(options)).unwrap_or_else(|error| panic!("{base:?} {options:?}: {error}"));
    assert!(!done.in_place, "{base:?} {options:?}: a journal takes it");
    let mut states = CrashStates::new(MemoryDevice::from_bytes(&bytes), recorded.log());
    let points: Vec<usize> = states.points().collect();
    let wanted = if long() { STATES * 10 } else { STATES };
    let step = (points.len() / wanted).max(1);
    // What lies at the ends of the change is dense with flushes.
    let tail = points.len().saturating_sub(wanted / 2);
    let mut judged = 0;
    for (nr, point) in points.iter().copied().enumerate() {
        if nr % step != 0 && nr < tail {
            continue;
        }
        let seed = hectare_units::u64_of(nr);
        let state = if nr % 3 == 0 { states.prefix(point) } else { states.torn(point, seed) }.unwrap();
        let mut bytes = vec![0; index_of(state.len().get())];
        state.read_at(Bytes::ZERO, &mut bytes).unwrap();
        drop(state);
        let file = scratch::fresh("crashed");
        fs::write(&file, &bytes).unwrap();
        let mended = fsck::e2fsck_with(&file, &["-p"])?;
        let place = format!("{base:?} {options:?}, point {point} of {}", points.len());
        assert!(matches!(mended.exit, Some(0 | 1)), "{place}: e2fsck -p: {}", mended.output);
        let after = fsck::e2fsck_with(&file, &["-fn"])?;
        assert!(after.exit == Some(0), "{place}: {}", after.output);
        assert_same(&base.entries(&file)?, &before, base.compared());
        fs::remove_file(file).unwrap();
        judged += 1;
    }
    fs::remove_file(image).unwrap();
    Ok(judged)
}

const UUID: (&str, &str) = ("-U", "x");

#[test]
fn a_power_cut_loses_nothing() {
    let only = std::env::var("HECTARE_TUNE_ONLY").unwrap_or_default();
    let cases: &[(&str, &'static [&'static str], u64, Options)] = &[
        ("ext4", &[], 64, &[UUID]),
        ("ext4", &[], 64, &[("-O", "^64bit")]),
        ("ext4", &[], 64, &[("-I", "512")]),
        ("ext4", &[], 64, &[("-O", "^filetype,^dir_index,sparse_super2")]),
        ("ext4", &[], 64, &[("-O", "^has_journal")]),
        ("ext4", &[], 64, &[("-J", "size=8")]),
        ("ext4", &[], 64, &[("-O", "^metadata_csum,^64bit,^extent")]),
        ("ext4", &["-O", "^metadata_csum"], 64, &[("-O", "metadata_csum")]),
        ("ext4", &["-O", "^has_journal"], 64, &[("-O", "has_journal,orphan_file"), UUID]),
        ("ext4", &["-O", "^has_journal"], 64, &[UUID]),
        ("ext4", &["-O", "^has_journal"], 64, &[("-I", "512")]),
        ("ext2-1k-128", &[], 64, &[("-I", "256"), ("-O", "extent,64bit")]),
        ("ext2-1k-128", &[], 64, &[("-O", "has_journal")]),
        ("ext3-1k", &[], 64, &[("-I", "256"), ("-O", "^resize_inode")]),
    ];
    let mut judged = 0;
    for (name, more, mib, options) in cases.iter().filter(|case| format!("{case:?}").contains(&only)) {
        match judge(&Base::new(name, more, *mib), options) {
            Ok(states) => judged += states,
            Err(skip) => skip_part!(format!("a_power_cut_loses_nothing, {name} {options:?}"), skip),
        }
    }
    println!("{judged} states");
}
