//! The plan: everything a format will write, as values, before anything is written.
//!
//! A plan is pure. It is made from options and a size, says where everything lies, and renders chunks of
//! groups (a flex group or several) on demand: their bitmaps, inode tables and descriptors, given what the
//! contents have in them. Chunks are independent, so any number of threads can render them; the descriptors
//! they return are put together by the executor. The superblock comes last, because its counts are the sum
//! over all chunks.
//!
//! Invariants: every byte that must have a value is in exactly one [`Write`]; bytes of no write may hold
//! anything (an uninitialised bitmap, an inode table left to the kernel).
//!
//! Hazard: a descriptor's `BLOCK_UNINIT` promises that the group holds only what a reader can work out by
//! itself; it must not be set where another group's metadata or any file lies, nor in the last group, whose
//! bitmap has padding.

use super::contents::{Contents, Empty, GroupUse, count_inode, set_bits};
use super::geometry::{Shape, shape};
use super::layout::{Cursor, Layout, group_range};
use super::note::Note;
use super::options::FormatOptions;
use super::ranges::inside;
use super::space::Space;
use super::superblock;
use super::system_inodes::{LOST_AND_FOUND, Own, Rendered, backup_groups};
use crate::error::Result;
use crate::write::{Payload, Sink, Write};
use hectare_ext4::geometry::{Geometry, SUPERBLOCK_OFFSET};
use hectare_ext4::group::{GroupDesc, GroupFlags};
use hectare_ext4::inode::Inode;
use hectare_ext4::superblock::SuperBlock;
use hectare_units::{BlockNr, Blocks, Bytes, GroupNr, InodeNr, low32, u64_of, usize_of};
use std::collections::BTreeMap;
use std::ops::{AddAssign, Range};

/// A rendered chunk's descriptors, and what it adds to the volume's counts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Chunk {
    /// The first group.
    pub first: u32,
    /// The descriptors of its groups, one after another.
    pub descriptors: Vec<u8>,
    /// Counts of its groups.
    pub counts: Counts,
}

/// What the superblock counts, of some groups or of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Free clusters.
    pub free_clusters: u64,
    /// Free inodes.
    pub free_inodes: u64,
    /// Clusters that hold metadata of groups.
    pub metadata_clusters: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, more: Self) {
        self.free_clusters += more.free_clusters;
        self.free_inodes += more.free_inodes;
        self.metadata_clusters += more.metadata_clusters;
    }
}

/// Everything a format will write.
#[derive(Clone)]
pub struct Plan {
    options: FormatOptions,
    layout: Layout,
    superblock: SuperBlock,
    own: Own,
    rendered: Rendered,
    notes: Vec<Note>,
    /// The last group in which the formatter itself has inodes.
    last_own: GroupNr,
    /// The groups with backups of the superblock.
    backups: Vec<GroupNr>,
    /// The device reads as zeros where nothing was written.
    zeroed: bool,
}

/// Bytes of the block bitmaps of a chunk with more groups than usual.
const CHUNK_BITMAPS: u32 = 2 << 20;
/// More chunks than this are made larger.
const CHUNKS_MANY: u32 = 256;
/// Bytes of inode table rendered at a time.
const TABLE_PIECE: u32 = 256 << 10;
/// Bytes of descriptors that are written together: each copy of them is one write.
const DESCRIPTOR_RUN: u32 = 256 << 10;

impl Plan {
    /// Plans a volume of `size` bytes. `zeroed` says that the device reads as zeros where nothing is written.
    ///
    /// # Errors
    /// If options are impossible, alone or together, or the size is too small.
    pub fn new(options: &FormatOptions, size: Bytes, zeroed: bool) -> Result<Self> {
        let shape: Shape = shape(options, size)?;
        let mut layout = Layout::new(
            shape.geometry.clone(),
            options.stride(shape.geometry.block_size),
            options.packed_meta_blocks,
        )?;
        let backups = backup_groups(&shape.geometry);
        layout.check(&backups)?;
        let own = Own::place(options, &layout)?;
        let superblock = superblock::make(options, &shape, &own)?;
        let mut rendered = own.render(options, &superblock);
        rendered.blocks.sort_by_key(|(nr, _)| *nr);
        let last_own = rendered.inodes.iter().filter_map(|(nr, _)| shape.geometry.inode_slot(*nr));
        Ok(Self {
            options: options.clone(),
            last_own: last_own.map(|(group, _)| group).max().unwrap_or(GroupNr::new(0)),
            backups,
            layout,
            superblock,
            own,
            rendered,
            notes: shape.notes,
            zeroed,
        })
    }

    /// The superblock of the volume; what it counts ([`Counts`]) is set only when it is written.
    #[must_use]
    pub fn superblock(&self) -> &SuperBlock {
        &self.superblock
    }

    /// Where things lie.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        self.layout.geometry()
    }

    /// Where the groups' metadata lies.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The groups with copies of the superblock beside the first, in order.
    #[must_use]
    pub fn backups(&self) -> &[GroupNr] {
        &self.backups
    }

    /// The notes on the choices made.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The options the plan was made from.
    #[must_use]
    pub fn options(&self) -> &FormatOptions {
        &self.options
    }

    /// Whether the device was said to read as zeros.
    #[must_use]
    pub fn is_zeroed(&self) -> bool {
        self.zeroed
    }

    /// The same plan for a device that turned out to read as zeros.
    pub(crate) fn on_zeros(&self) -> Self {
        Self { zeroed: true, ..self.clone() }
    }

    /// The first inode the contents may number, beside the root directory.
    #[must_use]
    pub fn first_free_inode(&self) -> InodeNr {
        let last = self.rendered.inodes.last().map_or(LOST_AND_FOUND, |(nr, _)| *nr);
        InodeNr::new(last.get() + 1)
    }

    /// lost+found, which the root directory must have an entry for.
    #[must_use]
    pub fn lost_and_found(&self) -> InodeNr {
        LOST_AND_FOUND
    }

    /// The block kept for the start of the root directory: in use in every volume, and not part of
    /// [`Self::space`].
    #[must_use]
    pub fn root_block(&self) -> BlockNr {
        BlockNr::new(self.own.root)
    }

    /// Blocks of the journal inside the volume, if it has one.
    #[must_use]
    pub fn journal_blocks(&self) -> Option<u64> {
        self.own.journal.as_ref().map(|(_, size)| size.total())
    }

    /// The contents of an empty volume.
    #[must_use]
    pub fn empty(&self) -> Empty {
        Empty::new(&self.options, &self.superblock, self.own.root)
    }

    /// The free space of the empty volume, in ascending order.
    #[must_use]
    pub fn space(&self) -> Space<'_> {
        Space::new(&self.layout, &self.own.used, GroupNr::new(0))
    }

    pub(crate) fn own(&self) -> &Own {
        &self.own
    }

    /// Groups of a chunk: a flex group, but 16 to 64; more where there are many, as long as what is rendered
    /// of a chunk stays small.
    #[must_use]
    pub fn chunk_groups(&self) -> u32 {
        let geometry = self.geometry();
        let usual = geometry.flex_groups().clamp(16, 64);
        let small = CHUNK_BITMAPS / geometry.block_size.get();
        let many = (geometry.groups() / CHUNKS_MANY).checked_next_power_of_two().unwrap_or(small);
        many.min(small).max(usual)
    }

    /// How many chunks there are.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        self.geometry().groups().div_ceil(self.chunk_groups())
    }

    /// Renders one chunk.
    ///
    /// # Errors
    /// What the sink returns.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn render(&self, chunk: u32, contents: &dyn Contents, sink: &mut Sink<'_>) -> Result<Chunk> {
        let geometry = self.geometry();
        let first = chunk * self.chunk_groups();
        let groups = first..first.saturating_add(self.chunk_groups()).min(geometry.groups());
        assert!(!groups.is_empty(), "the plan has that chunk");
        let mut cursor = self.layout.cursor();
        let mut out = Chunk { first, ..Chunk::default() };
        let (mut bitmaps, mut tables, mut filled) = (Vec::new(), Vec::new(), Vec::new());
        for group in groups.clone().map(GroupNr::new) {
            let rendered = self.group(group, contents, &mut cursor)?;
            let desc = &rendered.desc;
            out.counts += Counts {
                free_clusters: desc.free_clusters.into(),
                free_inodes: desc.free_inodes.into(),
                metadata_clusters: rendered.metadata_clusters,
            };
            let at = out.descriptors.len();
            out.descriptors.resize(at + usize_of(geometry.desc_size), 0);
            desc.render(&mut out.descriptors[at..], group, &self.superblock);
            bitmaps.extend(rendered.block_bitmap.map(|bytes| (desc.block_bitmap, bytes)));
            bitmaps.extend(rendered.inode_bitmap.map(|bytes| (desc.inode_bitmap, bytes)));
            if rendered.inodes_end > 0 || self.zeroes_tables() {
                tables.push((group, desc.inode_table, rendered.inodes_end));
            }
            if rendered.holds_content {
                filled.push(group);
            }
        }
        bitmaps.sort_by_key(|(nr, _)| *nr); // neighbours side by side, for few and large writes
        for (nr, bytes) in bitmaps {
            sink(self.block(nr, bytes))?;
        }
        for (group, at, inodes_end) in tables {
            self.render_table(group, at, inodes_end, contents, sink)?;
        }
        self.render_own_blocks(groups.clone(), sink)?;
        self.render_quotas(groups, contents, sink)?;
        for group in filled {
            let mut handed = Vec::new();
            contents.blocks(group, &mut |nr, bytes| handed.push((nr, bytes.to_vec())));
            handed.into_iter().try_for_each(|(nr, bytes)| sink(self.block(nr, bytes)))?;
        }
        Ok(out)
    }

    fn block(&self, nr: BlockNr, bytes: Vec<u8>) -> Write {
        Write { at: nr.offset(self.geometry().block_size), payload: Payload::Bytes(bytes) }
    }

    /// Bitmaps and descriptor of one group.
    fn group(&self, group: GroupNr, contents: &dyn Contents, cursor: &mut Cursor<'_>) -> Result<Group> {
        let geometry = self.geometry();
        let (usage, taken, meta) = (contents.usage(group), cursor.metadata(group)?, cursor.meta(group)?);
        let own: Vec<_> = inside(&self.own.used, group_range(geometry, group)).collect();
        let checksums = geometry.features.group_checksums();
        let mut desc = GroupDesc {
            block_bitmap: meta.block_bitmap,
            inode_bitmap: meta.inode_bitmap,
            inode_table: meta.inode_table,
            free_clusters: 0,
            free_inodes: geometry.inodes_per_group,
            used_dirs: usage.directories + u32::from(self.own_index(LOST_AND_FOUND, group).is_some()),
            itable_unused: 0,
            flags: GroupFlags::empty(),
            block_bitmap_csum: 0,
            inode_bitmap_csum: 0,
        };
        let is_last = group.get() + 1 == geometry.groups();
        let inodes_end = usage.inodes_end.max(self.own_inodes_end(group));
        let untouched = own.is_empty() && !usage.clusters && inodes_end == 0;
        let mut block_bitmap = None;
        if checksums && untouched && !is_last && taken.is_derived {
            desc.flags |= GroupFlags::BLOCK_UNINIT;
            desc.free_clusters = geometry.clusters_in(group) - low32(taken.clusters);
        } else {
            let used = cursor.used_ranges(group)?;
            let marked = self.mark_clusters(group, used.iter().chain(&own), usage, contents);
            // Counting takes longer than marking where there is only metadata.
            let is_metadata = own.is_empty() && !usage.clusters;
            let in_use = if is_metadata { low32(taken.clusters) } else { count_bits(&marked) };
            let bitmap = self.pad_bitmap(marked, geometry.clusters_in(group));
            desc.free_clusters = geometry.clusters_in(group) - in_use;
            desc.seal_block_bitmap(&bitmap, &self.superblock);
            block_bitmap = Some(bitmap);
        }
        let inode_bitmap = self.inode_bitmap(group, usage, inodes_end, contents, &mut desc);
        if self.zeroed || !self.lazy() {
            desc.flags |= GroupFlags::INODE_ZEROED;
        }
        let (holds_content, metadata_clusters) = (usage.clusters, taken.clusters);
        Ok(Group { desc, block_bitmap, inode_bitmap, inodes_end, holds_content, metadata_clusters })
    }

    /// A block bitmap without the bits beyond the group's end.
    fn mark_clusters<'a>(
        &self,
        group: GroupNr,
        ranges: impl Iterator<Item = &'a Range<u64>>,
        usage: GroupUse,
        contents: &dyn Contents,
    ) -> Vec<u8> {
        let geometry = self.geometry();
        let mut bitmap = vec![0; geometry.block_size.len()];
        let start = geometry.cluster_of(geometry.first_block(group)).get();
        for range in ranges.filter(|range| !range.is_empty()) {
            let first = geometry.cluster_of(BlockNr::new(range.start)).get() - start;
            let last = geometry.cluster_of(BlockNr::new(range.end - 1)).get() - start;
            set_bits(&mut bitmap, low32(first), low32(last - first + 1));
        }
        if usage.clusters {
            contents.mark_clusters(group, &mut bitmap);
        }
        bitmap
    }

    /// A bitmap with everything beyond its `used` bits set.
    fn pad_bitmap(&self, mut bitmap: Vec<u8>, used: u32) -> Vec<u8> {
        set_bits(&mut bitmap, used, 8 * self.geometry().block_size.get() - used);
        bitmap
    }

    /// The inode bitmap, if the group needs one, and what it means for the descriptor.
    fn inode_bitmap(
        &self,
        group: GroupNr,
        usage: GroupUse,
        inodes_end: u32,
        contents: &dyn Contents,
        desc: &mut GroupDesc,
    ) -> Option<Vec<u8>> {
        let geometry = self.geometry();
        if geometry.features.group_checksums() {
            desc.itable_unused = geometry.inodes_per_group - inodes_end;
            if inodes_end == 0 {
                desc.flags |= GroupFlags::INODE_UNINIT;
                return None;
            }
        }
        let mut bitmap = vec![0; geometry.block_size.len()];
        for (nr, _) in &self.rendered.inodes {
            if let Some(index) = self.own_index(*nr, group) {
                set_bits(&mut bitmap, index, 1);
            }
        }
        if usage.inodes_end > 0 {
            contents.mark_inodes(group, &mut bitmap);
        }
        let taken = count_bits(&bitmap);
        desc.free_inodes = geometry.inodes_per_group - taken;
        let bitmap = self.pad_bitmap(bitmap, geometry.inodes_per_group);
        desc.seal_inode_bitmap(&bitmap, &self.superblock);
        Some(bitmap)
    }

    /// The index of one of the formatter's inodes, if it lives in the group.
    fn own_index(&self, nr: InodeNr, group: GroupNr) -> Option<u32> {
        if group > self.last_own {
            return None; // as nearly always
        }
        let (home, index) = self.geometry().inode_slot(nr)?;
        (home == group).then_some(index)
    }

    fn own_inodes_end(&self, group: GroupNr) -> u32 {
        if group > self.last_own {
            return 0; // as nearly always
        }
        let indices = self.rendered.inodes.iter().filter_map(|(nr, _)| self.own_index(*nr, group));
        indices.max().map_or(0, |index| index + 1)
    }

    /// Whether unused inodes are left unwritten for the kernel to zero.
    fn lazy(&self) -> bool {
        self.geometry().features.group_checksums() && self.options.lazy_itable_init.unwrap_or(true)
    }

    /// Whether zeros have to be written where no inodes are.
    fn zeroes_tables(&self) -> bool {
        !self.zeroed && !self.lazy()
    }

    /// The used part of an inode table in pieces, then zeros where they are needed.
    fn render_table(
        &self,
        group: GroupNr,
        at: BlockNr,
        inodes_end: u32,
        contents: &dyn Contents,
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        let geometry = self.geometry();
        let per_block = geometry.inodes_per_block();
        let used = inodes_end.div_ceil(per_block);
        let piece = (TABLE_PIECE >> geometry.block_size.shift()).max(1);
        for block in (0..used).step_by(usize_of(piece)) {
            let blocks = piece.min(used - block);
            let mut bytes = vec![0; usize_of(blocks << geometry.block_size.shift())];
            let first = block * per_block;
            contents.render_inodes(group, first, &mut bytes);
            self.put_own_inodes(group, first, contents, &mut bytes);
            sink(self.block(at + Blocks::new(block.into()), bytes))?;
        }
        let rest = Blocks::new((geometry.itable_blocks() - used).into());
        if self.zeroes_tables() && !rest.is_zero() {
            let at = (at + Blocks::new(used.into())).offset(geometry.block_size);
            sink(Write { at, payload: Payload::Zeros(rest.bytes(geometry.block_size)) })?;
        }
        Ok(())
    }

    fn put_own_inodes(&self, group: GroupNr, first: u32, contents: &dyn Contents, slots: &mut [u8]) {
        for (nr, slot) in &self.rendered.inodes {
            let at = self.own_index(*nr, group).and_then(|index| index.checked_sub(first)).map(usize_of);
            let len = slot.len();
            if let Some(place) = at.and_then(|at| slots.get_mut(at * len..(at + 1) * len)) {
                place.copy_from_slice(slot);
                if *nr == self.lost_and_found() {
                    contents.lost_and_found(*nr, place);
                }
            }
        }
    }

    /// Blocks of the formatter's own files that lie in some groups.
    fn render_own_blocks(&self, groups: Range<u32>, sink: &mut Sink<'_>) -> Result<()> {
        let (geometry, size) = (self.geometry(), self.geometry().block_size);
        let start = geometry.first_block(GroupNr::new(groups.start)).get();
        let within = start..group_range(geometry, GroupNr::new(groups.end - 1)).end;
        let from = self.rendered.blocks.partition_point(|(nr, _)| nr.get() < within.start);
        let inside = self.rendered.blocks[from..].iter().take_while(|(nr, _)| nr.get() < within.end);
        for (nr, bytes) in inside {
            sink(self.block(*nr, bytes.clone()))?;
        }
        for run in self.rendered.zeros.iter().filter(|_| !self.zeroed) {
            let (start, end) = (run.start.max(within.start), run.end.min(within.end));
            if start < end {
                let payload = Payload::Zeros(Blocks::new(end - start).bytes(size));
                sink(Write { at: BlockNr::new(start).offset(size), payload })?;
            }
        }
        Ok(())
    }

    /// Blocks of the quota files that lie in some groups.
    fn render_quotas(&self, groups: Range<u32>, contents: &dyn Contents, sink: &mut Sink<'_>) -> Result<()> {
        let (geometry, size) = (self.geometry(), self.geometry().block_size);
        let start = geometry.first_block(GroupNr::new(groups.start)).get();
        let within = start..group_range(geometry, GroupNr::new(groups.end - 1)).end;
        for file in &self.own.quotas {
            let mut runs = file.place.runs.iter();
            if !runs.any(|run| run.start < within.end && within.start < run.end) {
                continue;
            }
            let mut used = BTreeMap::new();
            contents.count(file.kind, &mut used);
            count_inode(file.kind, &self.lost_and_found_inode(contents), 0, &mut used);
            let blocks = file.blocks(&used, size).into_iter();
            for (nr, bytes) in blocks.filter(|(nr, _)| within.contains(&nr.get())) {
                sink(self.block(nr, bytes))?;
            }
        }
        Ok(())
    }

    /// lost+found as the contents leave it.
    fn lost_and_found_inode(&self, contents: &dyn Contents) -> Inode {
        let found = self.rendered.inodes.iter().find(|(nr, _)| *nr == LOST_AND_FOUND);
        let mut slot = found.map(|(_, slot)| slot.clone()).expect("the formatter has made it");
        contents.lost_and_found(LOST_AND_FOUND, &mut slot);
        Inode::parse(&slot, LOST_AND_FOUND, &self.superblock).expect("it was just rendered")
    }

    /// The descriptor blocks that are written together with one: some that lie one after another, in every
    /// copy. In meta groups each lies by itself.
    pub(crate) fn descriptor_run(&self, index: u32) -> Range<u32> {
        let old = self.geometry().old_desc_blocks();
        if index >= old {
            return index..index + 1;
        }
        let len = (DESCRIPTOR_RUN / self.geometry().block_size.get()).max(1);
        let first = index - index % len;
        first..(first + len).min(old)
    }

    /// Every copy of the descriptors of a run of blocks whose first is `first`; the volume's last block may
    /// be truncated.
    ///
    /// # Errors
    /// What the sink returns.
    pub(crate) fn render_descriptors(
        &self,
        first: u32,
        mut bytes: Vec<u8>,
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        let geometry = self.geometry();
        bytes.resize(bytes.len().next_multiple_of(geometry.block_size.len()), 0);
        for copy in self.descriptor_copies(first) {
            sink(self.block(copy, bytes.clone()))?;
        }
        sink(self.block(geometry.desc_block(first), bytes))
    }

    /// The copies of a descriptor block beside the primary one.
    fn descriptor_copies(&self, index: u32) -> Vec<BlockNr> {
        let geometry = self.geometry();
        if index >= geometry.old_desc_blocks() {
            return geometry.desc_block_backups(index);
        }
        let after = Blocks::new(u64::from(index) + 1);
        self.backups.iter().map(|group| geometry.first_block(*group) + after).collect()
    }

    /// The superblocks, given the counts of all chunks: the backups, and the primary one as the last write.
    ///
    /// # Errors
    /// What the sink returns.
    pub fn finish(&self, counts: Counts, sink: &mut Sink<'_>) -> Result<()> {
        let geometry = self.geometry();
        let mut sb = self.superblock.clone();
        let free = Blocks::new(counts.free_clusters << geometry.cluster_ratio_shift);
        sb.set_free(free, low32(counts.free_inodes));
        // What no file can ever have: metadata, the journal, the block before the first group.
        let overhead = u64::from(geometry.first_data_block)
            + counts.metadata_clusters
            + self.own.journal_clusters(geometry);
        sb.set_overhead_clusters(overhead);
        let mut backup = sb.clone();
        backup.set_state(0); // a backup in use means that something went wrong
        for group in self.backups.iter().copied() {
            sink(self.block(geometry.first_block(group), backup.render(group).to_vec()))?;
        }
        let bytes = sb.render(GroupNr::new(0)).to_vec();
        sink(Write { at: SUPERBLOCK_OFFSET, payload: Payload::Bytes(bytes) })
    }
}

/// The bits set in a bitmap, whose length is a multiple of eight.
fn count_bits(bitmap: &[u8]) -> u32 {
    bitmap.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word).count_ones()).sum()
}

/// A group, rendered.
struct Group {
    desc: GroupDesc,
    block_bitmap: Option<Vec<u8>>,
    inode_bitmap: Option<Vec<u8>>,
    inodes_end: u32,
    /// Whether the contents have clusters of it.
    holds_content: bool,
    metadata_clusters: u64,
}

impl Write {
    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> Bytes {
        match &self.payload {
            Payload::Bytes(bytes) => Bytes::new(u64_of(bytes.len())),
            Payload::Zeros(len) => *len,
        }
    }

    /// Whether it writes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == Bytes::ZERO
    }
}
