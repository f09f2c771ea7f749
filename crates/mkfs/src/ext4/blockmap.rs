//! Block maps of ext2 and ext3, written whole: 12 direct blocks, then one, two and three levels of tables.
//!
//! Only the formatter writes such maps (for lost+found and the journal of a volume without extents).

use hectare_units::{BlockNr, BlockSize, low32};

/// A block with its content.
pub(crate) type Block = (BlockNr, Vec<u8>);

/// Direct entries of an inode.
const DIRECT: u64 = 12;

/// Tables whose first entries lead to a file's block of this number: they lie right before it, as in
/// mke2fs.
pub(crate) fn tables_before(block: u64, block_size: BlockSize) -> u32 {
    let per = u64::from(block_size.get() / 4);
    let Some(mut at) = block.checked_sub(DIRECT) else { return 0 };
    for level in 1..=3 {
        let here = per.pow(level);
        if at < here {
            return (1..=level).map(|below| u32::from(at.is_multiple_of(per.pow(below)))).sum();
        }
        at -= here;
    }
    0 // beyond what a map reaches
}

/// Builds the map of a file without holes: the inode's 60 bytes and the tables.
pub(crate) fn build(
    mut blocks: impl Iterator<Item = u64>,
    block_size: BlockSize,
    next: &mut dyn FnMut() -> BlockNr,
) -> ([u8; 60], Vec<Block>) {
    let (mut root, mut tables) = ([0; 60], Vec::new());
    for slot in root.chunks_exact_mut(4).take(12) {
        slot.copy_from_slice(&low32(blocks.next().unwrap_or(0)).to_le_bytes());
    }
    let mut blocks = blocks.peekable();
    for (level, slot) in (1..).zip(root.chunks_exact_mut(4).skip(12)) {
        if blocks.peek().is_some() {
            let top = table(&mut blocks, level, block_size, next, &mut tables);
            slot.copy_from_slice(&low32(top.get()).to_le_bytes());
        }
    }
    (root, tables)
}

fn table<I: Iterator<Item = u64>>(
    blocks: &mut std::iter::Peekable<I>,
    level: u32,
    block_size: BlockSize,
    next: &mut dyn FnMut() -> BlockNr,
    tables: &mut Vec<Block>,
) -> BlockNr {
    let nr = next();
    let mut bytes = vec![0; block_size.len()];
    for slot in bytes.chunks_exact_mut(4) {
        if blocks.peek().is_none() {
            break;
        }
        let entry = match level {
            1 => blocks.next().unwrap_or(0),
            _ => table(blocks, level - 1, block_size, next, tables).get(),
        };
        slot.copy_from_slice(&low32(entry).to_le_bytes());
    }
    tables.push((nr, bytes));
    nr
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_units::usize_of;

    #[test]
    fn as_many_tables_are_built_as_were_counted() {
        let size = BlockSize::KIB1;
        for blocks in [1, 12, 13, 268, 269, 12 + 256 + 65536, 12 + 256 + 65536 + 1, 262_144] {
            let mut given = 1_000_000;
            let (root, tables) = build(1..blocks + 1, size, &mut || {
                given += 1;
                BlockNr::new(given)
            });
            let counted: u32 = (0..blocks).map(|block| tables_before(block, size)).sum();
            assert_eq!(tables.len(), usize_of(counted), "{blocks}");
            assert_eq!(root[0..4], 1u32.to_le_bytes());
        }
    }
}
