//! Fuzz target: a journal of any bytes, or a sound log with changes to it, is read and replayed.
//!
//! Replayed blocks go to the volume's own blocks, and a second replay changes nothing. A log without changes
//! is read to its end.

use crate::input::Input;
use crate::patch;
use hectare_device::{Device, MemoryDevice};
use hectare_journal::format::{
    JournalCompat, JournalIncompat, JournalSuperblock, LogFormat, MAGIC, needs_escape,
};
use hectare_journal::recovery::{LogMap, LogRun, Recovery, read};
use hectare_units::{BlockNr, BlockSize, Blocks, LogicalBlock, TxnId, u64_of, usize_of};

const BLOCK: usize = 1024;
/// Blocks of the log, of the volume, and of the device the volume lies on.
const LOG: u32 = 64;
const VOLUME: u64 = 48;
const DEVICE: usize = 64;
/// The first transaction.
const FIRST: u32 = 7;

pub(super) fn target(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let flags = input.byte();
    let (mut log, transactions) =
        if flags & 1 == 0 { sound(flags, &mut input) } else { (input.rest().to_vec(), 0) };
    log.resize(BLOCK * usize_of(LOG), 0);
    let intact = flags & 1 == 0 && input.is_empty();
    patch::scatter(&mut log, &mut input);
    let volume = MemoryDevice::from_bytes(&vec![0x77; BLOCK * DEVICE]);
    // Behind the volume's blocks, in two pieces the other way round: a place in the log is not one on the
    // device.
    let (lower, upper) = log.split_at(log.len() / 2);
    let journal = MemoryDevice::from_bytes(&[&vec![0; BLOCK * DEVICE], upper, lower].concat());
    let run = |first: u32, start: u32| LogRun {
        first: LogicalBlock::new(first),
        start: BlockNr::new(u64_of(DEVICE) + u64::from(start)),
        len: Blocks::new(u64::from(LOG / 2)),
    };
    let runs = vec![run(0, LOG / 2), run(LOG / 2, 0)];
    let map = LogMap::internal(BlockSize::KIB1, runs, journal.len()).expect("the pieces are apart");
    let before = journal.to_vec();
    match read(&journal, &map, Blocks::new(VOLUME)) {
        Ok(recovery) => {
            let end = recovery.next_sequence().get();
            assert!(!intact || end == FIRST + transactions + 1, "an unchanged log is read to {end}");
            replay(&recovery, &journal, &volume);
        }
        Err(error) => {
            assert!(!intact, "an unchanged log: {error}");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
    assert!(journal.to_vec() == before, "the journal was changed");
}

fn replay(recovery: &Recovery, journal: &MemoryDevice, volume: &MemoryDevice) {
    for nr in recovery.blocks().keys() {
        assert!(nr.get() < VOLUME, "block {nr} is to be replayed, which the volume does not have");
    }
    recovery.apply(journal, volume).expect("what was read can be applied");
    let once = volume.to_vec();
    let beyond = once.iter().skip(BLOCK * usize::try_from(VOLUME).expect("few blocks"));
    assert!(beyond.copied().all(|byte| byte == 0x77), "what lies behind the volume was written");
    recovery.apply(journal, volume).expect("and again");
    assert!(volume.to_vec() == once, "replaying again changes something");
    let clean = JournalSuperblock::parse(&recovery.clean_superblock()).expect("it can be read");
    assert!(clean.start().is_none(), "the journal is not clean afterwards");
}

/// A log of some transactions, as flags and an input say, and how many there are.
fn sound(flags: u8, input: &mut Input<'_>) -> (Vec<u8>, u32) {
    let mut superblock = JournalSuperblock::new(BlockSize::KIB1, LOG, 0, [9; 16]);
    let (compat, incompat) = match flags >> 1 & 3 {
        0 => (JournalCompat::empty(), JournalIncompat::REVOKE),
        1 => (JournalCompat::CHECKSUM, JournalIncompat::REVOKE),
        2 => (JournalCompat::empty(), JournalIncompat::REVOKE | JournalIncompat::CSUM_V3),
        _ => (
            JournalCompat::empty(),
            JournalIncompat::REVOKE | JournalIncompat::CSUM_V3 | JournalIncompat::BIT64,
        ),
    };
    superblock.set_features(compat, incompat).expect("features that go together");
    let first = 1 + u32::from(flags >> 3);
    superblock.set_tail(TxnId::new(FIRST), LogicalBlock::new(first));
    let format = superblock.log_format();
    let mut blocks = vec![vec![0; BLOCK]; usize_of(LOG)];
    blocks[0][..1024].copy_from_slice(&superblock.render());
    let mut at = usize_of(first);
    let transactions = u32::from(input.byte() % 6);
    for n in 0..transactions {
        for block in transaction(&format, TxnId::new(FIRST + n), input) {
            blocks[at] = block;
            at = if at + 1 < blocks.len() { at + 1 } else { 1 };
        }
    }
    (blocks.concat(), transactions)
}

fn transaction(format: &LogFormat, sequence: TxnId, input: &mut Input<'_>) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let what = input.byte();
    if what & 1 != 0 {
        let revoked = [BlockNr::new(u64::from(input.byte()) % VOLUME)];
        out.push(format.revoke(sequence, &revoked));
    }
    let count = usize::from(what >> 1 & 3);
    let places: Vec<BlockNr> = (0..count).map(|_| BlockNr::new(u64::from(input.byte()) % VOLUME)).collect();
    // One in four looks like a block of the journal.
    let copies: Vec<Vec<u8>> = (0..count)
        .map(|_| {
            let value = input.byte();
            let mut copy = vec![value; BLOCK];
            if value & 3 == 0 {
                copy[..4].copy_from_slice(&MAGIC.to_be_bytes());
            }
            copy
        })
        .collect();
    if count > 0 {
        let pairs: Vec<(BlockNr, &[u8])> = places.into_iter().zip(copies.iter().map(Vec::as_slice)).collect();
        out.push(format.descriptor(sequence, &pairs));
    }
    out.extend(copies.into_iter().map(|mut copy| {
        if needs_escape(&copy) {
            copy[..4].fill(0);
        }
        copy
    }));
    out.push(format.commit(sequence, 1_700_000_000 + u64_of(out.len()), 0));
    out
}
