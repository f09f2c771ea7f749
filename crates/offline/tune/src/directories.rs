//! Brings directories from the form of one superblock to that of another: with checksums or without, with
//! file types or without, with indexes or as lists.
//!
//! A directory is changed block by block where that is possible. Where a block has no room for a checksum,
//! the whole directory is built anew, in other blocks.
//!
//! Hazard: hashes behind the names of encrypted directories without regard to case are not known here, so
//! such a directory is never built anew.

use crate::error::{Error, Result};
use crate::file::{extents, write_map};
use crate::tree::FileMap;
use crate::volume::Volume;
use hectare_ext4::casefold::Folding;
use hectare_ext4::dir::leaf::Leaf;
use hectare_ext4::dir::{
    self, Entry, FileType, Fill, Format, Name, convert_block, retype, set_checksum, unindex,
};
use hectare_ext4::error::Place;
use hectare_ext4::inline::{self, Rows};
use hectare_ext4::inode::{Inode, InodeFlags};
use hectare_ext4::superblock::SuperBlock;
use hectare_units::{BlockNr, InodeNr, LogicalBlock, u64_of};
use std::cell::RefCell;
use std::collections::HashMap;

/// The two forms of a volume's directories.
pub(crate) struct Forms<'a> {
    from: Format,
    to: Format,
    old: &'a SuperBlock,
    new: &'a SuperBlock,
    /// Types of inodes that were looked up.
    types: RefCell<HashMap<InodeNr, FileType>>,
}

/// A directory that is being changed.
struct Directory<'a> {
    nr: InodeNr,
    inode: &'a mut Inode,
    map: &'a FileMap,
}

/// An entry: its name, the inode it leads to, and that one's type.
type Stored = (Vec<u8>, InodeNr, FileType);

impl<'a> Forms<'a> {
    pub(crate) fn new(old: &'a SuperBlock, new: &'a SuperBlock) -> Result<Self> {
        let (from, to) = (Format::of(old)?, Format::of(new)?);
        Ok(Self { from, to, old, new, types: RefCell::default() })
    }

    fn retypes(&self) -> bool {
        self.from.filetype != self.to.filetype
    }

    /// The forms of one directory.
    fn of(&self, inode: &Inode) -> Result<(Format, Format)> {
        let opaque_names = inode.flags.contains(InodeFlags::ENCRYPT);
        let folds = inode.flags.contains(InodeFlags::CASEFOLD);
        let folding = if folds { Folding::of(self.old)? } else { None };
        let own = |format: Format| Format { opaque_names, folding, ..format };
        Ok((own(self.from), own(self.to)))
    }

    /// Changes a directory in the old form, whose inode is rendered afterwards.
    pub(crate) fn convert(
        &self,
        volume: &mut Volume<'_>,
        nr: InodeNr,
        inode: &mut Inode,
        map: &FileMap,
    ) -> Result<()> {
        if inode.is_inline() {
            return self.convert_inline(volume, nr, inode);
        }
        let mut directory = Directory { nr, inode, map };
        if !self.convert_blocks(volume, &mut directory)? {
            self.rebuild(volume, &mut directory)?;
        }
        Ok(())
    }

    fn convert_inline(&self, volume: &mut Volume<'_>, nr: InodeNr, inode: &mut Inode) -> Result<()> {
        if !self.retypes() {
            return Ok(());
        }
        let place = Place::Inode(nr);
        let mut rows = Rows::of_inode(inode, place)?;
        let targets = RefCell::new(Vec::new());
        rows.retype(|target| {
            targets.borrow_mut().push(target);
            FileType::Unknown.code()
        });
        for target in targets.into_inner() {
            self.file_type(volume, target)?;
        }
        rows.retype(|target| self.known_type(target).code());
        if !inline::store(inode, rows.content(), place)? {
            return Err(Error::refused(format!("{place}: its entries do not fit it")));
        }
        Ok(())
    }

    /// False, with nothing written, if a block has no room for a checksum.
    fn convert_blocks(&self, volume: &mut Volume<'_>, directory: &mut Directory<'_>) -> Result<bool> {
        let (from, to) = self.of(directory.inode)?;
        let was_indexed = directory.inode.flags.contains(InodeFlags::INDEX);
        let indexed = was_indexed && to.index;
        let seed = directory.inode.seed(directory.nr, self.new);
        let mut changed = Vec::new();
        for (logical, block) in directory.map.blocks() {
            let place = Place::FileBlock(directory.nr, logical);
            let mut bytes = volume.read(block)?;
            if from.checksums != to.checksums
                && !convert_block(&mut bytes, (&from, &to), logical, was_indexed, place)?
            {
                return Ok(false);
            }
            if was_indexed && !indexed {
                unindex(&mut bytes, &to, logical, directory.nr, place)?;
            }
            if self.retypes() {
                self.look_up(volume, &mut bytes, block)?;
                retype(&mut bytes, block, |target| self.known_type(target))?;
            }
            set_checksum(&mut bytes, &to, seed, logical, indexed, place)?;
            changed.push((block, bytes));
        }
        directory.inode.flags.set(InodeFlags::INDEX, indexed);
        for (block, bytes) in changed {
            volume.write(block, &bytes)?;
        }
        Ok(true)
    }

    /// Looks up the types of all inodes that a block's entries lead to.
    fn look_up(&self, volume: &mut Volume<'_>, bytes: &mut [u8], block: BlockNr) -> Result<()> {
        let targets = RefCell::new(Vec::new());
        retype(bytes, block, |target| {
            targets.borrow_mut().push(target);
            FileType::Unknown
        })?;
        for target in targets.into_inner() {
            self.file_type(volume, target)?;
        }
        Ok(())
    }

    /// The type that an entry for an inode has in the new form.
    fn file_type(&self, volume: &mut Volume<'_>, nr: InodeNr) -> Result<FileType> {
        if !self.to.filetype {
            return Ok(FileType::Unknown);
        }
        if let Some(known) = self.types.borrow().get(&nr) {
            return Ok(*known);
        }
        let found = volume.kind(nr)?.map_or(FileType::Unknown, FileType::of);
        self.types.borrow_mut().insert(nr, found);
        Ok(found)
    }

    fn known_type(&self, nr: InodeNr) -> FileType {
        self.types.borrow().get(&nr).copied().unwrap_or(FileType::Unknown)
    }

    /// Builds a directory anew.
    fn rebuild(&self, volume: &mut Volume<'_>, directory: &mut Directory<'_>) -> Result<()> {
        let (from, to) = self.of(directory.inode)?;
        let nr = directory.nr;
        if from.opaque_names && from.folding.is_some() {
            let reason = format!(
                "inode {nr} is an encrypted directory without regard to case, with no room for checksums: \
                 make the volume anew, or do without metadata_csum"
            );
            return Err(Error::refused(reason));
        }
        let (parent, entries) = self.entries(volume, directory, &from)?;
        let list: Vec<Entry<'_>> = entries
            .iter()
            .filter_map(|(name, inode, file_type)| {
                let name = if to.opaque_names { Name::opaque(name) } else { Name::new(name) }?;
                Some(Entry { name, inode: *inode, file_type: *file_type })
            })
            .collect();
        let seed = directory.inode.seed(nr, self.new);
        let built = dir::build(&list, nr, parent, &to, seed, Fill::DEFAULT)
            .map_err(|error| Error::refused(format!("inode {nr}: {error}")))?;
        directory.inode.flags.set(InodeFlags::INDEX, built.indexed);
        self.replace_content(volume, directory, &built.blocks)
    }

    /// The parent of a directory, and its entries but for the dots.
    fn entries(
        &self,
        volume: &mut Volume<'_>,
        directory: &Directory<'_>,
        from: &Format,
    ) -> Result<(InodeNr, Vec<Stored>)> {
        let indexed = directory.inode.flags.contains(InodeFlags::INDEX);
        let (mut parent, mut entries) = (directory.nr, Vec::new());
        for (logical, block) in directory.map.blocks() {
            let place = Place::FileBlock(directory.nr, logical);
            let mut bytes = volume.read(block)?;
            if indexed {
                unindex(&mut bytes, from, logical, directory.nr, place)?;
            }
            for record in Leaf::parse(&bytes, from, place)?.records() {
                let record = record?;
                let Some(inode) = record.inode else { continue };
                let file_type =
                    if self.retypes() { self.file_type(volume, inode)? } else { record.file_type };
                match record.name {
                    b"." if logical == LogicalBlock::ZERO => {}
                    b".." if logical == LogicalBlock::ZERO => parent = inode,
                    name => entries.push((name.to_vec(), inode, file_type)),
                }
            }
        }
        Ok((parent, entries))
    }

    /// Gives a directory other blocks with other content.
    fn replace_content(
        &self,
        volume: &mut Volume<'_>,
        directory: &mut Directory<'_>,
        content: &[u8],
    ) -> Result<()> {
        let size = volume.geometry().block_size;
        let goal = directory.map.blocks().next().map_or(BlockNr::new(0), |(_, block)| block);
        let before = volume.free_blocks()?;
        let runs = volume.take(u64_of(content.len() / size.len()), goal)?;
        let blocks = runs.iter().cloned().flatten().map(BlockNr::new);
        for (block, bytes) in blocks.zip(content.chunks_exact(size.len())) {
            volume.write(block, bytes)?;
        }
        let by_extents = directory.inode.flags.contains(InodeFlags::EXTENTS);
        let seed = directory.inode.seed(directory.nr, self.new);
        let (root, _) = write_map(volume, &extents(&runs), by_extents.then_some(seed), goal)?;
        let taken = before - volume.free_blocks()?;
        volume.give_back(&directory.map.runs())?;
        let given = volume.free_blocks()? + taken - before;
        let sectors = |blocks: u64| blocks << (size.shift() - 9);
        let inode = &mut *directory.inode;
        inode.block = root;
        inode.size = u64_of(content.len());
        inode.sectors = (inode.sectors + sectors(taken)).saturating_sub(sectors(given));
        Ok(())
    }
}
