//! The size of each part of an image: `--explain-size`.

use crate::layout::Needs;
use crate::tree::Tree;
use hectare_ext4::geometry::Geometry;
use hectare_mkfs::Overhead;
use hectare_units::{Blocks, Bytes};

/// One part of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// Its name.
    pub name: &'static str,
    /// Its size.
    pub bytes: Bytes,
    /// The option that changes it, where there is one.
    pub hint: &'static str,
}

/// The composition of an image's size. The parts add up to the size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// The parts, in a fixed order; those of size 0 are left out.
    pub parts: Vec<Part>,
    /// Bytes of data in all files, before they were rounded up to blocks.
    pub data: Bytes,
    /// The size of the image.
    pub total: Bytes,
}

impl Explanation {
    pub(super) fn new(
        overhead: &Overhead,
        needs: &Needs,
        left: Blocks,
        tree: &Tree,
        geometry: &Geometry,
    ) -> Self {
        let size = geometry.block_size;
        let parts = [
            ("file data, rounded up to blocks", needs.file_data, "-b, -C"),
            ("directories", needs.directories, ""),
            ("long symbolic links", needs.symlinks, ""),
            ("maps of files", needs.map_nodes, ""),
            ("extended attributes outside inodes", needs.attribute_blocks, "-I"),
            ("inode tables", overhead.inode_tables, "-N, -i, -I"),
            ("journal", overhead.journal, "-J size=, -O ^has_journal"),
            ("superblocks", overhead.superblocks, "-O sparse_super2"),
            ("group descriptors", overhead.descriptors, "-O ^64bit"),
            (
                "descriptors reserved for growing",
                overhead.reserved_descriptors,
                "-O ^resize_inode, -E resize=",
            ),
            ("bitmaps", overhead.bitmaps, ""),
            ("orphan file", overhead.orphan_file, "-O ^orphan_file"),
            ("root, lost+found and other own blocks", overhead.other, ""),
            ("lost by rounding to clusters", overhead.rounding, "-C"),
            ("free", left, "--size, --free"),
        ];
        let parts: Vec<Part> = parts
            .into_iter()
            .filter(|(_, blocks, _)| !blocks.is_zero())
            .map(|(name, blocks, hint)| Part { name, bytes: blocks.bytes(size), hint })
            .collect();
        Self { parts, data: tree.totals().data, total: geometry.bytes() }
    }
}
