//! Where each group's bitmaps and inode table lie.
//!
//! Three ways, as mke2fs lays them out: *plain* (each group holds its own, after its base metadata),
//! *flexible* (`flex_bg`: those of 16 groups, or `-G`, lie together at the start of the first) and *packed*
//! (all at the start of the volume). None needs memory for every group: plain places are computed group by
//! group, flexible ones flex group by flex group, and the packed form is three sequences interrupted only by
//! base metadata, of which the interruptions are kept.
//!
//! [`Layout`] is the rule; a [`Cursor`] applies it and remembers the flex group it is in, so that going
//! through the groups in order costs little.
//!
//! Hazard: base metadata (superblock copies, descriptors) lies at fixed places and everything else has to go
//! around it, including around that of later groups when a table is longer than what is left of a group.

use crate::error::{Error, Result};
use crate::ranges::RangeSet;
use hectare_ext4::geometry::Geometry;
use hectare_units::{BlockNr, GroupNr, usize_of};
use std::ops::Range;

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
        let rule = if packed {
            Rule::Packed(Packed::new(&geometry)?)
        } else if geometry.flex_shift > 0 {
            Rule::Flexible
        } else {
            Rule::Plain { stride: stride.into() }
        };
        Ok(Self { geometry, rule })
    }

    /// The shape of the volume.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// A way to go through the groups.
    #[must_use]
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor { layout: self, placed: None }
    }

    /// Clusters of the whole volume that hold metadata of groups.
    pub(crate) fn metadata_clusters(&self) -> Result<u64> {
        let mut cursor = self.cursor();
        (0..self.geometry.groups())
            .map(|nr| Ok(clusters_touched(&self.geometry, &cursor.used_ranges(GroupNr::new(nr))?)))
            .sum()
    }

    /// Whether a group whose blocks are otherwise free may keep an unwritten block bitmap: only if the
    /// metadata in it is what a reader finds from the superblock and the group's own descriptor.
    pub(crate) fn holds_only_its_own(&self, used: &[Range<u64>], group: GroupNr) -> bool {
        match self.rule {
            Rule::Plain { .. } => true,
            Rule::Flexible | Rule::Packed(_) => {
                let base = base_range(&self.geometry, group);
                used.iter().all(|range| base.start <= range.start && range.end <= base.end)
            }
        }
    }
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
    placed: Option<(u32, Placed)>,
}

impl Cursor<'_> {
    /// The places of a group's metadata.
    ///
    /// # Errors
    /// If the metadata does not fit.
    pub fn meta(&mut self, group: GroupNr) -> Result<GroupMeta> {
        if let Rule::Packed(packed) = &self.layout.rule {
            return Ok(packed.meta(group));
        }
        let first = self.place(group)?;
        let (_, placed) = self.placed.as_ref().expect("just placed");
        Ok(placed.metas[usize_of(group.get() - first)])
    }

    /// The blocks of a group that hold metadata (anybody's), sorted and joined.
    ///
    /// # Errors
    /// If the metadata does not fit.
    pub fn used_ranges(&mut self, group: GroupNr) -> Result<Vec<Range<u64>>> {
        let within = group_range(&self.layout.geometry, group);
        if let Rule::Packed(packed) = &self.layout.rule {
            let mut set = RangeSet::default();
            set.insert(base_range(&self.layout.geometry, group));
            packed.inside(&within).for_each(|range| set.insert(range));
            return Ok(set.as_slice().to_vec());
        }
        self.place(group)?;
        let (_, placed) = self.placed.as_ref().expect("just placed");
        Ok(placed.used.inside(within).collect())
    }

    /// Places the flex group of `group` unless it is the one at hand; returns the flex group's first group.
    fn place(&mut self, group: GroupNr) -> Result<u32> {
        let geometry = &self.layout.geometry;
        let first = group.get() >> geometry.flex_shift << geometry.flex_shift;
        if self.placed.as_ref().is_none_or(|(at, _)| *at != first) {
            let placed = match self.layout.rule {
                Rule::Plain { stride } => Placed::plain(geometry, group, stride),
                Rule::Flexible | Rule::Packed(_) => Placed::flexible(geometry, first),
            };
            let reason = format!("the metadata of group {group} does not fit; ask for fewer inodes");
            self.placed = Some((first, placed.ok_or_else(|| Error::option("-N", reason))?));
        }
        Ok(first)
    }
}

/// The metadata of a run of groups, placed.
#[derive(Clone, Debug)]
struct Placed {
    metas: Vec<GroupMeta>,
    used: RangeSet,
}

impl Placed {
    /// One group by itself. With a stride the bitmaps move on by it from group to group, so that they don't
    /// all lie on one disk of a stripe.
    fn plain(geometry: &Geometry, group: GroupNr, stride: u64) -> Option<Self> {
        let (whole, base) = (group_range(geometry, group), base_range(geometry, group));
        let table_blocks = u64::from(geometry.itable_blocks());
        let mut used = RangeSet::default();
        used.insert(base.clone());
        let start = if stride == 0 { base.end } else { striped(&whole, &base, table_blocks, group, stride) };
        let mut take = |from: u64, len: u64| {
            let at = used.first_fit(from..whole.end, len).or_else(|| used.first_fit(whole.clone(), len))?;
            used.insert(at..at + len);
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
    fn flexible(geometry: &Geometry, first: u32) -> Option<Self> {
        let last = (first | (geometry.flex_groups() - 1)).min(geometry.groups() - 1);
        let groups = first..last + 1;
        let mut flex = Flex {
            whole: group_range(geometry, GroupNr::new(first)).start
                ..group_range(geometry, GroupNr::new(last)).end,
            quarter: u64::from(geometry.blocks_per_group() / 4),
            used: RangeSet::default(),
        };
        groups.clone().for_each(|nr| flex.used.insert(base_range(geometry, GroupNr::new(nr))));
        let table_blocks = u64::from(geometry.itable_blocks());
        // Room is left for the bitmaps of the groups there are; a group that is alone leaves it for a full
        // flex group, into which the volume may grow.
        let spread = u64::from(if last == first { geometry.flex_groups() } else { last - first + 1 });
        let mut metas: Vec<GroupMeta> = Vec::with_capacity(groups.len());
        for nr in groups {
            let rest = u64::from(last - nr + 1);
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
    used: RangeSet,
}

impl Flex {
    /// Takes `len` blocks: right at `wanted` if free, else where there is room for the same of all `rest`
    /// groups still to come, else anywhere in the flex group.
    fn take(&mut self, wanted: Option<u64>, rest: u64, len: u64) -> Option<u64> {
        let at = wanted
            .filter(|at| at + len <= self.whole.end && self.used.is_free(&(*at..at + len)))
            .or_else(|| self.used.first_fit(self.whole.clone(), (rest * len).min(self.quarter).max(len)))
            .or_else(|| self.used.first_fit(self.whole.clone(), len))?;
        self.used.insert(at..at + len);
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
    /// Nothing before this block is given out any more.
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
pub(crate) fn total(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
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
