//! The attribute block's own fields: its checksum and how many inodes share it.

use super::raw::Header;
use crate::checksum::Seed;
use crate::error::{Corrupt, Place};
use hectare_units::BlockNr;
use std::mem::offset_of;
use zerocopy::FromBytes;

/// How many inodes may share one block, by the kernel's rule; one more gets a block of its own.
pub const REFCOUNT_MAX: u32 = 1024;

const WHAT: &str = "extended attribute block";

/// Checks the checksum of attribute block `nr` (volumes with `metadata_csum`).
///
/// # Errors
/// `Corrupt` if it doesn't match.
pub fn verify(block: &[u8], seed: Seed, nr: BlockNr) -> Result<(), Corrupt> {
    let place = Place::Block(nr);
    let (header, _) =
        Header::ref_from_prefix(block).map_err(|_| Corrupt::new(WHAT, place, "it is too short"))?;
    let (found, expected) = (header.h_checksum.get(), checksum(block, seed, nr));
    if found == expected { Ok(()) } else { Err(Corrupt::checksum(WHAT, place, found, expected)) }
}

/// Writes the checksum of attribute block `nr` into it; the last step before it goes to disk.
///
/// # Panics
/// If the block is shorter than its header.
pub fn seal(block: &mut [u8], seed: Seed, nr: BlockNr) {
    let sum = checksum(block, seed, nr);
    header_mut(block).h_checksum.set(sum);
}

/// How many inodes use the block; `None` if it is shorter than its header.
#[must_use]
pub fn refcount(block: &[u8]) -> Option<u32> {
    Header::ref_from_prefix(block).ok().map(|(header, _)| header.h_refcount.get())
}

/// Sets how many inodes use the block. The checksum is stale after this.
///
/// # Panics
/// If the block is shorter than its header.
pub fn set_refcount(block: &mut [u8], count: u32) {
    header_mut(block).h_refcount.set(count);
}

fn header_mut(block: &mut [u8]) -> &mut Header {
    Header::mut_from_prefix(block).expect("a block is longer than its header").0
}

/// The checksum: the block's number, then the block with zeros where the checksum goes.
fn checksum(block: &[u8], seed: Seed, nr: BlockNr) -> u32 {
    const FIELD: usize = offset_of!(Header, h_checksum);
    let (before, rest) = block.split_at_checked(FIELD).unwrap_or((block, &[]));
    let after = rest.get(4..).unwrap_or(&[]);
    seed.then(&nr.get().to_le_bytes()).then(before).then(&[0; 4]).checksum(after)
}
