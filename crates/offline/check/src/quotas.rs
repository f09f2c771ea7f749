//! Compares the quota files with what the inodes use.
//!
//! As e2fsck does: every record must say what the inodes of its owner use, and every owner of an inode must
//! have one. Where some maps are broken, what they hold is not known, and nothing is compared.

use crate::context::Scan;
use crate::context::quotas::{QuotaFile, Used};
use crate::raw_inode::RawInode;
use crate::report::{Error, What};
use hectare_ext4::error::{Corrupt, Place, Unsupported};
use hectare_ext4::quota::{self, BLOCK_BYTES, Block, BlockIndex, Info, Kind, QuotaRead};
use hectare_units::{InodeNr, u64_of};
use std::collections::{BTreeMap, HashSet};

/// What ends the reading of a quota file.
enum Wrong {
    Corrupt(Corrupt),
    Unsupported(Unsupported),
    Fatal(Error),
}

impl From<Corrupt> for Wrong {
    fn from(corrupt: Corrupt) -> Self {
        Self::Corrupt(corrupt)
    }
}

impl From<Unsupported> for Wrong {
    fn from(unsupported: Unsupported) -> Self {
        Self::Unsupported(unsupported)
    }
}

/// A quota file to read.
struct File<'a> {
    scan: &'a Scan<'a>,
    file: &'a QuotaFile,
}

impl QuotaRead for File<'_> {
    type Error = Wrong;

    fn kind(&self) -> Kind {
        self.file.kind
    }

    fn inode(&self) -> InodeNr {
        self.file.nr
    }

    fn len(&self) -> u32 {
        u32::try_from(self.file.size / u64_of(BLOCK_BYTES)).unwrap_or(u32::MAX)
    }

    fn block(&self, at: BlockIndex) -> Result<Block, Wrong> {
        let size = self.scan.volume.geometry().block_size;
        let mut block = vec![0; size.len()];
        let byte = u64::from(at.get()) * u64_of(BLOCK_BYTES);
        let index = hectare_units::low32(byte >> size.shift());
        if !self.scan.read_file_block(&self.file.runs, index, &mut block).map_err(Wrong::Fatal)? {
            let reason = format!("block {} of its tree is a hole", at.get());
            return Err(Corrupt::new(self.kind().structure(), Place::Inode(self.file.nr), reason).into());
        }
        let start = size.within(hectare_units::Bytes::new(byte));
        Ok(block[start..start + BLOCK_BYTES].try_into().expect("a block of the tree"))
    }
}

impl Scan<'_> {
    /// Remembers where a quota file lies.
    pub(crate) fn note_quota_file(&mut self, nr: InodeNr, slot: RawInode<'_>) -> Result<(), Error> {
        let kind = Kind::ALL.into_iter().find(|kind| self.volume.sb.quota_inode(*kind) == Some(nr));
        let mapped = self.map(nr, slot, kind.is_some())?;
        self.check_size_max(nr, slot);
        self.check_block_count(nr, slot, &Default::default(), mapped.held.clusters);
        if let Some(kind) = kind {
            self.quotas.files.push(QuotaFile { kind, nr, size: slot.size(), runs: mapped.runs });
        }
        Ok(())
    }

    /// Compares the records of all quota files with what was counted.
    pub(crate) fn check_quotas(&mut self) -> Result<(), Error> {
        if self.claims.incomplete {
            self.report.leave("the sums of quotas");
            return Ok(());
        }
        for kind in Kind::ALL {
            if let Some(nr) = self.volume.sb.quota_inode(kind)
                && !self.quotas.files.iter().any(|file| file.kind == kind)
            {
                self.tell(What::Quota, Place::Inode(nr), format!("there is no such file of {kind} quotas"));
            }
        }
        for (kind, home) in [(Kind::User, 3), (Kind::Group, 4)] {
            // As a file with a name, or hidden among those, e2fsck does not know it as what it is.
            if let Some(nr) = self.volume.sb.quota_inode(kind)
                && nr.get() != home
            {
                let reason = format!("the file of {kind} quotas belongs in inode {home}");
                self.tell(What::Quota, Place::Inode(nr), reason);
            }
        }
        for file in std::mem::take(&mut self.quotas.files) {
            match self.differences(&file) {
                Ok(found) => {
                    found
                        .into_iter()
                        .for_each(|reason| self.tell(What::Quota, Place::Inode(file.nr), reason));
                }
                Err(Wrong::Corrupt(corrupt)) => self.tell_corrupt(What::Quota, corrupt),
                Err(Wrong::Unsupported(what)) => self.tell(What::Quota, Place::Inode(file.nr), what.0),
                Err(Wrong::Fatal(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// What differs between a file and what was counted.
    fn differences(&self, file: &QuotaFile) -> Result<Vec<String>, Wrong> {
        let tree = File { scan: self, file };
        let info = Info::read(&tree)?;
        let (mut found, most) = (Vec::new(), self.volume.options.problems_max);
        let mut left: BTreeMap<u32, Used> = self.quotas.used[file.kind.index()].clone();
        let mut slots = HashSet::new();
        quota::for_each(&tree, &info, &mut |id, slot, record| {
            slots.insert(slot);
            let used = left.remove(&id).unwrap_or_default();
            let stored = Used { space: record.space.used, inodes: record.inodes.used };
            if stored != used && found.len() <= most {
                found.push(format!(
                    "{} {id} is counted with {} bytes and {} inodes, and has {} and {}",
                    file.kind, stored.space, stored.inodes, used.space, used.inodes
                ));
            }
            Ok(())
        })?;
        quota::check_leaves(&tree, &slots)?;
        let missing = |(id, used): (u32, Used)| {
            format!("{} {id} has {} bytes and {} inodes, and no record", file.kind, used.space, used.inodes)
        };
        found.extend(left.into_iter().take(most).map(missing));
        Ok(found)
    }
}
