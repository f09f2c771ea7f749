//! Tracks the owner of each block: every cluster is claimed once.
//!
//! The volume's own metadata is claimed first, then the blocks of each inode as they are found. Without
//! `bigalloc` a cluster is a block. With it, neighbouring extents of one file may share a cluster, if they
//! lie in it as they lie in the file. With `shared_blocks` a cluster may hold data of any number of files,
//! but nothing else then (e2fsck allows everything there).

use crate::context::Scan;
use crate::context::claims::FileClusters;
use crate::report::What;
use hectare_ext4::error::Place;
use hectare_units::{BlockNr, InodeNr};

impl Scan<'_> {
    /// Claims a block of metadata of inode `nr`, and says whether it was free.
    pub(crate) fn claim_block(&mut self, nr: InodeNr, block: BlockNr, held: &mut FileClusters) -> bool {
        held.clusters += 1;
        let cluster = self.volume.geometry().cluster_of(block).get();
        let taken = self.claims.bits.claim(cluster..cluster + 1);
        if taken.is_some() {
            self.tell_shared(nr, block);
        }
        taken.is_none()
    }

    /// Claims `len` blocks of inode `nr` from `first`, the content of file block `logical` and on. The caller
    /// has checked that they lie on the volume.
    pub(crate) fn claim_run(
        &mut self,
        nr: InodeNr,
        logical: u32,
        first: BlockNr,
        len: u32,
        held: &mut FileClusters,
    ) {
        let geometry = self.volume.geometry();
        let mask = u64::from(geometry.cluster_blocks() - 1);
        if u64::from(logical) & mask != first.get() & mask {
            let reason = format!("file block {logical} lies at block {first}, not aligned in its cluster");
            self.tell(What::Map, Place::Inode(nr), reason);
        }
        let end = geometry.cluster_of(BlockNr::new(first.get() + u64::from(len) - 1)).get() + 1;
        let mut start = geometry.cluster_of(first).get();
        let shift = geometry.cluster_ratio_shift;
        let (in_file, file_end) =
            (u64::from(logical) >> shift, (u64::from(logical) + u64::from(len) - 1) >> shift);
        if let Some((file, volume)) = held.last.filter(|_| mask != 0) {
            if (file == in_file) != (volume == start) {
                let reason =
                    format!("file block {logical} lies at block {first}, apart from the rest of its cluster");
                self.tell(What::Map, Place::Inode(nr), reason);
            }
            start += u64::from(volume == start);
        }
        held.last = Some((file_end, end - 1));
        held.clusters += end.saturating_sub(start);
        let clusters = start..end.max(start);
        let taken = match held.may_share {
            true => self.claims.claim_data(clusters),
            false => self.claims.bits.claim(clusters),
        };
        if let Some(taken) = taken {
            let block = geometry.cluster_start(hectare_units::ClusterNr::new(taken));
            self.tell_shared(nr, block);
        }
    }

    fn tell_shared(&mut self, nr: InodeNr, block: BlockNr) {
        self.tell(
            What::SharedBlock,
            Place::Inode(nr),
            format!("block {block} belongs to something else, too"),
        );
    }

    /// Remembers that an inode's map could not be followed to its end.
    pub(crate) fn map_is_broken(&mut self) {
        self.claims.incomplete = true;
    }
}
