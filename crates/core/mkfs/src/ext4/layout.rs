//! Places each group's bitmaps and inode table.
//!
//! Three ways, as mke2fs lays them out: *plain* (each group holds its own, after its base metadata),
//! *flexible* (`flex_bg`: those of 16 groups, or `-G`, lie together at the start of the first) and *packed*
//! (all at the start of the volume). None needs memory for every group: plain places are computed group by
//! group, flexible ones flex group by flex group, and the packed form is three sequences interrupted only by
//! base metadata, of which the interruptions are kept.
//!
//! [`Layout`] is the rule; a [`Cursor`] applies it and remembers the flex group it is in, and how those
//! before it were laid out: nearly all of a volume's flex groups hold their metadata at the same places from
//! their start, so that going through the groups in order costs little.
//!
//! Hazard: base metadata (superblock copies, descriptors) lies at fixed places and everything else has to go
//! around it, including around that of later groups when a table is longer than what is left of a group.

use super::ranges::{first_fit, insert, inside};
use crate::error::{Error, Result};
use hectare_ext4::feature::Incompat;
use hectare_ext4::geometry::Geometry;
use hectare_units::{BlockNr, GroupNr, u64_of, usize_of};
use rangemap::RangeSet;
use std::ops::Range;
use std::sync::Arc;

/// The places of one group's metadata.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupMeta {
    /// The block of the block bitmap.
    pub block_bitmap: BlockNr,
    /// The block of the inode bitmap.
    pub inode_bitmap: BlockNr,
    /// The first block of the inode table.
    pub inode_table: BlockNr,
}

/// How the metadata of all groups is laid out.
#[derive(Clone, Debug)]
pub struct Layout {
    geometry: Geometry,
    rule: Rule,
    /// Patterns of flex groups that come up again and again, with which a cursor starts.
    known: Vec<Arc<Pattern>>,
}

#[derive(Clone, Debug)]
enum Rule {
    Plain { stride: u64 },
    Flexible,
    Packed(Packed),
}

impl Layout {
    /// The layout of a volume.
    ///
    /// # Errors
    /// If the metadata does not fit.
    pub fn new(geometry: Geometry, stride: u16, packed: bool) -> Result<Self> {
        // Without flex groups a group's metadata lies in it, or the kernel mounts nothing.
        let rule = if packed && geometry.features.incompat.contains(Incompat::FLEX_BG) {
            Rule::Packed(Packed::new(&geometry)?)
        } else if geometry.flex_shift > 0 {
            Rule::Flexible
        } else {
            Rule::Plain { stride: stride.into() }
        };
        Ok(Self { geometry, rule, known: Vec::new() })
    }

    /// The shape of the volume.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// A way to go through the groups.
    #[must_use]
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor { layout: self, placed: None, known: self.known.clone() }
    }

    /// Makes sure that the metadata of every group fits, by looking at groups of every pattern there is:
    /// those with `backups` and those at either end, over more than the distance at which descriptors repeat.
    /// What it saw of them is kept.
    ///
    /// # Errors
    /// If it does not fit.
    pub(crate) fn check(&mut self, backups: &[GroupNr]) -> Result<()> {
        let (geometry, mut cursor) = (&self.geometry, self.cursor());
        let groups = geometry.groups();
        let ends = 2 * geometry.descs_per_block().max(geometry.flex_groups()).min(groups / 2 + 1);
        let ends = (0..ends.min(groups)).chain(groups.saturating_sub(ends)..groups).map(GroupNr::new);
        backups.iter().copied().chain(ends).try_for_each(|group| cursor.meta(group).map(|_| ()))?;
        self.known = cursor.known;
        Ok(())
    }

    /// Clusters of the whole volume that hold metadata of groups.
    pub(crate) fn metadata_clusters(&self) -> Result<u64> {
        let mut cursor = self.cursor();
        (0..self.geometry.groups()).map(|nr| Ok(cursor.metadata(GroupNr::new(nr))?.clusters)).sum()
    }

    /// How metadata in `used` affects a group whose base metadata ends at `base_end`.
    fn taken(&self, used: &[Range<u64>], base_end: u64) -> Taken {
        let is_derived = match self.rule {
            Rule::Plain { .. } => true,
            Rule::Flexible | Rule::Packed(_) => used.iter().all(|range| range.end <= base_end),
        };
        Taken { clusters: clusters_touched(&self.geometry, used), is_derived }
    }
}

/// What the metadata in a group means for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    /// Clusters that it touches.
    pub(crate) clusters: u64,
    /// It is what a reader finds from the superblock and the group's own descriptor: while the group's other
    /// blocks are free, its block bitmap need not be written.
    pub(crate) is_derived: bool,
}

/// The blocks of a group.
pub(crate) fn group_range(geometry: &Geometry, group: GroupNr) -> Range<u64> {
    let start = geometry.first_block(group).get();
    start..start + u64::from(geometry.blocks_in(group))
}

/// The blocks of a group's base metadata, bounded by the group.
pub(crate) fn base_range(geometry: &Geometry, group: GroupNr) -> Range<u64> {
    let whole = group_range(geometry, group);
    let end = whole.start + u64::from(geometry.base_meta_blocks(group));
    whole.start..end.min(whole.end)
}

/// Goes through the groups of a layout.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    layout: &'a Layout,
    /// The flex group (a single group in the plain layout) last placed.
    placed: Option<At>,
    /// Flex groups placed before, the latest last.
    known: Vec<Arc<Pattern>>,
}

/// A flex group, placed.
#[derive(Clone, Debug)]
struct At {
    /// Its first group.
    first: u32,
    /// Its first block, from which the pattern's places are counted.
    start: u64,
    pattern: Arc<Pattern>,
}

/// What the places in a flex group follow from, and the places, counted from its start.
#[derive(Clone, Debug)]
struct Pattern {
    blocks: u64,
    /// Blocks of base metadata of each group.
    base: Vec<u32>,
    placed: Placed,
    /// What it means for each group.
    taken: Vec<Taken>,
}

/// Patterns that a cursor remembers: four come up again and again.
const PATTERNS_MAX: usize = 8;

impl Cursor<'_> {
    /// The places of a group's metadata.
    ///
    /// # Errors
    /// If the metadata does not fit.
    pub fn meta(&mut self, group: GroupNr) -> Result<GroupMeta> {
        if let Rule::Packed(packed) = &self.layout.rule {
            return Ok(packed.meta(group));
        }
        let at = self.place(group)?;
        let meta = at.pattern.placed.metas[usize_of(group.get() - at.first)];
        let shifted = |nr: BlockNr| BlockNr::new(at.start + nr.get());
        Ok(GroupMeta {
            block_bitmap: shifted(meta.block_bitmap),
            inode_bitmap: shifted(meta.inode_bitmap),
            inode_table: shifted(meta.inode_table),
        })
    }

    /// How the metadata in a group (of any group) affects it.
    ///
    /// # Errors
    /// If the metadata does not fit.
    pub(crate) fn metadata(&mut self, group: GroupNr) -> Result<Taken> {
        if let Rule::Packed(_) = self.layout.rule {
            let base_end = base_range(&self.layout.geometry, group).end;
            return Ok(self.layout.taken(&self.used_ranges(group)?, base_end));
        }
        let at = self.place(group)?;
        Ok(at.pattern.taken[usize_of(group.get() - at.first)])
    }

    /// The blocks of a group that hold metadata (of any group), sorted and joined.
    ///
    /// # Errors
    /// If the metadata does not fit.
    pub fn used_ranges(&mut self, group: GroupNr) -> Result<Vec<Range<u64>>> {
        let within = group_range(&self.layout.geometry, group);
        if let Rule::Packed(packed) = &self.layout.rule {
            let mut set = RangeSet::default();
            insert(&mut set, base_range(&self.layout.geometry, group));
            packed.inside(&within).for_each(|range| insert(&mut set, range));
            return Ok(set.iter().cloned().collect());
        }
        let at = self.place(group)?;
        Ok(at.pattern.placed.used_inside(&within, at.start))
    }

    /// Places the flex group of `group` unless it is the one at hand.
    fn place(&mut self, group: GroupNr) -> Result<&At> {
        let geometry = &self.layout.geometry;
        let first = group.get() >> geometry.flex_shift << geometry.flex_shift;
        if self.placed.as_ref().is_none_or(|at| at.first != first) {
            let last = (first | (geometry.flex_groups() - 1)).min(geometry.groups() - 1);
            let start = group_range(geometry, GroupNr::new(first)).start;
            let blocks = group_range(geometry, GroupNr::new(last)).end - start;
            let base: Vec<u32> =
                (first..=last).map(|nr| geometry.base_meta_blocks(GroupNr::new(nr))).collect();
            let is_same = |known: &&Arc<Pattern>| known.blocks == blocks && known.base == base;
            // With a stride the places depend on the group's number.
            let repeats = !matches!(self.layout.rule, Rule::Plain { stride } if stride > 0);
            let known = self.known.iter().rev().find(is_same).filter(|_| repeats).cloned();
            let pattern = match known {
                Some(known) => known,
                None => self.remember(first, blocks, base)?,
            };
            self.placed = Some(At { first, start, pattern });
        }
        Ok(self.placed.as_ref().expect("just placed"))
    }

    /// Places a flex group of a pattern that is new.
    fn remember(&mut self, first: u32, blocks: u64, base: Vec<u32>) -> Result<Arc<Pattern>> {
        let geometry = &self.layout.geometry;
        let placed = match self.layout.rule {
            Rule::Plain { stride } => Placed::plain(geometry, GroupNr::new(first), &base, blocks, stride),
            Rule::Flexible | Rule::Packed(_) => Placed::flexible(geometry, &base, blocks),
        };
        let reason = || format!("the metadata of group {first} does not fit; ask for fewer inodes");
        let placed = placed.ok_or_else(|| Error::option("-N", reason()))?;
        let taken = self.taken(first, &base, &placed);
        let pattern = Arc::new(Pattern { blocks, base, placed, taken });
        if self.known.len() == PATTERNS_MAX {
            self.known.remove(0);
        }
        self.known.push(Arc::clone(&pattern));
        Ok(pattern)
    }

    /// What the metadata of a placed flex group means for each group, with their blocks of base metadata.
    fn taken(&self, first: u32, base: &[u32], placed: &Placed) -> Vec<Taken> {
        let geometry = &self.layout.geometry;
        let start = geometry.first_block(GroupNr::new(first)).get();
        let one = |(nr, base): (u32, &u32)| {
            let within = group_range(geometry, GroupNr::new(first + nr));
            self.layout.taken(&placed.used_inside(&within, start), within.start + u64::from(*base))
        };
        (0..).zip(base).map(one).collect()
    }
}

/// The metadata of a run of groups, placed.
#[derive(Clone, Debug)]
struct Placed {
    metas: Vec<GroupMeta>,
    used: RangeSet<u64>,
}

impl Placed {
    /// One group by itself. With a stride the bitmaps move on by it from group to group, so that they don't
    /// all lie on one disk of a stripe.
    fn plain(geometry: &Geometry, group: GroupNr, base: &[u32], blocks: u64, stride: u64) -> Option<Self> {
        let (whole, base) = (0..blocks, 0..base.iter().map(|len| u64::from(*len)).sum::<u64>().min(blocks));
        let table_blocks = u64::from(geometry.itable_blocks());
        let mut used = RangeSet::default();
        insert(&mut used, base.clone());
        let start = if stride == 0 { base.end } else { striped(&whole, &base, table_blocks, group, stride) };
        let mut take = |from: u64, len: u64| {
            let at =
                first_fit(&used, from..whole.end, len).or_else(|| first_fit(&used, whole.clone(), len))?;
            insert(&mut used, at..at + len);
            Some(BlockNr::new(at))
        };
        let meta = GroupMeta {
            block_bitmap: take(start, 1)?,
            inode_bitmap: take(start, 1)?,
            inode_table: take(whole.start, table_blocks)?,
        };
        Some(Self { metas: vec![meta], used })
    }

    /// The groups of a flex group together: all block bitmaps, all inode bitmaps, all tables.
    fn flexible(geometry: &Geometry, base: &[u32], blocks: u64) -> Option<Self> {
        let group_blocks = u64::from(geometry.blocks_per_group());
        let (whole, groups) = (0..blocks, u64_of(base.len()));
        let mut flex = Flex { whole: whole.clone(), quarter: group_blocks / 4, used: RangeSet::default() };
        for (nr, len) in (0..).zip(base) {
            let start = nr * group_blocks;
            let end = (start + group_blocks).min(whole.end);
            insert(&mut flex.used, start..(start + u64::from(*len)).min(end));
        }
        let table_blocks = u64::from(geometry.itable_blocks());
        // Room is left for the bitmaps of the groups there are; a group that is alone leaves it for a full
        // flex group, into which the volume may grow.
        let spread = if groups == 1 { geometry.flex_groups().into() } else { groups };
        let mut metas: Vec<GroupMeta> = Vec::with_capacity(base.len());
        for nr in 0..groups {
            let rest = groups - nr;
            let before = metas.last().copied();
            let block_bitmap = flex.take(before.map(|m| m.block_bitmap.get() + 1), rest, 1)?;
            let wanted = before.map_or(block_bitmap + spread, |m| m.inode_bitmap.get() + 1);
            let inode_bitmap = flex.take(Some(wanted), rest, 1)?;
            let wanted = before.map_or(inode_bitmap + spread, |m| m.inode_table.get() + table_blocks);
            let inode_table = flex.take(Some(wanted), rest, table_blocks)?;
            let [block_bitmap, inode_bitmap, inode_table] =
                [block_bitmap, inode_bitmap, inode_table].map(BlockNr::new);
            metas.push(GroupMeta { block_bitmap, inode_bitmap, inode_table });
        }
        Some(Self { metas, used: flex.used })
    }

    /// The used blocks of the volume in `within`, if the first of the groups begins at block `start`.
    fn used_inside(&self, within: &Range<u64>, start: u64) -> Vec<Range<u64>> {
        let inside = inside(&self.used, within.start - start..within.end - start);
        inside.map(|range| start + range.start..start + range.end).collect()
    }
}

/// Where the bitmaps of a group go with a stride.
fn striped(whole: &Range<u64>, base: &Range<u64>, table_blocks: u64, group: GroupNr, stride: u64) -> u64 {
    let after = base.end + table_blocks;
    let last = whole.end - 1;
    if after > last {
        return whole.start;
    }
    let start = after + stride * u64::from(group.get()) % (last - after + 1);
    if start >= last { whole.start } else { start }
}

/// A flex group being filled.
struct Flex {
    whole: Range<u64>,
    /// A quarter of a group: the longest run looked for, so that the runs of large flex groups don't all move
    /// on.
    quarter: u64,
    used: RangeSet<u64>,
}

impl Flex {
    /// Takes `len` blocks: right at `wanted` if free, else where there is room for the same of all `rest`
    /// groups still to come, else anywhere in the flex group.
    fn take(&mut self, wanted: Option<u64>, rest: u64, len: u64) -> Option<u64> {
        let at = wanted
            .filter(|at| at + len <= self.whole.end && !self.used.overlaps(&(*at..at + len)))
            .or_else(|| first_fit(&self.used, self.whole.clone(), (rest * len).min(self.quarter).max(len)))
            .or_else(|| first_fit(&self.used, self.whole.clone(), len))?;
        insert(&mut self.used, at..at + len);
        Some(at)
    }
}

/// All metadata at the start of the volume: three sequences of equal elements.
#[derive(Clone, Debug)]
struct Packed {
    block_bitmaps: Sequence,
    inode_bitmaps: Sequence,
    tables: Sequence,
}

/// Elements of equal length, one for each group, in as few runs as the base metadata allows.
#[derive(Clone, Debug)]
struct Sequence {
    len: u64,
    runs: Vec<Run>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    /// The first group with its element in the run.
    first: u64,
    at: u64,
    count: u64,
}

impl Packed {
    fn new(geometry: &Geometry) -> Result<Self> {
        let mut free = FreeRuns { geometry, group: 0, at: 0 };
        let mut fill = |len| {
            Sequence::fill(&mut free, len, geometry.groups().into())
                .ok_or_else(|| Error::option("-E packed_meta_blocks", "the metadata does not fit the volume"))
        };
        Ok(Self {
            block_bitmaps: fill(1)?,
            inode_bitmaps: fill(1)?,
            tables: fill(geometry.itable_blocks().into())?,
        })
    }

    fn meta(&self, group: GroupNr) -> GroupMeta {
        GroupMeta {
            block_bitmap: self.block_bitmaps.at(group),
            inode_bitmap: self.inode_bitmaps.at(group),
            inode_table: self.tables.at(group),
        }
    }

    fn inside<'a>(&'a self, within: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<'a> {
        let within = within.clone();
        [&self.block_bitmaps, &self.inode_bitmaps, &self.tables]
            .into_iter()
            .flat_map(move |sequence| sequence.inside(within.clone()))
    }
}

impl Sequence {
    fn fill(free: &mut FreeRuns<'_>, len: u64, mut count: u64) -> Option<Self> {
        let (mut runs, mut first) = (Vec::new(), 0);
        while count > 0 {
            let run = free.next_run()?;
            let fits = ((run.end - run.start) / len).min(count);
            if fits > 0 {
                runs.push(Run { first, at: run.start, count: fits });
                (first, count) = (first + fits, count - fits);
            }
            free.at = if count > 0 { run.end } else { run.start + fits * len };
        }
        Some(Self { len, runs })
    }

    fn at(&self, group: GroupNr) -> BlockNr {
        let nr = u64::from(group.get());
        let run = self.runs[self.runs.partition_point(|run| run.first <= nr) - 1];
        BlockNr::new(run.at + (nr - run.first) * self.len)
    }

    fn inside(&self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let end = |run: &Run| run.at + run.count * self.len;
        let from = self.runs.partition_point(|run| end(run) <= within.start);
        self.runs[from..]
            .iter()
            .map(move |run| run.at.max(within.start)..end(run).min(within.end))
            .take_while(|range| range.start < range.end)
    }
}

/// The runs of blocks between base metadata.
struct FreeRuns<'a> {
    geometry: &'a Geometry,
    group: u32,
    /// Nothing before this block is allocated any more.
    at: u64,
}

impl FreeRuns<'_> {
    /// The next run that has not been taken yet, extended over all following groups without base metadata.
    fn next_run(&mut self) -> Option<Range<u64>> {
        let groups = self.geometry.groups();
        while self.group < groups {
            let nr = GroupNr::new(self.group);
            let start = base_range(self.geometry, nr).end.max(self.at);
            let mut next = self.group + 1;
            while next < groups && self.geometry.base_meta_blocks(GroupNr::new(next)) == 0 {
                next += 1;
            }
            let end = group_range(self.geometry, GroupNr::new(next - 1)).end;
            if start < end {
                return Some(start..end);
            }
            self.group = next;
        }
        None
    }
}

/// The length of `ranges` in all.
pub(crate) fn total<'a>(ranges: impl IntoIterator<Item = &'a Range<u64>>) -> u64 {
    ranges.into_iter().map(|range| range.end - range.start).sum()
}

/// The clusters that `ranges` (sorted, of one group) touch.
pub(crate) fn clusters_touched(geometry: &Geometry, ranges: &[Range<u64>]) -> u64 {
    if geometry.cluster_ratio_shift == 0 {
        return total(ranges);
    }
    let (mut count, mut next) = (0, 0);
    for range in ranges.iter().filter(|range| !range.is_empty()) {
        let first = geometry.cluster_of(BlockNr::new(range.start)).get().max(next);
        let end = geometry.cluster_of(BlockNr::new(range.end - 1)).get() + 1;
        count += end.saturating_sub(first);
        next = next.max(end);
    }
    count
}
