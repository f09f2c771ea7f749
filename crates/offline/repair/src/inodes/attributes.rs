//! Extended attributes: areas are made anew from their sound entries, shared blocks count their users, and
//! values in inodes of their own agree with the entries that lead to them.

use crate::error::Error;
use crate::know::noted::{Block, LargeEntry, Shared};
use crate::know::slot::Slot;
use crate::know::work::Work;
use crate::superblock::features::Feature;
use hectare_check::What;
use hectare_ext4::error::Place;
use hectare_ext4::feature::{Compat, Incompat};
use hectare_ext4::inode::{InodeFlags, Kind};
use hectare_ext4::xattr::{
    self, Area, Attr, Index, Name, Value, ValueRef, entry_hash, entry_hash_signed, layout, raw,
};
use hectare_units::{BlockNr, InodeNr, join32, u64_of, usize_of};
use std::collections::{BTreeMap, BTreeSet};
use zerocopy::FromBytes;

/// What the attributes of an inode add to it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Found {
    /// Clusters of its attribute block.
    block: u64,
    /// Clusters that are counted to it for large values.
    values: u64,
    /// Bytes of content in `system.data`, if that is there.
    pub(crate) inline: Option<u64>,
    /// Whether there is an encryption context, and whether it is well formed.
    context: Option<bool>,
}

impl Found {
    /// Clusters counted in the inode's block count.
    pub(crate) fn clusters(&self) -> u64 {
        self.block + self.values
    }
}

impl Work<'_> {
    /// Mends the attributes of an inode.
    pub(crate) fn mend_attributes(&mut self, slot: &mut Slot) -> Result<Found, Error> {
        let mut found = Found::default();
        let place = Place::Inode(slot.nr);
        let area = slot.attribute_area().to_vec();
        let (attrs, sound) = self.read_area(&area, 4, 4, place);
        if !sound || slot.has(InodeFlags::INLINE_DATA) && !attrs.iter().any(is_inline_data) {
            self.rewrite_in_inode(slot, attrs);
        }
        let area = slot.attribute_area().to_vec();
        if let Ok(Some(area)) = Area::in_inode(&area, place) {
            found.values += self.note_large(&area, slot.nr, None);
            found.inline = inline_len(&area);
            found.context = context(&area);
        }
        self.mend_attribute_block(slot, &mut found)?;
        if slot.has(InodeFlags::ENCRYPT) && found.context != Some(true) {
            self.lost(What::Attributes, place, "it is said to be encrypted, but has no sound context");
            slot.set_flag(InodeFlags::ENCRYPT, false);
        }
        Ok(found)
    }

    /// Makes the area in an inode anew. Content inside the inode keeps its attribute, or gets an empty one.
    fn rewrite_in_inode(&mut self, slot: &mut Slot, mut attrs: Vec<Attr>) {
        let place = Place::Inode(slot.nr);
        if slot.has(InodeFlags::INLINE_DATA) && !attrs.iter().any(is_inline_data) {
            self.lost(What::Attributes, place, "the rest of its content is gone with its attribute");
            attrs.insert(0, Attr::new(Name::inline_data(), Vec::new()));
        }
        let space = slot.attribute_area().len();
        loop {
            match layout(&attrs, space, None) {
                Ok(placed) => {
                    slot.attribute_area().copy_from_slice(&placed.inode_area);
                    return;
                }
                Err(_) => drop(attrs.pop()),
            }
        }
    }

    /// The sound attributes of an area whose entries begin at `first`, values counted from `base`; and
    /// whether all were. Hashes are made right, so they need not be.
    fn read_area(&mut self, bytes: &[u8], first: usize, base: usize, place: Place) -> (Vec<Attr>, bool) {
        let in_block = base == 0;
        let parsed =
            if in_block { Area::in_block(bytes, place).map(Some) } else { Area::in_inode(bytes, place) };
        match parsed {
            Ok(None) => (Vec::new(), true),
            Ok(Some(area)) => {
                let all: Vec<Attr> = area.entries().map(|entry| entry.to_attr()).collect();
                let named = |attr: &&Attr| !in_block || attr.name.index() != Index::NONE;
                let kept: Vec<Attr> = distinct(all.iter().filter(named).cloned().collect());
                let hashed = area.entries().all(|entry| has_right_hash(&entry, in_block));
                let strays = area.has_stray_values();
                if strays {
                    self.mended(What::Attributes, place, "an empty value was said to lie outside");
                }
                if kept.len() < all.len() {
                    self.lost(What::Attributes, place, "attributes without a name or there twice: removed");
                } else if !hashed {
                    self.mended(What::Attributes, place, "the hashes of its attributes are made right");
                }
                let sound = hashed && !strays && kept.len() == all.len();
                (kept, sound)
            }
            Err(corrupt) => {
                let kept = salvage(bytes, first, base);
                let text = format!("{}: {} of its attributes are kept", corrupt.reason, kept.len());
                self.lost(What::Attributes, place, text);
                (kept, false)
            }
        }
    }

    fn mend_attribute_block(&mut self, slot: &mut Slot, found: &mut Found) -> Result<(), Error> {
        let acl = slot.view().file_acl();
        if acl == 0 {
            return Ok(());
        }
        let place = Place::Inode(slot.nr);
        if !self.holds(acl) {
            self.lost(What::Attributes, place, format!("its attribute block was {acl}, which can't be"));
            slot.set_acl(0);
            return Ok(());
        }
        let nr = BlockNr::new(acl);
        if let Some(block) = self.attributes.blocks.get_mut(&acl) {
            block.users += 1;
            (found.block, found.values) = (1, found.values + block.values);
            found.context = found.context.or(block.context);
            return Ok(());
        }
        let bytes = self.block(nr)?;
        let at = Place::Block(nr);
        let is_one = raw::Header::ref_from_prefix(&bytes).is_ok_and(|(h, _)| h.h_magic.get() == raw::MAGIC);
        let cluster = self.geometry().cluster_of(nr).get();
        if !is_one {
            self.lost(What::Attributes, place, format!("block {acl} holds no attributes: given up"));
            slot.set_acl(0);
            return Ok(());
        }
        if !self.sb.features().compat.contains(Compat::EXT_ATTR) {
            self.set_feature(Feature::Compat(Compat::EXT_ATTR), "files have attributes: the feature is set");
        }
        let free = self.used.claim(cluster..cluster + 1).is_none();
        if !free {
            self.mended(What::SharedBlock, place, "its attribute block belongs to something else");
            self.attributes.homeless.push((slot.nr, bytes));
            slot.set_acl(0);
            return Ok(());
        }
        let Some(bytes) = self.sound_block(bytes, at) else {
            self.used.release(cluster);
            slot.set_acl(0);
            return Ok(());
        };
        self.put_block(nr, &bytes)?;
        let mut block = Block { users: 1, ..Block::default() };
        if let Ok(area) = Area::in_block(&bytes, at) {
            block.values = self.note_large(&area, slot.nr, Some(acl));
            block.context = context(&area);
        }
        (found.block, found.values) = (1, found.values + block.values);
        found.context = found.context.or(block.context);
        self.attributes.blocks.insert(acl, block);
        Ok(())
    }

    /// An attribute block with its sound entries only; `None` if there are none.
    fn sound_block(&mut self, bytes: Vec<u8>, at: Place) -> Option<Vec<u8>> {
        let (attrs, sound) = self.read_area(&bytes, size_of::<raw::Header>(), 0, at);
        if sound {
            return Some(bytes);
        }
        let mut attrs = attrs;
        while !attrs.is_empty() {
            match layout(&attrs, 0, Some(self.geometry().block_size)) {
                Ok(placed) => return placed.block,
                Err(_) => drop(attrs.pop()),
            }
        }
        None
    }

    /// Remembers the entries whose values are in inodes, and gives the clusters these count for.
    fn note_large(&mut self, area: &Area<'_>, owner: InodeNr, block: Option<u64>) -> u64 {
        let mut clusters = 0;
        for entry in area.entries() {
            let ValueRef::Inode { inode: holder, size } = entry.value else { continue };
            clusters += u64::from(size).div_ceil(self.geometry().cluster_bytes());
            let (name, hash) = (entry.name(), entry.hash);
            self.attributes.entries.push(LargeEntry { owner, block, name, holder, size, hash });
        }
        clusters
    }

    /// The value of `system.data` of an inode.
    pub(crate) fn inline_tail(&self, slot: &Slot) -> Option<Vec<u8>> {
        let mut copy = slot.clone();
        let area = copy.attribute_area();
        let area = Area::in_inode(area, Place::Inode(slot.nr)).ok().flatten()?;
        area.entries().find_map(|entry| match entry.value {
            ValueRef::Inline(value) if entry.index == Index::SYSTEM && entry.suffix == b"data" => {
                Some(value.to_vec())
            }
            _ => None,
        })
    }

    /// The encryption policy of an inode: its context without the nonce at the end; nothing of unknown ones.
    pub(crate) fn policy(&self, slot: &Slot) -> Option<Vec<u8>> {
        let find = |area: Area<'_>| {
            let mut entries = area.entries();
            let entry = entries.find(|entry| entry.index == Index::ENCRYPTION && entry.suffix == b"c")?;
            match entry.value {
                ValueRef::Inline(value) if matches!(value.first(), Some(1 | 2)) => {
                    Some(value[..value.len().saturating_sub(16)].to_vec())
                }
                ValueRef::Inline([1..=u8::MAX, ..]) => Some(Vec::new()),
                _ => None,
            }
        };
        let mut copy = slot.clone();
        let inside = Area::in_inode(copy.attribute_area(), Place::Inode(slot.nr)).ok().flatten();
        inside.and_then(find).or_else(|| {
            let nr = BlockNr::new(slot.view().file_acl());
            let bytes = self.block(nr).ok().filter(|_| self.holds(nr.get()))?;
            Area::in_block(&bytes, Place::Block(nr)).ok().and_then(find)
        })
    }

    /// Clusters counted to an inode beside its map.
    pub(crate) fn extra_clusters(&self, slot: &Slot) -> Result<u64, Error> {
        let mut copy = slot.clone();
        let large = |area: Area<'_>| -> u64 {
            let sizes = area.entries().filter_map(|entry| match entry.value {
                ValueRef::Inode { size, .. } => Some(u64::from(size)),
                ValueRef::Inline(_) => None,
            });
            sizes.map(|size| size.div_ceil(self.geometry().cluster_bytes())).sum()
        };
        let area = copy.attribute_area().to_vec();
        let mut clusters = Area::in_inode(&area, Place::Inode(slot.nr)).ok().flatten().map_or(0, large);
        let acl = slot.view().file_acl();
        if acl != 0 && self.holds(acl) {
            let bytes = self.block(BlockNr::new(acl))?;
            clusters += 1 + Area::in_block(&bytes, Place::Block(BlockNr::new(acl))).map_or(0, large);
        }
        Ok(clusters)
    }

    /// Makes what is shared right, after the last inode.
    pub(crate) fn finish_values(&mut self) -> Result<(), Error> {
        let Shared { blocks, homeless, entries } = std::mem::take(&mut self.attributes);
        for (nr, block) in blocks {
            self.seal_block(BlockNr::new(nr), block.users)?;
        }
        for (nr, bytes) in homeless {
            self.house(nr, bytes)?;
        }
        let mut users: BTreeMap<u32, u64> = BTreeMap::new();
        for entry in entries {
            if self.value_is_sound(&entry)? {
                *users.entry(entry.holder.get()).or_default() += 1;
            } else {
                self.drop_entry(&entry)?;
            }
        }
        self.finish_holders(&users)
    }

    /// Sets how many inodes use a block, and its checksum.
    fn seal_block(&mut self, nr: BlockNr, users: u32) -> Result<(), Error> {
        let mut bytes = self.block(nr)?;
        if xattr::refcount(&bytes) != Some(users) {
            self.mended(What::Attributes, Place::Block(nr), format!("it is used by {users} inodes"));
            xattr::set_refcount(&mut bytes, users);
        }
        if let Some(seed) = self.sb.seed() {
            if xattr::verify(&bytes, seed, nr).is_err() {
                self.mended(What::Attributes, Place::Block(nr), "its checksum is made right");
            }
            xattr::seal(&mut bytes, seed, nr);
        }
        self.put_block(nr, &bytes)
    }

    /// Gives an inode an attribute block of its own.
    fn house(&mut self, nr: InodeNr, bytes: Vec<u8>) -> Result<(), Error> {
        let Some(bytes) = self.sound_block(bytes, Place::Inode(nr)) else { return Ok(()) };
        let (Some(mut slot), Some(cluster)) = (self.slot(nr)?, self.take_for_copy()) else {
            self.lost(What::Attributes, Place::Inode(nr), "it gets no copy of its attribute block");
            return Ok(());
        };
        let block = self.geometry().cluster_start(cluster);
        self.put_block(block, &bytes)?;
        slot.set_acl(block.get());
        self.seal_block(block, 1)?;
        self.put_slot(&mut slot)
    }

    /// Whether a value is where its entry says. The inode that holds it is marked if it was not.
    fn value_is_sound(&mut self, entry: &LargeEntry) -> Result<bool, Error> {
        let Some(known) = self.inodes.get(entry.holder.get())?.filter(|info| info.kind == Kind::File) else {
            return Ok(false);
        };
        let Some(mut holder) = self.slot(entry.holder)? else { return Ok(false) };
        let word = holder.view().raw.i_atime.get().to_le_bytes();
        let suffix = entry.name.suffix();
        let right = [entry_hash(suffix, &word), entry_hash_signed(suffix, &word)];
        if holder.view().size() != u64::from(entry.size) || !right.contains(&entry.hash) {
            return Ok(false);
        }
        if !self.sb.features().incompat.contains(Incompat::EA_INODE) {
            let why = "values of attributes lie in inodes: the feature is set";
            self.set_feature(Feature::Incompat(Incompat::EA_INODE), why);
        }
        if !known.holds_value {
            let text = "it holds the value of an attribute: the flag ea_inode is set";
            self.mended(What::Attributes, Place::Inode(holder.nr), text);
            holder.set_flag(InodeFlags::EA_INODE, true);
            self.put_slot(&mut holder)?;
            self.inodes.change(holder.nr.get(), |info| info.holds_value = true)?;
        }
        Ok(true)
    }

    /// Removes an entry whose value is not there.
    fn drop_entry(&mut self, entry: &LargeEntry) -> Result<(), Error> {
        let text = format!("the value of {} is not in inode {}: removed", entry.name, entry.holder);
        self.lost(What::Attributes, Place::Inode(entry.owner), text);
        let others = |attrs: Vec<Attr>| attrs.into_iter().filter(|attr| attr.name != entry.name).collect();
        if let Some(block) = entry.block {
            let nr = BlockNr::new(block);
            let bytes = self.block(nr)?;
            let users = xattr::refcount(&bytes).unwrap_or(1);
            let Ok(area) = Area::in_block(&bytes, Place::Block(nr)) else { return Ok(()) };
            let attrs: Vec<Attr> = others(area.entries().map(|entry| entry.to_attr()).collect());
            let made =
                layout(&attrs, 0, Some(self.geometry().block_size)).ok().and_then(|placed| placed.block);
            let empty = || {
                let mut bytes = vec![0; self.geometry().block_size.len()];
                bytes[..4].copy_from_slice(&raw::MAGIC.to_le_bytes());
                bytes[8] = 1;
                bytes
            };
            self.put_block(nr, &made.unwrap_or_else(empty))?;
            return self.seal_block(nr, users);
        }
        let Some(mut slot) = self.slot(entry.owner)? else { return Ok(()) };
        let area = slot.attribute_area().to_vec();
        if let Ok(Some(area)) = Area::in_inode(&area, Place::Inode(slot.nr)) {
            let attrs = others(area.entries().map(|entry| entry.to_attr()).collect());
            self.rewrite_in_inode(&mut slot, attrs);
        }
        self.put_slot(&mut slot)
    }

    /// Makes the inodes that hold values count their users; one without becomes a plain file.
    fn finish_holders(&mut self, users: &BTreeMap<u32, u64>) -> Result<(), Error> {
        for nr in self.inodes.chosen(|_, info| info.holds_value)? {
            let Some(mut slot) = self.slot(InodeNr::new(nr))? else { continue };
            let place = Place::Inode(slot.nr);
            let Some(count) = users.get(&nr).copied() else {
                if self.ended_values.contains(&nr) {
                    self.mended(What::Orphans, place, "it held the value of a deleted orphan: deleted");
                    slot.raw().i_dtime = self.options.now.into();
                    slot.raw().i_links_count = 0.into();
                    self.inodes.remove(nr)?;
                    self.put_slot(&mut slot)?;
                    continue;
                }
                self.mended(What::Attributes, place, "it held the value of no attribute: now a plain file");
                slot.set_flag(InodeFlags::EA_INODE, false);
                self.inodes.change(nr, |info| info.holds_value = false)?;
                self.put_slot(&mut slot)?;
                continue;
            };
            let view = slot.view().raw;
            let stored = join32(view.i_version_lo.get(), view.i_ctime.get());
            if stored != count {
                self.mended(What::Attributes, place, format!("its value is used {count} times"));
                slot.raw().i_version_lo = hectare_units::low32(count).into();
                slot.raw().i_ctime = hectare_units::high32(count).into();
                self.put_slot(&mut slot)?;
            }
        }
        Ok(())
    }
}

fn is_inline_data(attr: &Attr) -> bool {
    attr.name == Name::inline_data() && matches!(attr.value, Value::Inline(_))
}

fn distinct(attrs: Vec<Attr>) -> Vec<Attr> {
    let mut seen = BTreeSet::new();
    attrs.into_iter().filter(|attr| seen.insert(attr.name.clone())).collect()
}

fn has_right_hash(entry: &xattr::Entry<'_>, in_block: bool) -> bool {
    let ValueRef::Inline(value) = entry.value else { return true };
    let right = [entry_hash(entry.suffix, value), entry_hash_signed(entry.suffix, value)];
    (!in_block && entry.hash == 0) || right.contains(&entry.hash)
}

/// Bytes of the value of `system.data`.
fn inline_len(area: &Area<'_>) -> Option<u64> {
    area.entries().find_map(|entry| match entry.value {
        ValueRef::Inline(value) if entry.index == Index::SYSTEM && entry.suffix == b"data" => {
            Some(u64_of(value.len()))
        }
        _ => None,
    })
}

/// Whether there is an encryption context, and whether it is of a known version and its length.
fn context(area: &Area<'_>) -> Option<bool> {
    let mut entries = area.entries();
    let entry = entries.find(|entry| entry.index == Index::ENCRYPTION && entry.suffix == b"c")?;
    Some(match entry.value {
        ValueRef::Inline(value) if matches!(value.first(), Some(1 | 2)) => {
            matches!((value[0], value.len()), (1, 28) | (2, 40))
        }
        ValueRef::Inline(value) => !matches!(value.first(), None | Some(0)),
        ValueRef::Inode { .. } => false,
    })
}

/// The entries of a broken area that are sound in themselves.
fn salvage(bytes: &[u8], first: usize, base: usize) -> Vec<Attr> {
    let (mut at, mut attrs) = (first, Vec::new());
    while let Some(rest) = bytes.get(at..) {
        let Ok((entry, names)) = raw::Entry::ref_from_prefix(rest) else { break };
        if rest.get(..4) == Some(&[0; 4]) {
            break;
        }
        let Some(suffix) = names.get(..usize::from(entry.e_name_len)) else { break };
        at += (size_of::<raw::Entry>() + suffix.len()).next_multiple_of(4);
        let Some(name) = Name::stored(Index::new(entry.e_name_index), suffix) else { continue };
        if name.full().is_none() && name != Name::inline_data() && entry.e_name_index != 9 {
            continue;
        }
        let (size, inode) = (entry.e_value_size.get(), entry.e_value_inum.get());
        let start = base + usize::from(entry.e_value_offs.get());
        let value = match InodeNr::from_disk(inode) {
            Some(inode) if size <= raw::VALUE_MAX => {
                Some(Value::Inode { inode, size, hash: entry.e_hash.get() })
            }
            Some(_) => None,
            None => start
                .checked_add(usize_of(size))
                .and_then(|end| bytes.get(start..end))
                .filter(|_| start >= at || size == 0)
                .map(|value| Value::Inline(value.to_vec())),
        };
        attrs.extend(value.map(|value| Attr { name, value }));
    }
    distinct(attrs)
}
