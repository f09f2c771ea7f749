//! Directories: every entry leads to an inode in use, under a name that is there once.
//!
//! First all directories are read to learn which names each other has: of several parents that name a
//! directory, the one whose name lies in the first block is its parent. Then each directory whose content is
//! broken, or holds entries that can't stay, is written anew.

mod connectivity;
mod content;
mod hashed_directory;
mod names;

use crate::directories::content::Content;
use crate::directories::hashed_directory::is_hashed;
use crate::directories::names::Changes;
use crate::error::Error;
use crate::know::known::Info;
use crate::know::map::Map;
use crate::know::slot::Slot;
use crate::know::stored::Stored;
use crate::know::work::Work;
use hectare_check::What;
use hectare_ext4::casefold::Folding;
use hectare_ext4::dir::{self, Entry, FileType, Fill, Format, Name};
use hectare_ext4::error::Place;
use hectare_ext4::feature::{Compat, Incompat};
use hectare_ext4::inline;
use hectare_ext4::inode::{Inode, InodeFlags, Kind};
use hectare_ext4::map::MapKind;
use hectare_units::{BlockNr, InodeNr, LogicalBlock, index_of};
use std::collections::{BTreeMap, BTreeSet};

impl Work<'_> {
    /// Mends all directories.
    pub(crate) fn mend_directories(&mut self) -> Result<(), Error> {
        if Format::of(&self.sb).is_err() {
            self.mended(What::Superblock, Place::Volume, "its default hash was unknown: half_md4");
            self.edit_superblock(|raw| raw.s_def_hash_version = 1);
        }
        self.require_root()?;
        self.find_parents()?;
        let mut next = 0;
        while let Some(nr) = self.next_directory(next)? {
            next = nr.get().saturating_add(1);
            let Some(slot) = self.slot(nr)? else { continue };
            self.mend_directory(slot)?;
        }
        self.end_half_dead()
    }

    /// The first directory from a number on that names may lead to.
    fn next_directory(&self, from: u32) -> Result<Option<InodeNr>, Error> {
        let mut next = from;
        while let Some((nr, info)) = self.inodes.first_from(next)? {
            if info.is_directory() && !info.hidden {
                return Ok(Some(InodeNr::new(nr)));
            }
            let Some(after) = nr.checked_add(1) else { break };
            next = after;
        }
        Ok(None)
    }

    /// Makes a root where there is none.
    fn require_root(&mut self) -> Result<(), Error> {
        if self.inodes.kind(InodeNr::ROOT.get())? == Some(Kind::Directory) {
            return Ok(());
        }
        self.lost(What::Tree, Place::Inode(InodeNr::ROOT), "there is no root directory: a new one is made");
        let Some(mut slot) = self.slot(InodeNr::ROOT)? else { return Ok(()) };
        self.make_directory(&mut slot, 0o755, InodeNr::ROOT)
    }

    /// Makes a slot an empty directory.
    pub(crate) fn make_directory(
        &mut self,
        slot: &mut Slot,
        permissions: u16,
        parent: InodeNr,
    ) -> Result<(), Error> {
        self.fresh_task(slot, permissions);
        slot.raw().i_mode = (Kind::Directory.mode_bits() | permissions).into();
        slot.raw().i_links_count = 2.into();
        let (parent_nr, new) = (parent.get(), Info::new(Kind::Directory));
        self.inodes.insert(slot.nr.get(), Info { parent: parent_nr, dot_dot: parent_nr, ..new })?;
        self.write_directory(slot, &[], parent).map(drop)
    }

    /// Learns which directory names each directory.
    fn find_parents(&mut self) -> Result<(), Error> {
        // The first is kept with the directory, and only where there are more all others.
        let mut others: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let mut next = 0;
        while let Some(nr) = self.next_directory(next)? {
            next = nr.get().saturating_add(1);
            let Some(slot) = self.slot(nr)? else { continue };
            let content = self.read_directory(&slot)?;
            for entry in &content.entries {
                let child = self.inodes.get(entry.inode)?.filter(Info::is_directory);
                let Some(child) = child.filter(|_| entry.inode != InodeNr::ROOT.get()) else { continue };
                if self.why_no_name(&slot, entry)?.is_some() {
                    continue;
                }
                if child.parent == 0 {
                    self.inodes.change(entry.inode, |info| info.parent = nr.get())?;
                } else {
                    others.entry(entry.inode).or_default().push(nr.get());
                }
            }
            self.inodes.change(nr.get(), |info| info.dot_dot = content.dot_dot)?;
        }
        for (child, parent) in self.first_names(others)? {
            self.inodes.change(child, |info| info.parent = parent)?;
        }
        self.inodes.change(InodeNr::ROOT.get(), |root| root.parent = InodeNr::ROOT.get())
    }

    /// The directory that has the first name of each that is in several: in the order of blocks, and those
    /// that begin an indexed directory first, as e2fsck takes them. A name of a directory's own parent counts
    /// only where there is no other: else one wrong number of an inode would cut both off.
    fn first_names(&self, mut others: BTreeMap<u32, Vec<u32>>) -> Result<BTreeMap<u32, u32>, Error> {
        for (child, parents) in &mut others {
            parents.extend(self.inodes.get(*child)?.map(|info| info.parent));
        }
        let readable: BTreeSet<u32> = others.values().flatten().copied().collect();
        let indexes = self.sb.features().compat.contains(Compat::DIR_INDEX);
        let mut first: BTreeMap<u32, (bool, bool, u64, u32)> = BTreeMap::new();
        for parent in readable {
            let Some(slot) = self.slot(InodeNr::new(parent))? else { continue };
            let above = self.inodes.get(parent)?.map(|info| info.dot_dot);
            for (logical, physical, entries) in self.entries_by_block(&slot)? {
                for entry in entries.iter().filter(|entry| others.contains_key(&entry.inode)) {
                    if self.why_no_name(&slot, entry)?.is_some() {
                        continue;
                    }
                    let place = (above == Some(entry.inode), indexes && logical > 0, physical, parent);
                    let known = first.entry(entry.inode).or_insert(place);
                    *known = place.min(*known);
                }
            }
        }
        Ok(first.into_iter().map(|(child, (.., parent))| (child, parent)).collect())
    }

    fn mend_directory(&mut self, mut slot: Slot) -> Result<(), Error> {
        let place = Place::Inode(slot.nr);
        let content = self.read_directory(&slot)?;
        let mut changes = Changes::default();
        let kept = self.kept_entries(&slot, &content, &mut changes)?;
        let suspect = self.suspects.directories.contains(&slot.nr.get());
        let quiet = content.broken.is_none() && changes.lost.is_empty() && changes.mended.is_empty();
        let parent = self.inodes.get(slot.nr.get())?.map_or(0, |info| info.parent);
        if quiet && !suspect {
            if parent != 0 && content.dot_dot != parent {
                self.set_dot_dot(&slot, parent)?;
            }
            return Ok(());
        }
        if let Some(reason) = content.broken {
            self.lost(What::Directory, place, format!("{reason}: written anew with what is sound"));
        } else if quiet {
            self.mended(What::Directory, place, "written anew");
        }
        for text in changes.lost {
            self.lost(What::Directory, place, text);
        }
        for text in changes.mended {
            self.mended(What::Directory, place, text);
        }
        let parent = InodeNr::from_disk(parent).unwrap_or(InodeNr::ROOT);
        self.write_directory(&mut slot, &kept, parent).map(drop)
    }

    /// The entries that stay; counts them as names of what they lead to.
    fn kept_entries(
        &mut self,
        slot: &Slot,
        content: &Content,
        changes: &mut Changes,
    ) -> Result<Vec<Stored>, Error> {
        let kept = self.sound_entries(slot, content, changes)?;
        let kept = self.distinct_names(slot, kept, changes);
        for entry in &kept {
            self.inodes.change(entry.inode, |info| info.refs = info.refs.saturating_add(1))?;
        }
        Ok(kept)
    }

    /// The entries that can stay, with names that can be.
    fn sound_entries(
        &self,
        slot: &Slot,
        content: &Content,
        changes: &mut Changes,
    ) -> Result<Vec<Stored>, Error> {
        let mut children = BTreeSet::new();
        let mut kept = Vec::with_capacity(content.entries.len());
        for stored in &content.entries {
            let mut entry = stored.clone();
            let shown = stored.name.escape_ascii().to_string();
            if let Some(reason) = self.why_no_entry(slot, &entry)? {
                changes.lost.push(format!("\"{shown}\" {reason}: removed"));
                continue;
            }
            entry.name = self.corrected(slot, &entry.name, changes);
            let kind = self.inodes.kind(entry.inode)?;
            if kind == Some(Kind::Directory) && !children.insert(entry.inode) {
                changes
                    .lost
                    .push(format!("\"{shown}\" is a second name of directory {}: removed", entry.inode));
                continue;
            }
            let code = self.type_code(kind);
            if entry.file_type != code && entry.file_type != 0 {
                changes.mended.push(format!("\"{shown}\" had the type {}: now {code}", entry.file_type));
            }
            entry.file_type = code;
            kept.push(entry);
        }
        Ok(kept)
    }

    /// The type that is stored for a kind.
    pub(crate) fn type_code(&self, kind: Option<Kind>) -> u8 {
        let stores = self.sb.features().incompat.contains(Incompat::FILETYPE);
        kind.filter(|_| stores).map_or(0, |kind| file_type(kind).code())
    }

    /// The form of one directory.
    fn format_of(&self, slot: &Slot) -> Option<Format> {
        let format = Format::of(&self.sb).ok()?;
        let encrypted = slot.has(InodeFlags::ENCRYPT);
        let folds = slot.has(InodeFlags::CASEFOLD) && !encrypted;
        let folding = if folds { Folding::of(&self.sb).ok().flatten() } else { None };
        Some(Format { opaque_names: encrypted, folding, ..format })
    }

    /// Writes a directory with these entries, elsewhere if there is space. Returns how many were written.
    pub(crate) fn write_directory(
        &mut self,
        slot: &mut Slot,
        entries: &[Stored],
        parent: InodeNr,
    ) -> Result<usize, Error> {
        let inside = slot.has(InodeFlags::INLINE_DATA).then(|| slot.clone());
        if inside.is_some() {
            if self.write_inline(slot, entries, parent)? {
                return Ok(entries.len());
            }
            self.take_out(slot);
        }
        if is_hashed(slot) {
            return self.write_hashed(slot, entries, parent);
        }
        let Some(format) = self.format_of(slot) else { return Ok(entries.len()) };
        let plain = Format { index: false, ..format };
        let Some(built) = self.build_directory(slot, entries, parent, &plain) else {
            let reason = format!("inode {}: the entries of the directory can't be laid out", slot.nr);
            return Err(Error::Refused(reason));
        };
        let mut map = self.read_map(slot)?;
        let extra = self.extra_clusters(slot)?;
        let indexed = if format.index { self.build_directory(slot, entries, parent, &format) } else { None };
        for built in indexed.into_iter().chain([built]) {
            if self.lay_out(slot, &mut map, extra, &built)? {
                if inside.is_some() {
                    let text = "it no longer fits its inode: it gets blocks";
                    self.mended(What::Directory, Place::Inode(slot.nr), text);
                }
                self.put_slot(slot)?;
                return Ok(entries.len());
            }
        }
        self.write_what_fits(inside.as_ref().unwrap_or(slot), entries, parent, &plain)
    }

    /// Writes as many of a directory's entries as fit where it lies; the last are those that were added.
    fn write_what_fits(
        &mut self,
        slot: &Slot,
        entries: &[Stored],
        parent: InodeNr,
        format: &Format,
    ) -> Result<usize, Error> {
        let mut slot = slot.clone();
        let inside = slot.has(InodeFlags::INLINE_DATA);
        let mut map = self.read_map(&slot)?;
        let room = index_of(map.blocks()).saturating_mul(format.block_size.len());
        let fits = |work: &Self, count: usize| match inside {
            true => work.with_inline(&slot, &entries[..count], parent).is_some(),
            false => work
                .build_directory(&slot, &entries[..count], parent, format)
                .is_some_and(|built| built.blocks.len() <= room),
        };
        let (mut least, mut most) = (0, entries.len());
        while least < most {
            let middle = most - (most - least) / 2;
            if fits(self, middle) { least = middle } else { most = middle - 1 }
        }
        let left = entries.len() - least;
        if left > 0 {
            self.lost(What::Directory, Place::Inode(slot.nr), format!("no space for {left} of its entries"));
        }
        if inside {
            self.write_inline(&mut slot, &entries[..least], parent)?;
            return Ok(least);
        }
        let extra = self.extra_clusters(&slot)?;
        let is_written = match self.build_directory(&slot, &entries[..least], parent, format) {
            Some(built) => self.lay_out(&mut slot, &mut map, extra, &built)?,
            None => false,
        };
        self.put_slot(&mut slot)?;
        Ok(if is_written { least } else { 0 })
    }

    /// Writes the blocks of a directory; false if there is no space.
    fn lay_out(
        &mut self,
        slot: &mut Slot,
        map: &mut Map,
        extra: u64,
        built: &dir::Built,
    ) -> Result<bool, Error> {
        if !self.allot_anew(slot, map, built.blocks.len() / self.geometry().block_size.len())? {
            return Ok(false);
        }
        let clusters = self.map_clusters(map) + extra;
        self.set_block_count(slot, clusters);
        slot.set_flag(InodeFlags::INDEX, built.indexed);
        self.put_blocks(map, &built.blocks)?;
        Ok(true)
    }

    /// Writes the content of a directory to where its map leads.
    fn put_blocks(&self, map: &Map, bytes: &[u8]) -> Result<(), Error> {
        let places = map
            .extents
            .iter()
            .flat_map(|extent| (0..u64::from(extent.len)).map(|i| BlockNr::new(extent.physical.get() + i)));
        for (at, block) in places.zip(bytes.chunks_exact(self.geometry().block_size.len())) {
            self.put_block(at, block)?;
        }
        Ok(())
    }

    /// Writes a directory whose records hold hashes.
    fn write_hashed(&mut self, slot: &mut Slot, entries: &[Stored], parent: InodeNr) -> Result<usize, Error> {
        let Some(format) = self.format_of(slot) else { return Ok(entries.len()) };
        let size = self.geometry().block_size.len();
        let mut bytes = hashed_directory::build(entries, slot.nr, parent, size, format.checksums);
        let mut map = self.read_map(slot)?;
        let extra = self.extra_clusters(slot)?;
        if !self.allot_anew(slot, &mut map, bytes.len() / size)? {
            self.lost(What::Directory, Place::Inode(slot.nr), "no space for its entries");
            self.put_slot(slot)?;
            return Ok(0);
        }
        let clusters = self.map_clusters(&map) + extra;
        self.set_block_count(slot, clusters);
        slot.set_flag(InodeFlags::INDEX, false);
        let seed = self.sb.seed().map(|seed| seed.inode(slot.nr, slot.view().raw.i_generation.get()));
        for (logical, block) in (0..).zip(bytes.chunks_exact_mut(size)) {
            let place = Place::FileBlock(slot.nr, LogicalBlock::new(logical));
            // Each has a place for its checksum.
            let _ = dir::set_checksum(block, &format, seed, LogicalBlock::new(logical), false, place);
        }
        self.put_blocks(&map, &bytes)?;
        self.put_slot(slot)?;
        Ok(entries.len())
    }

    fn build_directory(
        &self,
        slot: &Slot,
        entries: &[Stored],
        parent: InodeNr,
        format: &Format,
    ) -> Option<dir::Built> {
        let seed = self.sb.seed().map(|seed| seed.inode(slot.nr, slot.view().raw.i_generation.get()));
        let list: Vec<Entry<'_>> = entries
            .iter()
            .filter_map(|entry| {
                let name =
                    if format.opaque_names { Name::opaque(&entry.name) } else { Name::new(&entry.name) }?;
                let inode = InodeNr::from_disk(entry.inode)?;
                Some(Entry { name, inode, file_type: FileType::from_code(entry.file_type) })
            })
            .collect();
        dir::build(&list, slot.nr, parent, format, seed, Fill::DEFAULT).ok()
    }

    /// Writes a directory into its inode; false if it does not fit.
    fn write_inline(&mut self, slot: &mut Slot, entries: &[Stored], parent: InodeNr) -> Result<bool, Error> {
        let Some(inode) = self.with_inline(slot, entries, parent) else { return Ok(false) };
        inode.render(&mut slot.bytes, slot.nr, &self.sb);
        self.put_slot(slot)?;
        Ok(true)
    }

    /// An inode with a directory inside; `None` if it does not fit.
    fn with_inline(&self, slot: &Slot, entries: &[Stored], parent: InodeNr) -> Option<Inode> {
        let mut rows = inline::Rows::empty(parent);
        for entry in entries {
            if let Some(inode) = InodeNr::from_disk(entry.inode) {
                rows.insert(&entry.name, inode, entry.file_type);
            }
            if rows.content().len() > slot.bytes.len() {
                return None; // each name is put in by going through those before
            }
        }
        let mut inode = Inode::parse_unsealed(&slot.bytes, slot.nr, &self.sb).ok()?;
        let stored = inline::store(&mut inode, rows.content(), Place::Inode(slot.nr));
        stored.is_ok_and(|fits| fits).then_some(inode)
    }

    /// Makes a directory inside its inode one without blocks.
    fn take_out(&self, slot: &mut Slot) {
        if let Ok(mut inode) = Inode::parse_unsealed(&slot.bytes, slot.nr, &self.sb)
            && inline::clear(&mut inode, Place::Inode(slot.nr)).is_ok()
        {
            inode.render(&mut slot.bytes, slot.nr, &self.sb);
        }
        let extents = self.sb.features().incompat.contains(Incompat::EXTENTS);
        slot.set_flag(InodeFlags::INLINE_DATA, false);
        slot.set_flag(InodeFlags::EXTENTS, extents);
        let kind = if extents { MapKind::Extents } else { MapKind::Blocks };
        slot.raw().i_block = kind.empty_root();
    }

    /// Makes `..` lead to another directory, in place.
    pub(crate) fn set_dot_dot(&mut self, slot: &Slot, parent: u32) -> Result<(), Error> {
        self.mended(What::Tree, Place::Inode(slot.nr), format!("its .. leads to inode {parent} now"));
        let mut slot = slot.clone();
        if slot.has(InodeFlags::INLINE_DATA) {
            slot.raw().i_block[..4].copy_from_slice(&parent.to_le_bytes());
            return self.put_slot(&mut slot);
        }
        let map = self.read_map(&slot)?;
        let Some(first) = map.extents.first().filter(|extent| extent.logical.get() == 0) else {
            return Ok(());
        };
        let mut block = self.block(first.physical)?;
        block[12..16].copy_from_slice(&parent.to_le_bytes());
        let Some(format) = self.format_of(&slot) else { return Ok(()) };
        let seed = self.sb.seed().map(|seed| seed.inode(slot.nr, slot.view().raw.i_generation.get()));
        let indexed = slot.has(InodeFlags::INDEX);
        let place = Place::FileBlock(slot.nr, LogicalBlock::ZERO);
        // A block without a place for a checksum is written anew in the next round.
        let _ = dir::set_checksum(&mut block, &format, seed, LogicalBlock::ZERO, indexed, place);
        self.put_block(first.physical, &block)
    }

    /// Ends the inodes that had no links, and to which no name leads either.
    fn end_half_dead(&mut self) -> Result<(), Error> {
        for nr in self.inodes.chosen(|_, info| info.half && info.refs == 0)? {
            if nr == InodeNr::ROOT.get() {
                continue;
            }
            let Some(mut slot) = self.slot(InodeNr::new(nr))? else { continue };
            self.mended(What::Inode, Place::Inode(slot.nr), "it has no links and no name: deleted");
            slot.raw().i_dtime = self.options.now.into();
            self.put_slot(&mut slot)?;
            // What it holds is found to be free in the next round.
            self.inodes.remove(nr)?;
        }
        Ok(())
    }
}

fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::Regular,
        Kind::Directory => FileType::Directory,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::Symlink => FileType::Symlink,
    }
}
