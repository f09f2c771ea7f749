//! Which is the older: what a log holds, or what lies in its place.
//!
//! Every change of an inode sets the time of its change, and no system call can set it otherwise. So of two
//! copies of an inode the one with the later time is the newer, however the clock stands now. Where a log
//! holds blocks of the inode tables, they are compared with those in their place.
//!
//! Hazard: a clock that was put back between two changes makes the newer copy look older. So does what
//! writes past the file system (`debugfs`), or with a fixed time, as this library can. Where inodes speak for
//! both, nothing is concluded.

use crate::error::Error;
use crate::know::work::Work;
use hectare_device::Device;
use hectare_ext4::inode::Inode;
use hectare_journal::recovery::Recovery;
use hectare_units::{BlockNr, GroupNr, InodeNr, usize_of};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Where the inode tables begin.
pub(crate) struct Tables(BTreeMap<BlockNr, GroupNr>);

impl Work<'_> {
    /// The inode tables of the groups that were read.
    pub(crate) fn tables(&self) -> Tables {
        let groups = (0..).map(GroupNr::new);
        Tables(self.groups.iter().zip(groups).map(|(desc, group)| (desc.inode_table, group)).collect())
    }

    /// Whether the inodes that a log holds are newer (`Greater`) or older than those in their place, on the
    /// volume as it lies; `replayed` is the volume with the log in its place. `Equal` if that can't be said.
    pub(crate) fn age_of_log(
        &self,
        recovery: &Recovery,
        replayed: &dyn Device,
        tables: &Tables,
    ) -> Result<Ordering, Error> {
        let (mut older, mut newer) = (false, false);
        for nr in recovery.blocks().keys() {
            let Some(first) = self.first_inode_in(*nr, tables) else { continue };
            let here = self.block(*nr)?;
            let mut logged = vec![0; here.len()];
            replayed.read_at(nr.offset(self.geometry().block_size), &mut logged)?;
            let size = usize_of(self.geometry().inode_size);
            let slots = here.chunks_exact(size).zip(logged.chunks_exact(size));
            for (inode, (here, logged)) in (first.get()..).zip(slots) {
                match self.compared(InodeNr::new(inode), logged, here) {
                    Ordering::Less => older = true,
                    Ordering::Equal => {}
                    Ordering::Greater => newer = true,
                }
            }
        }
        Ok(newer.cmp(&older))
    }

    /// The first inode in a block, if that is a block of an inode table.
    fn first_inode_in(&self, nr: BlockNr, tables: &Tables) -> Option<InodeNr> {
        let geometry = self.geometry();
        let (start, group) = tables.0.range(..=nr).next_back()?;
        let index = u32::try_from(nr.get() - start.get()).ok()?;
        let is_within = index < geometry.itable_blocks();
        is_within.then(|| geometry.inode_at(*group, index * geometry.inodes_per_block()))
    }

    /// By the times of the last change. A slot that is damaged, or was never used, says nothing; one that was
    /// never used is the older one.
    fn compared(&self, nr: InodeNr, one: &[u8], other: &[u8]) -> Ordering {
        let time = |slot: &[u8]| match Inode::parse(slot, nr, &self.sb) {
            Ok(inode) if inode.mode == 0 => Some(None),
            Ok(inode) => Some(Some(inode.ctime)),
            Err(_) => None,
        };
        match (time(one), time(other)) {
            (Some(one), Some(other)) => one.cmp(&other),
            _ => Ordering::Equal,
        }
    }
}
