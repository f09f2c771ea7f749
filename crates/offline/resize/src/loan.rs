//! A journal on loan: a volume without one, or with one that is too small, gets one in free clusters while
//! its size changes, so that a power cut costs it nothing.
//!
//! The clusters are marked first, then the journal's inode and the superblock come to name the file there,
//! and at the end both say again what they said before. Each is a sound volume, which the kernel can mount
//! and use; but for clusters that are marked and nobody's, and an inode that no superblock names, which
//! e2fsck -p mends. A crash in between leaves a volume that has a journal which it did not have before, or a
//! larger one.
//!
//! Invariants: the clusters are free on the device, are free when all is done, and nothing is put there
//! meanwhile. What is looked for first fit therefore finds the same places with and without the loan.
//!
//! Hazard: the log is zeros at first, else what an earlier one has left there could pass for its own.

use crate::error::Result;
use crate::inodes;
use crate::metadata;
use crate::volume::Volume;
use hectare_ext4::extent::{self, Extent, WRITTEN_MAX};
use hectare_ext4::feature::{Compat, Incompat};
use hectare_ext4::indirect;
use hectare_ext4::inode::{Inode, InodeFlags};
use hectare_ext4::raw;
use hectare_ext4::superblock::SuperBlock;
use hectare_ext4::time::Timestamp;
use hectare_journal::format::JournalSuperblock;
use hectare_units::{BlockNr, Blocks, ClusterNr, InodeNr, LogicalBlock, high32, low32, u64_of};
use rangemap::RangeSet;
use std::ops::Range;

/// The journal's inode.
const JOURNAL: InodeNr = InodeNr::new(8);
/// The fewest blocks of a journal.
const BLOCKS_MIN: u64 = 1024;
/// Clusters of a run that is long enough for the first search.
const LONG_RUN: u64 = 64;
/// `s_jnl_backup_type`: the superblock has a copy of the journal's map.
const BACKUP_BLOCKS: u8 = 1;

/// Where the journal lies, and what was named as the journal before.
pub(crate) struct Loan {
    /// Clusters of the log and of its map.
    clusters: Vec<Range<u64>>,
    /// Blocks of the log.
    blocks: u32,
    /// The volume's own journal, if it has one inside; set when the loan begins.
    pub(crate) own: Option<Inode>,
    /// The superblock before the loan began.
    before: Option<raw::SuperBlock>,
}

impl Loan {
    /// Clusters for a log that holds a transaction of `home` blocks; `None` if there are not enough.
    ///
    /// `done` is the volume after a trial of the whole resize, which took the blocks `taken`.
    pub(crate) fn find(done: &mut Volume, taken: &RangeSet<u64>, home: usize) -> Result<Option<Self>> {
        let mut before = Volume::open(std::sync::Arc::clone(&done.disk), false)?;
        let sb = &before.sb;
        if sb.raw().s_rev_level.get() == 0 || sb.journal_inode().is_some_and(|nr| nr != JOURNAL) {
            return Ok(None);
        }
        // One block in 32 for descriptors, and what the loan itself adds to the transaction.
        let home = u64_of(home);
        let blocks = (home + home / 32 + 64).max(BLOCKS_MIN);
        let ratio = u64::from(before.geometry().cluster_blocks());
        // Nodes of its map take a cluster each: every 32 runs one, and every 128 blocks.
        let need = |runs: usize| blocks.div_ceil(ratio) + blocks / 128 + u64_of(runs) / 32 + 8;
        let taken = taken_clusters(done, taken);
        let mut free = Free { before: &mut before, done, taken };
        let found = match free.runs(LONG_RUN, &need)? {
            Some(found) => Some(found),
            None => free.runs(1, &need)?,
        };
        let Some(clusters) = found else { return Ok(None) };
        let mut loan = Self { clusters, blocks: low32(blocks), own: None, before: None };
        let nodes = loan.build(&before).1.len();
        loan.trim(blocks.div_ceil(ratio) + u64_of(nodes));
        Ok(Some(loan))
    }

    /// Gives back what is behind the first clusters.
    fn trim(&mut self, mut count: u64) {
        self.clusters.retain_mut(|clusters| {
            clusters.end = clusters.end.min(clusters.start + count);
            count -= clusters.end - clusters.start;
            !clusters.is_empty()
        });
    }

    /// Whether all of it lies before a cluster.
    pub(crate) fn is_below(&self, end: u64) -> bool {
        self.clusters.iter().all(|clusters| clusters.end <= end)
    }

    /// The clusters, as a set.
    pub(crate) fn clusters(&self) -> RangeSet<u64> {
        self.clusters.iter().cloned().collect()
    }

    /// Marks the clusters, and writes the empty log. [`Loan::begin`] is another transaction.
    pub(crate) fn mark(&self, volume: &mut Volume) -> Result<()> {
        for clusters in &self.clusters {
            volume.take(clusters.clone())?;
            let blocks = self.blocks_of(volume, clusters);
            volume.zero_unused(BlockNr::new(blocks.start), Blocks::new(blocks.end - blocks.start))?;
        }
        let size = volume.geometry().block_size;
        let head = JournalSuperblock::new(size, self.blocks, 0, volume.sb.uuid());
        let mut block = head.render().to_vec();
        block.resize(size.len(), 0);
        let first = self.clusters.first().map_or(0, |clusters| self.blocks_of(volume, clusters).start);
        volume.write(BlockNr::new(first), &block)?;
        self.build(volume).1.iter().try_for_each(|(nr, bytes)| volume.write(*nr, bytes))
    }

    /// Has the log be the volume's journal.
    pub(crate) fn begin(&mut self, volume: &mut Volume, now: Timestamp) -> Result<()> {
        if volume.sb.journal_inode().is_some() {
            self.own = Some(inodes::read(volume, JOURNAL)?);
        }
        let mut raw = *volume.sb.raw();
        self.before = Some(raw);
        let (root, nodes) = self.build(volume);
        let mut inode = Inode::new(0o100_600, now, 0, &volume.sb);
        inode.links = 1;
        inode.block = root;
        if volume.sb.features().incompat.contains(Incompat::EXTENTS) {
            inode.flags |= InodeFlags::EXTENTS;
        }
        let geometry = volume.geometry();
        let ratio = u64::from(geometry.cluster_blocks());
        let clusters = u64::from(self.blocks).div_ceil(ratio) + u64_of(nodes.len());
        inode.size = Blocks::new(self.blocks.into()).bytes(geometry.block_size).get();
        inode.sectors = (clusters * ratio) << (geometry.block_size.shift() - 9);
        inodes::write(volume, JOURNAL, &inode)?;
        raw.s_feature_compat = (raw.s_feature_compat.get() | Compat::HAS_JOURNAL.bits()).into();
        raw.s_journal_inum = JOURNAL.get().into();
        raw.s_journal_dev = 0.into();
        raw.s_journal_uuid = [0; 16];
        back_up(&mut raw, &inode);
        volume.sb = SuperBlock::from_raw(raw)?;
        Ok(())
    }

    /// Has the volume's own journal be the journal again, if it has one. [`Loan::unmark`] is another
    /// transaction.
    pub(crate) fn end(&self, volume: &mut Volume) -> Result<()> {
        let mut raw = *volume.sb.raw();
        if let Some(before) = &self.before {
            let journal = Compat::HAS_JOURNAL.bits();
            let has = before.s_feature_compat.get() & journal;
            raw.s_feature_compat = (raw.s_feature_compat.get() & !journal | has).into();
            raw.s_journal_inum = before.s_journal_inum;
            raw.s_journal_dev = before.s_journal_dev;
            raw.s_journal_uuid = before.s_journal_uuid;
            raw.s_jnl_backup_type = before.s_jnl_backup_type;
            raw.s_jnl_blocks = before.s_jnl_blocks;
        }
        match &self.own {
            Some(inode) => {
                inodes::write(volume, JOURNAL, inode)?;
                back_up(&mut raw, inode);
            }
            None => inodes::clear(volume, JOURNAL)?,
        }
        volume.sb = SuperBlock::from_raw(raw)?;
        Ok(())
    }

    /// Frees the clusters.
    pub(crate) fn unmark(&self, volume: &mut Volume) -> Result<()> {
        self.clusters.iter().try_for_each(|clusters| volume.mark(clusters.clone(), false))
    }

    /// The blocks of clusters.
    fn blocks_of(&self, volume: &Volume, clusters: &Range<u64>) -> Range<u64> {
        let block = |cluster| volume.geometry().cluster_start(ClusterNr::new(cluster)).get();
        block(clusters.start)..block(clusters.end)
    }

    /// The map of the log: its root, and its nodes with their places.
    fn build(&self, volume: &Volume) -> ([u8; 60], Vec<(BlockNr, Vec<u8>)>) {
        let (mut extents, mut logical, mut spare) = (Vec::new(), 0, Vec::new());
        for clusters in &self.clusters {
            let blocks = self.blocks_of(volume, clusters);
            let mut at = blocks.start;
            while at < blocks.end && logical < self.blocks {
                let len = low32((blocks.end - at).min(WRITTEN_MAX.into())).min(self.blocks - logical);
                let (first, physical) = (LogicalBlock::new(logical), BlockNr::new(at));
                extents.push(Extent { logical: first, len, physical, unwritten: false });
                (logical, at) = (logical + len, at + u64::from(len));
            }
            let ratio = u64::from(volume.geometry().cluster_blocks());
            let rest = at.next_multiple_of(ratio)..blocks.end;
            spare.extend(rest.step_by(hectare_units::index_of(ratio)).map(BlockNr::new));
        }
        let mut next = spare.into_iter();
        let mut next = || next.next().expect("room for the map was counted");
        let size = volume.geometry().block_size;
        let built = if volume.sb.features().incompat.contains(Incompat::EXTENTS) {
            extent::build(&extents, size, volume.sb.seed().map(|seed| seed.inode(JOURNAL, 0)), &mut next)
        } else {
            indirect::build(&extents, size, &mut next)
        };
        (built.root, built.nodes)
    }
}

/// The superblock has a copy of the journal's map.
pub(crate) fn back_up(raw: &mut raw::SuperBlock, inode: &Inode) {
    raw.s_jnl_backup_type = BACKUP_BLOCKS;
    for (word, bytes) in raw.s_jnl_blocks.iter_mut().zip(inode.block.chunks_exact(4)) {
        *word = bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)).into();
    }
    raw.s_jnl_blocks[15] = high32(inode.size).into();
    raw.s_jnl_blocks[16] = low32(inode.size).into();
}

/// Clusters that are free on the device, and free after a trial that did not use them in between.
struct Free<'a> {
    before: &'a mut Volume,
    done: &'a mut Volume,
    /// Clusters that the trial took.
    taken: RangeSet<u64>,
}

impl Free<'_> {
    /// The first runs of at least `least` clusters that together have as many as `need` says for their count.
    fn runs(&mut self, least: u64, need: &dyn Fn(usize) -> u64) -> Result<Option<Vec<Range<u64>>>> {
        let end = self.before.geometry().clusters_count().get();
        let (mut at, mut found, mut have) = (0, Vec::new(), 0);
        while let Some(run) = self.before.free_run(at..end, u64::MAX)? {
            at = run.end;
            for gap in self.taken.gaps(&run).collect::<Vec<_>>() {
                for part in self.free_after(gap)? {
                    let missing = need(found.len() + 1) - have;
                    let len = (part.end - part.start).min(missing);
                    if len >= least.min(missing) {
                        found.push(part.start..part.start + len);
                        have += len;
                    }
                    if have >= need(found.len()) {
                        return Ok(Some(found));
                    }
                }
            }
        }
        Ok(None)
    }

    /// The parts of a range that are free after the trial; what lies beyond its end is.
    fn free_after(&mut self, range: Range<u64>) -> Result<Vec<Range<u64>>> {
        let end = self.done.geometry().clusters_count().get();
        let (mut at, known) = (range.start, range.end.min(end));
        let mut found = Vec::new();
        while at < known
            && let Some(run) = self.done.free_run(at..known, u64::MAX)?
        {
            at = run.end;
            found.push(run);
        }
        let beyond = range.start.max(end)..range.end;
        found.extend((!beyond.is_empty()).then_some(beyond));
        Ok(found)
    }
}

/// The clusters of blocks.
fn taken_clusters(volume: &Volume, taken: &RangeSet<u64>) -> RangeSet<u64> {
    let mut clusters = RangeSet::new();
    for blocks in taken.iter() {
        metadata::insert(&mut clusters, metadata::clusters(volume.geometry(), blocks));
    }
    clusters
}
