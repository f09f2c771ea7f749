//! Gives the inodes that a directory's entries lead to other numbers, where they have changed.

use super::{FileType, record};
use crate::{Corrupt, Place};
use hectare_units::{BlockNr, InodeNr};

/// Gives every entry of a block, `.` and `..` included, the number that `number` says, and returns whether
/// one changed; its checksum is stale then. Leaves and index blocks alike: the latter hold entries in their
/// first record only, or none. Hashes come from names and stay.
///
/// # Errors
/// [`Corrupt`] if the records do not fill the block; those before have been changed.
pub fn renumber(block: &mut [u8], nr: BlockNr, number: impl Fn(InodeNr) -> InodeNr) -> Result<bool, Corrupt> {
    let mut changed = false;
    each_entry(block, nr, |block, at, inode| {
        let new = number(inode);
        if new != inode {
            record::put32(block, at, new.get());
            changed = true;
        }
    })?;
    Ok(changed)
}

/// Gives every entry of a block, `.` and `..` included, the file type that `file_type` says of its inode; its
/// checksum is stale then. [`FileType::Unknown`] is what a volume without the feature `filetype` has.
///
/// # Errors
/// As [`renumber`].
pub fn retype(block: &mut [u8], nr: BlockNr, file_type: impl Fn(InodeNr) -> FileType) -> Result<(), Corrupt> {
    each_entry(block, nr, |block, at, inode| {
        if let Some(byte) = block.get_mut(at + record::TYPE_AT) {
            *byte = file_type(inode).code();
        }
    })
}

/// Calls `change` with the block, the place of each record in use, and the inode that it leads to.
fn each_entry(
    block: &mut [u8],
    nr: BlockNr,
    mut change: impl FnMut(&mut [u8], usize, InodeNr),
) -> Result<(), Corrupt> {
    let mut at = 0;
    while at < block.len() {
        let Some(head) = record::head(block, at, block.len()) else {
            let reason = format!("byte {at}: no record starts there");
            return Err(Corrupt::new("directory block", Place::Block(nr), reason));
        };
        if let Some(inode) = InodeNr::from_disk(head.inode) {
            change(block, at, inode);
        }
        at += head.len;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dir::leaf;
    use crate::testing;

    #[test]
    fn every_entry_is_renumbered_and_a_broken_block_refused() {
        let sb = testing::superblock();
        let format = crate::dir::Format::of(&sb).unwrap();
        let mut block = vec![0; format.block_size.len()];
        leaf::init_dots(&mut block, &format, InodeNr::new(900), InodeNr::new(2));
        let number = |nr: InodeNr| if nr.get() == 900 { InodeNr::new(12) } else { nr };
        let place = BlockNr::new(7);
        assert!(renumber(&mut block, place, number).unwrap());
        assert!(!renumber(&mut block, place, number).unwrap());
        let mut expected = vec![0; format.block_size.len()];
        leaf::init_dots(&mut expected, &format, InodeNr::new(12), InodeNr::new(2));
        assert!(block == expected);
        let types = |nr: InodeNr| if nr.get() == 12 { FileType::Unknown } else { FileType::Directory };
        retype(&mut block, place, types).unwrap();
        assert_eq!((block[7], block[19]), (0, 2));
        block[4..6].fill(1);
        assert!(renumber(&mut block, place, number).unwrap_err().to_string().contains("no record"));
    }
}
