//! Allocates chosen blocks: holds free blocks by number, and maps them into a file as they are.
//!
//! For laying out a volume on purpose (aging it for a comparison), not for ordinary writing: here the caller
//! chooses the blocks, without a policy. A [`HeldSpace`] is free in the durable bitmap and exclusive in
//! memory; dropping it returns it, [`OpenFile::append_held`] makes it an unwritten extent at the end of a
//! file. No data is written, so an image in a sparse file stays small.
//!
//! Hazard: blocks of extent trees and directories are allocated as usual, from what is free and not held.
//! Holding everything leaves them nothing.

use crate::error::{Error, Result};
use crate::file::LARGE_FILE;
use crate::map::{MAP_CREDITS, MapMut, MapRef};
use crate::open_file::OpenFile;
use crate::space::Piece;
use crate::volume::Volume;
use hectare_alloc::{Request, Reservation, Run};
use hectare_ext4::extent::Extent;
use hectare_ext4::feature::RoCompat;
use hectare_units::{BlockNr, Bytes, Clusters, LogicalBlock, low32};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// Free blocks of a volume that are held: no other allocation can get them. Dropping it returns them.
#[must_use = "dropping held space gives it back"]
pub struct HeldSpace {
    volume: Volume,
    space: Reservation,
}

impl HeldSpace {
    /// The blocks.
    #[must_use]
    pub fn blocks(&self) -> Range<BlockNr> {
        let geometry = self.volume.geometry();
        let run = self.space.run();
        geometry.cluster_start(run.start)..geometry.cluster_start(run.start + run.len)
    }
}

impl std::fmt::Debug for HeldSpace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("HeldSpace").field(&self.blocks()).finish()
    }
}

impl Volume {
    /// Holds exactly these blocks, which must be free and lie in one group; whole clusters with `bigalloc`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a range that is not made of whole clusters, or holds none; [`Error::NoSpace`]
    /// if not all of it is free and open to the caller; [`Error::ReadOnly`].
    pub fn hold(&self, blocks: Range<BlockNr>) -> Result<HeldSpace> {
        self.check_takes_changes()?;
        let geometry = self.geometry();
        let (first, cluster) = (u64::from(geometry.first_data_block), u64::from(geometry.cluster_blocks()));
        let whole = |block: BlockNr| block.get() >= first && (block.get() - first).is_multiple_of(cluster);
        if blocks.start >= blocks.end || !whole(blocks.start) || !whole(blocks.end) {
            return Err(Error::Invalid("space is held in whole clusters"));
        }
        let len = Clusters::new((blocks.end - blocks.start).get() / cluster);
        let run = Run::new(geometry.cluster_of(blocks.start), len);
        let request =
            Request::new(run.start, len).at_least(len).with_root_reserve(self.options.use_reserved_blocks);
        let space = match self.allocator.reserve_at(&request)? {
            Some(space) => space,
            None => {
                // It may be preallocated for another file's next write.
                self.allocator.count_discarded(self.prealloc.discard_all());
                self.allocator.reserve_at(&request)?.ok_or(Error::NoSpace)?
            }
        };
        Ok(HeldSpace { volume: self.clone(), space })
    }
}

impl OpenFile {
    /// Appends held space to the file, in the order given, as unwritten extents: the file grows by it and
    /// reads as zeros there. On an error, what was not put into the file is returned.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the file does not end with a whole block, or space is another volume's;
    /// [`Error::FileTooLarge`]; [`Error::NoSpace`] if the extent tree finds no block to grow by;
    /// [`Error::ReadOnly`], [`Error::Unsupported`] as for writing.
    pub fn append_held(&self, pieces: impl IntoIterator<Item = HeldSpace>) -> Result<()> {
        let (volume, inode) = (self.volume(), self.cached());
        volume.check_takes_changes()?;
        let _operation = inode.lock().write();
        volume.check_changeable(inode)?;
        volume.place_locked(inode)?;
        // Preallocated space is for holes, and these are about to be filled.
        volume.discard_window(inode);
        let size = volume.geometry().block_size;
        let mut end = {
            let data = inode.get();
            volume.check_file_writable(&data, inode.nr())?;
            if size.within(Bytes::new(data.size)) != 0 {
                return Err(Error::Invalid("the file does not end with a whole block"));
            }
            let mut end = data.size >> size.shift();
            let map = MapRef { volume, nr: inode.nr(), inode: &data };
            map.for_each(LogicalBlock::ZERO, &mut |extent| {
                end = end.max(extent.end());
                ControlFlow::Continue(())
            })?;
            end.next_multiple_of(volume.geometry().cluster_blocks().into())
        };
        for piece in pieces {
            if !Arc::ptr_eq(&piece.volume.inner, &volume.inner) {
                return Err(Error::Invalid("the held space is another volume's"));
            }
            end = self.append_one(end, piece)?;
            volume.relieve()?;
        }
        Ok(())
    }

    /// Maps one extent at file block `at`; returns the block after it.
    fn append_one(&self, at: u64, piece: HeldSpace) -> Result<u64> {
        let (volume, inode) = (self.volume(), self.cached());
        let blocks = piece.blocks();
        let end = at + (blocks.end - blocks.start).get();
        if end > u64::from(u32::MAX) {
            return Err(Error::FileTooLarge);
        }
        let mut handle = volume.start(MAP_CREDITS)?;
        let mut data = inode.edit(&mut handle, &volume.inodes);
        let len = low32((blocks.end - blocks.start).get());
        let logical = LogicalBlock::new(low32(at));
        let piece =
            Piece::held(Extent { logical, len, physical: blocks.start, unwritten: true }, piece.space);
        let mapped =
            MapMut { volume, handle: &mut handle, nr: inode.nr(), inode: &mut data }.publish(piece, true)?;
        data.size = (at + u64::from(mapped)) << volume.geometry().block_size.shift();
        volume.stamp(&mut data);
        if data.size >= LARGE_FILE {
            volume.bring_feature(RoCompat::LARGE_FILE);
        }
        if mapped == len { Ok(end) } else { Err(Error::NoSpace) }
    }
}
