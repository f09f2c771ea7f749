//! The checksum of one directory block.
//!
//! A leaf's covers everything before its tail. An index block's covers its table as far as it is used, then
//! the tail with a checksum of zero; the unused slots are not covered. Both start from the inode's seed.
//!
//! What this is not: a check of the content. That the bytes are those that were written doesn't make them
//! sane.

use super::index::{ENTRY_LEN, NODE_BASE, Shape, TAIL_LEN, root_base};
use super::record::{get16, get32, put32};
use super::{Format, leaf, record};
use crate::checksum::Seed;
use crate::{Corrupt, Place};
use hectare_units::LogicalBlock;

/// Checks the checksum of block `logical` of a directory; `indexed` is the inode's index flag, `seed` the
/// inode's checksum seed (`None` on a volume without
/// `metadata_csum`, where everything verifies).
///
/// # Errors
/// [`Corrupt`] if the checksum is wrong, or the block has no place for one.
pub fn verify_block(
    block: &[u8],
    format: &Format,
    seed: Option<Seed>,
    logical: LogicalBlock,
    indexed: bool,
    place: Place,
) -> Result<(), Corrupt> {
    let Some(seed) = seed.filter(|_| format.checksums) else { return Ok(()) };
    let (structure, at, expected) = compute(block, format, seed, logical, indexed, place)?;
    let found = get32(block, at);
    if found == expected { Ok(()) } else { Err(Corrupt::checksum(structure, place, found, expected)) }
}

/// Stores the checksum of a block that the functions of this module made or edited. Does nothing without a
/// seed.
///
/// # Errors
/// [`Corrupt`] if the block has no place for a checksum; it is unchanged then.
pub fn set_checksum(
    block: &mut [u8],
    format: &Format,
    seed: Option<Seed>,
    logical: LogicalBlock,
    indexed: bool,
    place: Place,
) -> Result<(), Corrupt> {
    let Some(seed) = seed.filter(|_| format.checksums) else { return Ok(()) };
    let (_, at, checksum) = compute(block, format, seed, logical, indexed, place)?;
    put32(block, at, checksum);
    Ok(())
}

/// Corrects the one byte of a leaf that is wrong, if its checksum shows which one it is.
pub fn mend_leaf(block: &mut [u8], format: &Format, seed: Seed) -> bool {
    let Some(end) = block.len().checked_sub(record::TAIL_LEN) else { return false };
    if !format.checksums || block.len() != format.block_size.len() || !leaf::has_tail(block) {
        return false;
    }
    let found = get32(block, end + 8);
    crate::checksum::mend(&mut block[..end], seed, found).is_some()
}

/// The structure's name, where its checksum lies, and what it should be.
fn compute(
    block: &[u8],
    format: &Format,
    seed: Seed,
    logical: LogicalBlock,
    indexed: bool,
    place: Place,
) -> Result<(&'static str, usize, u32), Corrupt> {
    let len = block.len();
    if len != format.block_size.len() {
        return Err(Corrupt::new("directory block", place, format!("it has {len} bytes")));
    }
    match Shape::of(block, logical, indexed) {
        Shape::Leaf if !leaf::has_tail(block) => {
            Err(Corrupt::new("directory block", place, "it does not end in a checksum record"))
        }
        Shape::Leaf => {
            let checksum = seed.checksum(&block[..len - record::TAIL_LEN]);
            Ok(("directory block", len - 4, checksum))
        }
        Shape::Root => {
            let base = root_base(block, format, place)?;
            of_table(block, base, seed, "directory index root", place)
        }
        Shape::Node => of_table(block, NODE_BASE, seed, "directory index node", place),
    }
}

fn of_table(
    block: &[u8],
    base: usize,
    seed: Seed,
    structure: &'static str,
    place: Place,
) -> Result<(&'static str, usize, u32), Corrupt> {
    let (limit, count) = (usize::from(get16(block, base)), usize::from(get16(block, base + 2)));
    let tail = base + limit * ENTRY_LEN;
    if count > limit || tail + TAIL_LEN > block.len() {
        let reason = format!("a table of {count} entries of {limit} leaves no place for a checksum");
        return Err(Corrupt::new(structure, place, reason));
    }
    let table = seed.then(&block[..base + count * ENTRY_LEN]);
    let checksum = table.then(&block[tail..tail + 4]).checksum(&[0; 4]);
    Ok((structure, tail + 4, checksum))
}
