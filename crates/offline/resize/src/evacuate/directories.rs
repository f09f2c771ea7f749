//! Changes directories: numbers of inodes in their entries, their checksums, and where their blocks lie.

use super::{Evacuation, is_directory};
use crate::error::Result;
use hectare_ext4::dir;
use hectare_ext4::error::Place;
use hectare_ext4::extent::Extent;
use hectare_ext4::inline::{self, Inline};
use hectare_ext4::inode::{Inode, InodeFlags};
use hectare_ext4::xattr::{Area, Name, ValueRef};
use hectare_units::{BlockNr, InodeNr, LogicalBlock};

impl Evacuation<'_> {
    /// Writes the blocks of a directory that move, or whose entries or checksums change. It will have the
    /// number `to`, which is another one if `reseeds`.
    pub(super) fn directory(
        &mut self,
        to: InodeNr,
        inode: &Inode,
        old: &[Extent],
        new: &[Extent],
        reseeds: bool,
    ) -> Result<()> {
        if self.numbers.is_empty() && old == new {
            return Ok(());
        }
        let seed = inode.seed(to, &self.volume.sb);
        let indexed = inode.flags.contains(InodeFlags::INDEX);
        let place = Place::Inode(to);
        for (logical, from, at) in blocks(old, new) {
            let mut bytes = self.volume.read(from)?;
            let renumbered = dir::renumber(&mut bytes, from, |nr| self.numbers.of(nr))?;
            if renumbered || reseeds {
                dir::set_checksum(&mut bytes, &self.format, seed, logical, indexed, place)?;
            }
            if renumbered || reseeds || from != at {
                self.volume.write(at, &bytes)?;
            }
        }
        Ok(())
    }

    /// Changes the numbers in a directory whose entries lie in its inode.
    pub(super) fn inline_directory(&mut self, nr: InodeNr, inode: &mut Inode) -> Result<()> {
        if self.numbers.is_empty() || !is_directory(inode) || !inode.is_inline() {
            return Ok(());
        }
        let place = Place::Inode(nr);
        let mut rows = {
            let area = Area::in_inode(inode.xattr_area(), place)?;
            let entry = area.as_ref().and_then(|area| area.find(&Name::inline_data()));
            let data = entry.and_then(|entry| match entry.value {
                ValueRef::Inline(bytes) => Some(bytes),
                ValueRef::Inode { .. } => None,
            });
            Inline::new(&inode.block, data, inode.bytes(), place)?.rows()?
        };
        let before = rows.content().to_vec();
        rows.renumber(|nr| self.numbers.of(nr));
        if rows.content() != before && !inline::store(inode, rows.content(), place)? {
            return Err(super::corrupt(nr, "its inline entries don't fit any more"));
        }
        Ok(())
    }
}

/// The blocks of a file with where they lay and where they will lie.
fn blocks<'a>(
    old: &'a [Extent],
    new: &'a [Extent],
) -> impl Iterator<Item = (LogicalBlock, BlockNr, BlockNr)> + 'a {
    let each = |extents: &'a [Extent]| {
        extents.iter().flat_map(|extent| {
            let blocks = (extent.logical.get()..).zip(extent.physical.get()..);
            blocks.take(hectare_units::usize_of(extent.len))
        })
    };
    each(old)
        .zip(each(new))
        .map(|((logical, from), (_, to))| (LogicalBlock::new(logical), BlockNr::new(from), BlockNr::new(to)))
}
