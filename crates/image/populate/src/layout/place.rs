//! The pass that assigns blocks to every node, or only counts them.

use super::cursor::Cursor;
use super::load::Load;
use super::placed::{Layout, Room};
use super::ranges::content_ranges;
use super::reserved::Reserved;
use super::volume::Volume;
use crate::tree::{Kind, NodeId};
use hectare_ext4::extent::{self, Extent};
use hectare_ext4::geometry::Geometry;
use hectare_ext4::indirect;
use hectare_ext4::inode::BLOCK_BYTES;
use hectare_ext4::xattr::REFCOUNT_MAX;
use hectare_units::{BlockNr, Blocks, LogicalBlock, low32, u64_of};
use std::collections::HashMap;
use std::ops::Range;

/// Extents that fit the root of a map inside the inode.
const ROOT_EXTENTS: usize = 4;

/// A tree that does not fit: how many blocks it lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lacking(pub(crate) Blocks);

/// The space that a tree takes of `free`, the free ranges of an empty volume.
///
/// # Errors
/// If it does not fit.
pub(crate) fn measure(
    load: &Load<'_>,
    volume: Volume<'_>,
    free: impl Iterator<Item = Range<u64>>,
) -> Result<Room, Lacking> {
    Placer::new(load, volume, Cursor::new(free, volume.sb.geometry()), None).run().map(|(room, _)| room)
}

/// Assigns blocks to every node. `room` is what was measured for the same volume.
///
/// # Errors
/// If the tree does not fit.
pub(crate) fn lay_out(
    load: &Load<'_>,
    volume: Volume<'_>,
    mut free: impl Iterator<Item = Range<u64>>,
    room: &Room,
) -> Result<Layout, Lacking> {
    let (layout, geometry) =
        (Layout::with_capacity(load.tree.len() + load.attributes.values().len(), room), volume.sb.geometry());
    let (_, layout) = match Reserved::new(load, volume, &mut free) {
        None => Placer::new(load, volume, Cursor::new(free, geometry), Some(layout)).run()?,
        Some(reserved) => {
            let cursor = Cursor::new(reserved.rest(), geometry);
            let placer = Placer::new(load, volume, cursor, Some(layout));
            Placer { reserved: Some(reserved), ..placer }.run()?
        }
    };
    Ok(layout.expect("it was handed in to be filled"))
}

struct Placer<'a, I> {
    load: &'a Load<'a>,
    geometry: &'a Geometry,
    cursor: Cursor<I>,
    root_block: BlockNr,
    has_extents: bool,
    /// For each set of attributes the block (an index) that new inodes may share, and how many do.
    shared: Vec<Option<(u32, u32)>>,
    /// Blocks asked for after the volume was full.
    lacking: u64,
    room: Room,
    /// The last extent of the node at hand, and how many it has.
    last: Option<Extent>,
    extents: usize,
    /// The extents of the node at hand, if others have its content, too.
    kept: Option<Vec<Extent>>,
    /// Those of nodes whose content others have, too.
    equal: HashMap<NodeId, Vec<Extent>>,
    /// Where to keep the result; `None` when only the sums are wanted.
    layout: Option<Layout>,
    /// The node at hand.
    id: NodeId,
    /// What nodes keep of an old image.
    reserved: Option<Reserved>,
}

impl<'a, I: Iterator<Item = Range<u64>>> Placer<'a, I> {
    fn new(load: &'a Load<'a>, volume: Volume<'a>, cursor: Cursor<I>, layout: Option<Layout>) -> Self {
        let geometry = volume.sb.geometry();
        Self {
            load,
            geometry,
            cursor,
            root_block: volume.root_block,
            has_extents: volume.has_extents(),
            shared: vec![None; load.attributes.len()],
            lacking: 0,
            room: Room::default(),
            last: None,
            extents: 0,
            kept: None,
            equal: HashMap::new(),
            layout,
            id: NodeId::ROOT,
            reserved: None,
        }
    }

    fn run(mut self) -> Result<(Room, Option<Layout>), Lacking> {
        for id in self.load.tree.ids() {
            if let Some(layout) = &mut self.layout {
                layout.begin();
            }
            if Some(id) != self.load.stand_in {
                self.place(id);
            }
        }
        for value in self.load.attributes.values() {
            if let Some(layout) = &mut self.layout {
                layout.begin();
            }
            self.place_value(value.bytes.len());
        }
        if self.lacking > 0 {
            return Err(Lacking(Blocks::new(self.lacking)));
        }
        let (used, left) = self.cursor.finish();
        let (used, spared) = match self.reserved.take() {
            Some(reserved) => reserved.finish(used),
            None => (used, Blocks::ZERO),
        };
        self.room.left = left + spared;
        if let Some(layout) = &mut self.layout {
            layout.finish(used, &self.room);
        }
        Ok((self.room, self.layout))
    }

    fn place(&mut self, id: NodeId) {
        (self.id, self.last, self.extents) = (id, None, 0);
        let before = self.beside_maps();
        match self.load.tree.kind(id) {
            _ if self.load.is_inline(id) => {}
            Kind::Directory => {
                // The formatter reserves a block for the start of the root directory.
                let kept = (id == NodeId::ROOT).then_some((0, self.root_block));
                self.content(0..u64::from(self.load.directory_blocks(id)), kept);
                self.room.needs.directories += self.beside_maps() - before;
            }
            Kind::File { .. } => {
                match self.load.tree.first_equal(id) {
                    Some(first) => self.share(first),
                    None => self.file(id),
                }
                self.room.needs.file_data += self.beside_maps() - before;
            }
            Kind::Symlink { target } if target.len() >= BLOCK_BYTES => {
                self.content(0..1, None);
                self.room.needs.symlinks += self.beside_maps() - before;
            }
            _ => {}
        }
        self.map_nodes();
        if let Some(set) = self.load.tree.xattr_set(id).filter(|set| self.load.attributes.has_block(*set)) {
            self.attribute_block(set.index());
        }
    }

    /// Places an attribute value in an inode of its own.
    fn place_value(&mut self, len: usize) {
        (self.last, self.extents) = (None, 0);
        let before = self.beside_maps();
        self.content(0..u64_of(len.div_ceil(self.geometry.block_size.len())), None);
        self.room.needs.attribute_blocks += self.beside_maps() - before;
        self.map_nodes();
    }

    /// Blocks taken for other things than maps.
    fn beside_maps(&self) -> Blocks {
        let kept = self.reserved.as_ref().map_or(Blocks::ZERO, Reserved::taken);
        self.cursor.taken() + kept - self.room.needs.map_nodes
    }

    /// Places the data of a file.
    fn file(&mut self, id: NodeId) {
        self.kept = self.load.tree.has_equals(id).then(Vec::new);
        let mut last = None;
        let (load, geometry) = (self.load, self.geometry);
        content_ranges(load, geometry, id, &mut |range| last = self.content(range, last));
        if let Some(extents) = self.kept.take() {
            self.equal.insert(id, extents);
        }
    }

    /// Places file blocks; `last` is the file's last cluster so far and where it lies. Returns the same for
    /// these.
    fn content(&mut self, mut blocks: Range<u64>, last: Option<(u64, BlockNr)>) -> Option<(u64, BlockNr)> {
        let shift = self.geometry.cluster_ratio_shift;
        let cluster = u64::from(self.geometry.cluster_blocks());
        let mut last = last;
        if let Some((file_cluster, place)) = last
            && blocks.start >> shift == file_cluster
        {
            let end = blocks.end.min((file_cluster + 1) << shift);
            self.push(blocks.start..end, place + Blocks::new(blocks.start % cluster));
            blocks.start = end;
        }
        let Some(reserved) = &self.reserved else { return self.fresh(blocks, last) };
        for (piece, place) in reserved.pieces(self.id, blocks) {
            match place {
                Some(place) => self.keep(piece, place),
                None => last = self.fresh(piece, last),
            }
        }
        last
    }

    /// Gives a file the blocks of one before it that has the same content.
    fn share(&mut self, first: NodeId) {
        let extents = self.equal.remove(&first).expect("the first of equal files comes before the others");
        for extent in &extents {
            self.map(extent.logical.get().into()..extent.end(), extent.physical);
        }
        self.equal.insert(first, extents);
    }

    /// Leaves file blocks where they were.
    fn keep(&mut self, blocks: Range<u64>, place: BlockNr) {
        if let Some(reserved) = &mut self.reserved {
            reserved.take(place, blocks.end - blocks.start);
        }
        self.map(blocks, place);
    }

    /// Maps file blocks to a place that is theirs already.
    fn map(&mut self, mut blocks: Range<u64>, mut place: BlockNr) {
        while blocks.start < blocks.end {
            let end = self.tables(&blocks);
            let len = end - blocks.start;
            self.push(blocks.start..end, place);
            blocks.start = end;
            place += Blocks::new(len);
        }
    }

    /// Places file blocks as they come; as [`content`](Self::content).
    fn fresh(&mut self, mut blocks: Range<u64>, mut last: Option<(u64, BlockNr)>) -> Option<(u64, BlockNr)> {
        let shift = self.geometry.cluster_ratio_shift;
        let cluster = u64::from(self.geometry.cluster_blocks());
        while blocks.start < blocks.end {
            let lead = blocks.start % cluster;
            let want = lead + self.tables(&blocks) - blocks.start;
            let Some((place, got)) = self.cursor.take(Blocks::new(want)) else {
                self.lack(lead + blocks.end - blocks.start);
                return None;
            };
            let end = blocks.end.min(blocks.start - lead + got.get());
            self.push(blocks.start..end, place + Blocks::new(lead));
            let last_cluster = (end - 1) >> shift;
            let offset = (last_cluster << shift) - (blocks.start - lead);
            last = Some((last_cluster, place + Blocks::new(offset)));
            blocks.start = end;
        }
        last
    }

    /// Counts blocks of a file that don't fit, with about as many tables as they need.
    fn lack(&mut self, blocks: u64) {
        let each = u64::from(self.geometry.block_size.get() / 4);
        let tables = if self.has_extents { 0 } else { blocks / each };
        let clusters = (blocks + tables).next_multiple_of(self.geometry.cluster_blocks().into());
        self.lacking = self.lacking.saturating_add(clusters);
    }

    /// Takes the tables of a block map that lie before the first of these blocks; the end of those that can
    /// follow without another.
    fn tables(&mut self, blocks: &Range<u64>) -> u64 {
        if self.has_extents {
            return blocks.end;
        }
        let (size, at) = (self.geometry.block_size, LogicalBlock::new(low32(blocks.start)));
        let before = self.last.map(|last| LogicalBlock::new(low32(last.end() - 1)));
        (0..indirect::tables_between(before, at, size)).for_each(|_| self.map_node());
        blocks.end.min(blocks.start + indirect::run(at, size))
    }

    /// Notes a mapping, joined to the one before where that is possible, split where it is too long for one
    /// extent.
    fn push(&mut self, mut blocks: Range<u64>, mut place: BlockNr) {
        while blocks.start < blocks.end {
            let len = (blocks.end - blocks.start).min(Extent::len_max(false).into());
            let mut extent = Extent {
                logical: LogicalBlock::new(low32(blocks.start)),
                len: low32(len),
                physical: place,
                unwritten: false,
            };
            let joins = self.last.filter(|last| last.joins(&extent));
            match joins {
                Some(last) => extent = Extent { len: last.len + extent.len, ..last },
                None => self.extents += 1,
            }
            self.last = Some(extent);
            if let Some(kept) = &mut self.kept {
                kept.truncate(kept.len() - usize::from(joins.is_some()));
                kept.push(extent);
            }
            if let Some(layout) = &mut self.layout {
                layout.extent(&extent, joins.is_some());
            }
            blocks.start += len;
            place += Blocks::new(len);
        }
    }

    /// Takes the blocks that an extent tree needs beside its root.
    fn map_nodes(&mut self) {
        self.room.extents += self.extents;
        if self.has_extents && self.extents > ROOT_EXTENTS {
            let nodes = extent::tree_blocks(self.extents, self.geometry.block_size).get();
            (0..nodes).for_each(|_| self.map_node());
        }
    }

    fn map_node(&mut self) {
        let kept = self.reserved.as_mut().and_then(|reserved| reserved.map_node(self.id));
        let Some(nr) = kept.or_else(|| self.single()) else { return };
        self.room.map_nodes += 1;
        self.room.needs.map_nodes += Blocks::new(self.geometry.cluster_blocks().into());
        if let Some(layout) = &mut self.layout {
            layout.map_node(nr);
        }
    }

    /// A block for metadata: the first of a cluster.
    fn single(&mut self) -> Option<BlockNr> {
        let taken = self.cursor.take(Blocks::ONE);
        if taken.is_none() {
            self.lacking = self.lacking.saturating_add(self.geometry.cluster_blocks().into());
        }
        taken.map(|(nr, _)| nr)
    }

    /// Gives one more inode with a set its attribute block: a shared one, or a new one.
    fn attribute_block(&mut self, set: usize) {
        let index = match self.shared[set] {
            Some((index, references)) if references < REFCOUNT_MAX => {
                self.shared[set] = Some((index, references + 1));
                index
            }
            _ => {
                let kept = self.reserved.as_mut().and_then(|reserved| reserved.attribute_block(self.id));
                let Some(nr) = kept.or_else(|| self.single()) else { return };
                let index = low32(u64_of(self.room.attribute_blocks)); // no more than there are nodes
                self.room.attribute_blocks += 1;
                self.room.needs.attribute_blocks += Blocks::new(self.geometry.cluster_blocks().into());
                self.shared[set] = Some((index, 1));
                if let Some(layout) = &mut self.layout {
                    layout.new_attribute_block(nr, set);
                }
                index
            }
        };
        if let Some(layout) = &mut self.layout {
            layout.use_attribute_block(index);
        }
    }
}
