//! The content and the metadata of what was found.

use crate::map::{self, Mapped};
use crate::names::inline_tail;
use crate::node::{Metadata, NodeId};
use crate::plausible::{Judged, SIZE_MAX};
use crate::salvage::Salvage;
use crate::source::SPAN_MAX;
use crate::survey::LEFT_OUT;
use hectare_ext4::Place;
use hectare_ext4::feature::{Incompat, RoCompat};
use hectare_ext4::inode::{DeviceNumber, Inode, InodeFlags, Kind};
use hectare_ext4::time::Timestamp;
use hectare_units::{InodeNr, index_of, u64_of};
use std::ops::Range;
use std::sync::Arc;

/// Permissions of directories of which only names are left, and of files of which only the map is.
const PRIVATE: u16 = 0o700;

/// The longest range that [`Salvage::read_ahead`] reads, in bytes.
pub const AHEAD_MAX: u64 = SPAN_MAX;

/// The unit in which inodes count, as a power of two of bytes.
const SECTOR_SHIFT: u32 = 9;

/// What a journal's own blocks begin with (`JBD2_MAGIC_NUMBER`, big-endian).
const JOURNAL_MAGIC: [u8; 4] = [0xc0, 0x3b, 0x39, 0x98];

/// An open file.
pub struct File {
    salvage: Arc<Salvage>,
    node: usize,
    size: u64,
    content: Content,
}

enum Content {
    /// In the inode.
    Inline(Vec<u8>),
    /// In blocks of the volume.
    Blocks(Mapped),
}

impl Salvage {
    fn judged(&self, node: usize) -> Option<Judged> {
        let node = &self.tree.nodes[node];
        self.volume.inode_at(node.slot?, node.nr?)
    }

    /// The number that messages name a node by.
    pub(crate) fn number(&self, node: usize) -> InodeNr {
        self.tree.nodes[node].nr.unwrap_or(InodeNr::new(1))
    }

    /// What is known of a node.
    #[must_use]
    pub fn metadata(&self, node: NodeId) -> Metadata {
        let NodeId(at) = node;
        let found = &self.tree.nodes[at];
        let links = self.tree.links.get(&at).copied().unwrap_or(1);
        let Some(Judged { inode, is_proved, .. }) = self.judged(at) else {
            let mode = if found.kind == Kind::Directory { PRIVATE } else { PRIVATE & 0o600 };
            let size = found.extents.as_ref().map_or(0, |extents| end(extents, self.shift()));
            let epoch = Timestamp::from_seconds(0);
            return Metadata {
                kind: found.kind,
                permissions: mode,
                uid: 0,
                gid: 0,
                atime: epoch,
                mtime: epoch,
                links,
                device: DeviceNumber::default(),
                size,
                inode: found.nr,
            };
        };
        let size = if found.kind == Kind::File { self.believed_size(at, &inode, is_proved).0 } else { 0 };
        Metadata {
            kind: found.kind,
            permissions: inode.permissions(),
            uid: inode.uid,
            gid: inode.gid,
            atime: inode.atime,
            mtime: inode.mtime,
            links,
            device: inode.device_number(),
            size,
            inode: found.nr,
        }
    }

    fn shift(&self) -> u32 {
        self.volume.geometry().block_size.shift()
    }

    /// The size of a file, and its map where that was read to find out.
    fn believed_size(&self, node: usize, inode: &Inode, is_proved: bool) -> (u64, Option<Mapped>) {
        let doubtful = !is_proved && self.volume.sb.seed().is_some();
        if !(doubtful || inode.size > SIZE_MAX) || !inode.is_mapped() {
            return (inode.size, None);
        }
        let mapped = self.map(node, inode);
        let end = end(&mapped.extents, self.shift());
        let block = 1 << self.shift();
        let size = if inode.size > SIZE_MAX || inode.size + block <= end { end } else { inode.size };
        if size != inode.size {
            self.doubt_size(node, inode.size, size);
        }
        (size, Some(mapped))
    }

    fn map(&self, node: usize, inode: &Inode) -> Mapped {
        if self.tree.nodes[node].is_left_out {
            return Mapped::default();
        }
        if let Some(extents) = &self.tree.nodes[node].extents {
            return Mapped { extents: extents.to_vec(), ..Mapped::default() };
        }
        let mut budget = self.volume.blocks_there();
        map::map(&self.volume, self.number(node), inode, &mut budget)
    }

    /// Whether it is a regular file with one name in the tree.
    #[must_use]
    pub fn is_plain_file(&self, node: NodeId) -> bool {
        let NodeId(at) = node;
        self.tree.nodes[at].kind == Kind::File && self.tree.links.get(&at).is_none_or(|links| *links <= 1)
    }

    /// Whether a file's content is left out, since it would be more than the device can hold; with the
    /// reason.
    #[must_use]
    pub fn left_out(&self, node: NodeId) -> Option<&str> {
        let node = &self.tree.nodes[node.0];
        let reason = || node.doubts.iter().find(|doubt| doubt.contains(LEFT_OUT));
        node.is_left_out.then(|| reason().map_or(LEFT_OUT, String::as_str))
    }

    /// Where a file's content begins on the device and how much of it follows from there, in bytes, for a
    /// caller that reads files in that order; `None` if its content is in no block.
    #[must_use]
    pub fn place(&self, node: NodeId) -> Option<(u64, u64)> {
        let node = &self.tree.nodes[node.0];
        let shift = self.shift();
        (node.first_run > 0).then(|| (node.first_block << shift, u64::from(node.first_run) << shift))
    }

    /// Reads a range of the device at once, for files in it that are read next; no more than [`AHEAD_MAX`]
    /// bytes.
    pub fn read_ahead(&self, range: Range<u64>) {
        self.volume.source.read_ahead(range);
    }

    /// Opens a regular file. One that is [left out](Self::left_out) is a hole.
    #[must_use]
    pub fn open(self: &Arc<Self>, node: NodeId) -> File {
        let NodeId(at) = node;
        let file = |size, content| File { salvage: Arc::clone(self), node: at, size, content };
        let found = &self.tree.nodes[at];
        let Some(Judged { inode, is_proved, .. }) = self.judged(at) else {
            let extents = found.extents.as_deref().unwrap_or_default();
            let mapped = Mapped { extents: extents.to_vec(), ..Mapped::default() };
            return file(end(extents, self.shift()), Content::Blocks(mapped));
        };
        if inode.flags.contains(InodeFlags::ENCRYPT) {
            self.doubt(at, "it is encrypted: its content is ciphertext".into());
        }
        if inode.is_inline() {
            let content = self.inline(at, &inode);
            return file(u64_of(content.len()), Content::Inline(content));
        }
        let (size, mapped) = self.believed_size(at, &inode, is_proved);
        let mapped = mapped.unwrap_or_else(|| self.map(at, &inode));
        if self.volume.sb.seed().is_none() && found.extents.is_none() && !found.is_left_out {
            self.compare_counts(at, &inode, &mapped, size);
        }
        file(size, Content::Blocks(mapped))
    }

    /// Where no checksum proves an inode and its map, compares what both count: a lost table of a map reads as
    /// holes, and a wrong size cuts the content.
    fn compare_counts(&self, node: usize, inode: &Inode, mapped: &Mapped, size: u64) {
        let shift = self.shift();
        let end = end(&mapped.extents, shift);
        // The hashes of fs-verity lie behind the end.
        let is_sealed = inode.flags.contains(InodeFlags::VERITY);
        if end > size.next_multiple_of(1 << shift) && !is_sealed {
            self.doubt_size(node, size, end);
        }
        let features = self.volume.sb.features();
        // Clusters and values in inodes of their own count as well.
        if features.ro_compat.contains(RoCompat::BIGALLOC) || features.incompat.contains(Incompat::EA_INODE) {
            return;
        }
        let found =
            map::blocks(&mapped.extents) + u64_of(mapped.nodes.len()) + u64::from(inode.file_acl.is_some());
        let (counted, found) = (inode.sectors, found << (shift - SECTOR_SHIFT));
        if counted != found {
            self.doubt(node, format!("it counts {counted} sectors of 512 bytes, and {found} were found"));
        }
    }

    fn doubt_size(&self, node: usize, size: u64, end: u64) {
        self.doubt(node, format!("its size is {size} bytes, and its blocks end at {end}"));
    }

    /// The content of a file that lies in its inode, as far as it is there.
    fn inline(&self, node: usize, inode: &Inode) -> Vec<u8> {
        let tail = inline_tail(inode, Place::Inode(self.number(node)));
        let mut content = inode.block.to_vec();
        content.extend(tail.unwrap_or_default());
        let size = index_of(inode.size.min(1 << 16));
        if content.len() < size {
            self.doubt(node, format!("{} of its {size} bytes are there", content.len()));
        }
        content.truncate(size);
        content
    }

    /// The target of a symbolic link; empty if it is lost.
    #[must_use]
    pub fn read_link(&self, node: NodeId) -> Vec<u8> {
        let NodeId(at) = node;
        let Some(Judged { inode, .. }) = self.judged(at) else { return Vec::new() };
        let block = self.volume.geometry().block_size.len();
        let size = index_of(inode.size.min(u64_of(block)));
        let mut target = if inode.is_inline() {
            self.inline(at, &inode)
        } else if inode.is_fast_symlink() {
            inode.block[..size.min(inode.block.len())].to_vec()
        } else {
            match self.map(at, &inode).extents.first() {
                Some(extent) => self.volume.block(extent.physical),
                None => Vec::new(),
            }
        };
        target.truncate(size);
        let end = target.iter().position(|byte| *byte == 0);
        if end.is_some() || target.is_empty() {
            self.doubt(at, "its target is damaged".into());
        }
        target.truncate(end.unwrap_or(size));
        target
    }
}

/// Where the written content ends, in bytes.
fn end(extents: &[hectare_ext4::extent::Extent], shift: u32) -> u64 {
    extents.iter().filter(|extent| !extent.unwritten).map(|extent| extent.end() << shift).max().unwrap_or(0)
}

impl File {
    /// Bytes of content.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The ranges that hold data, as offset and length; the rest are holes.
    #[must_use]
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        match &self.content {
            Content::Inline(bytes) if bytes.is_empty() => Vec::new(),
            Content::Inline(bytes) => vec![(0, u64_of(bytes.len()))],
            Content::Blocks(mapped) => map::ranges(&mapped.extents, self.salvage.shift(), self.size),
        }
    }

    /// Reads from an offset; returns how much, 0 only at the end. What can't be read is zeros, and a doubt.
    pub fn read_at(&self, at: u64, buffer: &mut [u8]) -> usize {
        let len = index_of(self.size.saturating_sub(at).min(u64_of(buffer.len())));
        let buffer = &mut buffer[..len];
        match &self.content {
            Content::Inline(bytes) => {
                let from = index_of(at.min(self.size));
                buffer.copy_from_slice(&bytes[from..from + len]);
            }
            Content::Blocks(mapped) => self.read_blocks(mapped, at, buffer),
        }
        len
    }

    fn read_blocks(&self, mapped: &Mapped, at: u64, buffer: &mut [u8]) {
        self.read_extents(mapped, at, buffer);
        let shift = self.salvage.shift();
        for block in self.salvage.tree.escaped.get(&self.node).into_iter().flatten() {
            // The log has zeros in place of the journal's own magic number.
            let start = u64::from(block.get()) << shift;
            for (place, byte) in (start..).zip(JOURNAL_MAGIC) {
                if let Some(byte_there) = place.checked_sub(at).and_then(|to| buffer.get_mut(index_of(to))) {
                    *byte_there = byte;
                }
            }
        }
    }

    fn read_extents(&self, mapped: &Mapped, at: u64, buffer: &mut [u8]) {
        let shift = self.salvage.shift();
        let end = at + u64_of(buffer.len());
        let mut done = at;
        let from = mapped.extents.partition_point(|extent| extent.end() << shift <= at);
        for extent in mapped.extents[from..].iter().filter(|extent| !extent.unwritten) {
            let start = u64::from(extent.logical.get()) << shift;
            if start >= end {
                break;
            }
            let (first, last) = (start.max(at), (extent.end() << shift).min(end));
            if first >= last {
                continue;
            }
            buffer[index_of(done - at)..index_of(first - at)].fill(0);
            done = last;
            let part = &mut buffer[index_of(first - at)..index_of(last - at)];
            let place = (extent.physical.get() << shift).saturating_add(first - start);
            for lost in self.salvage.volume.source.read(place, part) {
                let offset = first + (lost.start - place);
                let len = lost.end - lost.start;
                self.salvage
                    .doubt(self.node, format!("{len} bytes from {offset} can't be read and are zeros"));
            }
        }
        buffer[index_of(done - at)..].fill(0);
    }
}
