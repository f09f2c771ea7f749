//! The pass that gives every node its blocks.

use super::Volume;
use super::attributes::Attributes;
use super::cursor::Cursor;
use crate::error::ShownPath;
use crate::image::ImageError as Error;
use crate::tree::{Kind, NodeId, Tree};
use hectare_ext4::dir::{self, Fill, Format};
use hectare_ext4::extent::{self, Extent};
use hectare_ext4::geometry::Geometry;
use hectare_ext4::inode::BLOCK_BYTES;
use hectare_ext4::xattr::REFCOUNT_MAX;
use hectare_units::{BlockNr, Blocks, LogicalBlock, low32, u64_of, usize_of};
use std::ops::Range;

/// Extents that fit the root of a map inside the inode.
const ROOT_EXTENTS: usize = 4;

/// Blocks by what they hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Needs {
    pub(crate) file_data: Blocks,
    pub(crate) directories: Blocks,
    pub(crate) symlinks: Blocks,
    pub(crate) map_nodes: Blocks,
    pub(crate) attribute_blocks: Blocks,
}

/// What one node got; indexes into the lists of the layout.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    extents: (u32, u32),
    map_nodes: (u32, u32),
    /// 0 for none: block 0 holds no attributes.
    attribute_block: u64,
    /// Blocks (whole clusters) in use, for `i_blocks`.
    blocks: u64,
}

/// An attribute block and how many inodes share it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttributeBlock {
    pub(crate) nr: BlockNr,
    pub(crate) set: usize,
    pub(crate) references: u32,
}

/// Where everything goes.
pub(crate) struct Layout {
    nodes: Vec<Node>,
    extents: Vec<Extent>,
    map_nodes: Vec<BlockNr>,
    attribute_blocks: Vec<AttributeBlock>,
    used: Vec<Range<u64>>,
    left: Blocks,
    needs: Needs,
}

/// A tree that does not fit: how many blocks it lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lacking(pub(crate) Blocks);

/// How many blocks each directory takes. The same for every size of a volume, so it is found once.
pub(crate) struct DirectorySizes(Vec<u32>);

impl DirectorySizes {
    /// # Errors
    /// If a directory is larger than the format allows, naming it.
    pub(crate) fn new(tree: &Tree, format: &Format, extra_in_root: Option<&[u8]>) -> Result<Self, Error> {
        let mut sizes = vec![0; tree.len()];
        for id in tree.ids().filter(|id| matches!(tree.kind(*id), Kind::Directory)) {
            let extra = extra_in_root.filter(|_| id == NodeId::ROOT);
            let names = tree.children(id).map(|(name, _)| name).chain(extra);
            let names = names.map(|name| dir::Name::new(name).expect("a tree's names can be in a directory"));
            let blocks = dir::blocks_needed(names, format, Fill::DEFAULT).map_err(|error| {
                Error::Directory { path: ShownPath::new(&tree.path(id)), reason: error.to_string() }
            })?;
            sizes[id.index()] = low32(blocks.get());
        }
        Ok(Self(sizes))
    }

    fn of(&self, id: NodeId) -> u32 {
        self.0[id.index()]
    }
}

impl Layout {
    /// Gives every node of `tree` its blocks from `free`, the free ranges of the empty volume.
    pub(crate) fn new(
        tree: &Tree,
        volume: Volume<'_>,
        attributes: &Attributes,
        directories: &DirectorySizes,
        free: impl Iterator<Item = Range<u64>>,
    ) -> Result<Self, Lacking> {
        let geometry = volume.sb.geometry();
        let mut placer = Placer {
            geometry,
            cursor: Cursor::new(free, geometry),
            layout: Self {
                nodes: Vec::with_capacity(tree.len()),
                extents: Vec::new(),
                map_nodes: Vec::new(),
                attribute_blocks: Vec::new(),
                used: Vec::new(),
                left: Blocks::ZERO,
                needs: Needs::default(),
            },
            root_block: volume.root_block,
            shared: vec![None; attributes.len()],
            lacking: 0,
        };
        for id in tree.ids() {
            placer.place(tree, id, attributes, directories);
        }
        placer.finish()
    }

    /// The extents of a node's content, in order.
    pub(crate) fn extents(&self, id: NodeId) -> &[Extent] {
        let (start, len) = self.nodes[id.index()].extents;
        &self.extents[usize_of(start)..usize_of(start) + usize_of(len)]
    }

    /// The blocks for the tree nodes of a node's map.
    pub(crate) fn map_nodes(&self, id: NodeId) -> &[BlockNr] {
        let (start, len) = self.nodes[id.index()].map_nodes;
        &self.map_nodes[usize_of(start)..usize_of(start) + usize_of(len)]
    }

    /// The attribute block of a node.
    pub(crate) fn attribute_block(&self, id: NodeId) -> Option<BlockNr> {
        let nr = self.nodes[id.index()].attribute_block;
        (nr != 0).then_some(BlockNr::new(nr))
    }

    /// Every attribute block.
    pub(crate) fn attribute_blocks(&self) -> &[AttributeBlock] {
        &self.attribute_blocks
    }

    /// Blocks a node uses, whole clusters.
    pub(crate) fn blocks(&self, id: NodeId) -> Blocks {
        Blocks::new(self.nodes[id.index()].blocks)
    }

    /// All blocks in use, whole clusters, sorted and joined; the one kept for the root directory is not among them.
    pub(crate) fn used(&self) -> &[Range<u64>] {
        &self.used
    }

    /// Free blocks that are left.
    pub(crate) fn left(&self) -> Blocks {
        self.left
    }

    /// What was given out, by what it holds.
    pub(crate) fn needs(&self) -> Needs {
        self.needs
    }
}

struct Placer<'a, I> {
    geometry: &'a Geometry,
    cursor: Cursor<I>,
    layout: Layout,
    root_block: BlockNr,
    /// For each set of attributes the block (an index) that new inodes may share.
    shared: Vec<Option<usize>>,
    /// Blocks asked for after the volume was full.
    lacking: u64,
}

impl<I: Iterator<Item = Range<u64>>> Placer<'_, I> {
    fn place(&mut self, tree: &Tree, id: NodeId, attributes: &Attributes, directories: &DirectorySizes) {
        let first_extent = self.layout.extents.len();
        let before = self.cursor.taken();
        match tree.kind(id) {
            Kind::Directory => {
                // The formatter keeps a place for the start of the root directory.
                let kept = (id == NodeId::ROOT).then_some((0, self.root_block));
                self.content(0..u64::from(directories.of(id)), kept);
                self.layout.needs.directories += self.cursor.taken() - before;
            }
            Kind::File { .. } => {
                self.file(tree, id);
                self.layout.needs.file_data += self.cursor.taken() - before;
            }
            Kind::Symlink { target } if target.len() >= BLOCK_BYTES => {
                self.content(0..1, None);
                self.layout.needs.symlinks += self.cursor.taken() - before;
            }
            _ => {}
        }
        let count = self.layout.extents.len() - first_extent;
        let map_nodes = self.map_nodes(count);
        let kept = if id == NodeId::ROOT { u64::from(self.geometry.cluster_blocks()) } else { 0 };
        let own = self.cursor.taken() - before + Blocks::new(kept);
        let attribute_block = tree
            .xattr_set(id)
            .filter(|set| attributes.get(*set).block.is_some())
            .map_or(0, |set| self.attribute_block(set.index()));
        let of_attributes = if attribute_block == 0 { 0 } else { self.geometry.cluster_blocks() };
        self.layout.nodes.push(Node {
            extents: (low32(u64_of(first_extent)), low32(u64_of(count))),
            map_nodes,
            attribute_block,
            blocks: own.get() + u64::from(of_attributes),
        });
    }

    /// Places the data of a file: the blocks its segments touch, those that share a cluster in the same one.
    fn file(&mut self, tree: &Tree, id: NodeId) {
        let size = self.geometry.block_size;
        let mut pending: Option<Range<u64>> = None;
        let mut last = None;
        for segment in tree.segments(id) {
            let start = segment.at.get() >> size.shift();
            let end = (segment.at.get() + segment.len.get()).div_ceil(size.bytes().get());
            match &mut pending {
                Some(range) if start <= range.end => range.end = range.end.max(end),
                Some(range) => {
                    let range = std::mem::replace(range, start..end);
                    last = self.content(range, last);
                }
                None => pending = Some(start..end),
            }
        }
        if let Some(range) = pending {
            self.content(range, last);
        }
    }

    /// Places file blocks; `last` is the file's last cluster so far and where it lies. Returns the same for these.
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
        while blocks.start < blocks.end {
            let lead = blocks.start % cluster;
            let want = lead + blocks.end - blocks.start;
            let Some((place, got)) = self.cursor.take(Blocks::new(want)) else {
                self.lacking += want.next_multiple_of(cluster);
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

    /// Notes a mapping, joined to the one before where that is possible, cut where it is too long for one extent.
    fn push(&mut self, mut blocks: Range<u64>, mut place: BlockNr) {
        while blocks.start < blocks.end {
            let len = (blocks.end - blocks.start).min(Extent::len_max(false).into());
            self.layout.extents.push(Extent {
                logical: LogicalBlock::new(low32(blocks.start)),
                len: low32(len),
                physical: place,
                unwritten: false,
            });
            blocks.start += len;
            place += Blocks::new(len);
        }
    }

    /// Takes the blocks that a map of so many extents needs beside its root.
    fn map_nodes(&mut self, extents: usize) -> (u32, u32) {
        let first = low32(u64_of(self.layout.map_nodes.len()));
        if extents <= ROOT_EXTENTS {
            return (first, 0);
        }
        let count = extent::tree_blocks(extents, self.geometry.block_size).get();
        for _ in 0..count {
            if let Some(nr) = self.single() {
                self.layout.map_nodes.push(nr);
                self.layout.needs.map_nodes += Blocks::new(self.geometry.cluster_blocks().into());
            }
        }
        (first, low32(count))
    }

    /// A block for metadata: the first of a cluster.
    fn single(&mut self) -> Option<BlockNr> {
        let taken = self.cursor.take(Blocks::ONE);
        if taken.is_none() {
            self.lacking += u64::from(self.geometry.cluster_blocks());
        }
        taken.map(|(nr, _)| nr)
    }

    /// The attribute block of one more inode with a set: a shared one, or a new one. 0 when the volume is full.
    fn attribute_block(&mut self, set: usize) -> u64 {
        if let Some(index) = self.shared[set]
            && self.layout.attribute_blocks[index].references < REFCOUNT_MAX
        {
            let block = &mut self.layout.attribute_blocks[index];
            block.references += 1;
            return block.nr.get();
        }
        let Some(nr) = self.single() else { return 0 };
        self.layout.needs.attribute_blocks += Blocks::new(self.geometry.cluster_blocks().into());
        self.shared[set] = Some(self.layout.attribute_blocks.len());
        self.layout.attribute_blocks.push(AttributeBlock { nr, set, references: 1 });
        nr.get()
    }

    fn finish(mut self) -> Result<Layout, Lacking> {
        if self.lacking > 0 {
            return Err(Lacking(Blocks::new(self.lacking)));
        }
        (self.layout.used, self.layout.left) = self.cursor.finish();
        Ok(self.layout)
    }
}
