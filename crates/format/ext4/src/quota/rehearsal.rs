//! Tries an insertion on a copy in memory of the blocks that it changes, so that a tree that is broken is found
//! before anything of the file is changed.

use super::{BLOCK_BYTES, Block, BlockIndex, Info, Kind, QuotaRead, QuotaWrite, insert};
use hectare_units::InodeNr;
use std::collections::HashMap;

/// Returns the error that [`insert`] would end with, unless that is one of the space.
///
/// # Errors
/// As [`insert`], except that the file can grow without bound.
pub fn check_insert<F: QuotaRead>(file: &F, info: &Info, id: u32) -> Result<(), F::Error> {
    let mut rehearsal = Rehearsal { file, len: file.len(), changed: HashMap::new() };
    insert(&mut rehearsal, &mut info.clone(), id).map(drop)
}

/// A quota file whose changes stay in memory.
struct Rehearsal<'a, F> {
    file: &'a F,
    len: u32,
    changed: HashMap<BlockIndex, Block>,
}

impl<F: QuotaRead> QuotaRead for Rehearsal<'_, F> {
    type Error = F::Error;

    fn kind(&self) -> Kind {
        self.file.kind()
    }

    fn inode(&self) -> InodeNr {
        self.file.inode()
    }

    fn len(&self) -> u32 {
        self.len
    }

    fn block(&self, at: BlockIndex) -> Result<Block, F::Error> {
        match self.changed.get(&at) {
            Some(block) => Ok(*block),
            None if at.get() < self.file.len() => self.file.block(at),
            None => Ok([0; BLOCK_BYTES]),
        }
    }
}

impl<F: QuotaRead> QuotaWrite for Rehearsal<'_, F> {
    fn edit<R>(&mut self, at: BlockIndex, change: impl FnOnce(&mut Block) -> R) -> Result<R, F::Error> {
        let mut block = self.block(at)?;
        let done = change(&mut block);
        self.changed.insert(at, block);
        Ok(done)
    }

    fn grow(&mut self, blocks: u32) -> Result<(), F::Error> {
        self.len = self.len.max(blocks);
        Ok(())
    }
}
