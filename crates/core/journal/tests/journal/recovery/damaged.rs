//! Damaged journals: the result is an error, or the state after some prefix of the transactions.

use crate::recovery::kernel::{has_blocks, left_by_the_kernel, storm};
use crate::recovery::logs::{LogWriter, Random};
use crate::recovery::volume::Volume;
use crate::recovery::written::fresh;
use hectare_device::MemoryDevice;
use hectare_journal::format::{
    Checksum, HEADER_LEN, JournalCompat, JournalIncompat, JournalSuperblock, MAGIC,
};
use hectare_journal::recovery::{self, LogMap, LogRun, RecoveryError};
use hectare_oracle::skip;
use hectare_units::{BlockNr, BlockSize, Blocks, Bytes, LogicalBlock, TxnId, usize_of};
use proptest::prelude::*;
use std::collections::BTreeMap;

type State = BTreeMap<BlockNr, Vec<u8>>;

/// A log of some transactions, and the states after none, one, two ... of them.
fn log_and_states(plain: &Volume, incompat: JournalIncompat, seed: u64) -> (LogWriter, Vec<State>) {
    let mut log = LogWriter::new(plain.clone(), JournalCompat::empty(), incompat, 1010, 7);
    let mut states = vec![State::new()];
    let mut random = Random(seed);
    for _ in 0..8 {
        log.fill(1, &mut random);
        states.push(log.model.clone());
    }
    (log, states)
}

/// The last blocks of a volume, which the logs of these tests write, as they are; those of zeros left out.
fn state_of(volume: &Volume) -> State {
    let end = volume.blocks().get();
    let blocks = (end - 300..end).map(BlockNr::new);
    let with_data = blocks.map(|nr| (nr, volume.bytes[volume.range(nr)].to_vec()));
    with_data.filter(|(_, data)| data.iter().any(|byte| *byte != 0)).collect()
}

/// The states without blocks of zeros, to compare with [`state_of`].
fn visible(states: &[State]) -> Vec<State> {
    let mut states = states.to_vec();
    states.iter_mut().for_each(|state| state.retain(|_, data| data.iter().any(|byte| *byte != 0)));
    states
}

#[test]
fn a_flipped_bit_gives_an_error_or_an_earlier_state() {
    let plain = match fresh("1024") {
        Ok(volume) => volume,
        Err(reason) => skip!("recovery::damaged::a_flipped_bit", reason),
    };
    let mut errors = 0;
    for (i, incompat) in [JournalIncompat::CSUM_V2, JournalIncompat::CSUM_V3].into_iter().enumerate() {
        let seed = 0x1234_5678_9abc + u64::try_from(i).unwrap();
        let (log, states) = log_and_states(&plain, incompat | JournalIncompat::BIT64, seed);
        let states = visible(&states);
        let mut random = Random(seed);
        for (at, what) in &log.written {
            let mut damaged = log.volume.clone();
            let range = damaged.log_range(*at);
            let bit = usize::try_from(random.below(1024 * 8)).unwrap();
            damaged.bytes[range.start + bit / 8] ^= 1 << (bit % 8);
            match damaged.recover() {
                Err(RecoveryError::Damaged { at: named, .. }) => {
                    assert_eq!(named, *at, "{what}");
                    errors += 1;
                }
                Err(error) => panic!("{what}: {error}"),
                Ok((recovered, _)) => {
                    let state = state_of(&recovered);
                    assert!(states.contains(&state), "bit {bit} of a {what} in log block {at}");
                    // Unnoticed is only what ends the log early, a copy that a later one replaces, and what
                    // lies behind the content of a commit block.
                    let harmless = *what == "copy" || (*what == "commit" && bit / 8 >= 60);
                    assert!(harmless || bit / 8 < HEADER_LEN, "bit {bit} of a {what}");
                }
            }
        }
    }
    assert!(errors > 50, "{errors}");
}

#[test]
fn a_flipped_bit_of_a_log_without_checksums_does_no_harm_to_others() {
    let plain = match fresh("1024") {
        Ok(volume) => volume,
        Err(reason) => skip!("recovery::damaged::without_checksums", reason),
    };
    let (log, _) = log_and_states(&plain, JournalIncompat::empty(), 77);
    let mut random = Random(5);
    for (at, _) in &log.written {
        let mut damaged = log.volume.clone();
        let range = damaged.log_range(*at);
        let bit = usize::try_from(random.below(200 * 8)).unwrap();
        damaged.bytes[range.start + bit / 8] ^= 1 << (bit % 8);
        match damaged.recover() {
            Ok(_) | Err(RecoveryError::Target { .. } | RecoveryError::Damaged { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Flips a bit in the last written block that is a `what`, but for the last `skipped` of them.
fn damage(log: &LogWriter, what: &str, skipped: usize) -> (Volume, LogicalBlock) {
    let mut volume = log.volume.clone();
    let (at, _) = log.written.iter().rev().filter(|(_, is)| *is == what).nth(skipped).unwrap();
    let range = volume.log_range(*at);
    volume.bytes[range.start + 50] ^= 1;
    (volume, *at)
}

#[test]
fn with_async_commit_the_last_transaction_may_be_torn_but_no_other() {
    let plain = match fresh("1024") {
        Ok(volume) => volume,
        Err(reason) => skip!("recovery::damaged::with_async_commit", reason),
    };
    let incompat = JournalIncompat::CSUM_V3 | JournalIncompat::ASYNC_COMMIT;
    let mut log = LogWriter::new(plain, JournalCompat::empty(), incompat, 0, 7);
    let end = log.volume.blocks().get();
    for i in 1..5u8 {
        let blocks = (0..3).map(|k| (BlockNr::new(end - 20 + 3 * u64::from(i) + k), vec![i; 1024])).collect();
        log.commit(blocks, &[]);
    }
    let whole = state_of(&log.volume.recover().unwrap().0);
    for what in ["descriptor", "copy", "commit"] {
        let (torn, _) = damage(&log, what, 0);
        let (recovered, recovery) = torn.recover().unwrap();
        let state = state_of(&recovered);
        assert!(state.len() == 9 && state.iter().all(|(nr, data)| whole.get(nr) == Some(data)), "{what}");
        assert_eq!(recovery.next_sequence(), log.txn, "{what}");
        let (broken, at) = damage(&log, what, if what == "copy" { 4 } else { 1 });
        let error = broken.recover().map(|_| ()).unwrap_err();
        let named =
            matches!(error, RecoveryError::Damaged { at: named, txn, .. } if named == at && txn.get() == 9);
        assert!(named, "{what}: {error}");
    }
}

#[test]
fn what_an_earlier_turn_of_the_log_left_is_its_end_and_no_damage() {
    let plain = match fresh("1024") {
        Ok(volume) => volume,
        Err(reason) => skip!("recovery::damaged::an_earlier_turn", reason),
    };
    let incompat = JournalIncompat::CSUM_V3;
    let mut log = LogWriter::new(plain, JournalCompat::empty(), incompat, 0, 7);
    let nr = BlockNr::new(log.volume.blocks().get() - 1);
    log.commit(vec![(nr, vec![1; 1024])], &[]);
    let kept = log.model.clone();
    log.commit(vec![(nr, vec![2; 1024])], &[]);
    // The same numbers written for another journal, long before: its checksums are wrong for this one.
    let mut old = log.format;
    old.uuid = [0xee; 16];
    for (place, block) in
        [(4, old.descriptor(TxnId::new(8), &[(nr, &[3; 1024])])), (6, old.commit(TxnId::new(8), 900, 0))]
    {
        let range = log.volume.log_range(LogicalBlock::new(place));
        log.volume.bytes[range].copy_from_slice(&block);
    }
    let (recovered, recovery) = log.volume.recover().unwrap();
    assert_eq!((state_of(&recovered), recovery.next_sequence().get()), (kept, 9));
    let range = log.volume.log_range(LogicalBlock::new(6));
    log.volume.bytes[range].copy_from_slice(&old.commit(TxnId::new(8), 1000, 0));
    let error = log.volume.recover().map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("transaction 8 is corrupt in log block 4"), "{error}");
}

#[test]
fn damage_to_a_transaction_of_the_kernel_with_the_first_checksum_shows() {
    let args = ["-b", "1024", "-J", "size=2", "-O", "^metadata_csum"];
    let volume = match left_by_the_kernel(&args, "journal_checksum", |root| storm(root, 3), has_blocks) {
        Ok((volume, _)) => volume,
        Err(reason) => skip!("recovery::damaged::the_first_checksum", reason),
    };
    assert_eq!(volume.journal_superblock().checksum(), Checksum::V1);
    let copy = *volume.recovery().unwrap().blocks().values().next().unwrap();
    let mut damaged = volume;
    let range = damaged.log_range(copy.at);
    damaged.bytes[range.start + 500] ^= 1;
    let error = damaged.recovery().unwrap_err();
    assert!(matches!(error, RecoveryError::Damaged { txn, .. } if txn == copy.txn), "{error}");
}

const BLOCKS: u32 = 40;

/// A journal of 40 blocks of 1 KiB on a device of 64, with `blocks` as its log.
fn read_hostile(
    incompat: JournalIncompat,
    start: u32,
    blocks: &[(u32, u32, Vec<u8>)],
) -> Result<(), RecoveryError> {
    let size = BlockSize::KIB1;
    let mut superblock = JournalSuperblock::new(size, BLOCKS, 5, [3; 16]);
    superblock.set_features(JournalCompat::empty(), incompat).unwrap();
    superblock.set_tail(TxnId::new(u32::MAX), LogicalBlock::new(start));
    let mut bytes = vec![0; 64 * size.len()];
    bytes[..1024].copy_from_slice(&superblock.render());
    for (i, (kind, txn, content)) in blocks.iter().enumerate() {
        let at = (usize_of(start) + i) % usize_of(BLOCKS - 1) + 1;
        let block = &mut bytes[at * 1024..][..1024];
        block[12..12 + content.len()].copy_from_slice(content);
        block[..4].copy_from_slice(&MAGIC.to_be_bytes());
        block[4..8].copy_from_slice(&kind.to_be_bytes());
        block[8..12].copy_from_slice(&u32::MAX.wrapping_add(*txn).to_be_bytes());
    }
    let device = MemoryDevice::from_bytes(&bytes);
    let run = LogRun { first: LogicalBlock::ZERO, start: BlockNr::new(0), len: Blocks::new(BLOCKS.into()) };
    let map = LogMap::internal(size, vec![run], Bytes::of(bytes.len())).unwrap();
    let recovery = recovery::read(&device, &map, Blocks::new(64))?;
    recovery.apply(&device, &device)?;
    let _ = JournalSuperblock::parse(&recovery.clean_superblock()).unwrap();
    Ok(())
}

#[test]
fn descriptors_without_an_end_go_around_once() {
    // Each block is a descriptor of the same transaction whose tags have no end.
    let block = (1, 0, vec![0; 1012]);
    read_hostile(JournalIncompat::empty(), 1, &vec![block; 39]).unwrap();
}

/// Small numbers more often than others.
fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![4 => 0..2u8, 2 => 0..64u8, 1 => any::<u8>()]
}

proptest! {
    #[test]
    fn any_log_is_refused_or_replayed(
        bits in 0..0x40u32,
        start in 1..39u32,
        blocks in proptest::collection::vec(
            (1..6u32, 0..3u32, proptest::collection::vec(byte(), 0..200)),
            0..40,
        ),
    ) {
        let mut incompat = JournalIncompat::from_bits_truncate(bits);
        if incompat.contains(JournalIncompat::CSUM_V2) {
            incompat.remove(JournalIncompat::CSUM_V3);
        }
        let _ = read_hostile(incompat, start, &blocks);
    }
}
