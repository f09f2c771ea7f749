//! Writes the content of a laid-out tree: file data, directories, symbolic links, map nodes, attribute
//! blocks.
//!
//! Nodes are divided into batches in the order of the tree, which is also the order of their blocks, and
//! threads take the batches as they come. A worker reads small files directly into one buffer at their
//! offsets in the image, and writes that buffer in one call when it is full or the blocks are not contiguous;
//! large files are copied from the source to the device without the buffer. So an image of many small files
//! costs one write per MiB.
//!
//! Invariants: every block the layout gave out is written whole (padded with zeros); nothing else is written.
//! The bytes written do not depend on threads. The first error stops all workers and is the one returned.

mod gather;

use crate::image_error::ImageError;
use crate::layout::{Inodes, LOST_AND_FOUND, Layout, Load, Volume, file_type, verity_blocks};
use crate::on_demand::{OnDemand, Run};
use crate::progress::Progress;
use crate::source::Opener;
use crate::tree::{Kind, NodeId, Segment};
use gather::{BUFFER, Gather};
use hectare_device::{Device, Reason};
use hectare_ext4::dir::{self, Entry, FileType, Fill};
use hectare_ext4::inode::BLOCK_BYTES;
use hectare_ext4::verity::{self, Builder};
use hectare_ext4::xattr;
use hectare_units::{BlockSize, Blocks, Bytes, index_of, low32, u64_of};
use parking_lot::Mutex;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs of data from this size on are copied past the buffer.
const LARGE: u64 = 512 << 10;
/// Bytes copied between two checks whether to stop.
const PIECE: Bytes = Bytes::mib(16);
/// Nodes a worker takes at a time, and about how many blocks' bytes at most.
const BATCH: u32 = 256;
const BATCH_BYTES: Bytes = Bytes::mib(8);

/// The content to write, and its destination.
pub(crate) struct Writer<'a> {
    pub(crate) device: &'a dyn Device,
    /// The device, if it is one that reads file data later: it gets to know where that is.
    pub(crate) on_demand: Option<&'a OnDemand>,
    pub(crate) inodes: &'a Inodes<'a>,
    pub(crate) progress: &'a dyn Progress,
}

/// The shared state of the workers.
struct Queue {
    next: Mutex<u32>,
    stop: AtomicBool,
    failed: Mutex<Option<ImageError>>,
}

impl Writer<'_> {
    fn load(&self) -> &Load<'_> {
        self.inodes.load
    }

    fn layout(&self) -> &Layout {
        self.inodes.layout
    }

    fn volume(&self) -> Volume<'_> {
        self.inodes.volume
    }

    fn block_size(&self) -> BlockSize {
        self.volume().sb.geometry().block_size
    }

    /// Writes everything with this number of threads.
    ///
    /// # Errors
    /// The first that any worker met.
    pub(crate) fn run(&self, threads: NonZeroUsize) -> Result<(), ImageError> {
        let queue = Queue { next: Mutex::new(0), stop: AtomicBool::new(false), failed: Mutex::new(None) };
        std::thread::scope(|scope| {
            for _ in 1..threads.get() {
                scope.spawn(|| self.work(&queue));
            }
            self.work(&queue);
        });
        match queue.failed.into_inner() {
            Some(error) => Err(error),
            None => {
                self.attribute_blocks()?;
                self.values()?;
                if let Some(device) = self.on_demand {
                    device.sort();
                }
                let tree = self.load().tree;
                // What has another file's blocks is sealed with it.
                let mut sealed = tree.sealed().filter(|id| tree.first_equal(*id).is_none());
                sealed.try_for_each(|id| self.seal(id))
            }
        }
    }

    fn work(&self, queue: &Queue) {
        let mut worker = Worker {
            writer: self,
            stop: &queue.stop,
            opener: self.load().tree.opener(),
            gather: Gather::new(self.device),
            done: Bytes::ZERO,
        };
        if let Err(error) = worker.run(queue) {
            queue.stop.store(true, Ordering::Relaxed);
            queue.failed.lock().get_or_insert(error);
        }
    }

    /// The next nodes to be written; empty at the end.
    fn batch(&self, queue: &Queue) -> Range<u32> {
        let nodes = low32(u64_of(self.load().tree.len())); // ids have 32 bits
        let mut next = queue.next.lock();
        let (first, mut bytes) = (*next, Bytes::ZERO);
        while *next < nodes && *next - first < BATCH && bytes < BATCH_BYTES {
            bytes += self.layout().content_blocks(NodeId::new(*next)).bytes(self.block_size());
            *next += 1;
        }
        first..*next
    }

    /// Writes the attribute values that lie in inodes of their own.
    fn values(&self) -> Result<(), ImageError> {
        let mut gather = Gather::new(self.device);
        for (number, value) in (0..).zip(self.load().attributes.values()) {
            let id = self.volume().value_node(number);
            self.blocks(&mut gather, id, &value.bytes)?;
            self.map_nodes(&mut gather, id)?;
        }
        gather.flush()
    }

    /// Writes what seals a file, which is hashed as it lies on the device.
    fn seal(&self, id: NodeId) -> Result<(), ImageError> {
        let (size, geometry) = (self.block_size(), self.volume().sb.geometry());
        let Some(blocks) = verity_blocks(self.load(), geometry, id) else { return Ok(()) };
        let Kind::File { size: len } = self.load().tree.kind(id) else { return Ok(()) };
        let mut builder = Builder::new(self.load().verity.clone());
        let mut buffer = vec![0; BUFFER];
        let mut at = Bytes::ZERO;
        while at < len {
            let now = (len - at).min(Bytes::of(BUFFER));
            let part = &mut buffer[..index_of(now.get())];
            part.fill(0);
            self.each_run(id, at..at + now, &mut |place, run| {
                let run = index_of((run.start - at).get())..index_of((run.end - at).get());
                Ok(self.device.read_at(place, &mut part[run])?)
            })?;
            builder.add(part);
            at += now;
        }
        let (tree, descriptor) = builder.finish();
        let bytes = verity::behind(&tree, &descriptor, size.len());
        let start = Bytes::new(blocks.start << size.shift());
        self.each_run(id, start..start + Bytes::of(bytes.len()), &mut |place, run| {
            let run = index_of((run.start - start).get())..index_of((run.end - start).get());
            Ok(self.device.write_at(place, &bytes[run])?)
        })
    }

    /// Visits the mapped parts of a range of a node's bytes: where each lies, and which it is.
    fn each_run(
        &self,
        id: NodeId,
        range: Range<Bytes>,
        visit: &mut dyn FnMut(Bytes, Range<Bytes>) -> Result<(), ImageError>,
    ) -> Result<(), ImageError> {
        let size = self.block_size();
        for extent in self.layout().extents(id) {
            let first = extent.logical.offset(size);
            let run = first.max(range.start)..Bytes::new(extent.end() << size.shift()).min(range.end);
            if run.start < run.end {
                visit(extent.physical.offset(size) + (run.start - first), run)?;
            }
        }
        Ok(())
    }

    /// Writes `content` over all blocks of a node.
    fn blocks(&self, gather: &mut Gather<'_>, id: NodeId, content: &[u8]) -> Result<(), ImageError> {
        let size = self.block_size();
        let mut rest = content;
        for extent in self.layout().extents(id) {
            for step in 0..u64::from(extent.len) {
                let at = (extent.physical + Blocks::new(step)).offset(size);
                let (now, after) = rest.split_at(rest.len().min(size.len()));
                gather.room(at, size.len())?[..now.len()].copy_from_slice(now);
                rest = after;
            }
        }
        Ok(())
    }

    /// Writes the nodes of a node's map.
    fn map_nodes(&self, gather: &mut Gather<'_>, id: NodeId) -> Result<(), ImageError> {
        if !self.layout().map_nodes(id).is_empty() {
            let size = self.block_size();
            for (nr, node) in self.inodes.built_map(id).nodes {
                gather.room(nr.offset(size), size.len())?.copy_from_slice(&node);
            }
        }
        Ok(())
    }

    fn attribute_blocks(&self) -> Result<(), ImageError> {
        let sb = self.volume().sb;
        let mut gather = Gather::new(self.device);
        for block in self.layout().attribute_blocks() {
            let Some(mut bytes) = self.load().attributes.block(self.load().tree, block.set) else { continue };
            xattr::set_refcount(&mut bytes, block.references);
            xattr::renumber_in_block(&mut bytes, |nr| self.volume().value_number(nr));
            if let Some(seed) = sb.seed() {
                xattr::seal(&mut bytes, seed, block.nr);
            }
            gather.room(block.nr.offset(self.block_size()), bytes.len())?.copy_from_slice(&bytes);
        }
        gather.flush()
    }
}

/// The state of one thread.
struct Worker<'a> {
    writer: &'a Writer<'a>,
    stop: &'a AtomicBool,
    opener: Opener<'a>,
    gather: Gather<'a>,
    /// Bytes of data written and not yet reported.
    done: Bytes,
}

impl Worker<'_> {
    fn run(&mut self, queue: &Queue) -> Result<(), ImageError> {
        loop {
            let batch = self.writer.batch(queue);
            if batch.is_empty() || self.stopped() {
                return self.gather.flush();
            }
            for nr in batch {
                if self.stopped() {
                    return Ok(());
                }
                self.node(NodeId::new(nr))?;
            }
            self.report();
        }
    }

    /// Whether another worker failed, so that the remaining writes don't matter.
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn report(&mut self) {
        if self.done > Bytes::ZERO {
            self.writer.progress.advance(std::mem::take(&mut self.done));
        }
    }

    /// Writes a node's content.
    fn node(&mut self, id: NodeId) -> Result<(), ImageError> {
        let load = self.writer.load();
        match load.tree.kind(id) {
            _ if Some(id) == load.stand_in => {}
            Kind::File { size } if load.is_inline(id) => self.inline_file(id, size)?,
            _ if load.is_inline(id) => {}
            // Its blocks are another file's.
            Kind::File { .. } if load.tree.first_equal(id).is_some() => {}
            Kind::File { .. } => match self.writer.on_demand {
                Some(device) => self.later(device, id),
                None => self.file(id)?,
            },
            Kind::Directory => self.directory(id)?,
            Kind::Symlink { target } if target.len() >= BLOCK_BYTES => {
                self.writer.blocks(&mut self.gather, id, target)?;
            }
            _ => {}
        }
        self.writer.map_nodes(&mut self.gather, id)
    }

    fn directory(&mut self, id: NodeId) -> Result<(), ImageError> {
        let (load, volume) = (self.writer.load(), self.writer.volume());
        let tree = load.tree;
        let mut entries = Vec::with_capacity(tree.children(id).len() + 1);
        entries.extend(tree.children(id).map(|(name, child)| Entry {
            name: dir::Name::new(name).expect("a tree's names can be in a directory"),
            inode: volume.inode_of(child),
            file_type: file_type(&tree.kind(child)),
        }));
        if id == NodeId::ROOT && load.adds_lost_and_found() {
            entries.push(Entry {
                name: dir::Name::new(LOST_AND_FOUND).expect("a plain name"),
                inode: volume.lost_and_found,
                file_type: FileType::Directory,
            });
        }
        let own = volume.inode_of(id);
        let seed = volume.sb.seed().map(|seed| seed.inode(own, 0));
        let parent = volume.inode_of(tree.parent(id));
        let built =
            dir::build(&entries, own, parent, &load.format, seed, Fill::DEFAULT).map_err(|error| {
                ImageError::Directory {
                    path: crate::ShownPath::new(&tree.path(id)),
                    reason: error.to_string(),
                }
            })?;
        drop(entries);
        let planned = self.writer.layout().content_blocks(id).bytes(self.writer.block_size());
        assert_eq!(Bytes::of(built.blocks.len()), planned, "a directory is built as large as it was planned");
        self.writer.blocks(&mut self.gather, id, &built.blocks)
    }

    /// Writes a file's data, extent by extent: long runs of data past the buffer, everything else through it.
    fn file(&mut self, id: NodeId) -> Result<(), ImageError> {
        let (tree, layout) = (self.writer.load().tree, self.writer.layout());
        let extents = layout.extents(id);
        if extents.len() == 0 {
            return Ok(());
        }
        let size = self.writer.block_size();
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
        Ok(())
    }

    /// Notes where a file's data is to be read from.
    fn later(&self, device: &OnDemand, id: NodeId) {
        let (tree, layout) = (self.writer.load().tree, self.writer.layout());
        let size = self.writer.block_size();
        let mut segments = tree.segments(id).peekable();
        let mut runs = Vec::new();
        for extent in layout.extents(id) {
            let first = extent.logical.offset(size);
            let stop = Bytes::new(extent.end() << size.shift());
            while let Some(segment) = segments.peek().copied().filter(|segment| segment.at < stop) {
                let end = segment.at + segment.len;
                let (from, to) = (segment.at.max(first), end.min(stop));
                if from < to {
                    let place = extent.physical.offset(size) + (from - first);
                    runs.push(Run::new(place, to - from, source_of(&segment, from), id));
                }
                if end > stop {
                    break; // the rest of it lies in the next extent
                }
                segments.next();
            }
        }
        device.add(runs);
    }

    /// Reads a file whose content lies in its inode.
    fn inline_file(&mut self, id: NodeId, size: Bytes) -> Result<(), ImageError> {
        let content = self.opener.open(id)?;
        let mut bytes = vec![0; index_of(size.get())];
        for segment in self.writer.load().tree.segments(id) {
            let part = index_of(segment.at.get())..index_of((segment.at + segment.len).get());
            content.read_exact_at(&mut bytes[part], source_of(&segment, segment.at))?;
            self.done += segment.len;
        }
        content.verify()?;
        self.writer.inodes.inline.put(id, bytes);
        Ok(())
    }

    /// Puts `len` bytes of a file from byte `at` on into the buffer, with zeros where no segment is.
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
            let start = if segment.at > at { segment.at } else { at };
            let stop = (segment.at + segment.len).min(end);
            let target = index_of((start - at).get())..index_of((stop - at).get());
            content.read_exact_at(&mut room[target], source_of(&segment, start))?;
            self.done += stop - start;
        }
        Ok(())
    }

    /// Copies a run of whole blocks from the source to the device without the buffer.
    fn large(
        &mut self,
        content: &crate::Content<'_>,
        place: Bytes,
        len: Bytes,
        source: Bytes,
    ) -> Result<(), ImageError> {
        self.gather.flush()?;
        let mut done = Bytes::ZERO;
        while done < len && !self.stopped() {
            let piece = PIECE.min(len - done);
            let copied =
                self.writer.device.copy_from(place + done, content.fd(), source + done, piece).map_err(
                    |error| match error.reason() {
                        Reason::Source(errno) => content.failed(*errno).into(),
                        _ => ImageError::Device(error),
                    },
                )?;
            if copied < piece {
                return Err(content.ended_early().into());
            }
            done += piece;
            self.done += piece;
            self.report();
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
