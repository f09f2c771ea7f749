//! Makes an image of a tree: finds its size, and writes it.
//!
//! [`Image::plan`] finds the exact size without reading any data: it measures the tree in planned volumes of
//! one size after another, sees how many blocks are lacking or left over, and narrows the size down until one
//! block less would not be enough (or until as much is left over as was requested). [`Image::write`] then
//! writes data, directories and metadata, each block once, in final form, with several threads; the
//! superblock comes last.
//!
//! Invariants: the bytes of an image depend on the tree and the options alone, never on threads, if time,
//! UUID and hash seed are given ([`reproducible()`] gives all three). A source's empty `/lost+found` becomes
//! the volume's own.
//!
//! Not here: the path of the image (the caller's), and adding to a volume that exists (the engine).

mod check;
mod explain;
mod reproducible;
mod size;

pub use explain::{Explanation, Part};
pub use reproducible::reproducible;
pub use size::Size;

use crate::image_error::ImageError;
use crate::layout::{InlineContents, Inodes, Layout, Load, TreeContents, Volume};
use crate::like::Like;
use crate::on_demand::OnDemand;
use crate::progress::{Progress, Quiet};
use crate::tree::Tree;
use crate::write::Writer;
use hectare_device::Device;
use hectare_mkfs::{FormatOptions, Plan};
use hectare_units::{Blocks, Bytes};
use std::num::NonZeroUsize;
use std::sync::Arc;

/// A tree laid out in a planned volume, ready to be written.
pub struct Image<'t> {
    load: Load<'t>,
    plan: Plan,
    layout: Layout,
}

impl<'t> Image<'t> {
    /// Lays `tree` out in a volume of the given size. `zeroed` says that the device it will be written to
    /// reads as zeros where nothing was written (a new file).
    ///
    /// # Errors
    /// [`ImageError::TooSmall`] says how much a given size lacks; other errors name the option or file.
    pub fn plan(
        tree: &'t Tree,
        options: &FormatOptions,
        size: Size,
        zeroed: bool,
    ) -> Result<Self, ImageError> {
        size::Search::new(tree, options, zeroed)?.run(size)
    }

    /// Lays `tree` out like an older image, in a volume of the same size, or a larger one if it needs more.
    ///
    /// # Errors
    /// If the options give another kind of volume than the old one; others as for [`plan`](Self::plan).
    pub fn plan_like(
        tree: &'t Tree,
        options: &FormatOptions,
        like: Like,
        zeroed: bool,
    ) -> Result<Self, ImageError> {
        size::Search::new_like(tree, options, &like, zeroed)?.run_like(like)
    }

    /// The exact size of the volume. For [`Size::Exactly`] it can be less than requested: by the remainder of
    /// the last block, and by a last group too small to be of use.
    #[must_use]
    pub fn size(&self) -> Bytes {
        self.plan.geometry().bytes()
    }

    /// The planned volume.
    #[must_use]
    pub fn format(&self) -> &Plan {
        &self.plan
    }

    /// Free blocks of the image, those reserved for root included.
    #[must_use]
    pub fn free(&self) -> Blocks {
        self.layout.left()
    }

    /// Bytes of blocks that files share with others before them, and that so are stored once.
    #[must_use]
    pub fn shared(&self) -> Bytes {
        let size = self.plan.geometry().block_size;
        let blocks = |id| self.layout.content_blocks(id).get();
        Blocks::new(self.load.tree.duplicates.ids().map(blocks).sum()).bytes(size)
    }

    /// The size of each part of the image.
    ///
    /// # Errors
    /// If the metadata of a group does not fit.
    pub fn explain(&self) -> Result<Explanation, ImageError> {
        Ok(Explanation::new(
            &self.plan.overhead()?,
            &self.layout.needs(),
            self.layout.left(),
            self.load.tree,
            self.plan.geometry(),
        ))
    }

    /// Writes the image to a device of at least [`size`](Self::size) bytes, and flushes it.
    ///
    /// # Errors
    /// If a source can't be read or changed since it was scanned, or the device fails; the device then holds
    /// no valid superblock.
    pub fn write(
        &self,
        device: &dyn Device,
        threads: NonZeroUsize,
        progress: &dyn Progress,
    ) -> Result<(), ImageError> {
        self.write_to(device, None, threads, progress)
    }

    /// Makes the image a device that holds its metadata, and reads file data from the sources when it is
    /// asked for. `report` is called once for each file that can't be read any more, or changed, with a line
    /// that says so.
    ///
    /// # Errors
    /// As [`write`](Self::write), for what has to be read now: small files that lie in inodes, and those
    /// to be sealed.
    ///
    /// # Panics
    /// If `tree` is not the one that was planned.
    pub fn on_demand(
        &self,
        tree: &Arc<Tree>,
        threads: NonZeroUsize,
        report: Box<dyn Fn(&str) + Send + Sync>,
    ) -> Result<OnDemand, ImageError> {
        assert!(std::ptr::eq(self.load.tree, &raw const **tree), "the tree is the one that was planned");
        let device = OnDemand::new(Arc::clone(tree), self.size(), report);
        self.write_to(&device, Some(&device), threads, &Quiet)?;
        device.finish();
        Ok(device)
    }

    fn write_to(
        &self,
        device: &dyn Device,
        on_demand: Option<&OnDemand>,
        threads: NonZeroUsize,
        progress: &dyn Progress,
    ) -> Result<(), ImageError> {
        let volume = Volume::new(&self.plan, &self.load);
        let now = self.plan.options().now;
        let inline = InlineContents::default();
        let inodes = Inodes { load: &self.load, volume, layout: &self.layout, inline: &inline, now };
        let writer = Writer { device, on_demand, inodes: &inodes, progress };
        let contents = TreeContents::new(&inodes);
        // First the old content is given up, then the new content is written; the formatter writes the
        // superblock last, and only then there is a volume.
        let plan = hectare_mkfs::clear(&self.plan, device, threads.get())?;
        writer.run(threads)?;
        assert_eq!(inline.len(), self.load.inline_files(), "the content of every inode was read");
        hectare_mkfs::lay_down(&plan, device, &contents, threads.get())?;
        Ok(())
    }
}
