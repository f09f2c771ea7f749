//! The second pass: finds the newest copy of each block that was not revoked.

use super::reader::{LogReader, Ring};
use super::scan::{LogBlock, Scanned};
use super::{LoggedCopy, RecoveryError};
use crate::format::{JournalSuperblock, LogFormat};
use hectare_units::{BlockNr, Blocks, LogicalBlock, TxnId};
use std::borrow::Cow;
use std::collections::BTreeMap;

type Copies = BTreeMap<BlockNr, LoggedCopy>;

/// The newest copies that count, with their checksums verified. Of a `damaged` log, wrong ones are left out
/// instead of refused.
pub(super) fn newest_copies(
    reader: &LogReader<'_>,
    superblock: &JournalSuperblock,
    scanned: &Scanned,
    volume: Blocks,
    damaged: bool,
) -> Result<Copies, RecoveryError> {
    let format = superblock.log_format();
    let mut copies = Copies::new();
    let mut block = reader.buffer();
    for found in scanned.found.iter().filter(|found| found.is_descriptor) {
        reader.read(found.at, &mut block)?;
        let mut ring = Ring::from(superblock, found.at);
        ring.step();
        for tag in format.tags(&block) {
            let Some(at) = ring.step() else { break };
            match check_target(reader, tag.block, volume, found.txn, at) {
                Err(_) if damaged => continue,
                checked => checked?,
            }
            let copy = LoggedCopy { at, escaped: tag.escaped, txn: found.txn, checksum: tag.checksum };
            if damaged && !is_right(reader, &format, &copy)? {
                continue; // an older one may be right
            }
            copies.insert(tag.block, copy);
        }
    }
    for found in scanned.found.iter().filter(|found| !found.is_descriptor) {
        reader.read(found.at, &mut block)?;
        revoke(&mut copies, &format, &block, found)?;
    }
    verify(reader, &format, &copies)?;
    Ok(copies)
}

/// Whether the checksum of one copy is right.
fn is_right(reader: &LogReader<'_>, format: &LogFormat, copy: &LoggedCopy) -> Result<bool, RecoveryError> {
    if !format.checksum.covers_blocks() {
        return Ok(true);
    }
    let mut logged = reader.buffer();
    reader.read(copy.at, &mut logged)?;
    Ok(format.verify_copy(copy.checksum, copy.txn, &logged))
}

/// Refuses blocks that the volume does not have, and the journal itself, whose copies replay relies on.
fn check_target(
    reader: &LogReader<'_>,
    block: BlockNr,
    volume: Blocks,
    txn: TxnId,
    at: LogicalBlock,
) -> Result<(), RecoveryError> {
    let refuse = |reason| Err(RecoveryError::Target { txn, at, block, reason });
    if block.get() >= volume.get() {
        return refuse("the volume ends before it");
    }
    if reader.map().is_target_inside(block) {
        return refuse("that is a block of the journal itself");
    }
    Ok(())
}

fn revoke(
    copies: &mut Copies,
    format: &LogFormat,
    block: &[u8],
    found: &LogBlock,
) -> Result<(), RecoveryError> {
    let revoked = format.revoked(block).ok_or(RecoveryError::Damaged {
        txn: found.txn,
        at: found.at,
        reason: Cow::Borrowed("it revokes more blocks than fit"),
    })?;
    for nr in revoked {
        if copies.get(&nr).is_some_and(|copy| !copy.txn.is_after(found.txn)) {
            copies.remove(&nr);
        }
    }
    Ok(())
}

fn verify(reader: &LogReader<'_>, format: &LogFormat, copies: &Copies) -> Result<(), RecoveryError> {
    if !format.checksum.covers_blocks() {
        return Ok(());
    }
    let mut ordered: Vec<&LoggedCopy> = copies.values().collect();
    ordered.sort_unstable_by_key(|copy| copy.at);
    let places: Vec<LogicalBlock> = ordered.iter().map(|copy| copy.at).collect();
    reader.read_each(&places, |i, logged| {
        let copy = ordered[i];
        if format.verify_copy(copy.checksum, copy.txn, logged) {
            return Ok(());
        }
        let reason = Cow::Borrowed("the copy's checksum is wrong");
        Err(RecoveryError::Damaged { txn: copy.txn, at: copy.at, reason })
    })
}
