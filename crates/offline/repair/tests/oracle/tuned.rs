//! Power cuts while settings of a volume change: what `e2fsck -p` finishes without questions, a repair does
//! without a loss.

use crate::survey::Survey;
use crate::trial::{NOW, bytes_of, e2fsck, watched};
use crate::volumes::{Scale, volume};
use hectare_device::{CrashStates, Device, MemoryDevice, RecordDevice};
use hectare_mkfs::parse_features;
use hectare_oracle::{debugfs_write, mke2fs, skip};
use hectare_repair::Staged;
use hectare_tune::{Changes, tune};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Kinds of volumes, and the features that change.
const CASES: [(usize, &str); 4] =
    [(1, "^has_journal"), (4, "^has_journal"), (3, "has_journal"), (1, "quota")];

/// What is wrong with a state after a cut, if e2fsck mends it without questions.
fn judge(state: &[u8], undamaged: &Survey, image: &Path) -> Result<bool, String> {
    fs::write(image, state).unwrap();
    let theirs = e2fsck("-fp", image);
    if !matches!(theirs.code, Some(0 | 1)) {
        return Ok(false);
    }
    let staged = Staged::new(Arc::new(MemoryDevice::from_bytes(state)));
    let repaired = watched(staged.overlay())?;
    if let Some(mend) = repaired.mends.iter().flatten().find(|mend| mend.loses) {
        return Err(format!("e2fsck -p does it without a question: {mend}\n{}", theirs.out));
    }
    let after = bytes_of(&**staged.overlay());
    fs::write(image, &after).unwrap();
    let said = e2fsck("-fn", image);
    if said.code != Some(0) {
        return Err(said.out);
    }
    let found = Survey::of(Arc::new(MemoryDevice::from_bytes(&after))).unwrap();
    if found != *undamaged {
        return Err("files are others".into());
    }
    Ok(true)
}

#[test]
fn what_e2fsck_preens_after_a_cut_is_mended_without_loss() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let mut judged = 0;
    for (kind, features) in CASES {
        let bytes = match volume(kind, Scale::Small, folder.path()) {
            Ok(bytes) => bytes,
            Err(reason) => skip!("repair tuned::what_e2fsck_preens", reason),
        };
        let undamaged = Survey::of(Arc::new(MemoryDevice::from_bytes(&bytes))).unwrap();
        let recorded = Arc::new(RecordDevice::new(MemoryDevice::from_bytes(&bytes)));
        let disk: Arc<dyn Device> = Arc::<RecordDevice<MemoryDevice>>::clone(&recorded);
        let changes = Changes {
            features: parse_features(features).unwrap(),
            now: hectare_ext4::time::Timestamp { seconds: NOW.into(), nanoseconds: 0 },
            ..Changes::default()
        };
        tune(&disk, &changes).unwrap();
        let mut states = CrashStates::new(MemoryDevice::from_bytes(&bytes), recorded.log());
        let points: Vec<usize> = states.points().collect();
        let step = (points.len() / 12).max(1);
        // The ends are dense with flushes.
        let tail = points.len().saturating_sub(6);
        for (nr, point) in points.iter().copied().enumerate().filter(|(nr, _)| nr % step == 0 || *nr >= tail)
        {
            for torn in [false, true] {
                let state = if torn { states.torn(point, nr as u64) } else { states.prefix(point) };
                let state = bytes_of(&state.unwrap());
                let done = judge(&state, &undamaged, &image);
                let place = format!("{kind} {features}, point {point} of {}, torn {torn}", points.len());
                judged += u32::from(done.unwrap_or_else(|what| panic!("{place}: {what}")));
            }
        }
    }
    assert!(judged > 40, "only {judged} states were judged");
}

/// A journal that the volume no longer has is cleared, and that is no loss as long as its log is empty.
#[test]
fn regression_a_journal_left_behind_is_no_loss() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let gone = ["feature ^has_journal", "ssv journal_inum 0", "ssv jnl_backup_type 0"];
    for args in [&["-t", "ext4"][..], &["-t", "ext3"]] {
        let made = mke2fs(args, &image, "16M").and_then(|()| debugfs_write(&image, &gone));
        if let Err(reason) = made {
            skip!("repair tuned::regression_a_journal_left_behind", reason);
        }
        let bytes = fs::read(&image).unwrap();
        let empty = Survey::of(Arc::new(MemoryDevice::from_bytes(&bytes))).unwrap();
        assert_eq!(judge(&bytes, &empty, &image), Ok(true), "{args:?}");
    }
}

/// What such a log still holds is lost.
#[test]
fn a_log_left_behind_that_is_not_empty_is_a_loss() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let made = mke2fs(&["-t", "ext4", "-b", "4096"], &image, "16M").and_then(|()| {
        let block = folder.path().join("block");
        fs::write(&block, [7; 4096]).unwrap();
        let write = format!("jw -b 3000 {}", block.display());
        debugfs_write(&image, &["jo", &write, "jc"])?;
        debugfs_write(&image, &["feature ^has_journal", "feature ^needs_recovery", "ssv journal_inum 0"])
    });
    if let Err(reason) = made {
        skip!("repair tuned::a_log_left_behind", reason);
    }
    let staged = Staged::new(Arc::new(MemoryDevice::from_bytes(&fs::read(&image).unwrap())));
    let repaired = watched(staged.overlay()).unwrap();
    assert!(repaired.loses(), "{:?}", repaired.mends);
}
