//! From a tree to an image: how large it must be, and writing it.
//!
//! [`Image::plan`] finds the exact size without reading any data: it lays the tree out in a planned volume, sees how
//! many blocks it lacks or leaves, and narrows the size down until one block less would not do (or until what is left
//! over is what was asked for). [`Image::write`] then writes data, directories and metadata, each block once, in final
//! form, with several threads; the superblock comes last.
//!
//! Invariants: the bytes of an image depend on the tree and the options alone, if times, UUID and hash seed are given
//! (`SOURCE_DATE_EPOCH` gives all three).
//!
//! Not here: where the image lies and under which name (the caller's), and adding to a volume that exists (the engine).

mod error;
mod explain;
mod size;

pub use error::ImageError;
pub use explain::{Explanation, Part};
pub use size::Size;

use crate::error::ShownPath;
use crate::layout::{Attributes, DirectorySizes, Inodes, LINKS_MAX, Lacking, Layout, TreeContents, Volume};
use crate::tree::{Kind, NodeId, Tree};
use crate::write::Writer;
use hectare_device::Device;
use hectare_ext4::dir;
use hectare_ext4::feature::{Incompat, RoCompat};
use hectare_mkfs::{FormatOptions, InodeCount, Plan};
use hectare_units::{Blocks, Bytes, u64_of};
use std::num::NonZeroUsize;

/// Is told how writing goes on.
pub trait Progress: Sync {
    /// So many more bytes of file data were written.
    fn advance(&self, bytes: Bytes);
}

/// Progress nobody watches.
pub struct Quiet;

impl Progress for Quiet {
    fn advance(&self, _: Bytes) {}
}

/// A tree laid out in a planned volume, ready to be written.
pub struct Image<'t> {
    tree: &'t Tree,
    plan: Plan,
    attributes: Attributes,
    layout: Layout,
    format: dir::Format,
}

/// The name of the directory that every volume has.
pub(crate) const LOST_AND_FOUND: &[u8] = b"lost+found";

impl<'t> Image<'t> {
    /// Lays `tree` out in a volume of the given size. `zeroed` says that the device it will be written to reads as
    /// zeros where nothing was written (a new file).
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

    /// The size of the image, exactly.
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

    /// What each part of the image takes.
    #[must_use]
    pub fn explain(&self) -> Explanation {
        Explanation::new(
            &self.plan.overhead(),
            &self.layout.needs(),
            self.layout.left(),
            self.tree,
            self.plan.geometry(),
        )
    }

    /// Writes the image to a device of at least [`size`](Self::size) bytes.
    ///
    /// # Errors
    /// If a source can't be read or changed since it was scanned, or the device fails; the device then holds no
    /// valid superblock.
    pub fn write(
        &self,
        device: &dyn Device,
        threads: NonZeroUsize,
        progress: &dyn Progress,
    ) -> Result<(), ImageError> {
        let inodes = Inodes {
            tree: self.tree,
            volume: volume_of(&self.plan),
            layout: &self.layout,
            attributes: &self.attributes,
            now: self.plan.options().now,
        };
        let writer = Writer {
            device,
            inodes: &inodes,
            format: &self.format,
            lost_and_found: self.plan.lost_and_found(),
            progress,
        };
        // First the content: the formatter ends with the superblock, and only then there is a volume.
        writer.run(threads)?;
        hectare_mkfs::execute(&self.plan, device, &TreeContents::new(&inodes), threads.get())?;
        Ok(())
    }
}

fn volume_of(plan: &Plan) -> Volume<'_> {
    Volume { sb: plan.superblock(), first_inode: plan.first_free_inode(), root_block: plan.root_block() }
}

/// Refuses what no ext4 volume of these options can hold, naming it.
fn check(tree: &Tree, plan: &Plan) -> Result<(), ImageError> {
    let geometry = plan.geometry();
    if !geometry.features.incompat.contains(Incompat::EXTENTS) {
        return Err(ImageError::Impossible(
            "images are built with extents; leave out -t ext2, -t ext3 and -O ^extent".into(),
        ));
    }
    let size = geometry.block_size;
    let max = Bytes::new(u64::from(u32::MAX) << size.shift());
    let unlimited = geometry.features.ro_compat.contains(RoCompat::DIR_NLINK);
    for id in tree.ids() {
        let shown = || ShownPath::new(&tree.path(id));
        match tree.kind(id) {
            Kind::File { size: bytes } if bytes > max => {
                return Err(ImageError::FileTooLarge {
                    path: shown(),
                    size: bytes,
                    block_size: size.get(),
                    max,
                });
            }
            Kind::Directory if unlimited => {}
            _ if tree.links(id) > LINKS_MAX => {
                return Err(ImageError::TooManyLinks { path: shown(), links: tree.links(id) });
            }
            _ => {}
        }
    }
    Ok(())
}

/// How many inodes a volume must have for a tree.
fn inodes_needed(tree: &Tree, plan: &Plan) -> u64 {
    u64::from(plan.first_free_inode().get()) - 1 + u64_of(tree.len()) - 1
}

/// One try to lay a tree out in a volume of a certain size.
fn attempt<'t>(
    tree: &'t Tree,
    plan: Plan,
    directories: &DirectorySizes,
) -> Result<Result<Image<'t>, Lacking>, ImageError> {
    let attributes = Attributes::new(tree, plan.superblock())?;
    let format = dir::Format::of(plan.superblock()).map_err(hectare_ext4::FormatError::from)?;
    let free: Vec<_> = plan
        .space()
        .map(|range| range.map(|range| range.start.get()..range.start.get() + range.len.get()))
        .collect::<Result<_, _>>()?;
    let layout = Layout::new(tree, volume_of(&plan), &attributes, directories, free.into_iter());
    Ok(layout.map(|layout| Image { tree, plan, attributes, layout, format }))
}

/// The options with a number of inodes that is enough.
fn with_inodes(options: &FormatOptions, inodes: u64) -> FormatOptions {
    FormatOptions { inodes: InodeCount::Exactly(inodes), ..options.clone() }
}

/// Whether the source's root has a directory of its own by the name the formatter uses.
fn own_lost_and_found(tree: &Tree) -> Option<NodeId> {
    tree.children(NodeId::ROOT).find(|(name, _)| *name == LOST_AND_FOUND).map(|(_, id)| id)
}
