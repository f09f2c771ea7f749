//! `hectare build --like OLD`: reads the old image as a model, and counts the blocks that differ from it.

use crate::failure::{Failure, Outcome};
use crate::image::Image;
use crate::image_device::Hold;
use crate::logical::device;
use crate::name::{join, shown};
use crate::partition_args::Part;
use crate::walk::{Entered, Entries};
use crate::write_args::Looking;
use hectare_device::Device;
use hectare_device::os::OsStrExt;
use hectare_engine::Error;
use hectare_ext4::time::Timestamp;
use hectare_mkfs::FormatOptions;
use hectare_populate::{Like, OldInode};
use hectare_units::{BlockSize, Bytes, InodeNr, index_of};
use std::path::Path;

/// Bytes that are compared at a time.
const PIECE: Bytes = Bytes::mib(1);

/// The old image as a model.
///
/// # Errors
/// If it can't be opened, or anything in it can't be read: half a model would move the other half.
pub(super) fn read(path: &Path) -> Outcome<Like> {
    let image = Image::read(path, &Looking::default())?;
    let (volume, failed) = (image.volume(), |error: Error| Failure::of(image.name(), error));
    let journal =
        volume.superblock().journal_inode().map(|nr| volume.stat(nr)).transpose().map_err(failed)?;
    let mut like = Like::new(volume.superblock().clone(), journal.map(|data| Bytes::new(data.size)));
    let (mut entered, mut levels) = (Entered::default(), Vec::new());
    let mut next = Some((InodeNr::ROOT, Vec::new()));
    loop {
        if let Some((nr, path)) = next.take() {
            let failed = |error: Error| image.fail(&path, &error);
            let blocks = volume.inode_blocks(nr).map_err(failed)?;
            let data = volume.stat(nr).map_err(failed)?;
            let old = OldInode {
                inode: nr,
                atime: data.atime,
                mtime: data.mtime,
                extents: blocks.extents,
                map_nodes: blocks.map_nodes,
                attribute_block: blocks.attribute_block,
            };
            like.add(&path, old);
            if data.is_dir() && entered.enter(nr) {
                levels.push((path, Entries::of(nr)));
            }
        }
        let Some((path, entries)) = levels.last_mut() else { return Ok(like) };
        match entries.next(volume) {
            Some(Ok(entry)) => next = Some((entry.inode, relative(path, &entry.name))),
            Some(Err(error)) => return Err(image.fail(path, &error)),
            None => drop(levels.pop()),
        }
    }
}

/// A name in a directory; the root is empty, and no path starts with `/`.
fn relative(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { join(dir, name) }
}

/// Options that keep what identifies the old image, and, without a time of their own, its time.
pub(super) fn options(like: &Like, options: &FormatOptions, epoch: Option<i64>) -> FormatOptions {
    let mut options = like.options(options);
    if epoch.is_none() {
        options.now = Timestamp::from_seconds(like.made());
    }
    options
}

/// Blocks that differ, and all of the new image.
pub(super) struct Changed {
    pub(super) blocks: u64,
    pub(super) of: u64,
}

/// Compares an image with the old one, block by block; what only one has differs.
///
/// # Errors
/// If either can't be read.
pub(super) fn compare(old: &Path, new: &dyn Device, len: Bytes, block: BlockSize) -> Outcome<Changed> {
    let failed = |error: hectare_device::Error| Failure::Line(error.to_string());
    let old = device(old, Part::default(), Hold::Writers)?;
    let mut changed = Changed { blocks: 0, of: len.get() >> block.shift() };
    let mut at = Bytes::ZERO;
    let (mut before, mut after) = (Vec::new(), Vec::new());
    while at < len {
        let piece = PIECE.min(len - at);
        let both = piece.min(old.len().saturating_sub(at));
        before.resize(index_of(both.get()), 0);
        after.resize(index_of(piece.get()), 0);
        if both > Bytes::ZERO {
            old.read_at(at, &mut before).map_err(failed)?;
        }
        new.read_at(at, &mut after).map_err(failed)?;
        let mut before = before.chunks(block.len());
        let differing = after.chunks(block.len()).filter(|bytes| before.next() != Some(*bytes));
        changed.blocks += hectare_units::u64_of(differing.count());
        at += piece;
    }
    Ok(changed)
}

/// Prints how much differs.
pub(super) fn report(old: &Path, changed: &Changed) -> String {
    #[allow(clippy::cast_precision_loss)] // a figure for people
    let percent = 100.0 * changed.blocks as f64 / changed.of.max(1) as f64;
    let old = shown(old.as_os_str().as_bytes());
    format!("{} of {} blocks differ from {old} ({percent:.2} %)", changed.blocks, changed.of)
}
