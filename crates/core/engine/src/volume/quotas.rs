//! The quotas of a volume: what is used, and the limits.

use crate::error::{Error, Result};
use crate::open::quotas;
use crate::space::quota;
use crate::volume::Volume;
use hectare_ext4::quota::{Kind, Record};
use std::sync::Arc;

/// The quotas of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuotaReport {
    /// What they are by.
    pub kind: Kind,
    /// For how many seconds the soft limit of space may be exceeded.
    pub space_grace: u32,
    /// The same for inodes.
    pub inode_grace: u32,
    /// The ids with what they use and may use, in ascending order.
    pub records: Vec<(u32, Record)>,
}

/// Limits to set; `None` leaves one as it is, 0 removes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QuotaLimits {
    /// Bytes that may be exceeded for a time.
    pub space_soft: Option<u64>,
    /// Bytes that can't be exceeded.
    pub space_hard: Option<u64>,
    /// Inodes that may be exceeded for a time.
    pub inodes_soft: Option<u64>,
    /// Inodes that can't be exceeded.
    pub inodes_hard: Option<u64>,
}

/// The highest limit of space in bytes, or of inodes: the kernel counts both in signed numbers of 64 bits, and
/// would take a higher limit for one that is exceeded by everything.
const LIMIT_MAX: u64 = i64::MAX as u64;

impl QuotaLimits {
    /// The same with limits of space rounded up to whole KiB.
    fn in_kib(self) -> Self {
        let round = |bytes: Option<u64>| bytes.map(|bytes| bytes.div_ceil(1024).saturating_mul(1024));
        Self { space_soft: round(self.space_soft), space_hard: round(self.space_hard), ..self }
    }

    fn check(&self) -> Result<()> {
        let all = [self.space_soft, self.space_hard, self.inodes_soft, self.inodes_hard];
        match all.into_iter().flatten().any(|limit| limit > LIMIT_MAX) {
            true => Err(Error::Invalid("a limit is less than 8 EiB or 2^63 inodes; 0 is no limit")),
            false => Ok(()),
        }
    }
}

impl Volume {
    /// The quotas of the volume, one report for each kind that it counts; empty if it has no quotas.
    ///
    /// # Errors
    /// If the files can't be read, or are broken.
    pub fn quotas(&self) -> Result<Vec<QuotaReport>> {
        let core = self.core();
        let quotas = match core.state.quotas() {
            Some(quotas) => Some(Arc::clone(quotas)),
            None => quotas::load(core)?.map(Arc::new),
        };
        let Some(quotas) = quotas else { return Ok(Vec::new()) };
        let report = |kind: &Kind| {
            let (_, info) = quotas.file(*kind)?;
            let (space_grace, inode_grace) = (info.space_grace, info.inode_grace);
            Some(QuotaReport { kind: *kind, space_grace, inode_grace, records: quotas.records(*kind) })
        };
        Ok(quotas.kinds().iter().filter_map(report).collect())
    }

    /// Sets limits of a user, group or project. Limits of space are rounded up to whole KiB.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the volume has no quotas of that kind; [`Error::Invalid`] if a limit is 2^63
    /// or more, or nobody can have the id.
    pub fn set_quota(&self, kind: Kind, id: u32, limits: &QuotaLimits) -> Result<()> {
        let core = self.core();
        core.check_takes_changes()?;
        let limits = limits.in_kib();
        limits.check()?;
        quota::check_id(id)?;
        quota::place_id(core, kind, id)?;
        let now = core.state.quotas().map_or(0, |quotas| quotas.now());
        let set = |limit: &mut u64, to: Option<u64>| *limit = to.unwrap_or(*limit);
        self.change_book(kind, |book| {
            book.set_limits(id, now, |record| {
                set(&mut record.space.soft, limits.space_soft);
                set(&mut record.space.hard, limits.space_hard);
                set(&mut record.inodes.soft, limits.inodes_soft);
                set(&mut record.inodes.hard, limits.inodes_hard);
            });
        })
    }

    /// Sets for how many seconds soft limits may be exceeded: of space, and of inodes. Periods that run
    /// already end as they would have.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the volume has no quotas of that kind.
    pub fn set_quota_grace(&self, kind: Kind, space: Option<u32>, inodes: Option<u32>) -> Result<()> {
        self.change_book(kind, |book| book.set_grace(space, inodes))
    }

    fn change_book(&self, kind: Kind, change: impl FnOnce(&mut crate::stores::quotas::Book)) -> Result<()> {
        let core = self.core();
        let _handle = core.start(1)?;
        let changed = core.state.quotas().and_then(|quotas| quotas.with(kind, change));
        changed.ok_or_else(|| quotas::missing(kind))
    }
}
