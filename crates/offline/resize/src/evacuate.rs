//! Moves what lies in given clusters to free ones elsewhere, and inodes of groups that go to others.
//!
//! Files keep everything but where their blocks lie, and some of them their number. One walk over all inodes
//! does it: what an inode owns in those clusters is copied, its map is built anew, and every reference to an
//! inode that has another number is changed: entries of directories (`..` too), attribute values in inodes
//! of their own, the superblock. Checksums that start from an inode's number are renewed. The index of a
//! directory goes by hashes of names and logical blocks, so it stays.
//!
//! Invariants: data goes to clusters that are free on disk, before anything refers to them there; a cluster
//! that is left is not given out again in the same step.
//!
//! What it is not: a defragmentation. Space is taken first fit, from the start of the volume.

mod attributes;
mod directories;
mod files;
mod groups;
mod journal;
mod numbers;
mod quotas;
mod space;

use crate::admit;
use crate::error::{Error, Result};
use crate::inodes;
use crate::loan;
use crate::metadata;
use crate::volume::Volume;
use hectare_ext4::dir::Format;
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::feature::{Compat, Incompat};
use hectare_ext4::inode::{Inode, Kind};
use hectare_ext4::quota::SpaceChanges;
use hectare_ext4::superblock::SuperBlock;
use hectare_units::{BlockNr, GroupNr, InodeNr, low32, u64_of, usize_of};
pub(crate) use journal::{Relocated, is_touched, journal, relocate_journal};
use numbers::Numbers;
use rangemap::RangeSet;
use std::collections::HashMap;
use std::ops::Range;

/// What was moved.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Moved {
    pub(crate) blocks: u64,
    pub(crate) inodes: u32,
    /// Whether bitmaps or tables of groups were moved.
    pub(crate) groups: bool,
    /// Clusters that are not to be taken before this is on disk: those that were to be freed, and others.
    pub(crate) left: RangeSet<u64>,
}

/// The inode of bad blocks.
const BAD_BLOCKS: InodeNr = InodeNr::new(1);
/// The resize inode, which is [`crate::reserve`]'s.
const RESIZE_INODE: InodeNr = InodeNr::new(7);

/// An evacuation under way.
struct Evacuation<'a> {
    volume: &'a mut Volume,
    format: Format,
    /// Clusters that are to be free.
    leaving: RangeSet<u64>,
    /// Clusters that are not to be taken: those, and those that were left.
    barred: RangeSet<u64>,
    /// Where the search for space goes on.
    cursor: u64,
    numbers: Numbers,
    /// Attribute blocks, by their old place, that have been moved.
    attributes: HashMap<u64, BlockNr>,
    quotas: SpaceChanges,
    moved: Moved,
}

/// Frees `clusters` but for the journal's, and moves all inodes beyond the first `inodes`.
pub(crate) fn evacuate(volume: &mut Volume, clusters: RangeSet<u64>, inodes: u32) -> Result<Moved> {
    // A volume that grows has more inodes afterwards than it has groups for now.
    let kept = (inodes / volume.geometry().inodes_per_group).min(low32(u64_of(volume.groups.len())));
    let left = groups::relocate(volume, &clusters, kept)?;
    let groups = left.is_some();
    let mut evacuation = Evacuation::new(volume, clusters, left.unwrap_or_default())?;
    let blocks = evacuation.in_use()?;
    evacuation.numbers = Numbers::assign(evacuation.volume, kept)?;
    let moves_inodes = !evacuation.numbers.is_empty();
    if blocks == 0 && !moves_inodes {
        return Ok(Moved { groups, left: evacuation.barred, ..Moved::default() });
    }
    admit::admit_moves(evacuation.volume, moves_inodes)?;
    evacuation.require_space(blocks)?;
    evacuation.walk()?;
    evacuation.mmp()?;
    evacuation.special_numbers()?;
    evacuation.write_quotas()?;
    evacuation.moved.inodes = evacuation.numbers.len();
    evacuation.moved.groups = groups;
    evacuation.moved.left = evacuation.barred;
    Ok(evacuation.moved)
}

impl<'a> Evacuation<'a> {
    /// Of the clusters `leaving`; those in `barred` are not taken either.
    fn new(volume: &'a mut Volume, leaving: RangeSet<u64>, mut barred: RangeSet<u64>) -> Result<Self> {
        let format = Format::of(&volume.sb)?;
        barred.extend(leaving.iter().cloned());
        Ok(Self {
            volume,
            format,
            leaving,
            barred,
            cursor: 0,
            numbers: Numbers::default(),
            attributes: HashMap::new(),
            quotas: SpaceChanges::default(),
            moved: Moved::default(),
        })
    }

    /// Clusters in use by files in what is to be left.
    fn in_use(&mut self) -> Result<u64> {
        let own = metadata::all(self.volume.geometry(), &self.volume.groups);
        let per = u64::from(self.volume.geometry().clusters_per_group);
        let (mut used, leaving) = (0, self.leaving.clone());
        for range in leaving.iter() {
            for group in low32(range.start / per)..low32(range.end.div_ceil(per)) {
                let group = GroupNr::new(group);
                let first = u64::from(group.get()) * per;
                let all = first..first + u64::from(self.volume.geometry().clusters_in(group));
                let part = all.start.max(range.start)..all.end.min(range.end);
                used += if part == all {
                    // By its counts: the bitmaps of all groups may be more than memory holds.
                    let free = u64::from(self.volume.groups[group.index()].free_clusters);
                    (all.end - all.start).saturating_sub(free + metadata::len_within(&own, &all))
                } else {
                    self.in_use_within(&own, part)?
                };
            }
        }
        if let Some(table) = self.reserve_table()?
            && self.leaving.contains(&self.volume.geometry().cluster_of(table).get())
        {
            used = used.saturating_sub(1);
        }
        Ok(used)
    }

    /// Clusters in use in a part of a group, by its bitmap.
    fn in_use_within(&mut self, own: &RangeSet<u64>, part: Range<u64>) -> Result<u64> {
        let mut used = 0;
        for range in own.gaps(&part) {
            let (mut at, mut free) = (range.start, 0);
            while let Some(run) = self.volume.free_run(at..range.end, u64::MAX)? {
                free += run.end - run.start;
                at = run.end;
            }
            used += range.end - range.start - free;
        }
        Ok(used)
    }

    /// The block of the resize inode, which is no file's.
    fn reserve_table(&self) -> Result<Option<BlockNr>> {
        if !self.volume.sb.features().compat.contains(Compat::RESIZE_INODE) {
            return Ok(None);
        }
        let inode = inodes::read(self.volume, RESIZE_INODE)?;
        let table = inode.block[52..56].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        Ok((table != 0).then_some(BlockNr::new(table.into())))
    }

    /// Refuses before anything is copied if there is not enough room.
    fn require_space(&mut self, needed: u64) -> Result<()> {
        let end = self.volume.geometry().clusters_count().get();
        let mut free = 0;
        let mut at = 0;
        while let Some(run) = self.free_run(at..end, u64::MAX)? {
            (free, at) = (free + (run.end - run.start), run.end);
            if free >= needed {
                return Ok(());
            }
        }
        let missing = (needed - free) << self.volume.geometry().cluster_ratio_shift;
        Err(Error::NoSpace { what: "what has to move".into(), missing })
    }

    /// Visits every inode in use.
    fn walk(&mut self) -> Result<()> {
        let geometry = self.volume.geometry().clone();
        let size = usize_of(geometry.inode_size);
        let per_block = geometry.inodes_per_block();
        for group in (0..geometry.groups()).map(GroupNr::new) {
            if self.volume.groups[group.index()].free_inodes == geometry.inodes_per_group {
                continue;
            }
            let table = self.volume.groups[group.index()].inode_table.get();
            for block in 0..geometry.itable_blocks() {
                let first = block * per_block;
                let used: Vec<u32> = {
                    let bitmap = self.volume.inode_bitmap(group)?;
                    (first..(first + per_block).min(geometry.inodes_per_group))
                        .filter(|i| bitmap.get(*i))
                        .collect()
                };
                if used.is_empty() {
                    continue;
                }
                let bytes = self.volume.read(BlockNr::new(table + u64::from(block)))?;
                for index in used {
                    let nr = geometry.inode_at(group, index);
                    if self.numbers.is_new(nr) {
                        continue;
                    }
                    let at = usize_of(index - first) * size;
                    let inode = Inode::parse(&bytes[at..at + size], nr, &self.volume.sb)?;
                    self.inode(nr, inode)?;
                }
            }
        }
        Ok(())
    }

    fn inode(&mut self, nr: InodeNr, old: Inode) -> Result<()> {
        if nr == RESIZE_INODE && self.volume.sb.features().compat.contains(Compat::RESIZE_INODE) {
            return Ok(());
        }
        if nr == BAD_BLOCKS {
            return self.refuse_bad_blocks(&old);
        }
        if old.links == 0 && nr >= self.volume.sb.first_inode() {
            return Ok(());
        }
        let to = self.numbers.of(nr);
        let mut inode = old.clone();
        if inode.kind().is_some() {
            self.inline_directory(nr, &mut inode)?;
            self.values(&mut inode)?;
            if inode.is_mapped() && journal(self.volume) != Some(nr) {
                self.content(nr, to, &mut inode)?;
            }
        }
        if to == nr && inode == old {
            return Ok(());
        }
        inodes::write(self.volume, to, &inode)?;
        if to != nr {
            self.leave_number(nr, to, &inode)?;
        }
        if self.volume.sb.journal_inode() == Some(nr) {
            self.edit_superblock(|raw| loan::back_up(raw, &inode))?;
        }
        Ok(())
    }

    /// Bad blocks can't move.
    fn refuse_bad_blocks(&mut self, inode: &Inode) -> Result<()> {
        if inode.block == [0; 60] {
            return Ok(());
        }
        let (extents, nodes) = self.map(BAD_BLOCKS, inode)?;
        let is_leaving = |range| {
            let clusters = metadata::clusters(self.volume.geometry(), &range);
            self.leaving.overlaps(&clusters)
        };
        let blocks = extents.iter().map(|e| e.physical.get()..e.physical.get() + u64::from(e.len));
        if blocks.chain(nodes.iter().map(|nr| nr.get()..nr.get() + 1)).any(is_leaving) {
            let reason =
                "bad blocks (inode 1) lie where space must be freed; run e2fsck -c or choose another size";
            return Err(Error::Refused(reason.into()));
        }
        Ok(())
    }

    /// Moves the block of multiple mount protection.
    fn mmp(&mut self) -> Result<()> {
        if !self.volume.sb.features().incompat.contains(Incompat::MMP) {
            return Ok(());
        }
        let nr = self.volume.sb.raw().s_mmp_block.get();
        let cluster = self.volume.geometry().cluster_of(BlockNr::new(nr)).get();
        if !self.leaving.contains(&cluster) {
            return Ok(());
        }
        let to = self.take_block("the block of multiple mount protection")?;
        let bytes = self.volume.read(BlockNr::new(nr))?;
        self.volume.write(to, &bytes)?;
        self.leave(cluster..cluster + 1)?;
        self.edit_superblock(|raw| raw.s_mmp_block = to.get().into())
    }

    fn edit_superblock(&mut self, edit: impl FnOnce(&mut hectare_ext4::raw::SuperBlock)) -> Result<()> {
        let mut raw = *self.volume.sb.raw();
        edit(&mut raw);
        self.volume.sb = SuperBlock::from_raw(raw)?;
        Ok(())
    }
}

/// A finding about an inode.
fn corrupt(nr: InodeNr, reason: &'static str) -> Error {
    Corrupt::new("the inode", Place::Inode(nr), reason).into()
}

/// Whether content is a directory's.
fn is_directory(inode: &Inode) -> bool {
    inode.kind() == Some(Kind::Directory)
}
