//! What was salvaged as a tar archive.

use crate::failure::LeftOut;
use crate::name::{join, shown};
use crate::progress::Progress;
use hectare_export::tar::{Archive, Content, Entry};
use hectare_salvage::{AHEAD_MAX, File, Kind, Metadata, NodeId, Salvage};
use hectare_units::{index_of, u64_of};
use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

/// Files that are looked at to read them at once.
const AHEAD_FILES: usize = 64;
/// Bytes read at once.
const STEP: u64 = 1 << 20;

/// Writes all of it.
pub(super) fn write<W: Write>(
    salvage: &Arc<Salvage>,
    out: W,
    left_out: &LeftOut,
    progress: &Progress,
) -> io::Result<W> {
    let mut writer = Writer {
        salvage,
        archive: Archive::new(out),
        first: HashMap::new(),
        buffer: Vec::new(),
        left_out,
        progress,
    };
    let mut waiting = vec![(Vec::new(), salvage.root())];
    let mut ahead = 0..0;
    while let Some((path, node)) = waiting.pop() {
        read_ahead(salvage, node, &waiting, &mut ahead);
        writer.add(&path, node)?;
        let children: Vec<_> =
            salvage.children(node).map(|(name, child)| (join(&path, name), child)).collect();
        waiting.extend(children.into_iter().rev());
    }
    writer.archive.finish()
}

/// Reads what the next files lie in at once, where that is mostly content. `ahead` is what was read last.
fn read_ahead(
    salvage: &Salvage,
    node: NodeId,
    waiting: &[(Vec<u8>, NodeId)],
    ahead: &mut std::ops::Range<u64>,
) {
    let Some((start, len)) = salvage.place(node).filter(|(start, _)| !ahead.contains(start)) else { return };
    let (mut end, mut content) = (start.saturating_add(len), len);
    for (_, next) in waiting.iter().rev().take(AHEAD_FILES) {
        let Some((at, len)) = salvage.place(*next) else { continue };
        let last = at.saturating_add(len);
        if at < end || last - start > AHEAD_MAX {
            break;
        }
        (end, content) = (last, content.saturating_add(len));
    }
    if end - start <= AHEAD_MAX && content > len && content.saturating_mul(2) >= end - start {
        salvage.read_ahead(start..end);
        *ahead = start..end;
    }
}

struct Writer<'a, W> {
    salvage: &'a Arc<Salvage>,
    archive: Archive<W>,
    /// The first path of what has several.
    first: HashMap<NodeId, Vec<u8>>,
    buffer: Vec<u8>,
    left_out: &'a LeftOut,
    progress: &'a Progress,
}

impl<W: Write> Writer<'_, W> {
    fn add(&mut self, path: &[u8], node: NodeId) -> io::Result<()> {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let meta = self.salvage.metadata(node);
        if let Some(first) = self.first.get(&node).cloned() {
            return self.entry(path, node, &meta, Content::HardLink(&first));
        }
        if let Some(reason) = self.why_left_out(node, meta.kind) {
            self.left_out.tell(format_args!("/{}", shown(path)), reason);
            return Ok(());
        }
        if meta.links > 1 && meta.kind != Kind::Directory {
            self.first.insert(node, path.to_vec());
        }
        match meta.kind {
            Kind::File => self.file(path, node, &meta),
            Kind::Directory => self.entry(path, node, &meta, Content::Directory),
            Kind::Symlink => {
                let target = self.salvage.read_link(node);
                self.entry(path, node, &meta, Content::Symlink(&target))
            }
            Kind::CharDevice => self.entry(path, node, &meta, Content::CharDevice(meta.device)),
            Kind::BlockDevice => self.entry(path, node, &meta, Content::BlockDevice(meta.device)),
            Kind::Fifo => self.entry(path, node, &meta, Content::Fifo),
            Kind::Socket => Ok(()), // left out
        }
    }

    /// Why the archive has no entry for this, if that is so.
    fn why_left_out(&self, node: NodeId, kind: Kind) -> Option<&str> {
        match kind {
            Kind::Socket => Some("a socket can't be in an archive, left out"),
            Kind::File => self.salvage.left_out(node),
            _ => None,
        }
    }

    fn entry(&mut self, path: &[u8], node: NodeId, meta: &Metadata, content: Content<'_>) -> io::Result<()> {
        let (mode, uid, gid, mtime) = (meta.permissions, meta.uid, meta.gid, meta.mtime);
        let xattrs = self.salvage.xattrs(node);
        self.archive.entry(&Entry { path, content, mode, uid, gid, mtime, xattrs })?;
        self.progress.file();
        Ok(())
    }

    fn file(&mut self, path: &[u8], node: NodeId, meta: &Metadata) -> io::Result<()> {
        let file = self.salvage.open(node);
        let (size, ranges) = (file.size(), file.ranges());
        let is_dense = size == 0 || ranges == [(0, size)];
        let content = if is_dense { Content::File(size) } else { Content::Sparse(size, &ranges) };
        self.entry(path, node, meta, content)?;
        ranges.iter().try_for_each(|(start, len)| self.range(&file, *start, start + len))
    }

    fn range(&mut self, file: &File, start: u64, end: u64) -> io::Result<()> {
        let mut at = start;
        while at < end {
            let step = (end - at).min(STEP);
            self.buffer.resize(index_of(step), 0);
            let read = file.read_at(at, &mut self.buffer);
            self.buffer[read..].fill(0);
            self.archive.data(&self.buffer)?;
            self.progress.bytes(u64_of(read));
            at += step;
        }
        Ok(())
    }
}
