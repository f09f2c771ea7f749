//! Every inode: its fields are made to agree with each other, with what it holds and with the volume.
//!
//! An inode that has links is in use. One without, but with a mode and no time of deletion, is neither: it
//! counts as in use until it is known whether a name leads to it. A slot full of contradictions is taken for
//! something else that was written over the table, and cleared.

mod attributes;
mod symlinks;

use crate::error::Error;
use crate::inodes::attributes::Found;
use crate::know::known::Info;
use crate::know::map::{Map, numbers};
use crate::know::slot::Slot;
use crate::know::work::Work;
use crate::superblock::features::Feature;
use hectare_check::{What, records};
use hectare_ext4::error::Place;
use hectare_ext4::extent::raw::MAGIC;
use hectare_ext4::feature::{Compat, Features, Incompat, RoCompat};
use hectare_ext4::group::GroupFlags;
use hectare_ext4::inode::{InodeFlags, Kind};
use hectare_ext4::map::MapKind;
use hectare_units::{GroupNr, InodeNr, low32, memory, u64_of};

/// Flags that no volume uses.
const ODD_FLAGS: u32 = 0x8d40_0000;
/// Contradictions after which a slot is taken for garbage, with a wrong checksum and without checksums.
const GARBAGE_SEALED: u32 = 4;
const GARBAGE_PLAIN: u32 = 5;

/// What an inode is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Root,
    /// Handled as one with a task.
    Task,
    /// A reserved number without a use.
    Reserved,
    Plain,
}

impl Work<'_> {
    /// Mends every inode that may be in use, and claims what it holds.
    pub(crate) fn mend_inodes(&mut self) -> Result<(), Error> {
        self.note_tasks()?;
        self.first_pass = true;
        let lazy = self.sb.features().group_checksums();
        let per_group = self.geometry().inodes_per_group;
        for group in (0..self.geometry().groups()).map(GroupNr::new) {
            let Some(desc) = self.groups.get(group.index()) else { break };
            if self.group_flag(desc, GroupFlags::INODE_UNINIT) {
                continue;
            }
            let count = per_group - if lazy { desc.itable_unused.min(per_group) } else { 0 };
            for index in 0..count {
                let nr = self.geometry().inode_at(group, index);
                if let Some(slot) = self.slot(nr)?.filter(|slot| !slot.view().is_blank()) {
                    self.inode(slot)?;
                }
            }
        }
        self.first_pass = false;
        let mut next = 0;
        while let Some(nr) = self.suspicious.first_from(next) {
            next = nr + 1;
            if let Some(slot) = self.slot(InodeNr::new(low32(nr)))? {
                self.inode(slot)?;
            }
        }
        self.order.note_held(self.sb.geometry(), &self.used, &self.foreign);
        Ok(())
    }

    pub(crate) fn role(&self, nr: InodeNr) -> Role {
        match nr {
            InodeNr::ROOT => Role::Root,
            nr if self.is_task(nr) => Role::Task,
            nr if nr < self.sb.first_inode() => Role::Reserved,
            _ => Role::Plain,
        }
    }

    fn inode(&mut self, mut slot: Slot) -> Result<(), Error> {
        let role = self.role(slot.nr);
        let place = Place::Inode(slot.nr);
        if role == Role::Task {
            self.note_visible_journal(&slot)?;
            return Ok(());
        }
        if role == Role::Reserved && !slot.view().is_fit_for_nothing(slot.nr, &self.sb) {
            if self.is_left_journal(&slot)? {
                self.mended(
                    What::Inode,
                    place,
                    "it is an empty journal that the volume no longer has: cleared",
                );
            } else {
                self.lost(What::Inode, place, "a reserved inode is in use, and has no use: cleared");
            }
            slot.clear();
            return self.put_slot(&mut slot);
        }
        let (links, mode, dtime) = (slot.view().links(), slot.view().mode(), slot.view().dtime());
        if role == Role::Reserved && mode == 0 {
            return self.end_unused(slot);
        }
        if links == 0 && (mode == 0 || dtime != 0) {
            return self.end_unused(slot);
        }
        if self.first_pass && self.is_suspicious(&slot)? {
            let nr = u64::from(slot.nr.get());
            self.suspicious.claim(nr..nr + 1);
            return Ok(());
        }
        if self.is_garbage(&slot) {
            self.lost(What::Inode, place, "it is no inode but something else: cleared");
            slot.clear();
            return self.put_slot(&mut slot);
        }
        if links != 0 && dtime != 0 {
            self.mended(What::Inode, place, "it has links and a time of deletion, which is cleared");
            slot.raw().i_dtime = 0.into();
        }
        self.mend_fields(&mut slot);
        let kind = self.mend_kind(&mut slot)?;
        self.mend_flags(&mut slot, kind)?;
        self.mend_block_map(&mut slot, kind);
        let found = self.mend_attributes(&mut slot)?;
        let lives = match kind {
            Kind::File => self.mend_file(&mut slot, &found)?,
            Kind::Directory => self.mend_directory_inode(&mut slot, &found)?,
            Kind::Symlink => self.mend_symlink(&mut slot, &found)?,
            _ => self.mend_special(&mut slot, &found),
        };
        if !lives {
            slot.clear();
            return self.put_slot(&mut slot);
        }
        let info = Info {
            hidden: role == Role::Reserved,
            holds_value: slot.has(InodeFlags::EA_INODE),
            half: links == 0,
            ..Info::new(kind)
        };
        self.inodes.insert(slot.nr.get(), info)?;
        if slot.view().translator(&self.sb) != 0 {
            memory::reserve(&mut self.translators, 1)?;
            self.translators.push(slot.nr);
        }
        self.note_checksum(&slot);
        self.put_slot(&mut slot)
    }

    /// The journal that tune2fs gives to a mounted volume is a file with a name, which it keeps.
    fn note_visible_journal(&mut self, slot: &Slot) -> Result<(), Error> {
        if self.is_visible_journal(slot.nr) && slot.kind() == Some(Kind::File) {
            self.inodes.insert(slot.nr.get(), Info::new(Kind::File))?;
        }
        Ok(())
    }

    /// An inode that is not in use needs a time of deletion, and a right checksum.
    fn end_unused(&mut self, mut slot: Slot) -> Result<(), Error> {
        let dtime = slot.view().dtime();
        if (1..self.listed_dtime_end()).contains(&dtime) {
            self.mended(What::Orphans, Place::Inode(slot.nr), "it was in a lost orphan list: deleted");
            slot.raw().i_dtime = self.options.now.into();
        }
        self.note_checksum(&slot);
        self.put_slot(&mut slot)
    }

    /// The first time of deletion that can't be a link of the orphan list; 0 where times are that early.
    fn listed_dtime_end(&self) -> u32 {
        let raw = self.sb.raw();
        let (inodes, made) = (raw.s_inodes_count.get(), raw.s_mkfs_time.get());
        let early = raw.s_wtime.get() < inodes || (made != 0 && made < inodes);
        if early { 0 } else { inodes }
    }

    /// Whether its map is broken, or holds other than it counts: others with claims come first.
    fn is_suspicious(&self, slot: &Slot) -> Result<bool, Error> {
        let mapped = matches!(slot.kind(), Some(Kind::File | Kind::Directory | Kind::Symlink));
        if !mapped || slot.has(InodeFlags::INLINE_DATA) || slot.is_fast_symlink() {
            return Ok(!mapped && slot.kind().is_none());
        }
        let map = self.read_map(slot)?;
        let count = self.stored_count(slot, self.map_clusters(&map) + self.extra_clusters(slot)?);
        Ok(map.broken.is_some() || slot.view().stored_blocks(&self.sb) != count)
    }

    /// Whether so much contradicts that it never was an inode.
    fn is_garbage(&self, slot: &Slot) -> bool {
        let sealed = self.sb.seed().is_some();
        let broken = self.sb.seed().is_some_and(|seed| slot.view().wrong_checksum(slot.nr, seed).is_some());
        if sealed && !broken {
            return false;
        }
        let view = slot.view();
        let volume = self.geometry().blocks_count.get();
        let room = self.geometry().inode_size - 128;
        let extra = view.extra_isize();
        let signs = [
            view.kind().is_none(),
            view.flags().bits() & ODD_FLAGS != 0,
            room > 0 && (u32::from(extra) > room || !extra.is_multiple_of(4)),
            view.stored_blocks(&self.sb)
                > volume.saturating_mul(u64::from(self.geometry().block_size.get()) >> 9),
            view.size() > 1 << 44,
            view.links() > 65_000,
            view.file_acl() != 0 && !self.holds(view.file_acl()),
            view.raw.i_obso_faddr.get() != 0,
            view.dtime() != 0,
            view.flags().contains(InodeFlags::EXTENTS)
                && view.block().first_chunk().map(|two| u16::from_le_bytes(*two)) != Some(MAGIC),
            view.raw.i_blocks_high.get() != 0,
        ];
        let count: u32 = signs.into_iter().map(u32::from).sum();
        count >= if broken { GARBAGE_SEALED } else { GARBAGE_PLAIN }
    }

    /// A volume with bigalloc has no block maps: what looks like one is none.
    fn mend_block_map(&mut self, slot: &mut Slot, kind: Kind) {
        let outside = !slot.has(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA);
        let mapped = matches!(kind, Kind::File | Kind::Directory) && outside;
        let bigalloc = self.sb.features().ro_compat.contains(RoCompat::BIGALLOC);
        if mapped
            && bigalloc
            && slot.nr >= self.sb.first_inode()
            && slot.block().iter().any(|byte| *byte != 0)
        {
            let text = "it has a block map, which a volume with bigalloc can't have: emptied";
            self.lost(What::Map, Place::Inode(slot.nr), text);
            slot.set_flag(InodeFlags::EXTENTS, true);
            slot.raw().i_block = MapKind::Extents.empty_root();
        }
    }

    /// The kind of the inode; one whose mode is of none gets that which it looks like.
    fn mend_kind(&mut self, slot: &mut Slot) -> Result<Kind, Error> {
        if slot.nr == InodeNr::ROOT && slot.kind() != Some(Kind::Directory) {
            self.mended(What::Tree, Place::Inode(slot.nr), "the root is made a directory again");
            let mode = slot.view().mode() & 0o7777 | Kind::Directory.mode_bits();
            slot.raw().i_mode = mode.into();
        }
        let has_content = |kind| matches!(kind, Kind::File | Kind::Directory | Kind::Symlink);
        if let Some(kind) = slot.kind()
            && (has_content(kind) || slot.view().size() == 0 || !self.looks_like_directory(slot)?)
        {
            return Ok(kind);
        }
        let kind = if self.looks_like_directory(slot)? { Kind::Directory } else { Kind::File };
        let mode = slot.view().mode();
        let text = format!("its mode was {mode:#o}, of no known kind: it is taken for a {kind:?}");
        self.mended(What::Inode, Place::Inode(slot.nr), text);
        slot.raw().i_mode = (mode & 0o777 | kind.mode_bits()).into();
        Ok(kind)
    }

    /// Whether its first block begins as that of a directory does.
    fn looks_like_directory(&self, slot: &Slot) -> Result<bool, Error> {
        if slot.has(InodeFlags::INLINE_DATA) {
            return Ok(self.looks_like_inline_directory(slot));
        }
        let map = self.read_map(slot)?;
        let Some(first) = map.extents.first().filter(|extent| extent.logical.get() == 0) else {
            return Ok(false);
        };
        let block = self.block(first.physical)?;
        let dot = records(&block, block.len()).next();
        Ok(matches!(dot, Some(Ok(record)) if record.name == b"." && record.inode == slot.nr.get()))
    }

    /// Whether what lies in it is the number of a parent, and records that fill the rest.
    fn looks_like_inline_directory(&self, slot: &Slot) -> bool {
        let block = slot.block();
        let parent = block.first_chunk().map_or(0, |four| u32::from_le_bytes(*four));
        let known = |nr: u32| (1..=self.geometry().inodes_count()).contains(&nr);
        let all = records(&block[4..], 56).all(|record| record.is_ok_and(|r| r.inode == 0 || known(r.inode)));
        known(parent) && parent != 1 && all
    }

    /// Whether an inode without the attribute of content inside names blocks of the volume, and nothing else.
    fn looks_like_block_map(&self, slot: &Slot) -> bool {
        let mut named = 0;
        let can_be = numbers(&slot.block()).all(|number| {
            named += u32::from(number != 0);
            number == 0 || self.holds(u64::from(number))
        });
        can_be && named > 0 && slot.view().size() > 60 && self.inline_tail(slot).is_none()
    }

    /// Whether what an inode has in place of content inside is the root of a sound tree.
    fn has_sound_tree(&self, slot: &Slot) -> Result<bool, Error> {
        let mut mapped = slot.clone();
        mapped.set_flag(InodeFlags::EXTENTS, true);
        let map = self.read_map(&mapped)?;
        Ok(map.broken.is_none() && !map.extents.is_empty())
    }

    fn mend_flags(&mut self, slot: &mut Slot, kind: Kind) -> Result<(), Error> {
        let features = *self.sb.features();
        let place = Place::Inode(slot.nr);
        let no_index = kind != Kind::Directory || !features.compat.contains(Compat::DIR_INDEX);
        if slot.has(InodeFlags::INDEX) && no_index {
            self.mended(What::Inode, place, "it was marked as indexed, but can have no index");
            slot.set_flag(InodeFlags::INDEX, false);
        }
        let odd = odd_flags(slot.flags(), kind, &features);
        if !odd.is_empty() {
            self.mended(What::Inode, place, format!("its flags {:#x} can't be: cleared", odd.bits()));
            slot.set_flag(odd, false);
        }
        let root = slot.block();
        let has_root = root.first_chunk().map(|two| u16::from_le_bytes(*two)) == Some(MAGIC);
        if slot.has(InodeFlags::INLINE_DATA) && !has_root && self.looks_like_block_map(slot) {
            self.mended(What::Inode, place, "its data were said to be inside, but it is a block map");
            slot.set_flag(InodeFlags::INLINE_DATA | InodeFlags::EXTENTS, false);
        }
        if slot.has(InodeFlags::INLINE_DATA) {
            let has_tail = self.inline_tail(slot).is_some();
            let is_tree = has_root && !has_tail && self.has_sound_tree(slot)?;
            let is_mapped = has_root && slot.has(InodeFlags::EXTENTS) || is_tree;
            let is_enabled = features.incompat.contains(Incompat::INLINE_DATA);
            if !is_enabled && has_tail && !is_mapped {
                let why = "files have content inside: the feature is set";
                self.set_feature(Feature::Incompat(Incompat::INLINE_DATA), why);
            }
            if is_mapped || !is_enabled && !has_tail {
                self.mended(What::Inode, place, "its data were said to be inside, and are not");
                slot.set_flag(InodeFlags::INLINE_DATA, false);
                slot.set_flag(InodeFlags::EXTENTS, slot.has(InodeFlags::EXTENTS) || is_tree);
            } else if slot.has(InodeFlags::EXTENTS | InodeFlags::INDEX) {
                self.mended(What::Inode, place, "its data are inside, and not outside");
                slot.set_flag(InodeFlags::EXTENTS | InodeFlags::INDEX, false);
            }
        }
        if slot.has(InodeFlags::EXTENTS) && !features.incompat.contains(Incompat::EXTENTS) {
            if has_root {
                let why = "files have extents: the feature is set";
                self.set_feature(Feature::Incompat(Incompat::EXTENTS), why);
            } else {
                self.mended(What::Inode, place, "it was said to be mapped by extents, and is not");
                slot.set_flag(InodeFlags::EXTENTS, false);
            }
        }
        let wants = features.incompat.contains(Incompat::EXTENTS) && !slot.has(InodeFlags::EXTENTS);
        if wants && has_root && !slot.has(InodeFlags::INLINE_DATA) && kind != Kind::Symlink {
            self.mended(What::Inode, place, "it is mapped by extents, which its flags did not say");
            slot.set_flag(InodeFlags::EXTENTS, true);
        }
        Ok(())
    }

    fn mend_file(&mut self, slot: &mut Slot, found: &Found) -> Result<bool, Error> {
        if slot.has(InodeFlags::INLINE_DATA) {
            self.mend_inline_size(slot, found);
            self.set_block_count(slot, found.clusters());
            return Ok(true);
        }
        let mut map = self.read_map(slot)?;
        let bits = self.geometry().block_size.shift();
        let place = Place::Inode(slot.nr);
        if map.loses {
            // What lies far behind the end in a broken map was never part of the file.
            map.cut(map.end().min(self.blocks_of(slot).max(1)));
        }
        let mut cut = map.loses.then(|| map.end());
        if let Some(end) = self.accounted_end(slot, &map, found) {
            self.mended(What::Map, place, "blocks beyond its end, which it does not count: given up");
            cut = Some(end);
            map.cut(end);
        }
        if self.truncated.contains(&slot.nr.get()) {
            let end = self.blocks_of(slot);
            cut = (map.end() > end).then_some(end);
            map.cut(end);
        }
        self.tell_map(slot, &map);
        let size = slot.view().size();
        let written = map.written_end();
        if written.saturating_sub(1) << bits > size && !slot.has(InodeFlags::VERITY) {
            self.mended(What::Inode, place, format!("its size was {size}, its blocks reach to {written}"));
            slot.set_size(written << bits);
        }
        self.mend_too_large(slot, &map);
        self.note_large_file(slot);
        self.claim_map(slot, &map, found.clusters(), cut);
        let clusters = self.map_clusters(&map) + found.clusters();
        self.set_block_count(slot, clusters);
        Ok(true)
    }

    /// Where a map is to be cut because both size and block count say that it ends there: then an extent is
    /// longer than it was.
    fn accounted_end(&self, slot: &Slot, map: &Map, found: &Found) -> Option<u64> {
        let end = self.blocks_of(slot);
        if map.end() <= end || slot.has(InodeFlags::VERITY) {
            return None;
        }
        let stored = slot.view().stored_blocks(&self.sb);
        let count = |map: &Map| self.stored_count(slot, self.map_clusters(map) + found.clusters());
        let mut shorter = Map { extents: map.extents.clone(), nodes: map.nodes.clone(), ..Map::default() };
        shorter.cut(end);
        (count(map) != stored && count(&shorter) == stored).then_some(end)
    }

    /// The blocks that its size takes.
    fn blocks_of(&self, slot: &Slot) -> u64 {
        slot.view().size().div_ceil(u64::from(self.geometry().block_size.get()))
    }

    /// A directory's content is read later; here it claims its blocks.
    fn mend_directory_inode(&mut self, slot: &mut Slot, found: &Found) -> Result<bool, Error> {
        if slot.has(InodeFlags::INLINE_DATA) {
            self.mend_inline_size(slot, found);
            self.set_block_count(slot, found.clusters());
            return Ok(true);
        }
        let mut map = self.read_map(slot)?;
        let cut = map.loses.then(|| map.end().min(self.blocks_of(slot).max(1)));
        cut.into_iter().for_each(|end| map.cut(end));
        self.tell_map(slot, &map);
        self.claim_map(slot, &map, found.clusters(), cut);
        let clusters = self.map_clusters(&map) + found.clusters();
        self.set_block_count(slot, clusters);
        Ok(true)
    }

    /// Devices, pipes and sockets have no content.
    fn mend_special(&mut self, slot: &mut Slot, found: &Found) -> bool {
        let place = Place::Inode(slot.nr);
        let flags = InodeFlags::EXTENTS | InodeFlags::INDEX | InodeFlags::INLINE_DATA;
        if slot.has(flags) {
            self.mended(What::Inode, place, "a device, pipe or socket has no map, which is cleared");
            slot.set_flag(flags, false);
            slot.raw().i_block[16..].fill(0);
        }
        if slot.has(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
            self.mended(What::Inode, place, "a device, pipe or socket was immutable or append-only");
            slot.set_flag(InodeFlags::IMMUTABLE | InodeFlags::APPEND, false);
        }
        if slot.view().size() != 0 {
            self.mended(What::Inode, place, "a device, pipe or socket has no size, which is cleared");
            slot.set_size(0);
        }
        self.set_block_count(slot, found.clusters());
        true
    }

    /// The content inside fills the inode and its attribute.
    pub(crate) fn mend_inline_size(&mut self, slot: &mut Slot, found: &Found) {
        let room = 60 + found.inline.unwrap_or(0);
        let size = slot.view().size();
        if size > room {
            // The upper half was zero; if the lower one can be, it is whole. Else the content of a file
            // says where
            // it may have ended.
            let low = size & u64::from(u32::MAX);
            let tail = self.inline_tail(slot).unwrap_or_default();
            let content = [&slot.block()[..], &tail].concat();
            let len = content.iter().rposition(|byte| *byte != 0).map_or(0, |last| u64_of(last) + 1);
            let len = match slot.kind() {
                Some(Kind::File) if low <= room => low,
                Some(Kind::File) => len.min(room),
                _ => room,
            };
            let text = format!("its size was {size}, there is room for {room} bytes: now {len}");
            self.mended(What::Inode, Place::Inode(slot.nr), text);
            slot.set_size(len);
        }
    }
}

/// Flags that an inode of a kind can't have.
fn odd_flags(flags: InodeFlags, kind: Kind, features: &Features) -> InodeFlags {
    let mut odd = InodeFlags::empty();
    if kind != Kind::Directory || !features.incompat.contains(Incompat::CASEFOLD) {
        odd |= flags & InodeFlags::CASEFOLD;
    }
    if !features.compat.contains(Compat::IMAGIC_INODES) {
        odd |= flags & InodeFlags::IMAGIC;
    }
    odd
}
