//! The state of a round: the volume on its overlay, what is in use, and what was mended.

use crate::error::Error;
use crate::know::known::Inodes;
use crate::know::noted::{Conflict, Shared};
use crate::know::slot::Slot;
use crate::know::superblock_search::Found;
use crate::know::task::{self, Missing, Task};
use crate::mends::{Mend, Mends};
use crate::report::Options;
use crate::stage::order::Order;
use crate::stage::overlay::Overlay;
use hectare_check::{Bits, Digest, What};
use hectare_device::Device;
use hectare_ext4::error::Place;
use hectare_ext4::extent::TreeGeometry;
use hectare_ext4::feature::RoCompat;
use hectare_ext4::geometry::Geometry;
use hectare_ext4::group::{GroupDesc, GroupFlags};
use hectare_ext4::superblock::SuperBlock;
use hectare_units::{BlockNr, Bytes, ClusterNr, InodeNr, index_of, usize_of};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What the last check found, as far as a round asks for it.
#[derive(Default)]
pub(crate) struct Suspects {
    /// Directories with a broken block, record or index.
    pub(crate) directories: BTreeSet<u32>,
    /// Whether a subject has problems.
    pub(crate) subjects: Vec<What>,
}

impl Suspects {
    pub(crate) fn of(digest: Digest) -> Self {
        let Digest { subjects, directories, .. } = digest;
        Self { directories, subjects }
    }

    pub(crate) fn has(&self, what: What) -> bool {
        self.subjects.contains(&what)
    }
}

/// A round.
pub(crate) struct Work<'a> {
    pub(crate) device: &'a Arc<Overlay>,
    /// Its journal, if that lies on another device and is at hand.
    pub(crate) journal: Option<Arc<Overlay>>,
    pub(crate) sb: SuperBlock,
    pub(crate) options: Options,
    pub(crate) suspects: Suspects,
    pub(crate) groups: Vec<GroupDesc>,
    pub(crate) used: Bits,
    /// Clusters to which maps lead as to their own blocks, and that hold something else.
    pub(crate) foreign: Bits,
    /// Clusters with data that files may share.
    pub(crate) shared: Option<Bits>,
    pub(crate) inodes: Inodes,
    pub(crate) conflicts: BTreeMap<u32, Conflict>,
    pub(crate) attributes: Shared,
    pub(crate) tasks: BTreeMap<u32, Task>,
    /// Files with a task that are to be made.
    pub(crate) missing: Missing,
    /// Links whose target is to be written to a block.
    pub(crate) long_links: Vec<(InodeNr, Vec<u8>)>,
    /// Inodes of the Hurd with a translator.
    pub(crate) translators: Vec<InodeNr>,
    /// Whether inodes are read for the first time, when those with a suspicious map are left for later.
    pub(crate) first_pass: bool,
    pub(crate) suspicious: Bits,
    /// Orphans with a name, to be cut to their size.
    pub(crate) truncated: BTreeSet<u32>,
    /// Inodes with values of orphans that were deleted: without other users they end, too.
    pub(crate) ended_values: BTreeSet<u32>,
    pub(crate) mends: Mends,
    pub(crate) order: Order,
    /// Where the search for free clusters goes on.
    cursor: u64,
    /// Whether no free cluster is left that was free before.
    none_fresh: bool,
    /// Whether the superblock is a backup, which does not know of the journal's state.
    pub(crate) from_backup: bool,
    /// Whether backups of the superblock and the descriptors are to be written.
    pub(crate) refresh_backups: bool,
}

impl<'a> Work<'a> {
    pub(crate) fn new(
        device: &'a Arc<Overlay>,
        journal: Option<Arc<Overlay>>,
        options: Options,
        suspects: Suspects,
        found: Found,
    ) -> Result<Self, Error> {
        let Found { sb, mends: before, from_backup } = found;
        let mut mends = Mends::new(device.store());
        before.iter().for_each(|mend| mends.push(mend));
        let clusters = sb.geometry().clusters_count().get();
        let inodes = u64::from(sb.geometry().inodes_count()) + 1;
        let shares = sb.features().ro_compat.contains(RoCompat::SHARED_BLOCKS);
        let refresh_backups = !mends.is_empty();
        Ok(Self {
            device,
            journal,
            from_backup,
            used: Bits::new(clusters)?,
            foreign: Bits::new(clusters)?,
            shared: shares.then(|| Bits::new(clusters)).transpose()?,
            sb,
            options,
            suspects,
            groups: Vec::new(),
            inodes: Inodes::new(device.store()),
            conflicts: BTreeMap::new(),
            attributes: Shared::default(),
            tasks: BTreeMap::new(),
            missing: Missing::default(),
            long_links: Vec::new(),
            translators: Vec::new(),
            first_pass: false,
            suspicious: Bits::new(inodes)?,
            truncated: BTreeSet::new(),
            ended_values: BTreeSet::new(),
            mends,
            order: Order::default(),
            cursor: 0,
            none_fresh: false,
            refresh_backups,
        })
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        self.sb.geometry()
    }

    /// Notes what was mended without a loss.
    pub(crate) fn mended(&mut self, what: What, place: Place, text: impl Into<String>) {
        self.mends.push(&Mend { what, place, text: text.into(), loses: false });
    }

    /// Notes what was mended by giving something up.
    pub(crate) fn lost(&mut self, what: What, place: Place, text: impl Into<String>) {
        self.mends.push(&Mend { what, place, text: text.into(), loses: true });
    }

    /// What an extent tree of inode `nr` is checked against.
    pub(crate) fn tree(&self, nr: InodeNr) -> TreeGeometry {
        TreeGeometry::of(self.geometry(), nr)
    }

    /// Whether a block can belong to a file.
    pub(crate) fn holds(&self, block: u64) -> bool {
        let geometry = self.geometry();
        block > u64::from(geometry.first_data_block) && block < geometry.blocks_count.get()
    }

    pub(crate) fn block(&self, nr: BlockNr) -> Result<Vec<u8>, Error> {
        let size = self.geometry().block_size;
        let mut bytes = vec![0; size.len()];
        self.device.read_at(nr.offset(size), &mut bytes)?;
        Ok(bytes)
    }

    /// Writes a block if it differs.
    pub(crate) fn put_block(&self, nr: BlockNr, bytes: &[u8]) -> Result<(), Error> {
        if self.block(nr)? != bytes {
            self.device.write_at(nr.offset(self.geometry().block_size), bytes)?;
        }
        Ok(())
    }

    /// An inode's slot; `None` if there is no such inode.
    pub(crate) fn slot(&self, nr: InodeNr) -> Result<Option<Slot>, Error> {
        let geometry = self.geometry();
        let Some((group, index)) = geometry.inode_slot(nr) else { return Ok(None) };
        let Some(desc) = self.groups.get(group.index()) else { return Ok(None) };
        let within = Bytes::new(u64::from(index) * u64::from(geometry.inode_size));
        let at = desc.inode_table.offset(geometry.block_size) + within;
        let mut bytes = vec![0; usize_of(geometry.inode_size)];
        self.device.read_at(at, &mut bytes)?;
        Ok(Some(Slot { nr, at, bytes }))
    }

    /// Writes a slot with its checksum, if it differs.
    pub(crate) fn put_slot(&self, slot: &mut Slot) -> Result<(), Error> {
        slot.seal(&self.sb);
        let mut old = vec![0; slot.bytes.len()];
        self.device.read_at(slot.at, &mut old)?;
        if old != slot.bytes {
            self.device.write_at(slot.at, &slot.bytes)?;
        }
        Ok(())
    }

    /// Takes a free cluster, if possible one that was free before; `None` if there is none.
    pub(crate) fn take_cluster(&mut self) -> Option<ClusterNr> {
        self.take_fresh_cluster().or_else(|| self.search(false))
    }

    /// Takes a free cluster that nothing was in use of before the repair; `None` if there is none.
    pub(crate) fn take_fresh_cluster(&mut self) -> Option<ClusterNr> {
        let found = if self.none_fresh { None } else { self.search(true) };
        self.none_fresh = found.is_none();
        found
    }

    fn search(&mut self, fresh: bool) -> Option<ClusterNr> {
        let count = self.geometry().clusters_count().get();
        let reserved = self.geometry().cluster_of(BlockNr::new(u64::from(self.geometry().first_data_block)));
        for _ in 0..2 {
            while self.cursor < count {
                let at = self.cursor;
                if at.is_multiple_of(8) && self.used.slice(at, 8).first() == Some(&0xff) {
                    self.cursor += 8;
                    continue;
                }
                self.cursor += 1;
                let suits = at > reserved.get() && !(fresh && self.order.holds(at));
                if suits && self.used.claim(at..at + 1).is_none() {
                    return Some(ClusterNr::new(at));
                }
            }
            self.cursor = 0;
        }
        None
    }

    /// Gives a cluster back.
    pub(crate) fn release_cluster(&mut self, cluster: ClusterNr) {
        self.used.release(cluster.get());
        self.cursor = self.cursor.min(cluster.get());
        self.none_fresh &= self.order.holds(cluster.get());
    }

    /// Whether a group's flag counts: only volumes with group checksums have them.
    pub(crate) fn group_flag(&self, desc: &GroupDesc, flag: GroupFlags) -> bool {
        self.sb.features().group_checksums() && desc.flags.contains(flag)
    }

    /// Takes a free inode number; `None` if there is none.
    pub(crate) fn take_inode(&mut self) -> Result<Option<Slot>, Error> {
        let (first, count) = (self.sb.first_inode().get(), self.geometry().inodes_count());
        let tasks = task::numbers(&self.sb);
        let mut nr = first;
        while nr <= count {
            let Some((group, index)) = self.geometry().inode_slot(InodeNr::new(nr)) else { break };
            let Some(desc) = self.groups.get(group.index()).cloned() else { break };
            if self.inodes.get(nr)?.is_some() || tasks.contains(&nr) {
                nr += 1;
                continue;
            }
            self.initialise_inodes(group, &desc, index)?;
            return self.slot(InodeNr::new(nr));
        }
        Ok(None)
    }

    /// Makes a group's table good up to an inode that is taken.
    fn initialise_inodes(
        &mut self,
        group: hectare_units::GroupNr,
        desc: &GroupDesc,
        index: u32,
    ) -> Result<(), Error> {
        let (size, per) = (self.geometry().inode_size, self.geometry().inodes_per_group);
        let fresh = self.group_flag(desc, GroupFlags::INODE_UNINIT);
        let lazy = self.sb.features().group_checksums();
        let used = if fresh {
            0
        } else if lazy {
            per - desc.itable_unused.min(per)
        } else {
            per
        };
        if index >= used {
            let at = desc.inode_table.offset(self.geometry().block_size);
            let from = at + Bytes::new(u64::from(used) * u64::from(size));
            self.device.zero(from, Bytes::new(u64::from(index + 1 - used) * u64::from(size)))?;
        }
        if let Some(desc) = self.groups.get_mut(group.index()) {
            desc.flags.remove(GroupFlags::INODE_UNINIT);
            desc.itable_unused = desc.itable_unused.min(per - index - 1);
            if fresh {
                desc.itable_unused = per - index - 1;
            }
        }
        Ok(())
    }

    /// Blocks that `len` bytes take, as an index.
    pub(crate) fn blocks_for(&self, len: u64) -> usize {
        index_of(self.geometry().block_size.blocks_for(Bytes::new(len)).get())
    }
}
