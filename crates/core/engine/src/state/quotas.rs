//! The quotas of a volume, for those who request space and inodes.
//!
//! A request that a limit refuses fails before anything is changed. What it was granted is claimed until the
//! inode has it ([`crate::stores::quotas`]). On a volume without quotas nothing happens here.

use crate::error::Result;
use crate::state::State;
use crate::stores::quotas::{Claim, Counted, Owners, Quotas};
use hectare_ext4::feature::Incompat;
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

    /// Claims for the new owners of an inode what it counts for, with so many values
    /// ([`counted_values`](Self::counted_values)).
    ///
    /// # Errors
    /// [`crate::Error::QuotaExceeded`] if a limit of theirs forbids it.
    pub(crate) fn claim_transfer(
        &self,
        nr: InodeNr,
        from: &Inode,
        to: &Inode,
        values: u64,
    ) -> Result<Option<Claim>> {
        let Some(quotas) = self.quotas().filter(|quotas| quotas.counts(nr)) else { return Ok(None) };
        let (before, after) = (Owners::of(from), Owners::of(to));
        let space = Counted::of(from).space();
        let changes = |kind| before.get(kind) != after.get(kind);
        let units = u64::from(space > 0);
        Ok(Some(quotas.claim(after, changes, (space, units), 1 + values)?.1))
    }

    /// How many values of an inode's attributes lie in inodes of their own: each counts as an inode for the
    /// owners; its space is in the inode's `i_blocks`.
    pub(crate) fn counted_values(&self, nr: InodeNr, inode: &Inode) -> Result<u64> {
        if !self.incompat(Incompat::EA_INODE) {
            return Ok(0);
        }
        Ok(u64_of(self.values_outside(nr, inode)?.all().count()))
    }

    /// An inode with so many values has got the owners that it has, in place of others.
    pub(crate) fn move_values(&self, nr: InodeNr, from: Owners, inode: &Inode, values: u64) {
        if let Some(quotas) = self.quotas().filter(|quotas| values > 0 && quotas.counts(nr)) {
            quotas.move_inodes(from, Owners::of(inode), values);
        }
    }

    /// An inode of these fields exists from now on, for which there may be a claim.
    pub(crate) fn count_inode(&self, nr: InodeNr, inode: &Inode, claim: Option<Claim>) {
        self.add_inode(nr, inode, (1, 0), claim);
    }

    /// An inode of these fields exists no longer.
    pub(crate) fn uncount_inode(&self, nr: InodeNr, inode: &Inode) {
        self.add_inode(nr, inode, (0, 1), None);
    }

    fn add_inode(&self, nr: InodeNr, inode: &Inode, (more, fewer): (u64, u64), claim: Option<Claim>) {
        let holds_value = inode.flags.contains(InodeFlags::EA_INODE);
        if let Some(quotas) = self.quotas().filter(|quotas| quotas.counts(nr) && !holds_value) {
            quotas.add_inodes(Owners::of(inode), more, fewer, claim);
        }
    }

    /// So many inodes more, and so many fewer, hold values of an inode's attributes.
    pub(crate) fn count_inodes(&self, nr: InodeNr, inode: &Inode, more: usize, fewer: usize) {
        if let Some(quotas) = self.quotas().filter(|quotas| quotas.counts(nr)) {
            quotas.add_inodes(Owners::of(inode), u64_of(more), u64_of(fewer), None);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::space::map_edit::{MAP_CREDITS, MapMut};
    use crate::space::piece::Use;
    use crate::space::reserve;
    use crate::{Caller, Creation, OpenOptions, Overwrite, QuotaKind, QuotaLimits, Volume, on_behalf};
    use hectare_device::MemoryDevice;
    use hectare_mkfs::{FormatOptions, parse_features};
    use hectare_units::{Bytes, Clusters, LogicalBlock};
    use std::sync::Arc;

    /// Between the two, another writer could have passed the limit.
    #[test]
    fn regression_what_is_claimed_counts_until_the_inode_has_it() {
        let features = parse_features("quota").unwrap();
        let format = FormatOptions { features, ..FormatOptions::default() };
        let device = Arc::new(MemoryDevice::new(Bytes::mib(8)));
        let volume = Volume::format(device, &format, Overwrite::Refuse, OpenOptions::default()).unwrap();
        volume.write_file("a", b"", Creation { uid: 7, ..Creation::default() }).unwrap();
        let core = volume.core();
        let block = core.state.geometry().block_size.bytes().get();
        let limits = QuotaLimits { space_hard: Some(block), ..QuotaLimits::default() };
        volume.set_quota(QuotaKind::User, 7, &limits).unwrap();
        let inode = core.state.inode(volume.resolve("a", false).unwrap()).unwrap();
        let (nr, before) = (inode.nr(), inode.get().clone());
        let user = Caller::user(7, 7, &[]);
        let more = || on_behalf(&user, || core.state.claim_clusters(nr, &before, Clusters::ONE).map(drop));
        let reserve = || reserve::reserve_for(core, nr, &before, LogicalBlock::ZERO, 1, Use::data(&inode));
        let piece = on_behalf(&user, reserve).unwrap();
        let mut handle = core.start(MAP_CREDITS).unwrap();
        let mut data = inode.edit(&mut handle, &core.state.inodes);
        MapMut { core, handle: &mut handle, nr, inode: &mut data }.publish(piece, false).unwrap();
        assert!(more().is_err(), "the inode has the space, and the sums don't know it yet");
        drop(data);
        handle.stop();
        assert!(more().is_err());
        volume.set_quota(QuotaKind::User, 7, &QuotaLimits { space_hard: Some(2 * block), ..limits }).unwrap();
        more().unwrap();
        volume.close().unwrap();
    }
}
