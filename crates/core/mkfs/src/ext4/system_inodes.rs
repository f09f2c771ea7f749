//! The formatter's own files on a volume, beside the groups' metadata: lost+found, the resize inode, the
//! journal, the MMP block, quota files, the orphan file; and the place of the root directory's first block.
//!
//! Places are found first ([`Own::place`]), because the superblock names some of them; inodes and contents
//! are rendered afterwards ([`Own::render`]), because their checksums start from the superblock's seed.
//! Blocks are taken in the order in which mke2fs takes them, first fit from the start of the volume; the
//! journal goes to the roomiest group around the middle.
//!
//! Hazard: with bigalloc every file owns whole clusters, so a place is always the start of a cluster although
//! a file may use only its first blocks.

use super::journal::{self, JournalSize};
use super::layout::{Layout, clusters_touched, group_range};
use super::options::FormatOptions;
use super::ranges::insert;
use super::space::{Space, free_in};
use crate::error::{Error, Result};
use hectare_ext4::checksum::Seed;
use hectare_ext4::dir::{self, Entry, FileType, Format, Name};
use hectare_ext4::extent::{self, Built, Extent};
use hectare_ext4::feature::{Compat, Incompat};
use hectare_ext4::geometry::Geometry;
use hectare_ext4::indirect;
use hectare_ext4::inode::{Inode, InodeFlags};
use hectare_ext4::mmp::{Mmp, Status};
use hectare_ext4::orphan::OrphanBlockMut;
use hectare_ext4::quota::{self, Record};
use hectare_ext4::superblock::SuperBlock;
use hectare_units::{BlockNr, BlockSize, Bytes, GroupNr, InodeNr, LogicalBlock, low32, u64_of, usize_of};
use rangemap::RangeSet;
use std::collections::BTreeMap;
use std::ops::Range;

/// The resize inode.
pub(crate) const RESIZE_INODE: InodeNr = InodeNr::new(7);
/// The journal's inode.
pub(crate) const JOURNAL_INODE: InodeNr = InodeNr::new(8);
/// The first inode that is not reserved: lost+found.
pub(crate) const LOST_AND_FOUND: InodeNr = InodeNr::new(11);
/// The files of user and group quotas.
const USER_QUOTA: InodeNr = InodeNr::new(3);
const GROUP_QUOTA: InodeNr = InodeNr::new(4);
/// The first inode for files of the formatter without a number of their own.
const FIRST_OWN: u32 = 12;

/// A block with its content.
type Block = (BlockNr, Vec<u8>);

/// The blocks of a file, in file order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct FileBlocks {
    pub(crate) runs: Vec<Range<u64>>,
    /// Blocks for the nodes of its map.
    nodes: Vec<u64>,
}

impl FileBlocks {
    pub(crate) fn first(&self) -> u64 {
        self.runs.first().map_or(0, |run| run.start)
    }

    /// Adds a block at the end.
    fn push(&mut self, nr: u64) {
        match self.runs.last_mut() {
            Some(run) if run.end == nr => run.end += 1,
            _ => self.runs.push(nr..nr + 1),
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.runs.iter().map(|run| run.end - run.start).sum()
    }
}

/// The formatter's own files and blocks.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    pub(crate) root: u64,
    pub(crate) lost_and_found: FileBlocks,
    resize: Option<u64>,
    pub(crate) journal: Option<(FileBlocks, JournalSize)>,
    pub(crate) mmp: Option<u64>,
    pub(crate) quotas: Vec<QuotaFile>,
    pub(crate) orphan_file: Option<(InodeNr, FileBlocks)>,
    /// All their clusters.
    pub(crate) used: RangeSet<u64>,
}

/// A quota file.
#[derive(Clone, Debug)]
pub(crate) struct QuotaFile {
    pub(crate) kind: quota::Kind,
    pub(crate) nr: InodeNr,
    pub(crate) place: FileBlocks,
}

impl QuotaFile {
    /// Its blocks, if it says this.
    pub(crate) fn blocks(&self, records: &BTreeMap<u32, Record>, size: BlockSize) -> Vec<Block> {
        let mut content = quota::build(self.kind, records);
        content.resize(content.len().next_multiple_of(size.len()), 0);
        let numbers = self.place.runs.iter().cloned().flatten().map(BlockNr::new);
        numbers.zip(content.chunks(size.len()).map(<[u8]>::to_vec)).collect()
    }
}

/// What is written for the own files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rendered {
    /// Slots of the inode table, sorted by number.
    pub(crate) inodes: Vec<(InodeNr, Vec<u8>)>,
    pub(crate) blocks: Vec<Block>,
    /// Ranges that must read as zeros.
    pub(crate) zeros: Vec<Range<u64>>,
}

impl Own {
    pub(crate) fn place(options: &FormatOptions, layout: &Layout) -> Result<Self> {
        let geometry = layout.geometry();
        let mut taker = Taker { layout, used: RangeSet::default() };
        let first = u64::from(geometry.first_data_block);
        let root = taker.take(first, 1)?.first();
        let lost_blocks = journal::lost_and_found_blocks(geometry);
        let lost_and_found = taker.take_file(inode_goal(geometry, LOST_AND_FOUND), lost_blocks.into())?;
        let features = &geometry.features;
        let resize = match features.compat.contains(Compat::RESIZE_INODE) {
            true => Some(taker.take(resize_goal(geometry), 1)?.first()),
            false => None,
        };
        let journal = match journal::size(options, geometry)? {
            Some(size) => Some((taker.take_file(journal_goal(options, &taker)?, size.total())?, size)),
            None => None,
        };
        let mmp = match features.incompat.contains(Incompat::MMP) {
            true => Some(taker.take(first, 1)?.first()),
            false => None,
        };
        let mut own_numbers = (FIRST_OWN..).map(InodeNr::new);
        let mut quotas = Vec::new();
        for kind in options.quotas(features) {
            let nr = match kind {
                quota::Kind::User => Some(USER_QUOTA),
                quota::Kind::Group => Some(GROUP_QUOTA),
                quota::Kind::Project => own_numbers.next(),
            };
            let blocks = geometry.block_size.blocks_for(quota_bytes(options, kind)).get();
            let (nr, place) = (nr.expect("numbers have no end"), taker.take_file(first, blocks)?);
            quotas.push(QuotaFile { kind, nr, place });
        }
        let orphan_file = match features.compat.contains(Compat::ORPHAN_FILE) {
            true => {
                let blocks = journal::orphan_blocks(geometry.blocks_count).into();
                own_numbers.next().zip(Some(taker.take_file(first, blocks)?))
            }
            false => None,
        };
        Ok(Self { root, lost_and_found, resize, journal, mmp, quotas, orphan_file, used: taker.used })
    }

    /// Clusters that count as overhead: the journal's data.
    pub(crate) fn journal_clusters(&self, geometry: &Geometry) -> u64 {
        self.journal.as_ref().map_or(0, |(place, _)| clusters_touched(geometry, &sorted(&place.runs)))
    }

    /// The map of the journal as the superblock keeps a copy of it.
    pub(crate) fn journal_map(&self, sb: &SuperBlock) -> Option<([u8; 60], u64)> {
        let (place, size) = self.journal.as_ref()?;
        Some((map(sb, JOURNAL_INODE, place).root, size.total() << sb.geometry().block_size.shift()))
    }

    pub(crate) fn render(&self, options: &FormatOptions, sb: &SuperBlock) -> Rendered {
        let mut out = Rendered::default();
        let geometry = sb.geometry();
        for nr in (1..=10).filter(|nr| *nr != InodeNr::ROOT.get()).map(InodeNr::new) {
            out.inodes.push((nr, reserved_slot(nr, options, sb)));
        }
        if let Some(block) = self.resize {
            self.render_resize(block, options, sb, &mut out);
        }
        if let Some((place, size)) = &self.journal {
            let inode = file(place, 0o100_600, options, sb, JOURNAL_INODE, &mut out.blocks);
            out.set_inode(JOURNAL_INODE, &inode, sb);
            let head = journal::superblock(*size, geometry.block_size.get(), &sb.uuid());
            out.blocks.push((BlockNr::new(place.first()), head));
            if !options.lazy_journal_init {
                out.zeros.extend(place.runs.iter().enumerate().map(|(i, run)| {
                    run.start + u64::from(i == 0)..run.end // the first block is the superblock
                }));
            }
        }
        self.render_lost_and_found(options, sb, &mut out);
        if let Some(block) = self.mmp {
            out.blocks.push((BlockNr::new(block), mmp_block(options, sb)));
        }
        for quota in &self.quotas {
            let mut inode = file(&quota.place, 0o100_600, options, sb, quota.nr, &mut out.blocks);
            inode.size = quota_bytes(options, quota.kind).get();
            inode.flags |= InodeFlags::IMMUTABLE;
            out.set_inode(quota.nr, &inode, sb);
        }
        if let Some((nr, place)) = &self.orphan_file {
            render_orphan_file(*nr, place, options, sb, &mut out);
        }
        out
    }

    fn render_lost_and_found(&self, options: &FormatOptions, sb: &SuperBlock, out: &mut Rendered) {
        let place = &self.lost_and_found;
        let mut inode = file(place, 0o040_700, options, sb, LOST_AND_FOUND, &mut out.blocks);
        inode.links = 2;
        let (format, seed) = (dir_format(sb), inode.seed(LOST_AND_FOUND, sb));
        let blocks = place.runs.iter().cloned().flatten();
        for (logical, nr) in (0..).map(LogicalBlock::new).zip(blocks) {
            let mut block = vec![0; sb.geometry().block_size.len()];
            match logical {
                LogicalBlock::ZERO => {
                    dir::leaf::init_dots(&mut block, &format, LOST_AND_FOUND, InodeNr::ROOT);
                }
                _ => dir::leaf::init_empty(&mut block, &format),
            }
            seal_dir_block(&mut block, &format, seed, logical);
            out.blocks.push((BlockNr::new(nr), block));
        }
        out.set_inode(LOST_AND_FOUND, &inode, sb);
    }

    /// The resize inode: its double-indirect block names the reserved descriptor blocks of the primary copy,
    /// each of which names those of the same index in every backup.
    fn render_resize(&self, dind: u64, options: &FormatOptions, sb: &SuperBlock, out: &mut Rendered) {
        let geometry = sb.geometry();
        let per_block = names_per_block(geometry.block_size);
        // The kernel looks for a backup's block whole groups after the primary one, which with 1 KiB blocks
        // and bigalloc (a primary superblock in block 1 of a group that starts at 0) is one block late; so be
        // it.
        let group_blocks = u64::from(geometry.blocks_per_group());
        let backups: Vec<u64> =
            backup_groups(geometry).iter().map(|g| u64::from(g.get()) * group_blocks).collect();
        let primary = geometry.super_block(GroupNr::new(0)).get();
        let mut table = vec![0; geometry.block_size.len()];
        for i in 0..u64::from(geometry.reserved_gdt_blocks) {
            let index = u64::from(geometry.desc_blocks()) + i;
            let mut names = vec![0; geometry.block_size.len()];
            for (slot, distance) in backups.iter().enumerate() {
                put32(&mut names, slot, primary + distance + 1 + index);
            }
            put32(&mut table, hectare_units::index_of(index % per_block), primary + 1 + index);
            out.blocks.push((BlockNr::new(primary + 1 + index), names));
        }
        out.blocks.push((BlockNr::new(dind), table));
        let mut inode = Inode::new(0o100_600, options.now, 0, sb);
        inode.links = 1;
        inode.size = resize_inode_size(geometry.block_size).get();
        let held = 1 + u64::from(geometry.reserved_gdt_blocks) * (1 + u64_of(backups.len()));
        inode.sectors = sectors(geometry, held << geometry.cluster_ratio_shift);
        inode.block[52..56].copy_from_slice(&low32(dind).to_le_bytes());
        out.set_inode(RESIZE_INODE, &inode, sb);
    }
}

/// Block numbers in a block of a block map.
fn names_per_block(block_size: BlockSize) -> u64 {
    u64::from(block_size.get() / 4)
}

/// What the resize inode says that its size is: all that twelve blocks and a double-indirect one reach.
pub(crate) fn resize_inode_size(block_size: BlockSize) -> Bytes {
    let per_block = names_per_block(block_size);
    Bytes::new((12 + per_block + per_block * per_block) << block_size.shift())
}

impl Rendered {
    fn set_inode(&mut self, nr: InodeNr, inode: &Inode, sb: &SuperBlock) {
        let mut slot = vec![0; usize_of(sb.geometry().inode_size)];
        inode.render(&mut slot, nr, sb);
        self.inodes.retain(|(known, _)| *known != nr);
        let at = self.inodes.partition_point(|(known, _)| *known < nr);
        self.inodes.insert(at, (nr, slot));
    }
}

/// Takes clusters of an empty volume.
struct Taker<'a> {
    layout: &'a Layout,
    used: RangeSet<u64>,
}

impl Taker<'_> {
    /// Takes `blocks` blocks, first fit from block `from`, then from the start.
    fn take(&mut self, from: u64, blocks: u64) -> Result<FileBlocks> {
        let geometry = self.layout.geometry();
        let ratio = u64::from(geometry.cluster_blocks());
        let start = geometry.group_of(BlockNr::new(from)).unwrap_or(GroupNr::new(0));
        let goal = align_up(geometry, from);
        let (mut runs, mut left) = (Vec::new(), blocks);
        'both: for (group, within) in [(start, goal..u64::MAX), (GroupNr::new(0), 0..goal)] {
            for range in Space::new(self.layout, &self.used, group) {
                let range = range?;
                let at = range.start.get().max(within.start);
                let end = (range.start.get() + range.len.get()).min(within.end);
                if at >= within.end {
                    break;
                }
                let len = end.saturating_sub(at).min(left);
                if len > 0 {
                    runs.push(at..at + len);
                    left -= len;
                }
                if left == 0 {
                    break 'both;
                }
            }
        }
        if left > 0 {
            return Err(Error::TooSmall {
                bytes: geometry.bytes().get(),
                reason: format!("its own files (lost+found, the journal) lack {left} blocks"),
            });
        }
        for run in &runs {
            insert(&mut self.used, run.start..run.start + (run.end - run.start).next_multiple_of(ratio));
        }
        Ok(FileBlocks { runs, nodes: Vec::new() })
    }

    /// Takes a file's blocks and those of its map.
    fn take_file(&mut self, from: u64, blocks: u64) -> Result<FileBlocks> {
        let geometry = self.layout.geometry();
        if !geometry.features.incompat.contains(Incompat::EXTENTS) {
            return self.take_mapped(from, blocks);
        }
        let mut place = self.take(from, blocks)?;
        let nodes = extent::tree_blocks(extents(&place.runs).len(), geometry.block_size).get();
        // Right before the file's blocks if there is room.
        let before = place.first().saturating_sub(geometry.cluster_blocks().into());
        for _ in 0..nodes {
            place.nodes.push(self.take(before, 1)?.first());
        }
        Ok(place)
    }

    /// The same with a block map, whose tables lie among the blocks.
    fn take_mapped(&mut self, from: u64, blocks: u64) -> Result<FileBlocks> {
        let block_size = self.layout.geometry().block_size;
        let tables_before = |block: u64| {
            let before = block.checked_sub(1).map(|before| LogicalBlock::new(low32(before)));
            indirect::tables_between(before, LogicalBlock::new(low32(block)), block_size)
        };
        let tables: u32 = (0..blocks).map(tables_before).sum();
        let taken = self.take(from, blocks + u64::from(tables))?;
        let (mut all, mut place) = (taken.runs.into_iter().flatten(), FileBlocks::default());
        for block in 0..blocks {
            place.nodes.extend(all.by_ref().take(usize_of(tables_before(block))));
            all.by_ref().take(1).for_each(|nr| place.push(nr));
        }
        Ok(place)
    }

    fn free_in(&self, group: GroupNr) -> Result<u64> {
        let free = free_in(self.layout, &mut self.layout.cursor(), &self.used, group)?;
        Ok(crate::ext4::layout::total(&free))
    }
}

fn align_up(geometry: &Geometry, block: u64) -> u64 {
    let first = u64::from(geometry.first_data_block);
    block.saturating_sub(first).next_multiple_of(u64::from(geometry.cluster_blocks())) + first
}

fn sorted(runs: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut runs = runs.to_vec();
    runs.sort_by_key(|run| run.start);
    runs
}

/// The start of the group, or flex group, that holds an inode.
fn inode_goal(geometry: &Geometry, nr: InodeNr) -> u64 {
    let group = geometry.inode_slot(nr).map_or(0, |(group, _)| group.get());
    geometry.first_block(GroupNr::new(group >> geometry.flex_shift << geometry.flex_shift)).get()
}

/// Past the metadata a group has by itself.
fn resize_goal(geometry: &Geometry) -> u64 {
    u64::from(geometry.first_data_block)
        + u64::from(geometry.reserved_gdt_blocks)
        + u64::from(geometry.desc_blocks())
        + u64::from(geometry.itable_blocks())
        + 2
}

/// Where the journal starts looking for room: the group with most free blocks around the middle; with packed
/// metadata, and with block maps, the start of the volume.
fn journal_goal(options: &FormatOptions, taker: &Taker<'_>) -> Result<u64> {
    let geometry = taker.layout.geometry();
    if options.packed_meta_blocks || !geometry.features.incompat.contains(Incompat::EXTENTS) {
        return Ok(geometry.first_data_block.into());
    }
    let (groups, flex) = (geometry.groups(), geometry.flex_groups());
    let middle = (geometry.blocks_count.get() - u64::from(geometry.first_data_block)) / 2;
    let mut group = geometry.group_of(BlockNr::new(middle)).map_or(0, GroupNr::get);
    let mut from = group.saturating_sub(1);
    if geometry.flex_shift > 0 && group > flex {
        group &= !(flex - 1);
        while group < groups && taker.free_in(GroupNr::new(group))? == 0 {
            group += 1;
        }
        group = if group == groups { 0 } else { group };
        from = group;
    }
    let mut best = (from, taker.free_in(GroupNr::new(from))?);
    for nr in from + 1..=(group + 1).min(groups - 1) {
        let free = taker.free_in(GroupNr::new(nr))?;
        if free > best.1 {
            best = (nr, free);
        }
    }
    Ok(group_range(geometry, GroupNr::new(best.0)).start)
}

/// The groups with superblock copies beside the first, in order. Under `sparse_super` they are found by
/// counting up powers instead of asking every group.
pub(crate) fn backup_groups(geometry: &Geometry) -> Vec<GroupNr> {
    let mut numbers: Vec<u32> = if geometry.features.sparse_backups() {
        let powers = [3u32, 5, 7]
            .into_iter()
            .flat_map(|base| std::iter::successors(Some(base), move |power| power.checked_mul(base)));
        powers.chain([1]).chain(geometry.backup_groups).collect()
    } else {
        (1..geometry.groups()).collect()
    };
    numbers.retain(|nr| (1..geometry.groups()).contains(nr) && geometry.has_super(GroupNr::new(*nr)));
    numbers.sort_unstable();
    numbers.dedup();
    numbers.into_iter().map(GroupNr::new).collect()
}

fn sectors(geometry: &Geometry, blocks: u64) -> u64 {
    blocks << (geometry.block_size.shift() - 9)
}

/// A file's runs as extents, cut to the longest there is.
fn extents(runs: &[Range<u64>]) -> Vec<Extent> {
    let (mut extents, mut logical) = (Vec::new(), 0);
    for run in runs {
        let mut at = run.start;
        while at < run.end {
            let len = low32((run.end - at).min(extent::WRITTEN_MAX.into()));
            extents.push(Extent {
                logical: LogicalBlock::new(logical),
                len,
                physical: BlockNr::new(at),
                unwritten: false,
            });
            logical += len;
            at += u64::from(len);
        }
    }
    extents
}

/// A file's map: what its inode holds, and the blocks below.
fn map(sb: &SuperBlock, nr: InodeNr, place: &FileBlocks) -> Built {
    let geometry = sb.geometry();
    let mut free = place.nodes.iter().copied().map(BlockNr::new);
    let mut next = || free.next().expect("as many blocks as nodes were taken");
    if geometry.features.incompat.contains(Incompat::EXTENTS) {
        let seed = sb.seed().map(|seed| seed.inode(nr, 0));
        return extent::build(&extents(&place.runs), geometry.block_size, seed, &mut next);
    }
    indirect::build(&extents(&place.runs), geometry.block_size, &mut next)
}

/// The inode of a file with these blocks, its map's blocks added to `blocks`.
fn file(
    place: &FileBlocks,
    mode: u16,
    options: &FormatOptions,
    sb: &SuperBlock,
    nr: InodeNr,
    blocks: &mut Vec<Block>,
) -> Inode {
    let (geometry, map) = (sb.geometry(), map(sb, nr, place));
    let mut inode = Inode::new(mode, options.now, 0, sb);
    inode.links = 1;
    inode.size = place.len() << geometry.block_size.shift();
    let ratio = u64::from(geometry.cluster_blocks());
    let data: u64 = place.runs.iter().map(|run| (run.end - run.start).next_multiple_of(ratio)).sum();
    inode.sectors = sectors(geometry, data + u64_of(map.nodes.len()) * ratio);
    inode.block = map.root;
    if geometry.features.incompat.contains(Incompat::EXTENTS) {
        inode.flags |= InodeFlags::EXTENTS;
    }
    blocks.extend(map.nodes);
    inode
}

/// A reserved inode without a use: nothing but its checksum; the bad-blocks inode also has times.
fn reserved_slot(nr: InodeNr, options: &FormatOptions, sb: &SuperBlock) -> Vec<u8> {
    let mut slot = vec![0; usize_of(sb.geometry().inode_size)];
    let mut inode = Inode::parse(&slot, nr, sb).expect("zeros are an unused inode");
    if nr.get() == 1 {
        (inode.atime, inode.ctime, inode.mtime) = (options.now, options.now, options.now);
    }
    inode.render(&mut slot, nr, sb);
    slot
}

fn mmp_block(options: &FormatOptions, sb: &SuperBlock) -> Vec<u8> {
    let mmp = Mmp {
        status: Status::Clean,
        time: options.now.seconds.max(0).cast_unsigned(),
        check_interval: sb.raw().s_mmp_update_interval.get(),
    };
    let mut block = mmp.render(sb.seed()).to_vec();
    block.resize(sb.geometry().block_size.len(), 0);
    block
}

/// Bytes of a quota file with a record for each id.
fn quota_bytes(options: &FormatOptions, kind: quota::Kind) -> Bytes {
    let (uid, gid) = options.root_owner.unwrap_or_default();
    let root = match kind {
        quota::Kind::User => uid,
        quota::Kind::Group => gid,
        quota::Kind::Project => 0,
    };
    // What fills the volume knows its own root; lost+found is root's in an empty one.
    let own = if options.quota_ids[kind.index()].is_empty() { vec![0, root] } else { Vec::new() };
    let ids = options.quota_ids[kind.index()].iter().copied().chain(own);
    let records = ids.map(|id| (id, Record::default())).collect();
    Bytes::of(quota::build(kind, &records).len())
}

fn render_orphan_file(
    nr: InodeNr,
    place: &FileBlocks,
    options: &FormatOptions,
    sb: &SuperBlock,
    out: &mut Rendered,
) {
    let inode = file(place, 0o100_600, options, sb, nr, &mut out.blocks);
    for at in place.runs.iter().cloned().flatten().map(BlockNr::new) {
        let mut block = vec![0; sb.geometry().block_size.len()];
        let mut orphans = OrphanBlockMut::new(&mut block, at);
        orphans.format();
        if let Some(seed) = inode.seed(nr, sb) {
            orphans.seal(seed);
        }
        out.blocks.push((at, block));
    }
    out.set_inode(nr, &inode, sb);
}

/// The form of a volume's directories.
///
/// # Panics
/// Never for a planned volume: the formatter chose a hash function that is known.
fn dir_format(sb: &SuperBlock) -> Format {
    Format::of(sb).expect("the formatter's own hash function")
}

/// Root directory of an empty volume: inode and its only block.
pub(crate) fn empty_root(options: &FormatOptions, sb: &SuperBlock, nr: u64) -> (Inode, Vec<u8>) {
    let place = FileBlocks { runs: std::iter::once(nr..nr + 1).collect(), nodes: Vec::new() };
    let mode = 0o040_000 | options.root_permissions.unwrap_or(0o755);
    let mut inode = file(&place, mode, options, sb, InodeNr::ROOT, &mut Vec::new());
    inode.links = 3;
    (inode.uid, inode.gid) = options.root_owner.unwrap_or_default();
    let format = dir_format(sb);
    let mut block = vec![0; sb.geometry().block_size.len()];
    dir::leaf::init_dots(&mut block, &format, InodeNr::ROOT, InodeNr::ROOT);
    let entry = Entry {
        name: Name::new(b"lost+found").expect("a proper name"),
        inode: LOST_AND_FOUND,
        file_type: FileType::Directory,
    };
    let place = hectare_ext4::Place::Inode(InodeNr::ROOT);
    let inserted = dir::leaf::insert(&mut block, &format, place, &entry).expect("a fresh block is sound");
    debug_assert!(inserted, "one short name fits any block");
    seal_dir_block(&mut block, &format, inode.seed(InodeNr::ROOT, sb), LogicalBlock::ZERO);
    (inode, block)
}

fn seal_dir_block(block: &mut [u8], format: &Format, seed: Option<Seed>, logical: LogicalBlock) {
    dir::set_checksum(block, format, seed, logical, false, hectare_ext4::Place::Volume)
        .expect("a block just made is sound");
}

fn put32(block: &mut [u8], slot: usize, value: u64) {
    block[4 * slot..4 * slot + 4].copy_from_slice(&low32(value).to_le_bytes());
}
