//! Extended attributes: those in an inode, those in a block that several inodes may share, and the inodes
//! that hold large values.

use crate::context::Scan;
use crate::context::attributes::{Context, Holder, InodeAttributes, LargeEntry, Shared, SharedBlock};
use crate::context::claims::FileClusters;
use crate::raw_inode::RawInode;
use crate::report::{Error, Problem, What};
use hectare_ext4::checksum::crc32c;
use hectare_ext4::error::Place;
use hectare_ext4::feature::{Compat, Incompat};
use hectare_ext4::inode::{InodeFlags, Kind};
use hectare_ext4::xattr::{self, Area, Index, ValueRef, entry_hash, entry_hash_signed};
use hectare_units::{BlockNr, InodeNr, join32};

impl Scan<'_> {
    fn check_values(&mut self, area: &Area<'_>, place: Place) {
        if area.has_stray_values() {
            self.tell(What::Attributes, place, "an empty value is said to lie outside");
        }
    }

    /// Checks the attributes of an inode.
    pub(crate) fn check_attributes(
        &mut self,
        nr: InodeNr,
        slot: RawInode<'_>,
    ) -> Result<InodeAttributes, Error> {
        let mut found = InodeAttributes::default();
        if slot.flags().contains(InodeFlags::EA_INODE) {
            self.note_holder(nr, slot);
        }
        match Area::in_inode(slot.attribute_area(), Place::Inode(nr)) {
            Ok(Some(area)) => {
                self.check_hashes(&area, nr, false);
                self.check_values(&area, Place::Inode(nr));
                let (values, holders) = self.note_large(&area, nr);
                (found.values, found.holders) = (found.values + values, found.holders + holders);
                found.inline = inline_tail(&area);
                found.context = context(&area);
            }
            Ok(None) => {}
            Err(corrupt) => self.tell_corrupt(What::Attributes, corrupt),
        }
        let acl = slot.file_acl();
        if acl == 0 {
            self.check_context(nr, slot, &found);
            return Ok(found);
        }
        if !self.volume.holds(acl) {
            let reason = format!("its attribute block is {acl}, which can't be");
            self.tell(What::Attributes, Place::Inode(nr), reason);
            return Ok(found);
        }
        if !self.volume.sb.features().compat.contains(Compat::EXT_ATTR) {
            let reason = "it has an attribute block, without the feature ext_attr";
            self.tell(What::Attributes, Place::Inode(nr), reason);
        }
        found.block = 1;
        let block = self.attribute_block(nr, BlockNr::new(acl))?;
        found.values += block.values;
        found.holders += block.holders;
        found.context = found.context.or(block.context);
        self.check_context(nr, slot, &found);
        Ok(found)
    }

    /// An encrypted file says how it is encrypted.
    fn check_context(&mut self, nr: InodeNr, slot: RawInode<'_>, found: &InodeAttributes) {
        if let Some(context) = found.context {
            self.inodes.change(nr, |info| info.policy = context.policy);
        }
        let sound = found.context.is_some_and(|context| context.sound);
        if slot.flags().contains(InodeFlags::ENCRYPT) && !sound {
            self.tell(
                What::Attributes,
                Place::Inode(nr),
                "it is encrypted, but has no sound encryption context",
            );
        }
    }

    /// Checks an attribute block when it is first met, and counts its users.
    fn attribute_block(&mut self, nr: InodeNr, at: BlockNr) -> Result<SharedBlock, Error> {
        if let Some(block) = self.attributes.blocks.get_mut(&at.get()) {
            block.users += 1;
            return Ok(*block);
        }
        self.claim_block(nr, at, &mut FileClusters::default());
        let mut bytes = self.buffer();
        self.volume.read(at, &mut bytes)?;
        if let Some(seed) = self.volume.sb.seed()
            && let Err(corrupt) = xattr::verify(&bytes, seed, at)
        {
            self.tell_corrupt(What::Attributes, corrupt);
        }
        let stored = xattr::refcount(&bytes).unwrap_or(0);
        let ((mut values, mut holders), mut found) = ((0, 0), None);
        match Area::in_block(&bytes, Place::Block(at)) {
            Ok(area) => {
                self.check_hashes(&area, nr, true);
                self.check_values(&area, Place::Block(at));
                self.check_prefixes(&area, at);
                (values, holders) = self.note_large(&area, nr);
                found = context(&area);
            }
            Err(corrupt) => self.tell_corrupt(What::Attributes, corrupt),
        }
        self.give_back(bytes);
        let block = SharedBlock { stored, users: 1, values, holders, context: found };
        self.attributes.blocks.insert(at.get(), block);
        Ok(block)
    }

    /// Each entry of a block has a hash; one in an inode may have none.
    fn check_hashes(&mut self, area: &Area<'_>, nr: InodeNr, in_block: bool) {
        for entry in area.entries() {
            let ValueRef::Inline(value) = entry.value else { continue };
            if !in_block && entry.hash == 0 {
                continue;
            }
            let right = [entry_hash(entry.suffix, value), entry_hash_signed(entry.suffix, value)];
            if !right.contains(&entry.hash) {
                let reason =
                    format!("the hash of {} is {:#010x}, not {:#010x}", entry.name(), entry.hash, right[0]);
                self.tell(What::Attributes, Place::Inode(nr), reason);
            }
        }
    }

    /// In a block every name has a prefix; the kernel would show none of an entry without one.
    fn check_prefixes(&mut self, area: &Area<'_>, at: BlockNr) {
        for entry in area.entries().filter(|entry| entry.index == Index::NONE) {
            let reason = format!("the name of {} has no prefix", entry.name());
            self.tell(What::Attributes, Place::Block(at), reason);
        }
    }

    /// Remembers the entries whose values are in inodes, and gives the clusters these count for, and how many
    /// there are.
    fn note_large(&mut self, area: &Area<'_>, owner: InodeNr) -> (u64, u64) {
        let (mut clusters, mut holders) = (0, 0);
        for entry in area.entries() {
            let ValueRef::Inode { inode: holder, size } = entry.value else { continue };
            holders += 1;
            clusters += u64::from(size).div_ceil(self.volume.geometry().cluster_bytes());
            let (hash, suffix) = (entry.hash, entry.suffix.to_vec());
            self.attributes.entries.push(LargeEntry { owner, holder, size, hash, suffix });
        }
        (clusters, holders)
    }

    /// Remembers an inode that holds a value. It keeps the value's hash in the seconds of its access time,
    /// and how often it is used in those of its change time and its version.
    fn note_holder(&mut self, nr: InodeNr, slot: RawInode<'_>) {
        let raw = slot.raw;
        let holder = Holder {
            size: slot.size(),
            hash: raw.i_atime.get(),
            stored: join32(raw.i_version_lo.get(), raw.i_ctime.get()),
            users: 0,
            is_lustre: raw.i_ctime == raw.i_atime,
            is_file: slot.kind() == Some(Kind::File),
        };
        self.attributes.holders.insert(nr.get(), holder);
    }

    /// Compares what is shared with what was found, after the last inode.
    pub(crate) fn finish_attributes(&mut self) {
        let Shared { blocks, mut holders, entries } = std::mem::take(&mut self.attributes);
        for (nr, block) in blocks {
            if block.stored != block.users {
                let reason = format!("it counts {} users and has {}", block.stored, block.users);
                self.tell(What::Attributes, Place::Block(BlockNr::new(nr)), reason);
            }
        }
        if !entries.is_empty() && !self.volume.sb.features().incompat.contains(Incompat::EA_INODE) {
            // e2fsck sets the feature whenever it writes, and does not count that as an error.
            let reason = "values of attributes lie in inodes: the feature ea_inode is missing".into();
            self.report.notes.push(Problem { what: What::Superblock, place: Place::Volume, reason });
        }
        let any = !entries.is_empty();
        for entry in entries {
            let place = Place::Inode(entry.owner);
            let Some(holder) = holders.get_mut(&entry.holder.get()) else {
                let reason = format!("a value is in inode {}, which holds none", entry.holder);
                self.tell(What::Attributes, place, reason);
                continue;
            };
            holder.users += 1;
            if let Some(reason) = wrong_value(&entry, holder) {
                self.tell(What::Attributes, place, reason);
            }
        }
        for (nr, holder) in holders {
            let place = Place::Inode(InodeNr::new(nr));
            if holder.users > 0 {
                self.inodes.change(InodeNr::new(nr), |info| info.holds_value = true);
            }
            // Where no attribute has its value in an inode nothing of this counts.
            let is_counted = holder.users > 0 || any && !holder.is_lustre;
            if is_counted && holder.stored != holder.users {
                let reason =
                    format!("it counts {} uses of its value and has {}", holder.stored, holder.users);
                self.tell(What::Attributes, place, reason);
            }
        }
    }
}

/// What is wrong with a value in an inode of its own.
fn wrong_value(entry: &LargeEntry, holder: &Holder) -> Option<String> {
    let nr = entry.holder;
    if !holder.is_file || holder.size != u64::from(entry.size) {
        return Some(format!("a value of {} bytes is in inode {nr} of {}", entry.size, holder.size));
    }
    // The entry's hash covers its name and, as one word, the value's hash.
    let word = holder.hash.to_le_bytes();
    let right = [entry_hash(&entry.suffix, &word), entry_hash_signed(&entry.suffix, &word)];
    (!right.contains(&entry.hash)).then(|| format!("the hash of the value in inode {nr} does not match"))
}

/// The value of `system.data`.
fn inline_tail(area: &Area<'_>) -> Option<Vec<u8>> {
    let mut entries = area.entries();
    let entry = entries.find(|entry| entry.index == Index::SYSTEM && entry.suffix == b"data")?;
    match entry.value {
        ValueRef::Inline(value) => Some(value.to_vec()),
        ValueRef::Inode { .. } => None,
    }
}

/// The encryption context, if there is one. It ends in a nonce of 16 bytes, which is not part of the policy.
fn context(area: &Area<'_>) -> Option<Context> {
    let mut entries = area.entries();
    let entry = entries.find(|entry| entry.index == Index::ENCRYPTION && entry.suffix == b"c")?;
    let ValueRef::Inline(value) = entry.value else { return Some(Context { sound: false, policy: 0 }) };
    let known = matches!(value.first(), Some(1 | 2));
    let sound = if known {
        matches!((value[0], value.len()), (1, 28) | (2, 40))
    } else {
        !matches!(value.first(), None | Some(0))
    };
    let said = &value[..value.len().saturating_sub(16)];
    // What unknown versions say can't be compared: they are one policy, which is none of the known.
    let policy = if known { join32(crc32c(!0, said), crc32c(0, said)) } else { u64::MAX };
    Some(Context { sound, policy })
}
