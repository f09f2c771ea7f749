//! Writing the content of a laid-out tree: file data, directories, symbolic links, map nodes, attribute blocks.
//!
//! Nodes are cut into batches in the order of the tree, which is also the order of their blocks, and threads take the
//! batches as they come. A worker reads small files straight into one buffer at the places they have in the image, and
//! writes that buffer in one call when it is full or the blocks don't follow each other; large files go from the source
//! to the device without passing through the buffer. So an image of many small files costs one write per MiB.
//!
//! Invariants: every block the layout gave out is written whole (padded with zeros); nothing else is written. What is written does not depend on threads. The first error
//! stops all workers and is the one returned.

use crate::image::{ImageError, LOST_AND_FOUND, Progress};
use crate::layout::{Inodes, Layout, Volume};
use crate::source::Opener;
use crate::tree::{Kind, NodeId, Segment, Tree};
use hectare_device::Device;
use hectare_ext4::dir::{self, Entry, FileType, Fill, Format};
use hectare_ext4::inode::BLOCK_BYTES;
use hectare_ext4::xattr;
use hectare_units::{BlockSize, Blocks, Bytes, InodeNr, index_of};
use parking_lot::Mutex;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Bytes gathered before they are written.
const BUFFER: usize = 1 << 20;
/// Files from this size on are copied by themselves.
const LARGE: u64 = 512 << 10;
/// Nodes a worker takes at a time.
const BATCH: u32 = 256;

/// Everything that is written, and where to.
pub(crate) struct Writer<'a> {
    pub(crate) device: &'a dyn Device,
    pub(crate) inodes: &'a Inodes<'a>,
    pub(crate) format: &'a Format,
    /// The inode that the root names lost+found.
    pub(crate) lost_and_found: InodeNr,
    pub(crate) progress: &'a dyn Progress,
}

impl Writer<'_> {
    fn tree(&self) -> &Tree {
        self.inodes.tree
    }

    fn layout(&self) -> &Layout {
        self.inodes.layout
    }

    fn volume(&self) -> Volume<'_> {
        self.inodes.volume
    }

    /// Writes everything with so many threads.
    ///
    /// # Errors
    /// The first that any worker met.
    pub(crate) fn run(&self, threads: NonZeroUsize) -> Result<(), ImageError> {
        let next = AtomicU32::new(0);
        let stop = AtomicBool::new(false);
        let failed: Mutex<Option<ImageError>> = Mutex::new(None);
        std::thread::scope(|scope| {
            for _ in 0..threads.get() {
                scope.spawn(|| {
                    if let Err(error) = self.work(&next, &stop) {
                        stop.store(true, Ordering::Relaxed);
                        failed.lock().get_or_insert(error);
                    }
                });
            }
        });
        match failed.into_inner() {
            Some(error) => Err(error),
            None => self.attribute_blocks(),
        }
    }

    fn work(&self, next: &AtomicU32, stop: &AtomicBool) -> Result<(), ImageError> {
        let nodes = self.tree().ids().len();
        let mut worker =
            Worker { writer: self, opener: self.tree().opener(), gather: Gather::new(self.device) };
        loop {
            let first = next.fetch_add(BATCH, Ordering::Relaxed);
            if hectare_units::usize_of(first) >= nodes || stop.load(Ordering::Relaxed) {
                return worker.gather.flush();
            }
            let mut bytes = 0;
            for nr in (first..first + BATCH).take_while(|nr| hectare_units::usize_of(*nr) < nodes) {
                bytes += worker.node(NodeId::new(nr))?;
            }
            self.progress.advance(Bytes::new(bytes));
        }
    }

    fn attribute_blocks(&self) -> Result<(), ImageError> {
        let sb = self.volume().sb;
        for block in self.layout().attribute_blocks() {
            let set = self.inodes.attributes.by_index(block.set);
            let Some(content) = &set.block else { continue };
            let mut bytes = content.clone();
            xattr::set_refcount(&mut bytes, block.references);
            if let Some(seed) = sb.seed() {
                xattr::seal(&mut bytes, seed, block.nr);
            }
            self.device.write_at(block.nr.offset(sb.geometry().block_size), &bytes)?;
        }
        Ok(())
    }
}

/// Bytes that lie next to each other in the image, gathered to be written at once.
struct Gather<'a> {
    device: &'a dyn Device,
    at: Bytes,
    bytes: Vec<u8>,
}

impl<'a> Gather<'a> {
    fn new(device: &'a dyn Device) -> Self {
        Self { device, at: Bytes::ZERO, bytes: Vec::with_capacity(BUFFER) }
    }

    fn flush(&mut self) -> Result<(), ImageError> {
        if !self.bytes.is_empty() {
            self.device.write_at(self.at, &self.bytes)?;
            self.at += Bytes::of(self.bytes.len());
            self.bytes.clear();
        }
        Ok(())
    }

    /// Room for `len` bytes at `at`, zeroed, to be filled by the caller.
    fn room(&mut self, at: Bytes, len: usize) -> Result<&mut [u8], ImageError> {
        let follows = self.at + Bytes::of(self.bytes.len()) == at;
        if !follows || self.bytes.len() + len > BUFFER {
            self.flush()?;
            self.at = at;
        }
        let start = self.bytes.len();
        self.bytes.resize(start + len, 0);
        Ok(&mut self.bytes[start..])
    }
}

/// One thread's means.
struct Worker<'a> {
    writer: &'a Writer<'a>,
    opener: Opener<'a>,
    gather: Gather<'a>,
}

impl Worker<'_> {
    /// Writes a node's content; how many bytes of data it had.
    fn node(&mut self, id: NodeId) -> Result<u64, ImageError> {
        let bytes = match self.writer.tree().kind(id) {
            Kind::File { .. } => self.file(id)?,
            Kind::Directory => {
                self.directory(id)?;
                0
            }
            Kind::Symlink { target } if target.len() >= BLOCK_BYTES => {
                self.blocks(id, target)?;
                0
            }
            _ => 0,
        };
        if !self.writer.layout().map_nodes(id).is_empty() {
            let size = self.block_size();
            for (nr, node) in self.writer.inodes.built_map(id).nodes {
                self.gather.room(nr.offset(size), size.len())?.copy_from_slice(&node);
            }
        }
        Ok(bytes)
    }

    fn block_size(&self) -> BlockSize {
        self.writer.volume().sb.geometry().block_size
    }

    /// Writes `content` over all blocks of a node.
    fn blocks(&mut self, id: NodeId, content: &[u8]) -> Result<(), ImageError> {
        let size = self.block_size();
        let mut rest = content;
        for extent in self.writer.layout().extents(id) {
            for step in 0..u64::from(extent.len) {
                let at = (extent.physical + Blocks::new(step)).offset(size);
                let (now, after) = rest.split_at(rest.len().min(size.len()));
                self.gather.room(at, size.len())?[..now.len()].copy_from_slice(now);
                rest = after;
            }
        }
        Ok(())
    }

    fn directory(&mut self, id: NodeId) -> Result<(), ImageError> {
        let (tree, volume) = (self.writer.tree(), self.writer.volume());
        let entry = |(name, child)| Entry {
            name: dir::Name::new(name).expect("a tree's names can be in a directory"),
            inode: volume.inode_of(child),
            file_type: file_type(&tree.kind(child)),
        };
        let extra = (id == NodeId::ROOT).then(|| Entry {
            name: dir::Name::new(LOST_AND_FOUND).expect("a plain name"),
            inode: self.writer.lost_and_found,
            file_type: FileType::Directory,
        });
        let entries: Vec<Entry<'_>> = tree.children(id).map(entry).chain(extra).collect();
        let own = volume.inode_of(id);
        let seed = volume.sb.seed().map(|seed| seed.inode(own, 0));
        let parent = volume.inode_of(tree.parent(id));
        let built =
            dir::build(&entries, own, parent, self.writer.format, seed, Fill::DEFAULT).map_err(|error| {
                ImageError::Directory {
                    path: crate::ShownPath::new(&tree.path(id)),
                    reason: error.to_string(),
                }
            })?;
        let planned: u64 = self.writer.layout().extents(id).iter().map(|extent| u64::from(extent.len)).sum();
        assert_eq!(
            Bytes::of(built.blocks.len()),
            Blocks::new(planned).bytes(self.block_size()),
            "a directory is built as large as it was planned"
        );
        self.blocks(id, &built.blocks)
    }

    /// Writes a file's data, extent by extent: long runs of data past the buffer, everything else through it.
    fn file(&mut self, id: NodeId) -> Result<u64, ImageError> {
        let (tree, layout) = (self.writer.tree(), self.writer.layout());
        let extents = layout.extents(id);
        if extents.is_empty() {
            return Ok(0);
        }
        let size = self.block_size();
        let content = self.opener.open(id)?;
        let mut segments = tree.segments(id).peekable();
        for extent in extents {
            let mut at = extent.logical.offset(size);
            let stop = Bytes::new(extent.end() << size.shift());
            while at < stop {
                while segments.next_if(|segment| segment.at + segment.len <= at).is_some() {}
                let place = extent.physical.offset(size) + (at - extent.logical.offset(size));
                let run =
                    segments.peek().map_or(Bytes::ZERO, |segment| whole_blocks(segment, at, stop, size));
                let len = if run.get() >= LARGE {
                    self.gather.flush()?;
                    let source = segments.peek().map_or(Bytes::ZERO, |segment| source_of(segment, at));
                    self.large(&content, place, run, source)?;
                    run
                } else {
                    let len = (stop - at).min(Bytes::of(BUFFER));
                    self.gathered(&content, segments.clone(), place, at, len)?;
                    len
                };
                at += len;
            }
        }
        content.verify()?;
        Ok(tree.segments(id).map(|segment| segment.len.get()).sum())
    }

    /// Puts `len` bytes of a file from byte `at` on into the buffer, what no segment covers as zeros.
    fn gathered(
        &mut self,
        content: &crate::Content<'_>,
        segments: impl Iterator<Item = Segment>,
        place: Bytes,
        at: Bytes,
        len: Bytes,
    ) -> Result<(), ImageError> {
        let end = at + len;
        let room = self.gather.room(place, index_of(len.get()))?;
        for segment in segments.take_while(|segment| segment.at < end) {
            let start = segment.at.max(at);
            let stop = (segment.at + segment.len).min(end);
            let target = index_of((start - at).get())..index_of((stop - at).get());
            content.read_exact_at(&mut room[target], source_of(&segment, start))?;
        }
        Ok(())
    }

    /// Copies a run of whole blocks from the source to the device without the buffer.
    fn large(
        &self,
        content: &crate::Content<'_>,
        place: Bytes,
        len: Bytes,
        source: Bytes,
    ) -> Result<(), ImageError> {
        let mut done = Bytes::ZERO;
        while done < len {
            let copied =
                self.writer.device.copy_from(place + done, content.fd(), source + done, len - done)?;
            if copied == Bytes::ZERO {
                content.read_exact_at(&mut [0], source + done)?; // says that the file became shorter
            }
            done += copied;
        }
        Ok(())
    }
}

/// Where byte `at` of a file, which lies in `segment`, is found in the source.
fn source_of(segment: &Segment, at: Bytes) -> Bytes {
    segment.source + (at - segment.at)
}

/// How many bytes from `at` on, up to `stop`, are whole blocks of this segment.
fn whole_blocks(segment: &Segment, at: Bytes, stop: Bytes, size: BlockSize) -> Bytes {
    if segment.at > at {
        return Bytes::ZERO;
    }
    let end = (segment.at + segment.len).min(stop);
    let whole = end - Bytes::of(size.within(end));
    whole.saturating_sub(at)
}

pub(crate) fn file_type(kind: &Kind<'_>) -> FileType {
    match kind {
        Kind::Directory => FileType::Directory,
        Kind::File { .. } => FileType::Regular,
        Kind::Symlink { .. } => FileType::Symlink,
        Kind::CharDevice { .. } => FileType::CharDevice,
        Kind::BlockDevice { .. } => FileType::BlockDevice,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
    }
}
