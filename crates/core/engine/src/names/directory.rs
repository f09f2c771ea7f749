//! Finds a directory's blocks through its map, and reads and writes them through the block cache.

mod bounds;

use crate::error::{Error, Result};
use crate::space::map::MapRef;
use crate::space::map_edit::MapMut;
use crate::space::piece::Use;
use crate::space::reserve;
use crate::state::{Core, State};
use crate::stores::block_cache::{Block, Kind};
use hectare_ext4::casefold::Folding;
use hectare_ext4::dir::{DirRead, DirWrite, Format, Spot};
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::extent::Mapping;
use hectare_ext4::inline::{Inline, Rows};
use hectare_ext4::inode::{Inode, InodeFlags};
use hectare_journal::Handle;
use hectare_units::{BlockNr, InodeNr, LogicalBlock};
use std::ops::Deref;
use std::sync::Arc;

/// Metadata blocks that putting a name into a directory may dirty, the map of an added block included.
pub(crate) const DIR_CREDITS: u32 =
    hectare_ext4::dir::INSERT_BLOCKS_MAX + 4 * crate::space::map_edit::MAP_CREDITS;

/// Where a name goes in a directory.
pub(crate) type NameSpot = Spot<DirBlock>;

/// The bytes of a directory's block as they were read, and the block, which stays in memory meanwhile.
#[derive(Clone)]
pub(crate) struct DirBlock {
    bytes: Arc<[u8]>,
    /// `None` for entries that lie in the inode.
    block: Option<Arc<Block>>,
}

impl Deref for DirBlock {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A directory, for reading. One whose entries lie in its inode looks like one of a single block.
pub(crate) struct DirRef<'a> {
    pub(crate) state: &'a State,
    pub(crate) nr: InodeNr,
    pub(crate) inode: &'a Inode,
}

impl DirRef<'_> {
    /// The form of this directory: the volume's, but for the names of an encrypted one, which are ciphertext,
    /// and of one in which case does not matter.
    pub(crate) fn format(&self) -> Format {
        let opaque_names = self.inode.flags.contains(InodeFlags::ENCRYPT);
        let folds = self.inode.flags.contains(InodeFlags::CASEFOLD) && !opaque_names;
        // Without a known encoding it is only read, name by name.
        let folding = if folds { Folding::of(&self.state.sb).ok().flatten() } else { None };
        Format { opaque_names, folding, ..self.state.dir_format }
    }

    /// What the block at this place in the directory is.
    pub(crate) fn kind(&self, at: LogicalBlock) -> Kind {
        Kind::Directory {
            format: self.format(),
            seed: self.inode.seed(self.nr, &self.state.sb),
            logical: at,
            indexed: self.is_indexed(),
        }
    }

    /// The entries that lie in the inode, as the block that they become when they leave it.
    pub(crate) fn inline_block(&self) -> Result<Vec<u8>> {
        let block = self.inline_rows()?.to_block(self.nr, &self.format());
        let place = Place::Inode(self.nr);
        Ok(block.ok_or_else(|| Corrupt::new("inline directory", place, "its entries exceed a block"))?)
    }

    /// The entries that lie in the inode.
    pub(crate) fn inline_rows(&self) -> Result<Rows> {
        let tail = self.state.inline_tail(self.nr, self.inode)?;
        let (head, size) = (&self.inode.block, self.inode.bytes());
        Ok(Inline::new(head, tail.as_deref(), size, Place::Inode(self.nr))?.rows()?)
    }

    fn physical(&self, at: LogicalBlock) -> Result<Option<BlockNr>> {
        match (MapRef { state: self.state, nr: self.nr, inode: self.inode }).lookup(at)? {
            Mapping::Mapped(extent) if !extent.unwritten => Ok(extent.block_of(at)),
            _ => Ok(None),
        }
    }
}

impl DirRead for DirRef<'_> {
    type Error = Error;
    type Block = DirBlock;

    fn block(&self, at: LogicalBlock) -> Result<Option<DirBlock>> {
        if self.inode.is_inline() {
            let inline = (at == LogicalBlock::ZERO).then(|| self.inline_block());
            return Ok(inline.transpose()?.map(|bytes| DirBlock { bytes: bytes.into(), block: None }));
        }
        let Some(nr) = self.physical(at)? else { return Ok(None) };
        let block = self.state.blocks.load_with(nr, || self.kind(at), self.place(at))?;
        Ok(Some(DirBlock { bytes: block.bytes(), block: Some(block) }))
    }

    fn blocks(&self) -> u32 {
        if self.inode.is_inline() {
            return 1;
        }
        u32::try_from(self.inode.size >> self.state.geometry().block_size.shift()).unwrap_or(u32::MAX)
    }

    fn is_indexed(&self) -> bool {
        self.inode.flags.contains(InodeFlags::INDEX)
    }

    fn place(&self, at: LogicalBlock) -> Place {
        Place::FileBlock(self.nr, at)
    }
}

/// A directory, for changes inside a transaction.
pub(crate) struct DirMut<'a, 'h> {
    pub(crate) core: &'a Core,
    pub(crate) handle: &'a mut Handle<'h>,
    pub(crate) nr: InodeNr,
    pub(crate) inode: &'a mut Inode,
}

impl DirMut<'_, '_> {
    fn as_ref(&self) -> DirRef<'_> {
        DirRef { state: &self.core.state, nr: self.nr, inode: self.inode }
    }

    /// As [`DirRef::format`].
    pub(crate) fn format(&self) -> Format {
        self.as_ref().format()
    }
}

impl DirRead for DirMut<'_, '_> {
    type Error = Error;
    type Block = DirBlock;

    fn block(&self, at: LogicalBlock) -> Result<Option<DirBlock>> {
        self.as_ref().block(at)
    }

    fn blocks(&self) -> u32 {
        self.as_ref().blocks()
    }

    fn is_indexed(&self) -> bool {
        self.as_ref().is_indexed()
    }

    fn place(&self, at: LogicalBlock) -> Place {
        self.as_ref().place(at)
    }
}

impl DirWrite for DirMut<'_, '_> {
    fn edit<R>(&mut self, at: LogicalBlock, f: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        let dir = self.as_ref();
        let nr = dir.physical(at)?.ok_or_else(|| {
            Corrupt::new("the directory", Place::FileBlock(self.nr, at), "a block that is needed is a hole")
        })?;
        let kind = dir.kind(at);
        let block = self.core.state.blocks.load(nr, kind, self.place(at))?;
        Ok(self.core.state.blocks.edit(self.handle, &block, kind, f))
    }

    fn edit_read<R>(
        &mut self,
        at: LogicalBlock,
        read: DirBlock,
        f: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        let DirBlock { bytes, block: Some(block) } = read else { return self.edit(at, f) };
        // Otherwise the edit would have to leave these bytes as they are, and copy them.
        drop(bytes);
        let kind = self.as_ref().kind(at);
        Ok(self.core.state.blocks.edit(self.handle, &block, kind, f))
    }

    fn append(&mut self) -> Result<LogicalBlock> {
        let at = LogicalBlock::new(self.blocks());
        let piece = reserve::reserve_for(self.core, self.nr, self.inode, at, 1, Use::Names)?;
        let physical = piece.extent.physical;
        MapMut { core: self.core, handle: self.handle, nr: self.nr, inode: self.inode }
            .publish(piece, false)?;
        self.inode.size += self.core.state.geometry().block_size.bytes().get();
        let kind = self.as_ref().kind(at);
        let block = self.core.state.blocks.fresh(physical, kind);
        self.core.state.blocks.edit(self.handle, &block, kind, |_| ());
        Ok(at)
    }

    fn set_indexed(&mut self, indexed: bool) -> Result<()> {
        self.inode.flags.set(InodeFlags::INDEX, indexed);
        // It is the flag that makes block 0 a root or a leaf: how it is sealed changes although its bytes do
        // not.
        self.edit(LogicalBlock::ZERO, |_| ())
    }
}
