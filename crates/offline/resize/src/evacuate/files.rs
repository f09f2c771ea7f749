//! Moves the blocks of one file, and builds its map anew.

use super::{Evacuation, is_directory};
use crate::error::Result;
use crate::metadata;
use crate::tree::Tree;
use hectare_ext4::extent::{self, Built, Extent};
use hectare_ext4::indirect;
use hectare_ext4::inode::{Inode, Kind};
use hectare_ext4::map::MapKind;
use hectare_ext4::orphan::OrphanBlockMut;
use hectare_ext4::quota;
use hectare_units::{BlockNr, InodeNr, LogicalBlock, low32, u64_of};
use std::ops::ControlFlow;

/// The cluster of a file that was moved last: further extents of the file may lie in it (bigalloc).
type LastCluster = Option<(u64, u64)>;

impl Evacuation<'_> {
    /// The extents and the nodes of a map.
    pub(super) fn map(&self, nr: InodeNr, inode: &Inode) -> Result<(Vec<Extent>, Vec<BlockNr>)> {
        let tree = Tree { volume: self.volume, nr, root: inode.block };
        let kind = MapKind::of(inode.flags);
        let (mut extents, mut nodes) = (Vec::new(), Vec::new());
        kind.for_each(&tree, LogicalBlock::ZERO, &mut |extent| {
            extents.push(extent);
            ControlFlow::Continue(())
        })?;
        kind.for_each_node(&tree, &mut |node, _| {
            nodes.push(node);
            ControlFlow::Continue(())
        })?;
        Ok((extents, nodes))
    }

    /// Moves the content of inode `nr`, which will have the number `to`, as far as it must.
    pub(super) fn content(&mut self, nr: InodeNr, to: InodeNr, inode: &mut Inode) -> Result<()> {
        let (old, nodes) = self.map(nr, inode)?;
        let new = self.relocate(nr, inode, &old)?;
        let moved = new != old;
        if is_directory(inode) {
            self.directory(to, inode, &old, &new, nr != to)?;
        } else if self.volume.sb.orphan_file_inode() == Some(nr) && (moved || nr != to) {
            self.seal_orphan_file(to, inode, &new)?;
        }
        let reseeds = nr != to && self.volume.sb.seed().is_some() && !nodes.is_empty();
        if moved || reseeds || nodes.iter().any(|node| self.is_leaving(*node)) {
            self.rebuild(nr, to, inode, &new, nodes)?;
        }
        Ok(())
    }

    /// The extents after what has to move was copied.
    pub(super) fn relocate(&mut self, nr: InodeNr, inode: &Inode, old: &[Extent]) -> Result<Vec<Extent>> {
        let mut new: Vec<Extent> = Vec::new();
        let mut last: LastCluster = None;
        for extent in old {
            let first = extent.physical.get();
            let blocks = first..first + u64::from(extent.len);
            let clusters = metadata::clusters(self.volume.geometry(), &blocks);
            let mut at = blocks.start;
            while at < blocks.end {
                let cluster = self.volume.geometry().cluster_of(BlockNr::new(at)).get();
                let (leaves, end) = match self.leaving.get(&cluster) {
                    Some(range) => (true, range.end),
                    None => {
                        let next = self.leaving.overlapping(&(cluster..clusters.end)).next();
                        (false, next.map_or(clusters.end, |range| range.start))
                    }
                };
                let end = self.block_of(end).min(blocks.end);
                let (to, len) = if leaves { self.relocate_run(at..end, &mut last)? } else { (at, end - at) };
                let logical = extent.logical.get() + low32(at - first);
                let piece = Extent {
                    logical: LogicalBlock::new(logical),
                    len: low32(len),
                    physical: BlockNr::new(to),
                    unwritten: extent.unwritten,
                };
                if leaves && !extent.unwritten {
                    self.copy(nr, inode, &piece, at)?;
                }
                push(&mut new, piece);
                at += len;
            }
        }
        self.leave_old(old)?;
        Ok(new)
    }

    /// The first block of a cluster.
    fn block_of(&self, cluster: u64) -> u64 {
        self.volume.geometry().cluster_start(hectare_units::ClusterNr::new(cluster)).get()
    }

    /// A place for the first of these blocks, and for how many of them.
    fn relocate_run(&mut self, blocks: std::ops::Range<u64>, last: &mut LastCluster) -> Result<(u64, u64)> {
        let old = metadata::clusters(self.volume.geometry(), &blocks);
        let into = blocks.start - self.block_of(old.start);
        let new = match *last {
            Some((known, new)) if known == old.start => new..new + 1,
            _ => self.take(old.end - old.start, "a file")?,
        };
        let count = new.end - new.start;
        *last = Some((old.start + count - 1, new.end - 1));
        let len = (self.block_of(old.start + count) - blocks.start).min(blocks.end - blocks.start);
        Ok((self.block_of(new.start) + into, len))
    }

    /// Frees the clusters that were left.
    fn leave_old(&mut self, old: &[Extent]) -> Result<()> {
        for extent in old {
            let first = extent.physical.get();
            let clusters =
                metadata::clusters(self.volume.geometry(), &(first..first + u64::from(extent.len)));
            let left: Vec<_> = self
                .leaving
                .overlapping(&clusters)
                .map(|range| range.start.max(clusters.start)..range.end.min(clusters.end))
                .collect();
            for range in left {
                self.volume.mark(range, false)?;
            }
        }
        Ok(())
    }

    /// Has the data at block `from` copied to an extent: later, or in the overlay what is read before.
    fn copy(&mut self, nr: InodeNr, inode: &Inode, extent: &Extent, from: u64) -> Result<()> {
        let sb = &self.volume.sb;
        let is_read = sb.orphan_file_inode() == Some(nr)
            || quota::Kind::ALL.into_iter().any(|kind| sb.quota_inode(kind) == Some(nr))
            || inode.kind() == Some(Kind::Symlink);
        if is_directory(inode) {
            return Ok(()); // `directory` does it
        }
        let (to, len) = (extent.physical, u64::from(extent.len));
        // Of the journal its superblock is read.
        let is_head = sb.journal_inode() == Some(nr) && extent.logical == LogicalBlock::ZERO;
        let staged = if is_read { len } else { u64::from(is_head) };
        for (from, to) in (from..from + staged).zip(to.get()..) {
            let bytes = self.volume.read(BlockNr::new(from))?;
            self.volume.write(BlockNr::new(to), &bytes)?;
        }
        if !is_read {
            self.volume.copies.note(BlockNr::new(from), to, len);
        }
        Ok(())
    }

    /// Renews the checksums of the orphan file, which go by the place of a block.
    fn seal_orphan_file(&mut self, to: InodeNr, inode: &Inode, new: &[Extent]) -> Result<()> {
        let Some(seed) = inode.seed(to, &self.volume.sb) else { return Ok(()) };
        for extent in new {
            for block in (extent.physical.get()..).take(hectare_units::usize_of(extent.len)) {
                let nr = BlockNr::new(block);
                let mut bytes = self.volume.read(nr)?;
                OrphanBlockMut::new(&mut bytes, nr).seal(seed);
                self.volume.write(nr, &bytes)?;
            }
        }
        Ok(())
    }

    /// Builds the map of `extents`, with its nodes where they were as far as they may stay.
    pub(super) fn rebuild(
        &mut self,
        nr: InodeNr,
        to: InodeNr,
        inode: &mut Inode,
        extents: &[Extent],
        nodes: Vec<BlockNr>,
    ) -> Result<()> {
        let needed = u64_of(build(self, to, inode, extents, &mut || BlockNr::new(0)).nodes.len());
        let before = u64_of(nodes.len());
        let mut places = Vec::new();
        for node in nodes {
            let cluster = self.volume.geometry().cluster_of(node).get();
            if self.is_leaving(node) || u64_of(places.len()) == needed {
                self.leave(cluster..cluster + 1)?;
            } else {
                places.push(node);
            }
        }
        while u64_of(places.len()) < needed {
            places.push(self.take_block("a block of a file's map")?);
        }
        let mut next = places.into_iter();
        let built =
            build(self, to, inode, extents, &mut || next.next().expect("as many blocks as nodes were taken"));
        for (at, bytes) in &built.nodes {
            self.volume.write(*at, bytes)?;
        }
        inode.block = built.root;
        let geometry = self.volume.geometry();
        let shift = geometry.block_size.shift() - 9 + geometry.cluster_ratio_shift;
        inode.sectors = (inode.sectors + (needed << shift)).saturating_sub(before << shift);
        let bytes = (i128::from(needed) - i128::from(before)) << (shift + 9);
        self.quotas.note(&self.volume.sb, nr, inode, bytes);
        Ok(())
    }
}

fn build(
    evacuation: &Evacuation<'_>,
    to: InodeNr,
    inode: &Inode,
    extents: &[Extent],
    next: &mut dyn FnMut() -> BlockNr,
) -> Built {
    let size = evacuation.volume.geometry().block_size;
    match MapKind::of(inode.flags) {
        MapKind::Extents => extent::build(extents, size, inode.seed(to, &evacuation.volume.sb), next),
        MapKind::Blocks => indirect::build(extents, size, next),
    }
}

/// Adds an extent, joined to the one before it where it continues that.
fn push(extents: &mut Vec<Extent>, piece: Extent) {
    match extents.last_mut() {
        Some(last) if last.joins(&piece) => last.len += piece.len,
        _ => extents.push(piece),
    }
}
