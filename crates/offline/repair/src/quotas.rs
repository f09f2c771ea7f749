//! Quota files: written anew from what the inodes of each owner use; limits are kept as far as they can be
//! read.

use crate::error::Error;
use crate::know::map::Map;
use crate::know::slot::Slot;
use crate::know::work::Work;
use hectare_check::What;
use hectare_ext4::error::{Corrupt, FormatError, Place};
use hectare_ext4::inode::InodeFlags;
use hectare_ext4::quota::{self, BLOCK_BYTES, Block, BlockIndex, Info, Kind, QuotaRead, Record};
use hectare_ext4::xattr::{Area, ValueRef};
use hectare_units::{BlockNr, Bytes, InodeNr, LogicalBlock, low32, u64_of};
use std::collections::{BTreeMap, HashSet};

/// Bytes and inodes of each owner.
type Usage = BTreeMap<u32, (u64, u64)>;

/// A quota file to read.
struct File<'a> {
    work: &'a Work<'a>,
    kind: Kind,
    slot: &'a Slot,
    map: Map,
}

impl QuotaRead for File<'_> {
    type Error = FormatError;

    fn kind(&self) -> Kind {
        self.kind
    }

    fn inode(&self) -> InodeNr {
        self.slot.nr
    }

    fn len(&self) -> u32 {
        u32::try_from(self.slot.view().size() / u64_of(BLOCK_BYTES)).unwrap_or(u32::MAX)
    }

    fn block(&self, at: BlockIndex) -> Result<Block, FormatError> {
        let hole = || Corrupt::new(self.kind.structure(), Place::Inode(self.slot.nr), "a hole");
        let size = self.work.geometry().block_size;
        let byte = u64::from(at.get()) * u64_of(BLOCK_BYTES);
        let logical = LogicalBlock::new(low32(byte >> size.shift()));
        let place = self.map.extents.iter().find_map(|extent| extent.block_of(logical));
        let block = self.work.block(place.ok_or_else(hole)?).map_err(|_| hole())?;
        let start = size.within(Bytes::new(byte));
        Ok(block[start..start + BLOCK_BYTES].try_into().expect("a block of the tree"))
    }
}

impl Work<'_> {
    /// Counts what every owner uses, and writes the files that say something else.
    pub(crate) fn mend_quotas(&mut self) -> Result<(), Error> {
        let kinds: Vec<(Kind, InodeNr)> =
            Kind::ALL.into_iter().filter_map(|kind| Some((kind, self.sb.quota_inode(kind)?))).collect();
        if kinds.is_empty() || (self.mends.is_empty() && !self.suspects.has(What::Quota)) {
            return Ok(());
        }
        let used = self.count_usage()?;
        for (kind, nr) in kinds {
            let Some(mut slot) = self.slot(nr)? else { continue };
            let counted = &used[kind.index()];
            let (stored, sound) = self.stored_records(kind, &slot)?;
            let mut records: BTreeMap<u32, Record> = stored.clone();
            records.values_mut().for_each(|record| (record.space.used, record.inodes.used) = (0, 0));
            for (id, (space, inodes)) in counted {
                let record = records.entry(*id).or_default();
                (record.space.used, record.inodes.used) = (*space, *inodes);
            }
            if sound && records == stored {
                continue;
            }
            self.mended(What::Quota, Place::Inode(nr), format!("its {kind} records are counted anew"));
            let bytes = quota::build(kind, &records);
            self.write_quota(&mut slot, &bytes)?;
        }
        Ok(())
    }

    fn write_quota(&mut self, slot: &mut Slot, bytes: &[u8]) -> Result<(), Error> {
        let mut map = self.read_map(slot)?;
        let size = self.geometry().block_size;
        let blocks = self.blocks_for(u64_of(bytes.len()));
        if !self.allot(slot, &mut map, blocks)? {
            self.lost(What::Quota, Place::Inode(slot.nr), "no space for its records");
            return Ok(());
        }
        slot.set_size(u64_of(bytes.len()));
        let mut rest = bytes;
        for extent in &map.extents {
            for at in (0..u64::from(extent.len)).map(|i| BlockNr::new(extent.physical.get() + i)) {
                let (now, later) = rest.split_at(rest.len().min(size.len()));
                let mut block = now.to_vec();
                block.resize(size.len(), 0);
                self.put_block(at, &block)?;
                rest = later;
            }
        }
        self.put_slot(slot)
    }

    /// The records of a file, as far as they can be read, and whether that is all of it.
    fn stored_records(&self, kind: Kind, slot: &Slot) -> Result<(BTreeMap<u32, Record>, bool), Error> {
        let file = File { work: self, kind, slot, map: self.read_map(slot)? };
        let mut records = BTreeMap::new();
        let Ok(info) = Info::read(&file) else { return Ok((records, false)) };
        let mut slots = HashSet::new();
        let all = quota::for_each(&file, &info, &mut |id, slot, record| {
            slots.insert(slot);
            records.insert(id, record);
            Ok(())
        });
        let sound = all.and_then(|()| quota::check_leaves(&file, &slots)).is_ok();
        Ok((records, sound))
    }

    /// Space and inodes of every owner, by the index of the kind.
    fn count_usage(&self) -> Result<[Usage; 3], Error> {
        let mut used: [Usage; 3] = Default::default();
        let mut next = 0;
        while let Some((nr, _)) = self.inodes.first_from(next)? {
            let Some(after) = nr.checked_add(1) else { break };
            next = after;
            let Some(slot) = self.slot(InodeNr::new(nr))? else { continue };
            if !quota::counts(&self.sb, InodeNr::new(nr), slot.flags()) {
                continue;
            }
            let view = slot.view();
            let stored = view.stored_blocks(&self.sb);
            let bits = self.geometry().block_size.shift();
            let space = if slot.has(InodeFlags::HUGE_FILE) { stored << bits } else { stored << 9 };
            let inodes = 1 + self.values_of(&slot)?;
            for (of, id) in used.iter_mut().zip([view.uid(), view.gid(), view.project()]) {
                let entry = of.entry(id).or_default();
                *entry = (entry.0.saturating_add(space), entry.1 + inodes);
            }
        }
        Ok(used)
    }

    /// How many inodes hold values of its attributes.
    fn values_of(&self, slot: &Slot) -> Result<u64, Error> {
        Ok(u64_of(self.values_in(slot)?.len()))
    }

    /// The inodes that hold values of its attributes.
    pub(crate) fn values_in(&self, slot: &Slot) -> Result<Vec<InodeNr>, Error> {
        let values = |area: Area<'_>| -> Vec<InodeNr> {
            let inode = |value: &ValueRef<'_>| match value {
                ValueRef::Inode { inode, .. } => Some(*inode),
                _ => None,
            };
            area.entries().filter_map(|entry| inode(&entry.value)).collect()
        };
        let mut copy = slot.clone();
        let area = copy.attribute_area().to_vec();
        let mut all =
            Area::in_inode(&area, Place::Inode(slot.nr)).ok().flatten().map_or_else(Vec::new, values);
        let acl = slot.view().file_acl();
        if acl != 0 && self.holds(acl) {
            let bytes = self.block(BlockNr::new(acl))?;
            all.extend(
                Area::in_block(&bytes, Place::Block(BlockNr::new(acl))).map_or_else(|_| Vec::new(), values),
            );
        }
        Ok(all)
    }
}
