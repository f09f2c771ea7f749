//! Logs of our own writing: e2fsck replays them to the same bytes as we do, and both to the intended ones.

use crate::recovery::logs::{LogWriter, Random};
use crate::recovery::volume::{Volume, assert_as_e2fsck};
use hectare_journal::format::{JournalCompat, JournalIncompat, MAGIC};
use hectare_oracle::{Skip, mke2fs, scratch, skip};
use hectare_units::BlockNr;
use std::fs;

/// A fresh volume with a journal of the least length.
pub(crate) fn fresh(block_size: &str) -> Result<Volume, Skip> {
    let image = scratch::fresh("fresh");
    let (size, journal) = match block_size {
        "1024" => ("12M", "size=1"),
        "2048" => ("16M", "size=2"),
        "4096" => ("24M", "size=4"),
        _ => ("160M", "size=64"),
    };
    mke2fs(&["-t", "ext4", "-b", block_size, "-J", journal], &image, size)?;
    let volume = Volume::read(&image);
    fs::remove_file(image).unwrap();
    volume
}

pub(crate) fn features() -> impl Iterator<Item = (JournalCompat, JournalIncompat)> {
    let none = JournalIncompat::empty();
    let sums = [
        (JournalCompat::empty(), none),
        (JournalCompat::CHECKSUM, none),
        (JournalCompat::empty(), JournalIncompat::CSUM_V2),
        (JournalCompat::empty(), JournalIncompat::CSUM_V3),
    ];
    sums.into_iter().flat_map(|(compat, incompat)| {
        let wide = incompat | JournalIncompat::BIT64;
        [(compat, incompat), (compat, wide), (compat, wide | JournalIncompat::ASYNC_COMMIT)]
    })
}

fn each_form(test: &str, block_size: &str, step: usize) {
    let plain = match fresh(block_size) {
        Ok(volume) => volume,
        Err(reason) => skip!(test, reason),
    };
    for (i, (compat, incompat)) in features().enumerate().step_by(step) {
        println!("{block_size}, {compat:?}, {incompat:?}");
        // Of 1024 log blocks, these start so late that the log wraps; the numbers wrap in every second one.
        let txn = if i % 2 == 0 { u32::MAX - 3 } else { 5 };
        let mut log = LogWriter::new(plain.clone(), compat, incompat, 1010, txn);
        let mut random = Random(0x9e37_79b9_7f4a_7c15 + u64::try_from(i).unwrap());
        log.fill(12, &mut random);
        let (ours, recovery) = match assert_as_e2fsck(&log.volume) {
            Ok(recovered) => recovered,
            Err(reason) => skip!(test, reason),
        };
        log.check(&ours);
        assert_eq!(recovery.next_sequence(), log.txn.next());
        assert!(log.written.iter().any(|(at, _)| at.get() < 900), "it has not wrapped");
    }
}

#[test]
fn logs_in_every_form_are_replayed_as_e2fsck_does_1k() {
    each_form("recovery::written::in_every_form_1k", "1024", 1);
}

#[test]
fn logs_in_every_form_are_replayed_as_e2fsck_does_2k() {
    each_form("recovery::written::in_every_form_2k", "2048", 1);
}

#[test]
fn logs_in_every_form_are_replayed_as_e2fsck_does_4k() {
    each_form("recovery::written::in_every_form_4k", "4096", 1);
}

#[test]
fn logs_in_some_forms_are_replayed_as_e2fsck_does_64k() {
    each_form("recovery::written::in_every_form_64k", "65536", 5);
}

#[test]
fn an_uncommitted_transaction_is_left_out() {
    let plain = match fresh("1024") {
        Ok(volume) => volume,
        Err(reason) => skip!("recovery::written::an_uncommitted_transaction", reason),
    };
    let (compat, incompat) = (JournalCompat::empty(), JournalIncompat::CSUM_V3);
    let mut log = LogWriter::new(plain, compat, incompat, 0, 1);
    log.fill(3, &mut Random(7));
    let nr = BlockNr::new(log.volume.blocks().get() - 1);
    let head = log.written.len();
    log.open(&[(nr, vec![0xaa; 1024])], &[]);
    let (ours, recovery) = assert_as_e2fsck(&log.volume).unwrap();
    log.check(&ours);
    assert_eq!(usize::try_from(recovery.head().get()).unwrap(), head + 1);
    assert_eq!(recovery.next_sequence(), log.txn.next());
}

#[test]
fn a_full_log_ends_after_one_turn() {
    let plain = match fresh("1024") {
        Ok(volume) => volume,
        Err(reason) => skip!("recovery::written::a_full_log", reason),
    };
    let mut log = LogWriter::new(plain, JournalCompat::empty(), JournalIncompat::empty(), 1000, 1);
    let mut random = Random(99);
    while log.room() > 160 {
        log.fill(1, &mut random);
    }
    while log.room() > 3 {
        let nr = BlockNr::new(log.volume.blocks().get() - 1 - random.below(300));
        log.commit(vec![(nr, vec![7; 1024])], &[]);
    }
    let (ours, _) = assert_as_e2fsck(&log.volume).unwrap();
    log.check(&ours);
}

#[test]
fn a_block_outside_the_volume_or_inside_the_journal_is_refused_by_name() {
    let plain = match fresh("1024") {
        Ok(volume) => volume,
        Err(reason) => skip!("recovery::written::a_block_outside", reason),
    };
    let inside = plain.map.locate(hectare_units::LogicalBlock::new(77)).unwrap().0;
    for (nr, why) in
        [(plain.blocks().get(), "ends before"), (u64::MAX, "ends before"), (inside.get(), "itself")]
    {
        let incompat = JournalIncompat::BIT64;
        let mut log = LogWriter::new(plain.clone(), JournalCompat::empty(), incompat, 0, 4);
        let mut data = vec![1; 1024];
        data[..4].copy_from_slice(&MAGIC.to_be_bytes());
        log.commit(vec![(BlockNr::new(nr), data)], &[]);
        let error = log.volume.recovery().unwrap_err().to_string();
        assert!(error.contains(&format!("transaction 4 has a copy of block {nr} in log block 2")), "{error}");
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_clean_journal_needs_nothing() {
    let plain = match fresh("1024") {
        Ok(volume) => volume,
        Err(reason) => skip!("recovery::written::a_clean_journal", reason),
    };
    let (recovered, recovery) = plain.recover().unwrap();
    assert!(!recovery.needed() && recovery.blocks().is_empty() && recovery.fast_commits().is_empty());
    assert_eq!(recovery.next_sequence().get(), 2);
    assert_eq!(recovered.journal_superblock().sequence().get(), 1);
}
