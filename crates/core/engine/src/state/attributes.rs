//! Reads the attributes of an inode as they are stored: in its slot, and in its attribute block.
//!
//! What is behind them (values in inodes of their own) and what they mean is left to the floors above. Inline
//! content continues in an attribute, so whatever reads content or names needs this.

use crate::error::Result;
use crate::state::State;
use crate::stores::block_cache::{Block, Kind};
use crate::stores::fs_errors::Watched;
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::inode::Inode;
use hectare_ext4::xattr::{self, Area, Attr, Name, Value, ValueRef};
use hectare_units::{BlockNr, InodeNr};
use std::sync::Arc;

/// A value in an inode of its own, as its attribute's entry says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ValueAt {
    pub(crate) inode: InodeNr,
    /// Bytes.
    pub(crate) size: u32,
    /// The entry's hash.
    pub(crate) hash: u32,
}

/// The values of an inode's attributes that lie in inodes of their own.
#[derive(Default)]
pub(crate) struct ValuesOutside {
    /// Those of the attributes in the inode.
    pub(crate) in_inode: Vec<ValueAt>,
    /// Those of the attributes in its attribute block.
    pub(crate) in_block: Vec<ValueAt>,
    /// Whether other inodes use that block: its entries count once for all of them.
    pub(crate) block_is_shared: bool,
}

impl ValuesOutside {
    pub(crate) fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &ValueAt> {
        self.in_inode.iter().chain(&self.in_block)
    }

    /// Those whose entries belong to this inode alone.
    pub(crate) fn own(&self) -> impl Iterator<Item = &ValueAt> {
        let block: &[ValueAt] = if self.block_is_shared { &[] } else { &self.in_block };
        self.in_inode.iter().chain(block)
    }
}

impl State {
    pub(crate) fn xattr_kind(&self) -> Kind {
        Kind::Xattr(self.sb.seed())
    }

    pub(crate) fn xattr_block(&self, nr: BlockNr) -> Result<Arc<Block>> {
        self.blocks.load(nr, self.xattr_kind(), Place::Block(nr))
    }

    /// Every attribute of an inode, as stored.
    pub(crate) fn attributes(&self, nr: InodeNr, inode: &Inode) -> Result<Vec<Attr>> {
        self.read_attributes(nr, inode).watched(&self.findings)
    }

    pub(crate) fn read_attributes(&self, nr: InodeNr, inode: &Inode) -> Result<Vec<Attr>> {
        self.with_areas(nr, inode, xattr::collect)
    }

    /// The values of an inode's attributes that lie in inodes of their own.
    pub(crate) fn values_outside(&self, nr: InodeNr, inode: &Inode) -> Result<ValuesOutside> {
        let mut block_is_shared = false;
        let outside =
            self.with_areas(nr, inode, |in_inode, in_block| (values_in(in_inode), values_in(in_block)));
        let (in_inode, in_block) = outside.watched(&self.findings)?;
        if let Some(block) = inode.file_acl.filter(|_| !in_block.is_empty()) {
            block_is_shared = xattr::refcount(&self.xattr_block(block)?.bytes()) != Some(1);
        }
        Ok(ValuesOutside { in_inode, in_block, block_is_shared })
    }

    /// Calls `read` with the two areas that an inode's attributes may lie in.
    fn with_areas<R>(
        &self,
        nr: InodeNr,
        inode: &Inode,
        read: impl FnOnce(Option<Area<'_>>, Option<Area<'_>>) -> R,
    ) -> Result<R> {
        let in_inode = Area::in_inode(inode.xattr_area(), Place::Inode(nr))?;
        let block = inode.file_acl.map(|nr| self.xattr_block(nr)).transpose()?;
        let bytes = block.as_ref().map(|block| block.bytes());
        let in_block = match (&bytes, &block) {
            (Some(bytes), Some(block)) => Some(Area::in_block(bytes, Place::Block(block.nr()))?),
            _ => None,
        };
        Ok(read(in_inode, in_block))
    }

    /// The part of an inline file that lies in its attribute.
    pub(crate) fn inline_tail(&self, nr: InodeNr, inode: &Inode) -> Result<Option<Vec<u8>>> {
        let attrs = self.attributes(nr, inode)?;
        match xattr::find(&attrs, &Name::inline_data()).map(|attr| &attr.value) {
            Some(Value::Inline(bytes)) => Ok(Some(bytes.clone())),
            Some(Value::Inode { .. }) => {
                Err(Corrupt::new("inline data", Place::Inode(nr), "it lies in another inode").into())
            }
            None => Ok(None),
        }
    }
}

fn values_in(area: Option<Area<'_>>) -> Vec<ValueAt> {
    let entries = area.iter().flat_map(Area::entries);
    entries
        .filter_map(|entry| match entry.value {
            ValueRef::Inode { inode, size } => Some(ValueAt { inode, size, hash: entry.hash }),
            ValueRef::Inline(_) => None,
        })
        .collect()
}
