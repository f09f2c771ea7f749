//! Gives ids a record in the quota files, before the operation that needs one.
//!
//! Only this changes the trees of the files; what records say is rendered with each commit
//! ([`crate::stores::quotas`]). An id gets its record in a transaction of its own, as an empty one: should the
//! operation not come about, that says nothing. The file grows by blocks that count for nobody.
//!
//! Hazard: called without a handle, under operation locks.

use crate::error::{Error, Result};
use crate::space::map::MapRef;
use crate::space::map_edit::{MAP_CREDITS, MapMut};
use crate::space::piece::Use;
use crate::space::reserve;
use crate::state::{Core, State};
use crate::stores::block_cache::{Block, Kind as BlockKind};
use crate::stores::quotas::{Owners, Pieces};
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::extent::Mapping;
use hectare_ext4::inode::Inode;
use hectare_ext4::quota::{
    self, BLOCK_BYTES, Block as TreeBlock, BlockIndex, Kind, QuotaFile, QuotaRead, QuotaWrite, Storage,
};
use hectare_journal::Handle;
use hectare_units::{InodeNr, LogicalBlock, low32};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Blocks that adding a record may dirty: of the tree, and for each block that it may grow by.
const INSERT_CREDITS: u32 = 12 + 5 * MAP_CREDITS;

/// The most extents of a quota file that is used: some 2 GiB in blocks of 4 KiB, each alone.
const PIECES_MAX: usize = 1 << 19;

/// Gives these owners a record each, where they have none yet.
///
/// # Errors
/// [`Error::NoSpace`] if the file can't grow, and what is wrong with it.
pub(crate) fn prepare(core: &Core, owners: Owners) -> Result<()> {
    place(core, Some(owners))
}

/// Gives a record to whatever counts and has none: ids that are used on a volume whose quota files did not
/// know them.
pub(crate) fn place_waiting(core: &Core) -> Result<()> {
    place(core, None)
}

fn place(core: &Core, owners: Option<Owners>) -> Result<()> {
    let Some(quotas) = core.state.quotas() else { return Ok(()) };
    quotas.missing(owners).into_iter().try_for_each(|(kind, id)| place_id(core, kind, id))
}

/// Refuses the number of a user, group or project that stands for none.
pub(crate) fn check_id(id: u32) -> Result<()> {
    match id {
        u32::MAX => Err(Error::Invalid("the number 4294967295 stands for no user, group or project")),
        _ => Ok(()),
    }
}

/// Gives an id a record in the file of a kind.
pub(crate) fn place_id(core: &Core, kind: Kind, id: u32) -> Result<()> {
    let Some((nr, _)) = core.state.quotas().and_then(|quotas| quotas.file(kind)) else { return Ok(()) };
    let inode = core.state.inode(nr)?;
    let _operation = inode.lock().write();
    let mut handle = core.start(INSERT_CREDITS)?;
    // As it is now: others may have added to it. Grace periods that are set meanwhile are rendered after what is
    // written here, since nothing is while the handle is open.
    let Some((quotas, (_, mut info))) =
        core.state.quotas().and_then(|quotas| Some((quotas, quotas.file(kind)?)))
    else {
        return Ok(());
    };
    quota::check_insert(&file(&core.state, kind, nr, &inode.get()), &info, id)?;
    let mut data = inode.edit(&mut handle, &core.state.inodes);
    let mut changed = FileMut { core, handle: &mut handle, kind, nr, inode: &mut data };
    let slot = quota::insert(&mut changed, &mut info, id)?;
    let pieces = pieces_of(&core.state, kind, nr, &data)?;
    quotas.placed(kind, id, slot, info, pieces);
    Ok(())
}

/// Where a quota file lies.
///
/// # Errors
/// [`Corrupt`] if it is in too many pieces, or some are not written.
pub(crate) fn pieces_of(state: &State, kind: Kind, nr: InodeNr, inode: &Inode) -> Result<Pieces> {
    let (mut pieces, mut wrong) = (Pieces::default(), None);
    MapRef { state, nr, inode }.for_each(LogicalBlock::ZERO, &mut |extent| {
        if extent.unwritten {
            wrong = Some(format!("block {} of the file is not written", extent.logical));
        } else if pieces.0.len() == PIECES_MAX {
            wrong = Some(format!("the file lies in more than {PIECES_MAX} pieces"));
        } else {
            pieces.0.push(extent);
        }
        if wrong.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    let corrupt = |what: String| Corrupt::new(kind.structure(), Place::Inode(nr), what).into();
    wrong.map_or(Ok(pieces), |what| Err(corrupt(what)))
}

/// A quota file, for reading.
pub(crate) fn file<'a>(state: &'a State, kind: Kind, nr: InodeNr, inode: &'a Inode) -> QuotaFile<Cached<'a>> {
    let block_size = state.geometry().block_size;
    QuotaFile { kind, nr, len: inode.size, block_size, storage: Cached { state, nr, inode } }
}

/// The blocks of a quota file, through the cache.
pub(crate) struct Cached<'a> {
    state: &'a State,
    nr: InodeNr,
    inode: &'a Inode,
}

impl Cached<'_> {
    /// The volume's block that holds a block of the file; `None` in a hole.
    fn holder(&self, block: LogicalBlock) -> Result<Option<Arc<Block>>> {
        let mapping = MapRef { state: self.state, nr: self.nr, inode: self.inode }.lookup(block)?;
        let physical = match mapping {
            Mapping::Mapped(extent) if !extent.unwritten => extent.block_of(block),
            _ => None,
        };
        let place = Place::FileBlock(self.nr, block);
        physical.map(|physical| self.state.blocks.load(physical, BlockKind::Plain, place)).transpose()
    }
}

impl Storage for Cached<'_> {
    type Error = Error;

    fn read(&self, at: LogicalBlock, start: usize, bytes: &mut TreeBlock) -> Result<bool> {
        let Some(block) = self.holder(at)? else { return Ok(false) };
        bytes.copy_from_slice(&block.bytes()[start..start + BLOCK_BYTES]);
        Ok(true)
    }
}

/// A quota file, for changes inside a transaction.
struct FileMut<'a, 'h> {
    core: &'a Core,
    handle: &'a mut Handle<'h>,
    kind: Kind,
    nr: InodeNr,
    inode: &'a mut Inode,
}

impl FileMut<'_, '_> {
    fn as_ref(&self) -> QuotaFile<Cached<'_>> {
        file(&self.core.state, self.kind, self.nr, self.inode)
    }

    /// Maps the blocks of the file before `end`, as zeros.
    fn map_to(&mut self, end: u32) -> Result<()> {
        // The block that holds the end may be a hole.
        let mut at = low32(self.inode.size >> self.core.state.geometry().block_size.shift());
        while at < end {
            let logical = LogicalBlock::new(at);
            let map = MapRef { state: &self.core.state, nr: self.nr, inode: self.inode };
            if let Mapping::Mapped(extent) = map.lookup(logical)? {
                at = low32(extent.end().min(end.into()));
                continue;
            }
            let piece = reserve::reserve_for(self.core, self.nr, self.inode, logical, end - at, Use::Names)?;
            let first = piece.extent.physical;
            let mapped = MapMut { core: self.core, handle: self.handle, nr: self.nr, inode: self.inode }
                .publish(piece, false)?;
            for step in 0..u64::from(mapped) {
                let nr = first + hectare_units::Blocks::new(step);
                let block = self.core.state.blocks.fresh(nr, BlockKind::Plain);
                self.core.state.blocks.edit(self.handle, &block, BlockKind::Plain, |_| ());
            }
            at += mapped;
        }
        Ok(())
    }
}

impl QuotaRead for FileMut<'_, '_> {
    type Error = Error;

    fn kind(&self) -> Kind {
        self.kind
    }

    fn inode(&self) -> InodeNr {
        self.nr
    }

    fn len(&self) -> u32 {
        self.as_ref().len()
    }

    fn block(&self, at: BlockIndex) -> Result<TreeBlock> {
        self.as_ref().block(at)
    }
}

impl QuotaWrite for FileMut<'_, '_> {
    fn edit<R>(&mut self, at: BlockIndex, change: impl FnOnce(&mut TreeBlock) -> R) -> Result<R> {
        let (logical, start) = at.in_file(self.core.state.geometry().block_size);
        let block = self.as_ref().storage.holder(logical)?;
        let block = block.ok_or_else(|| quota::hole(self.kind, self.nr, at))?;
        Ok(self.core.state.blocks.edit_as_is(self.handle, &block, |bytes| {
            let bytes = &mut bytes[start..start + BLOCK_BYTES];
            change(bytes.try_into().expect("a block of the tree"))
        }))
    }

    fn grow(&mut self, blocks: u32) -> Result<()> {
        if blocks <= self.len() {
            return Ok(());
        }
        let last = BlockIndex::new(blocks - 1);
        let end = last.in_file(self.core.state.geometry().block_size).0.get() + 1;
        self.map_to(end)?;
        self.inode.size = u64::from(blocks) * hectare_units::u64_of(BLOCK_BYTES);
        self.core.state.stamp(self.inode);
        Ok(())
    }
}
