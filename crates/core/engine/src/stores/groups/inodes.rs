//! Allocates and frees the inodes of a group.
//!
//! A bitmap knows a number below which nothing is free, so that allocating inodes in sequence does not scan
//! the used ones each time; numbers come out in ascending order, and a freed number comes out again before
//! those never used.
//!
//! Hazards: bitmap and descriptor of a corrupt volume may contradict each other. An inode is given out only
//! if both have one; the descriptor's count never leaves the range that makes a valid descriptor.

use super::{Groups, Rendered};
use crate::error::{Error, Result};
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::group::{GroupDesc, GroupFlags};
use hectare_units::{BlockNr, Blocks, GroupNr, InodeNr, u64_of, usize_of};
use parking_lot::Mutex;
use std::ops::Range;

/// An inode that was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) nr: InodeNr,
    /// Its block of the inode table, if none of the inodes there was ever used: what the device holds means
    /// nothing and need not be read.
    pub(crate) fresh_block: Option<BlockNr>,
}

/// An inode bitmap in memory, bit set = in use.
pub(super) struct InodeBitmap {
    /// A whole block.
    bytes: Vec<u8>,
    /// Bits before this one are reserved by the format and not given out.
    reserved: u32,
    /// Bits from there up to this one are in use.
    next: u32,
    dirty: bool,
}

impl InodeBitmap {
    fn is_used(&self, index: u32) -> bool {
        self.bytes[usize_of(index / 8)] >> (index % 8) & 1 == 1
    }

    fn all_free(&self, from: u32, len: u32) -> bool {
        (from..from + len).all(|index| !self.is_used(index))
    }

    /// The first free bit before `end`.
    fn first_free(&mut self, end: u32) -> Option<u32> {
        let found = first_zero(&self.bytes, self.next, end);
        self.next = found.unwrap_or(end);
        found
    }

    /// Marks a bit as used; returns whether that made the bitmap dirty.
    fn take(&mut self, index: u32) -> bool {
        self.bytes[usize_of(index / 8)] |= 1 << (index % 8);
        if self.next == index {
            self.next += 1;
        }
        !std::mem::replace(&mut self.dirty, true)
    }

    /// Marks a bit as free; returns whether that made the bitmap dirty.
    fn give(&mut self, index: u32) -> bool {
        self.bytes[usize_of(index / 8)] &= !(1 << (index % 8));
        self.next = self.next.min(index).max(self.reserved);
        !std::mem::replace(&mut self.dirty, true)
    }
}

impl Groups {
    /// The group and index of an inode number.
    pub(crate) fn slot(&self, nr: InodeNr) -> Result<(GroupNr, u32)> {
        self.sb.geometry().inode_slot(nr).ok_or_else(|| {
            Corrupt::new("an inode number", Place::Inode(nr), "it is beyond the last inode of the volume")
                .into()
        })
    }

    /// Whether a group has a free inode, and a free cluster for its content; not if its descriptor is broken.
    pub(crate) fn has_room(&self, group: GroupNr) -> bool {
        self.look(group, |desc| desc.free_inodes > 0 && desc.free_clusters > 0).unwrap_or(false)
    }

    /// Whether a group has a free inode; not if its descriptor is broken.
    pub(crate) fn has_inodes(&self, group: GroupNr) -> bool {
        self.look(group, |desc| desc.free_inodes > 0).unwrap_or(false)
    }

    /// Whether an inode is in use according to its bitmap.
    pub(crate) fn inode_in_use(&self, nr: InodeNr) -> Result<bool> {
        let (group, index) = self.slot(nr)?;
        Ok(self.inode_bitmap(group)?.lock().is_used(index))
    }

    /// Takes the first free inode of a group, if there is one.
    pub(crate) fn take_inode(&self, group: GroupNr, directory: bool) -> Result<Option<Taken>> {
        if self.look(group, |desc| desc.free_inodes == 0)? {
            return Ok(None);
        }
        let mut bitmap = self.inode_bitmap(group)?.lock();
        match bitmap.first_free(self.sb.geometry().inodes_per_group) {
            Some(index) => self.take_index(group, index, &mut bitmap, directory),
            None => Ok(None),
        }
    }

    /// Takes the inode of that number, which is free; returns the blocks of the inode table between those in
    /// use so far and its own, which were never written and count as written from now on.
    pub(crate) fn take_number(&self, nr: InodeNr, directory: bool) -> Result<Range<BlockNr>> {
        let (group, index) = self.slot(nr)?;
        let in_block = self.sb.geometry().inodes_per_block();
        let mut bitmap = self.inode_bitmap(group)?.lock();
        let desc = self.desc(group)?;
        let block = |index: u32| desc.inode_table + Blocks::new(u64::from(index / in_block));
        let used = self.slots_written(&desc).next_multiple_of(in_block);
        if self.take_index(group, index, &mut bitmap, directory)?.is_none() {
            let what = "it counts no free inode, but its bitmap has one";
            return Err(Corrupt::new("the group descriptor", Place::Group(group), what).into());
        }
        Ok(block(used)..block(index))
    }

    /// Takes a free inode, if the descriptor knows of one.
    fn take_index(
        &self,
        group: GroupNr,
        index: u32,
        bitmap: &mut InodeBitmap,
        directory: bool,
    ) -> Result<Option<Taken>> {
        let geometry = self.sb.geometry();
        let per_group = geometry.inodes_per_group;
        let in_block = geometry.inodes_per_block();
        let sums = self.flex_sums(self.flex.of(group))?;
        let knows_unused = self.sb.features().group_checksums();
        let taken = self.edit_desc(group, |desc| {
            if desc.free_inodes == 0 {
                return None;
            }
            let used = per_group - desc.itable_unused.min(per_group);
            let fresh = desc.flags.contains(GroupFlags::INODE_UNINIT) || index - index % in_block >= used;
            let block = desc.inode_table + Blocks::new(u64::from(index / in_block));
            desc.free_inodes -= 1;
            desc.used_dirs = desc.used_dirs.saturating_add(u32::from(directory));
            desc.itable_unused = desc.itable_unused.min(per_group - index - 1);
            desc.flags.remove(GroupFlags::INODE_UNINIT);
            sums.inode_taken(directory);
            // A broken descriptor may call inodes unused that are in use.
            let fresh = knows_unused && fresh && bitmap.all_free(index - index % in_block, in_block);
            let fresh_block = fresh.then_some(block);
            Some(Taken { nr: geometry.inode_at(group, index), fresh_block })
        })?;
        if taken.is_some() && bitmap.take(index) {
            self.note_dirty_bitmap(group);
        }
        Ok(taken)
    }

    /// Frees an inode.
    pub(crate) fn free_inode(&self, nr: InodeNr, directory: bool) -> Result<()> {
        let (group, index) = self.slot(nr)?;
        let per_group = self.sb.geometry().inodes_per_group;
        let sums = self.flex_sums(self.flex.of(group))?;
        let mut bitmap = self.inode_bitmap(group)?.lock();
        if !bitmap.is_used(index) {
            let what = format!("inode {nr} is freed twice");
            return Err(Corrupt::new("the inode bitmap", Place::Group(group), what).into());
        }
        self.edit_desc(group, |desc| {
            let counted = directory && desc.used_dirs > 0;
            desc.used_dirs -= u32::from(counted);
            if desc.free_inodes < per_group {
                desc.free_inodes += 1;
                sums.inode_freed();
            }
            if counted {
                sums.directory_freed();
            }
        })?;
        if bitmap.give(index) {
            self.note_dirty_bitmap(group);
        }
        Ok(())
    }

    /// Whether a slot lies in a part of the inode table that was never written, so that its block has no
    /// valid content.
    pub(crate) fn slot_never_written(&self, group: GroupNr, index: u32) -> Result<bool> {
        // Whole blocks only: a block that holds one used slot was read and written whole.
        let first_of_block = index - index % self.sb.geometry().inodes_per_block();
        Ok(first_of_block >= self.look(group, |desc| self.slots_written(desc))?)
    }

    /// The number of slots of a group's inode table, from the first on, that were ever written.
    fn slots_written(&self, desc: &GroupDesc) -> u32 {
        let per_group = self.sb.geometry().inodes_per_group;
        if !self.sb.features().group_checksums() || desc.flags.contains(GroupFlags::INODE_ZEROED) {
            return per_group;
        }
        let uninit = desc.flags.contains(GroupFlags::INODE_UNINIT);
        if uninit { 0 } else { per_group - desc.itable_unused.min(per_group) }
    }

    /// The inode bitmap of a group, read if it is not in memory.
    fn inode_bitmap(&self, group: GroupNr) -> Result<&Mutex<InodeBitmap>> {
        let cell = &self.group(group)?.0.inodes;
        if let Some(bitmap) = cell.get() {
            return Ok(bitmap);
        }
        match self.load_inode_bitmap(group) {
            Ok(loaded) => Ok(cell.get_or_init(|| Mutex::new(loaded))),
            // Bytes read during another thread's commit mean nothing: that thread has the bitmap.
            Err(error) => cell.get().ok_or_else(|| {
                self.note_unreadable(group, &error);
                error
            }),
        }
    }

    fn note_unreadable(&self, group: GroupNr, error: &Error) {
        if let Ok(desc) = self.desc(group) {
            self.findings.note_read(error, "inode bitmap", Place::Group(group), desc.inode_bitmap);
        }
    }

    fn load_inode_bitmap(&self, group: GroupNr) -> Result<InodeBitmap> {
        let desc = self.desc(group)?;
        let sb = &*self.sb;
        let geometry = sb.geometry();
        // The numbers that the format reserves come first, mostly all of them in group 0.
        let before = u64::from(group.get()) * u64::from(geometry.inodes_per_group);
        let reserved = u64::from(sb.first_inode().get() - 1).saturating_sub(before);
        let reserved = u32::try_from(reserved).unwrap_or(u32::MAX).min(geometry.inodes_per_group);
        let mut bytes = vec![0; geometry.block_size.len()];
        if desc.flags.contains(GroupFlags::INODE_UNINIT) && sb.features().group_checksums() {
            // Else the next file would overwrite one of theirs. (The kernel refuses only group 0.)
            if reserved > 0 || desc.free_inodes < geometry.inodes_per_group || desc.used_dirs > 0 {
                let what = "it is marked as never written, but inodes of the group are in use";
                return Err(Corrupt::new("the inode bitmap", Place::Group(group), what).into());
            }
            // Never written: all free, and the bits beyond the last inode are set, as in every inode bitmap.
            bytes[geometry.inode_bitmap_bytes()..].fill(0xff);
        } else {
            self.metadata.read_at(desc.inode_bitmap.offset(geometry.block_size), &mut bytes)?;
            desc.verify_inode_bitmap(&bytes, group, sb)?;
        }
        Ok(InodeBitmap { bytes, reserved, next: reserved, dirty: false })
    }

    pub(super) fn render_inode_bitmap(&self, group: GroupNr) -> Result<Rendered> {
        let mut bitmap = self.inode_bitmap(group)?.lock();
        bitmap.dirty = false;
        let place = self.edit_desc(group, |desc| {
            desc.seal_inode_bitmap(&bitmap.bytes, &self.sb);
            desc.inode_bitmap
        })?;
        Ok((place, bitmap.bytes.as_slice().into()))
    }
}

/// The first zero bit from `from` on and before `end`; the bytes are whole words.
fn first_zero(bytes: &[u8], from: u32, end: u32) -> Option<u32> {
    let (words, _) = bytes.as_chunks::<8>();
    let first = usize_of(from / 64);
    let mut passed = (1u64 << (from % 64)) - 1;
    for (at, word) in words.iter().enumerate().skip(first) {
        let word = u64::from_le_bytes(*word) | std::mem::take(&mut passed);
        if word != u64::MAX {
            let found = u64_of(at) * 64 + u64::from(word.trailing_ones());
            return u32::try_from(found).ok().filter(|found| *found < end);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_zero_bit_is_found_within_its_bounds() {
        let mut bytes = vec![0xff; 64];
        assert_eq!(first_zero(&bytes, 0, 512), None);
        bytes[1] = 0xfb;
        assert_eq!(first_zero(&bytes, 0, 512), Some(10));
        assert_eq!(first_zero(&bytes, 10, 512), Some(10));
        assert_eq!(first_zero(&bytes, 11, 512), None);
        assert_eq!(first_zero(&bytes, 0, 10), None);
        bytes[63] = 0x7f;
        assert_eq!(first_zero(&bytes, 11, 512), Some(511));
        assert_eq!(first_zero(&bytes, 511, 512), Some(511));
        assert_eq!(first_zero(&bytes, 512, 512), None);
    }

    #[test]
    fn freed_bits_come_out_first_and_the_rest_in_ascending_order() {
        let mut bitmap = InodeBitmap { bytes: vec![0; 64], reserved: 10, next: 10, dirty: false };
        let take = |bitmap: &mut InodeBitmap| {
            let index = bitmap.first_free(100)?;
            bitmap.take(index);
            Some(index)
        };
        for expected in 10..40 {
            assert_eq!(take(&mut bitmap), Some(expected));
        }
        for freed in [30, 12, 20] {
            assert!(bitmap.is_used(freed));
            bitmap.give(freed);
        }
        let after: Vec<_> = std::iter::from_fn(|| take(&mut bitmap)).collect();
        let expected: Vec<_> = [12, 20, 30].into_iter().chain(40..100).collect();
        assert_eq!(after, expected);
        bitmap.give(99);
        bitmap.give(5);
        assert_eq!((take(&mut bitmap), take(&mut bitmap)), (Some(99), None), "5 is reserved");
    }

    #[test]
    fn a_bitmap_becomes_dirty_once() {
        let mut bitmap = InodeBitmap { bytes: vec![0; 64], reserved: 0, next: 0, dirty: false };
        assert!(bitmap.take(3));
        assert!(!bitmap.take(4));
        assert!(!bitmap.give(3));
        bitmap.dirty = false;
        assert!(bitmap.give(4));
    }
}
