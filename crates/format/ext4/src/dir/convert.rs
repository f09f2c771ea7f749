//! Gives a block of a directory room for its checksum, or takes it away: for turning `metadata_csum` on or
//! off.
//!
//! A leaf keeps its checksum in an unused record at its end; its other records move together to make room.
//! The tables of an index lose an entry to it. The tail of a leaf may
//! stay where no checksums are used: it is an unused record. And makes an indexed directory a list
//! ([`unindex`]), for turning `dir_index` off.
//!
//! What this is not: it computes no checksum ([`set_checksum`](super::set_checksum) does).

use super::Format;
use super::index::{ENTRY_LEN, NODE_BASE, Shape, root_base};
use super::leaf::{self, Packer, has_tail};
use super::record::{self, Records, get16, put16};
use crate::{Corrupt, Place};
use hectare_units::{InodeNr, LogicalBlock, low16, u64_of};

/// Where the record of `..` says its inode, in the first block.
const PARENT_AT: usize = 12;

/// Brings block `logical` of a directory from the form `from` to the form `to`, which differ in
/// [`checksums`](Format::checksums) only; `indexed` is the inode's index flag. False, with nothing changed,
/// if the block has no room for a checksum: the directory must be built anew.
///
/// # Errors
/// [`Corrupt`] if the block is no block of a directory.
pub fn convert_block(
    block: &mut [u8],
    (from, to): (&Format, &Format),
    logical: LogicalBlock,
    indexed: bool,
    place: Place,
) -> Result<bool, Corrupt> {
    let shape = match Shape::of(block, logical, indexed) {
        // An empty leaf looks like a node; but no node has a table of another length.
        Shape::Node if usize::from(get16(block, NODE_BASE)) != from.index_limit(NODE_BASE) => Shape::Leaf,
        shape => shape,
    };
    let base = match shape {
        Shape::Leaf if to.checksums && !has_tail(block) => return make_tail(block, from, to, place),
        Shape::Leaf => return Ok(true),
        Shape::Root => root_base(block, from, place)?,
        Shape::Node => NODE_BASE,
    };
    let (limit, count) = (to.index_limit(base), usize::from(get16(block, base + 2)));
    if count > limit {
        return Ok(false);
    }
    block[base + count * ENTRY_LEN..].fill(0);
    put16(block, base, low16(u64_of(limit)));
    Ok(true)
}

/// Makes block `logical` of an indexed directory `own` one of a list: the root becomes a block of `.` and
/// `..`, a node one without entries, and a leaf stays. All in the form `format`.
///
/// # Errors
/// [`Corrupt`] if the root does not say which directory is the parent.
pub fn unindex(
    block: &mut [u8],
    format: &Format,
    logical: LogicalBlock,
    own: InodeNr,
    place: Place,
) -> Result<(), Corrupt> {
    match Shape::of(block, logical, true) {
        Shape::Root => {
            let parent = InodeNr::from_disk(record::get32(block, PARENT_AT));
            let parent = parent.ok_or_else(|| Corrupt::new("directory", place, "its .. leads nowhere"))?;
            leaf::init_dots(block, format, own, parent);
        }
        Shape::Node => leaf::init_empty(block, format),
        Shape::Leaf => {}
    }
    Ok(())
}

/// Packs the entries of a leaf, so that the tail fits behind them.
fn make_tail(block: &mut [u8], from: &Format, to: &Format, place: Place) -> Result<bool, Corrupt> {
    let old = block.to_vec();
    let mut entries = Vec::new();
    for record in Records::new(&old, from.leaf_end(), from, place)? {
        entries.extend(record?.entry());
    }
    let packed: usize = entries.iter().map(|entry| record::space(entry.name.bytes().len())).sum();
    if packed > to.leaf_end() {
        return Ok(false);
    }
    let mut packer = Packer::new(block, to);
    entries.iter().for_each(|entry| packer.push(entry));
    packer.finish();
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::Seed;
    use crate::dir::{Entry, FileType, HashVersion, Name, Signedness, set_checksum, verify_block};
    use hectare_units::{BlockSize, InodeNr};

    const PLACE: Place = Place::Volume;

    fn formats() -> (Format, Format) {
        let from = Format {
            block_size: BlockSize::KIB1,
            filetype: true,
            checksums: false,
            index: true,
            large_dir: false,
            hash_version: HashVersion::HalfMd4,
            hash_signedness: Signedness::Signed,
            hash_seed: [0; 4],
            opaque_names: false,
            folding: None,
        };
        (from, Format { checksums: true, ..from })
    }

    /// A leaf without a tail, filled with names of 4 bytes until `room` bytes are left.
    fn leaf(from: &Format, room: usize) -> Vec<u8> {
        let mut block = vec![0; 1024];
        let mut packer = Packer::new(&mut block, from);
        for nr in 0..(1024 - room) / 12 {
            let name = format!("{nr:04}");
            let name = Name::new(name.as_bytes()).unwrap();
            packer.push(&Entry { name, inode: InodeNr::new(12), file_type: FileType::Regular });
        }
        packer.finish();
        block
    }

    #[test]
    fn a_leaf_with_room_gets_a_tail_and_keeps_its_names() {
        let (from, to) = formats();
        let mut block = leaf(&from, 24);
        assert!(convert_block(&mut block, (&from, &to), LogicalBlock::new(1), false, PLACE).unwrap());
        let seed = Some(Seed::stored(7));
        set_checksum(&mut block, &to, seed, LogicalBlock::new(1), false, PLACE).unwrap();
        verify_block(&block, &to, seed, LogicalBlock::new(1), false, PLACE).unwrap();
        let names = leaf::Leaf::parse(&block, &to, PLACE).unwrap().records().count();
        assert_eq!(names, 1000 / 12);
        // And back: the tail may stay.
        assert!(convert_block(&mut block, (&to, &from), LogicalBlock::new(1), false, PLACE).unwrap());
    }

    #[test]
    fn a_full_leaf_is_left_as_it_is() {
        let (from, to) = formats();
        let mut block = leaf(&from, 0);
        let before = block.clone();
        assert!(!convert_block(&mut block, (&from, &to), LogicalBlock::new(1), false, PLACE).unwrap());
        assert_eq!(block, before);
    }
}
