//! What the checks of all kinds of files share: where their blocks are, how many they hold, and content that
//! lies in the inode.

use crate::context::Scan;
use crate::context::attributes::InodeAttributes;
use crate::raw_inode::RawInode;
use crate::report::{Error, What};
use hectare_ext4::error::Place;
use hectare_ext4::feature::RoCompat;
use hectare_ext4::inode::{InodeFlags, Kind};
use hectare_units::{BlockNr, Bytes, InodeNr, LogicalBlock, index_of, u64_of};
use std::ops::Range;

impl Scan<'_> {
    /// A size that the map can hold. That of the largest extent is in use as an end, and no size.
    pub(crate) fn check_size_max(&mut self, nr: InodeNr, slot: RawInode<'_>) {
        if slot.size() > slot.size_max(self.volume.geometry().block_size) {
            self.tell_inode(nr, format!("its size {} is more than its map can hold", slot.size()));
        }
    }

    /// Compares `i_blocks` with the clusters that were found, which count for the inode's owners.
    pub(crate) fn check_block_count(
        &mut self,
        nr: InodeNr,
        slot: RawInode<'_>,
        found: &InodeAttributes,
        clusters: u64,
    ) {
        let volume = self.volume;
        let geometry = volume.geometry();
        let blocks = (clusters + found.clusters()) << geometry.cluster_ratio_shift;
        self.count_for_quotas(nr, slot, blocks, found.holders);
        let huge = volume.sb.features().ro_compat.contains(RoCompat::HUGE_FILE)
            && slot.flags().contains(InodeFlags::HUGE_FILE);
        let expected = if huge { blocks } else { blocks << (geometry.block_size.shift() - 9) };
        let stored = slot.stored_blocks(&volume.sb);
        if stored != expected && !self.claims.incomplete {
            self.tell_inode(nr, format!("its block count is {stored}, it holds {expected}"));
        }
    }

    /// Content inside the inode fits it and its attribute; that of directories and links fills them.
    pub(crate) fn check_inline_size(&mut self, nr: InodeNr, slot: RawInode<'_>, found: &InodeAttributes) {
        let Some(inline) = &found.inline else {
            self.tell(What::Attributes, Place::Inode(nr), "its data are inside, but system.data is missing");
            return;
        };
        let room = 60 + u64_of(inline.len());
        let whole = matches!(slot.kind(), Some(Kind::Directory | Kind::Symlink));
        if slot.size() > room || whole && slot.size() != room {
            self.tell_inode(nr, format!("its size is {}, there is room for {room} bytes", slot.size()));
        }
    }

    /// The volume block that holds file block `at`, among the runs kept from `from` to `to`.
    pub(crate) fn block_of(&self, runs: &Range<usize>, at: u32) -> Option<BlockNr> {
        let runs = self.runs.get(runs.clone())?;
        let next = runs.partition_point(|run| run.logical.get() <= at);
        runs.get(next.checked_sub(1)?)?.block_of(LogicalBlock::new(at))
    }

    /// Reads file block `at` of the file with these runs into `buffer`; false if it is a hole.
    pub(crate) fn read_file_block(
        &self,
        runs: &Range<usize>,
        at: u32,
        buffer: &mut [u8],
    ) -> Result<bool, Error> {
        let Some(block) = self.block_of(runs, at) else { return Ok(false) };
        self.volume.read(block, buffer)?;
        Ok(true)
    }

    /// No written block may lie behind the end of a file.
    pub(crate) fn check_written_end(&mut self, nr: InodeNr, slot: RawInode<'_>, end: u64) {
        let size = slot.size();
        if end.saturating_sub(1) << self.volume.geometry().block_size.shift() > size {
            self.tell_inode(nr, format!("its size is {size}, but written blocks extend to {end}"));
        }
    }

    /// The size of a file in blocks, rounded up; no more than a file can have.
    pub(crate) fn blocks_of(&self, slot: RawInode<'_>) -> u32 {
        let blocks = self.volume.geometry().block_size.blocks_for(Bytes::new(slot.size().min(1 << 47)));
        u32::try_from(index_of(blocks.get())).unwrap_or(u32::MAX)
    }
}
