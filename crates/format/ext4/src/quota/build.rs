//! Builds a whole quota file in memory, for a volume that is being made.

use super::{BLOCK_BYTES, Block, BlockIndex, Info, Kind, QuotaRead, QuotaWrite, Record, insert};
use crate::error::FormatError;
use hectare_units::{InodeNr, low32, u64_of, usize_of};
use std::collections::BTreeMap;

/// The bytes of the file that holds these records, with the usual grace periods: whole blocks of 1 KiB.
///
/// # Panics
/// If there are more records than a file can hold: 4 GiB of blocks.
#[must_use]
pub fn build(kind: Kind, records: &BTreeMap<u32, Record>) -> Vec<u8> {
    let mut file = Memory { kind, blocks: vec![[0; BLOCK_BYTES]; 2] };
    let mut info = Info::empty();
    info.write(&mut file).expect("it is in memory");
    for (id, record) in records {
        let slot = insert(&mut file, &mut info, *id).expect("a tree just made is sound");
        file.edit(slot.leaf, |block| record.render(*id, &mut block[slot.bytes()])).expect("it is in memory");
    }
    file.blocks.truncate(usize_of(info.blocks));
    file.blocks.concat()
}

/// A file in memory.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) kind: Kind,
    pub(super) blocks: Vec<Block>,
}

impl QuotaRead for Memory {
    type Error = FormatError;

    fn kind(&self) -> Kind {
        self.kind
    }

    fn inode(&self) -> InodeNr {
        InodeNr::new(3)
    }

    fn len(&self) -> u32 {
        low32(u64_of(self.blocks.len()))
    }

    fn block(&self, at: BlockIndex) -> Result<Block, FormatError> {
        Ok(self.blocks[usize_of(at.get())])
    }
}

impl QuotaWrite for Memory {
    fn edit<R>(&mut self, at: BlockIndex, change: impl FnOnce(&mut Block) -> R) -> Result<R, FormatError> {
        Ok(change(&mut self.blocks[usize_of(at.get())]))
    }

    fn grow(&mut self, blocks: u32) -> Result<(), FormatError> {
        let len = self.blocks.len().max(usize_of(blocks));
        self.blocks.resize(len, [0; BLOCK_BYTES]);
        Ok(())
    }
}
