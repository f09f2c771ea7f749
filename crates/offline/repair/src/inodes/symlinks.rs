//! Symbolic links: the size is made that of the target.

use crate::error::Error;
use crate::inodes::attributes::Found;
use crate::know::map::Map;
use crate::know::slot::Slot;
use crate::know::work::Work;
use hectare_check::{What, encrypted_len};
use hectare_ext4::error::Place;
use hectare_ext4::inline;
use hectare_ext4::inode::{BLOCK_BYTES, Inode, InodeFlags};
use hectare_units::{index_of, u64_of};

impl Work<'_> {
    /// Mends a symbolic link; false if there is no target to be found.
    pub(crate) fn mend_symlink(&mut self, slot: &mut Slot, found: &Found) -> Result<bool, Error> {
        let place = Place::Inode(slot.nr);
        if slot.has(InodeFlags::INLINE_DATA) {
            self.set_block_count(slot, found.clusters());
            return Ok(self.mend_inline_target(slot));
        }
        if slot.is_fast_symlink() || self.holds_target(slot)? {
            if slot.has(InodeFlags::EXTENTS) {
                self.mended(What::Inode, place, "its target is in the inode, not mapped by extents");
                slot.set_flag(InodeFlags::EXTENTS, false);
            }
            self.set_block_count(slot, found.clusters());
            if !slot.has(InodeFlags::ENCRYPT) {
                slot.raw().i_block[59] = 0;
            }
            let target = slot.block();
            return Ok(self.fit_target(slot, &target));
        }
        let mut map = self.read_map(slot)?;
        let more = map.end() > 1 || slot.view().has_more_than_one_entry();
        map.cut(1);
        if map.extents.first().is_none_or(|extent| extent.unwritten) {
            self.lost(What::Inode, place, "a symbolic link without a target: cleared");
            return Ok(false);
        }
        self.tell_map(slot, &map);
        let mut target = self.block(map.extents[0].physical)?;
        if let Some(len) = target_len(slot, &target).filter(|len| *len > 0 && *len < BLOCK_BYTES) {
            self.mended(What::Inode, place, format!("its target of {len} bytes belongs in the inode"));
            slot.set_flag(InodeFlags::EXTENTS, false);
            slot.raw().i_block = [0; BLOCK_BYTES];
            slot.raw().i_block[..len].copy_from_slice(&target[..len]);
            slot.set_size(u64_of(len));
            self.set_block_count(slot, found.clusters());
            return Ok(true);
        }
        if more {
            self.mended(What::Map, place, "the target of a symbolic link fills one block");
        }
        self.claim_map(slot, &map, found.clusters(), more.then_some(1));
        let clusters = self.map_clusters(&map) + found.clusters();
        self.set_block_count(slot, clusters);
        // The kernel leaves what was in the block behind the end of the target.
        if !target.contains(&0)
            && let Some(last) = target.last_mut()
            && !slot.has(InodeFlags::ENCRYPT)
        {
            self.lost(What::Inode, place, "its target has no end: the last byte is cut off");
            *last = 0;
            self.put_block(map.extents[0].physical, &target)?;
        }
        Ok(self.fit_target(slot, &target))
    }

    /// A target inside the inode and its attribute fills both; a short one needs no attribute.
    fn mend_inline_target(&mut self, slot: &mut Slot) -> bool {
        let place = Place::Inode(slot.nr);
        let tail = self.inline_tail(slot).unwrap_or_default();
        let shared = slot.view().file_acl() != 0;
        if slot.view().size() == u64_of(60 + tail.len()) && !shared {
            return true;
        }
        let mut target = [&slot.block()[..], &tail].concat();
        target.truncate(target.iter().position(|byte| *byte == 0).unwrap_or(target.len()));
        let Ok(mut inode) = Inode::parse_unsealed(&slot.bytes, slot.nr, &self.sb) else { return false };
        if target.is_empty() {
            self.lost(What::Inode, place, "a symbolic link without a target: cleared");
            return false;
        }
        self.mended(What::Inode, place, format!("its target has {} bytes", target.len()));
        if shared && target.len() >= 60 {
            // e2fsck does not count the attribute blocks of links whose target is inside.
            self.long_links.push((slot.nr, target));
            slot.set_flag(InodeFlags::INLINE_DATA, false);
            return true;
        }
        if target.len() < 60 {
            if inline::clear(&mut inode, place).is_err() {
                return false;
            }
            inode.block[..target.len()].copy_from_slice(&target);
            inode.size = u64_of(target.len());
        } else if !inline::store(&mut inode, &target, place).is_ok_and(|fits| fits) {
            return false;
        }
        inode.render(&mut slot.bytes, slot.nr, &self.sb);
        true
    }

    /// Writes the targets that no longer lie inside their inodes.
    pub(crate) fn write_long_links(&mut self) -> Result<(), Error> {
        for (nr, target) in std::mem::take(&mut self.long_links) {
            let Some(mut slot) = self.slot(nr)? else { continue };
            if let Ok(mut inode) = Inode::parse_unsealed(&slot.bytes, nr, &self.sb)
                && inline::clear(&mut inode, Place::Inode(nr)).is_ok()
            {
                inode.render(&mut slot.bytes, nr, &self.sb);
            }
            let extra = self.extra_clusters(&slot)?;
            let mut map = Map::default();
            if !self.allot(&mut slot, &mut map, 1)? {
                self.lost(What::Inode, Place::Inode(nr), "no space for its target");
                continue;
            }
            let mut block = target.clone();
            block.resize(self.geometry().block_size.len(), 0);
            self.put_block(map.extents[0].physical, &block)?;
            slot.set_size(u64_of(target.len()));
            let clusters = self.map_clusters(&map) + extra;
            self.set_block_count(&mut slot, clusters);
            self.put_slot(&mut slot)?;
        }
        Ok(())
    }

    /// Whether a link that should lie in a block has its target inside. No root of a tree begins with text; the
    /// number of a block may look like some.
    fn holds_target(&self, slot: &Slot) -> Result<bool, Error> {
        let block = slot.block();
        let len = block.iter().position(|byte| *byte == 0).unwrap_or(block.len());
        let least = if slot.has(InodeFlags::EXTENTS) { 1 } else { 5 };
        let is_text = len >= least && block[..len].iter().all(|byte| (0x20..0x7f).contains(byte));
        Ok(is_text && self.read_map(slot)?.extents.is_empty())
    }

    /// Makes the size the length of the target; false if that is nothing.
    fn fit_target(&mut self, slot: &mut Slot, target: &[u8]) -> bool {
        let (place, size) = (Place::Inode(slot.nr), slot.view().size());
        let len = u64_of(target_len(slot, target).unwrap_or(0));
        if len == size && len > 0 {
            return true;
        }
        if len == 0 {
            self.lost(What::Inode, place, "a symbolic link without a target: cleared");
            return false;
        }
        self.mended(What::Inode, place, format!("its size was {size}, its target has {len} bytes"));
        slot.set_size(len);
        true
    }
}

/// How long a target is; `None` of ciphertext that is none.
fn target_len(slot: &Slot, target: &[u8]) -> Option<usize> {
    match slot.has(InodeFlags::ENCRYPT) {
        true => encrypted_len(target).map(index_of),
        false => Some(target.iter().position(|byte| *byte == 0).unwrap_or(target.len())),
    }
}
