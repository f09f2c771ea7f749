//! Moves attribute blocks, and changes the numbers of inodes that hold values.

use super::Evacuation;
use crate::error::Result;
use hectare_ext4::feature::Incompat;
use hectare_ext4::inode::Inode;
use hectare_ext4::xattr;
use hectare_units::BlockNr;

impl Evacuation<'_> {
    /// Deals with the attributes of an inode.
    pub(super) fn values(&mut self, inode: &mut Inode) -> Result<()> {
        let has_holders = self.volume.sb.features().incompat.contains(Incompat::EA_INODE);
        if has_holders && !self.numbers.is_empty() {
            xattr::renumber_in_inode(inode.xattr_area_mut(), |nr| self.numbers.of(nr));
        }
        if let Some(block) = inode.file_acl {
            inode.file_acl = Some(self.attribute_block(block)?);
        }
        Ok(())
    }

    /// Where an attribute block will lie, which several inodes may share; changes it at the first of them.
    fn attribute_block(&mut self, old: BlockNr) -> Result<BlockNr> {
        if let Some(new) = self.attributes.get(&old.get()) {
            return Ok(*new);
        }
        let leaves = self.is_leaving(old);
        let renumbers =
            self.volume.sb.features().incompat.contains(Incompat::EA_INODE) && !self.numbers.is_empty();
        let mut new = old;
        if leaves || renumbers {
            let before = self.volume.read(old)?;
            let mut bytes = before.clone();
            xattr::renumber_in_block(&mut bytes, |nr| self.numbers.of(nr));
            if leaves {
                new = self.take_block("an attribute block")?;
                let cluster = self.volume.geometry().cluster_of(old).get();
                self.leave(cluster..cluster + 1)?;
            }
            if leaves || bytes != before {
                if let Some(seed) = self.volume.sb.seed() {
                    xattr::seal(&mut bytes, seed, new);
                }
                self.volume.write(new, &bytes)?;
            }
        }
        self.attributes.insert(old.get(), new);
        Ok(new)
    }
}
