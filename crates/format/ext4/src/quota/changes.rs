//! Changes of the space that owners use, for programs that build maps or directories anew: they note what each
//! inode has got or given up, and write the sums into the records at the end.
//!
//! Which inodes count for anyone is said here once ([`counts`]): the root and all that are not the format's own.
//! e2fsck counts likewise, and so the journal too if its inode is not one of the reserved ones.

use super::{Info, Kind, QuotaFile, QuotaRead, StorageMut, lookup};
use crate::error::{Corrupt, Place};
use crate::inode::{Inode, InodeFlags};
use crate::superblock::SuperBlock;
use hectare_units::InodeNr;
use std::collections::BTreeMap;

/// Whether an inode counts for its owners: not if it is one of the format, or holds an attribute's value, which
/// counts for the inode that has the attribute.
#[must_use]
pub fn counts(sb: &SuperBlock, nr: InodeNr, flags: InodeFlags) -> bool {
    let own =
        Kind::ALL.map(|kind| sb.quota_inode(kind)).contains(&Some(nr)) || sb.orphan_file_inode() == Some(nr);
    (nr == InodeNr::ROOT || nr >= sb.first_inode()) && !own && !flags.contains(InodeFlags::EA_INODE)
}

/// By how many bytes the space of owners changes, by [`Kind::index`].
#[derive(Clone, Debug, Default)]
pub struct SpaceChanges([BTreeMap<u32, i128>; 3]);

impl SpaceChanges {
    /// Notes that inode `nr` of the volume of `sb` has so many bytes more; less, if they are negative.
    pub fn note(&mut self, sb: &SuperBlock, nr: InodeNr, inode: &Inode, bytes: i128) {
        if bytes == 0 || !counts(sb, nr, inode.flags) {
            return;
        }
        for (changes, owner) in self.0.iter_mut().zip([inode.uid, inode.gid, inode.projid]) {
            *changes.entry(owner).or_default() += bytes;
        }
    }

    /// Whether nothing has changed for the owners of a kind.
    #[must_use]
    pub fn is_empty(&self, kind: Kind) -> bool {
        self.0[kind.index()].values().all(|bytes| *bytes == 0)
    }

    /// Writes the changes of the file's kind into its records.
    ///
    /// # Errors
    /// [`Corrupt`] if an owner of inodes has no record, or the tree is broken; those of the file.
    pub fn write<S: StorageMut>(&self, file: &QuotaFile<S>) -> Result<(), S::Error> {
        let info = Info::read(file)?;
        for (id, bytes) in self.0[file.kind.index()].iter().filter(|(_, bytes)| **bytes != 0) {
            let Some((slot, mut record)) = lookup(file, &info, *id)? else {
                let reason = format!("owner {id} of inodes has no record: run hectare repair");
                return Err(Corrupt::new(file.kind.structure(), Place::Inode(file.nr), reason).into());
            };
            let used = i128::from(record.space.used) + bytes;
            // Less than nothing, and more than can be said, is for a check to find.
            record.space.used = u64::try_from(used.max(0)).unwrap_or(u64::MAX);
            let mut leaf = file.block(slot.leaf)?;
            record.render(*id, &mut leaf[slot.bytes()]);
            file.set_block(slot.leaf, &leaf)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::FormatError;
    use crate::feature::{Compat, RoCompat};
    use crate::quota::{BLOCK_BYTES, Block, Record, Resource, Storage, build, for_each};
    use hectare_units::{BlockSize, LogicalBlock, index_of, u64_of, usize_of};
    use std::cell::RefCell;

    /// A file in memory with blocks of 4 KiB, some of which may be holes.
    struct Memory {
        bytes: RefCell<Vec<u8>>,
        hole: Option<u32>,
    }

    impl Memory {
        fn place(&self, at: LogicalBlock, start: usize) -> Option<usize> {
            assert!(start.is_multiple_of(BLOCK_BYTES) && start < 4096);
            (self.hole != Some(at.get())).then(|| usize_of(at.get()) * 4096 + start)
        }
    }

    impl Storage for Memory {
        type Error = FormatError;

        fn read(&self, at: LogicalBlock, start: usize, bytes: &mut Block) -> Result<bool, FormatError> {
            let Some(place) = self.place(at, start) else { return Ok(false) };
            bytes.copy_from_slice(&self.bytes.borrow()[place..place + BLOCK_BYTES]);
            Ok(true)
        }
    }

    impl StorageMut for Memory {
        fn write(&self, at: LogicalBlock, start: usize, bytes: &Block) -> Result<bool, FormatError> {
            let Some(place) = self.place(at, start) else { return Ok(false) };
            self.bytes.borrow_mut()[place..place + BLOCK_BYTES].copy_from_slice(bytes);
            Ok(true)
        }
    }

    fn record(used: u64) -> Record {
        // Limits are kept in KiB.
        let space = Resource { used, soft: 7 << 10, hard: 8 << 10, expires: 9 };
        Record { space, ..Record::default() }
    }

    fn file(records: &BTreeMap<u32, Record>) -> QuotaFile<Memory> {
        let bytes = build(Kind::Group, records);
        let len = u64_of(bytes.len());
        let storage = Memory { bytes: RefCell::new(bytes), hole: None };
        QuotaFile { kind: Kind::Group, nr: InodeNr::new(4), len, block_size: BlockSize::KIB4, storage }
    }

    fn all(file: &QuotaFile<Memory>) -> BTreeMap<u32, Record> {
        let mut all = BTreeMap::new();
        for_each(file, &Info::read(file).unwrap(), &mut |id, _, record| {
            all.insert(id, record);
            Ok(())
        })
        .unwrap();
        all
    }

    fn changes(of_groups: &[(u32, i128)]) -> SpaceChanges {
        SpaceChanges([BTreeMap::new(), of_groups.iter().copied().collect(), BTreeMap::new()])
    }

    #[test]
    fn changes_reach_the_records_of_their_owners_only() {
        let mut records: BTreeMap<u32, Record> =
            (0..90).map(|nr| (nr * 65_537, record(u64::from(nr) * 4096))).collect();
        let file = file(&records);
        changes(&[(0, 512), (3 * 65_537, -4096), (80 * 65_537, 0)]).write(&file).unwrap();
        records.insert(0, record(512));
        records.insert(3 * 65_537, record(2 * 4096));
        assert_eq!(all(&file), records);
        // Less than nothing can't be stored.
        changes(&[(65_537, -5000)]).write(&file).unwrap();
        records.insert(65_537, record(0));
        assert_eq!(all(&file), records);
    }

    #[test]
    fn an_owner_without_a_record_and_a_hole_are_errors() {
        let mut file = file(&BTreeMap::from([(0, record(0)), (1000, record(0))]));
        let error = changes(&[(5, 1)]).write(&file).unwrap_err().to_string();
        assert!(error.contains("the group quota file") && error.contains("owner 5"), "{error}");
        assert_eq!(index_of(file.len), file.storage.bytes.borrow().len());
        file.storage.hole = Some(1);
        let error = changes(&[(1000, 1)]).write(&file).unwrap_err().to_string();
        assert!(error.contains("inode 4") && error.contains("of its tree is a hole"), "{error}");
    }

    #[test]
    fn files_of_the_format_count_for_nobody() {
        let mut raw = *crate::testing::superblock().raw();
        raw.s_feature_ro_compat = RoCompat::QUOTA.bits().into();
        raw.s_feature_compat = (Compat::ORPHAN_FILE | Compat::HAS_JOURNAL).bits().into();
        (raw.s_usr_quota_inum, raw.s_prj_quota_inum) = (3.into(), 20.into());
        (raw.s_orphan_file_inum, raw.s_journal_inum) = (21.into(), 22.into());
        let sb = SuperBlock::from_raw(raw).unwrap();
        let plain = InodeFlags::empty();
        let counted = (1..30).map(InodeNr::new).filter(|nr| counts(&sb, *nr, plain));
        let wanted = [2, 11, 12, 13, 14, 15, 16, 17, 18, 19, 22, 23, 24, 25, 26, 27, 28, 29];
        assert!(counted.map(InodeNr::get).eq(wanted), "a journal in a visible file is root's");
        assert!(!counts(&sb, InodeNr::new(12), InodeFlags::EA_INODE));
    }
}
