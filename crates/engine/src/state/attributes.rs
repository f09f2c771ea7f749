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
use hectare_ext4::xattr::{self, Area, Attr, Name, Value};
use hectare_units::{BlockNr, InodeNr};
use std::sync::Arc;

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
        let place = Place::Inode(nr);
        let in_inode = Area::in_inode(inode.xattr_area(), place)?;
        let block = inode.file_acl.map(|nr| self.xattr_block(nr)).transpose()?;
        let bytes = block.as_ref().map(|block| block.bytes());
        let in_block = match (&bytes, &block) {
            (Some(bytes), Some(block)) => Some(Area::in_block(bytes, Place::Block(block.nr()))?),
            _ => None,
        };
        Ok(xattr::collect(in_inode, in_block))
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
