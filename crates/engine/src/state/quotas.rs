//! The quotas of a volume, for those who request space and inodes.
//!
//! A request that a limit refuses fails before anything is changed. What it was granted is claimed until the
//! inode has it ([`crate::stores::quotas`]). On a volume without quotas nothing happens here.

use crate::error::Result;
use crate::state::State;
use crate::stores::quotas::{Claim, Counted, Owners, Quotas};
use hectare_ext4::inode::{Inode, InodeFlags};
use hectare_units::{Clusters, InodeNr, low32, u64_of};
use std::sync::Arc;

/// Inodes that one operation changes at most: two directories, and three others.
const INODES_CHANGED_MAX: u32 = 5;

impl State {
    /// What inodes count for, if the volume counts that.
    pub(crate) fn quotas(&self) -> Option<&Arc<Quotas>> {
        self.inodes.quotas()
    }

    /// Blocks of quota files that an operation dirties beside others.
    pub(crate) fn quota_credits(&self) -> u32 {
        self.quotas().map_or(0, |quotas| low32(u64_of(quotas.kinds().len())) * INODES_CHANGED_MAX)
    }

    /// Claims space for an inode: up to `clusters`, as far as limits allow; returns how many.
    ///
    /// # Errors
    /// [`crate::Error::QuotaExceeded`] if they allow none.
    pub(crate) fn claim_clusters(
        &self,
        nr: InodeNr,
        inode: &Inode,
        clusters: Clusters,
    ) -> Result<(Clusters, Option<Claim>)> {
        let holds_value = inode.flags.contains(InodeFlags::EA_INODE);
        let Some(quotas) = self.quotas().filter(|quotas| quotas.counts(nr) && !holds_value) else {
            return Ok((clusters, None));
        };
        let unit = self.geometry().cluster_bytes();
        let (granted, claim) = quotas.claim(Owners::of(inode), |_| true, (unit, clusters.get()), 0)?;
        Ok((Clusters::new(granted), Some(claim)))
    }

    /// Claims an inode for its owners.
    ///
    /// # Errors
    /// [`crate::Error::QuotaExceeded`] if a limit forbids it.
    pub(crate) fn claim_inode(&self, inode: &Inode) -> Result<Option<Claim>> {
        let claim = |quotas: &Arc<Quotas>| quotas.claim(Owners::of(inode), |_| true, (0, 0), 1);
        let quotas = self.quotas().filter(|_| !inode.flags.contains(InodeFlags::EA_INODE));
        Ok(quotas.map(claim).transpose()?.map(|(_, claim)| claim))
    }

    /// Claims what new values of an inode's attributes, in inodes of their own, count for.
    ///
    /// # Errors
    /// [`crate::Error::QuotaExceeded`] if a limit of the inode's owners forbids it.
    pub(crate) fn claim_values(
        &self,
        nr: InodeNr,
        inode: &Inode,
        clusters: Clusters,
        values: usize,
    ) -> Result<Option<Claim>> {
        let Some(quotas) = self.quotas().filter(|quotas| values > 0 && quotas.counts(nr)) else {
            return Ok(None);
        };
        let space = (clusters.get() * self.geometry().cluster_bytes(), u64::from(!clusters.is_zero()));
        Ok(Some(quotas.claim(Owners::of(inode), |_| true, space, u64_of(values))?.1))
    }

    /// Claims for the new owners of an inode what it counts for.
    ///
    /// # Errors
    /// [`crate::Error::QuotaExceeded`] if a limit of theirs forbids it.
    pub(crate) fn claim_transfer(&self, nr: InodeNr, from: &Inode, to: &Inode) -> Result<Option<Claim>> {
        let Some(quotas) = self.quotas().filter(|quotas| quotas.counts(nr)) else { return Ok(None) };
        let (before, after) = (Owners::of(from), Owners::of(to));
        let space = Counted::of(from).space();
        let changes = |kind| before.get(kind) != after.get(kind);
        let units = u64::from(space > 0);
        Ok(Some(quotas.claim(after, changes, (space, units), 1)?.1))
    }

    /// An inode of these fields exists from now on, or (if not `exists`) does no longer.
    pub(crate) fn count_inode(&self, nr: InodeNr, inode: &Inode, exists: bool) {
        if !inode.flags.contains(InodeFlags::EA_INODE) {
            self.count_inodes(nr, inode, usize::from(exists), usize::from(!exists));
        }
    }

    /// So many inodes more, and so many fewer, hold values of an inode's attributes.
    pub(crate) fn count_inodes(&self, nr: InodeNr, inode: &Inode, more: usize, fewer: usize) {
        if let Some(quotas) = self.quotas().filter(|quotas| quotas.counts(nr)) {
            quotas.add_inodes(Owners::of(inode), u64_of(more), u64_of(fewer));
        }
    }
}
