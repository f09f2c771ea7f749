//! The orphan file: inodes that recovery has to free or truncate (feature `orphan_file`).
//!
//! An inode that was unlinked while open, or whose truncation is under way, is an orphan. Older volumes chain
//! orphans through the inodes themselves from the superblock; the orphan file keeps them in a hidden file
//! instead, whose blocks are arrays of inode numbers, 0 for a free slot, with a tail for magic and checksum.
//! The file's inode number is in the superblock (`s_orphan_file_inum`); the read-only compatible flag
//! `orphan_present` says that it may have entries.
//!
//! Hazard: the checksum covers the block's number and the slots, but not the tail, and it starts from the
//! seed of the orphan file's inode, not the volume's.

use crate::checksum::Seed;
use crate::error::{Corrupt, Place};
use hectare_units::{BlockNr, InodeNr};
use std::mem::offset_of;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The number that marks an orphan block (`ob_magic`).
pub const MAGIC: u32 = 0x0b10_ca04;

/// The end of an orphan block, as it lies on disk.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawTail {
    /// [`MAGIC`].
    pub ob_magic: U32,
    /// The checksum (`metadata_csum`).
    pub ob_checksum: U32,
}

const _: () = {
    assert!(size_of::<RawTail>() == 8);
    assert!(offset_of!(RawTail, ob_checksum) == 4);
};

/// A block of the orphan file, read from disk.
#[derive(Clone, Copy, Debug)]
pub struct OrphanBlock<'a> {
    slots: &'a [U32],
    tail: &'a RawTail,
    nr: BlockNr,
}

/// A block of the orphan file, to be changed; its checksum is stale until [`seal`](Self::seal).
#[derive(Debug)]
pub struct OrphanBlockMut<'a> {
    slots: &'a mut [U32],
    tail: &'a mut RawTail,
    nr: BlockNr,
}

/// How many inodes an orphan block of `block_size` bytes holds.
#[must_use]
pub const fn slots_in(block_size: usize) -> usize {
    block_size.saturating_sub(size_of::<RawTail>()) / size_of::<U32>()
}

impl<'a> OrphanBlock<'a> {
    /// The block `nr` of the device, which belongs to the orphan file. `seed` is the seed of the orphan
    /// file's inode where the volume has checksums.
    ///
    /// # Errors
    /// `Corrupt` if its magic number or checksum is wrong.
    pub fn new(bytes: &'a [u8], nr: BlockNr, seed: Option<Seed>) -> Result<Self, Corrupt> {
        let place = Place::Block(nr);
        let odd = || Corrupt::new("orphan file", place, "the block has no proper size");
        let (front, tail) = RawTail::ref_from_suffix(bytes).map_err(|_| odd())?;
        let slots = <[U32]>::ref_from_bytes(front).map_err(|_| odd())?;
        if tail.ob_magic.get() != MAGIC {
            let reason = format!("its magic number is {:#x}", tail.ob_magic.get());
            return Err(Corrupt::new("orphan file", place, reason));
        }
        let (found, expected) = (tail.ob_checksum.get(), seed.map(|seed| checksum(slots, nr, seed)));
        match expected {
            Some(expected) if found != expected => {
                Err(Corrupt::checksum("orphan file", place, found, expected))
            }
            _ => Ok(Self { slots, tail, nr }),
        }
    }

    /// The orphans with the slots they are in. Whether such inodes exist is for the caller to check.
    pub fn orphans(&self) -> impl Iterator<Item = (usize, InodeNr)> + use<'a> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(slot, nr)| Some((slot, InodeNr::from_disk(nr.get())?)))
    }

    /// Whether it holds no orphans.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.orphans().next().is_none()
    }

    /// Its number on the device.
    #[must_use]
    pub const fn nr(&self) -> BlockNr {
        self.nr
    }

    /// The checksum it carries.
    #[must_use]
    pub fn stored_checksum(&self) -> u32 {
        self.tail.ob_checksum.get()
    }
}

impl<'a> OrphanBlockMut<'a> {
    /// The block `nr`, which was checked as an [`OrphanBlock`] when it was read.
    ///
    /// # Panics
    /// If its length is not that of a block.
    #[must_use]
    pub fn new(bytes: &'a mut [u8], nr: BlockNr) -> Self {
        let (front, tail) = RawTail::mut_from_suffix(bytes).expect("a block is longer than its tail");
        let slots = <[U32]>::mut_from_bytes(front).expect("a block is a multiple of four bytes");
        Self { slots, tail, nr }
    }

    /// Makes it an empty orphan block, whatever it was.
    pub fn format(&mut self) {
        self.slots.fill(U32::ZERO);
        self.tail.ob_magic.set(MAGIC);
        self.tail.ob_checksum.set(0);
    }

    /// Puts an orphan into the first free slot at or after `hint` (wrapping) and says which; `None` if full.
    pub fn add(&mut self, inode: InodeNr, hint: usize) -> Option<usize> {
        let start = hint.min(self.slots.len());
        let slot = (start..self.slots.len()).chain(0..start).find(|slot| self.slots[*slot] == U32::ZERO)?;
        self.slots[slot].set(inode.get());
        Some(slot)
    }

    /// Frees `slot` if it holds `inode`, and says whether it did.
    pub fn remove(&mut self, slot: usize, inode: InodeNr) -> bool {
        let held = self.slots.get_mut(slot).filter(|held| held.get() == inode.get());
        held.map(|held| held.set(0)).is_some()
    }

    /// Writes the checksum, from the seed of the orphan file's inode; the last step before it goes to disk.
    pub fn seal(&mut self, seed: Seed) {
        self.tail.ob_checksum.set(checksum(self.slots, self.nr, seed));
    }
}

fn checksum(slots: &[U32], nr: BlockNr, seed: Seed) -> u32 {
    seed.then(&nr.get().to_le_bytes()).checksum(slots.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NR: BlockNr = BlockNr::new(99);

    #[test]
    fn slots_are_added_found_and_freed() {
        let seed = Seed::stored(7);
        let mut bytes = vec![0xff; 1024];
        let mut block = OrphanBlockMut::new(&mut bytes, NR);
        block.format();
        assert_eq!(block.add(InodeNr::new(12), 0), Some(0));
        assert_eq!(block.add(InodeNr::new(13), 253), Some(253));
        assert_eq!(block.add(InodeNr::new(14), 253), Some(1));
        assert!(block.remove(0, InodeNr::new(12)));
        assert!(!block.remove(1, InodeNr::new(12)));
        assert!(!block.remove(9999, InodeNr::new(12)));
        block.seal(seed);
        let block = OrphanBlock::new(&bytes, NR, Some(seed)).unwrap();
        let orphans: Vec<_> = block.orphans().map(|(slot, nr)| (slot, nr.get())).collect();
        assert_eq!(orphans, [(1, 14), (253, 13)]);
        assert!(!block.is_empty());
    }

    #[test]
    fn a_full_block_takes_no_more() {
        let mut bytes = vec![0; 1024];
        let mut block = OrphanBlockMut::new(&mut bytes, NR);
        block.format();
        let taken = (1..=300).filter(|n| block.add(InodeNr::new(*n), 100).is_some()).count();
        assert_eq!(taken, slots_in(1024));
    }

    #[test]
    fn damage_is_found() {
        let seed = Seed::stored(7);
        let mut bytes = vec![0; 1024];
        let mut block = OrphanBlockMut::new(&mut bytes, NR);
        block.format();
        block.seal(seed);
        assert!(OrphanBlock::new(&bytes, NR, Some(seed)).unwrap().is_empty());
        assert!(OrphanBlock::new(&bytes, BlockNr::new(98), Some(seed)).is_err());
        for at in [0, 1015, 1016, 1020] {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            assert!(OrphanBlock::new(&bytes, NR, Some(seed)).is_err(), "{at}");
        }
        for len in [0, 7, 8, 9, 1023] {
            assert!(OrphanBlock::new(&bytes[..len], NR, None).is_err(), "{len}");
        }
    }
}
