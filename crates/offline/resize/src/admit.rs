//! What a volume must be to be resized: clean, closed, and of features that are understood.

use crate::error::{Error, Result};
use crate::volume::Volume;
use hectare_ext4::feature::{Compat, Incompat, RoCompat};
use hectare_ext4::mmp::{Mmp, Status};
use hectare_ext4::superblock::{STATE_ERROR, STATE_VALID};
use hectare_units::BlockNr;

/// Refuses a volume that can't be resized as it is; the text says what to do.
pub(crate) fn admit(volume: &Volume) -> Result<()> {
    let (sb, features) = (&volume.sb, volume.sb.features());
    let refuse = |reason: &str| Err(Error::Refused(reason.into()));
    if features.incompat.contains(Incompat::JOURNAL_DEV) {
        return refuse("this is a journal device, not a volume");
    }
    // First: what is open elsewhere needs no repair.
    refuse_mounted_elsewhere(volume)?;
    if features.incompat.contains(Incompat::RECOVER) {
        return refuse("its journal must be replayed first: mount and unmount it, or run e2fsck -f");
    }
    features.check_write()?;
    if sb.state() & STATE_VALID == 0 {
        return refuse("it was not unmounted cleanly: run e2fsck -f first");
    }
    if sb.state() & STATE_ERROR != 0 {
        return refuse("errors were found in it: run e2fsck -f first");
    }
    if sb.last_orphan().is_some() || features.ro_compat.contains(RoCompat::ORPHAN_PRESENT) {
        return refuse("it has files that were deleted while open: mount and unmount it, or run e2fsck -f");
    }
    let snapshots = Compat::EXCLUDE_BITMAP | Compat::EXCLUDE_INODE | Compat::LAZY_BG;
    if features.compat.intersects(snapshots) {
        return refuse("it has features of old drafts of snapshots, which are not known here");
    }
    Ok(())
}

/// Refuses a volume that another host holds (feature `mmp`).
fn refuse_mounted_elsewhere(volume: &Volume) -> Result<()> {
    if !volume.sb.features().incompat.contains(Incompat::MMP) {
        return Ok(());
    }
    let nr = BlockNr::new(volume.sb.raw().s_mmp_block.get());
    let block = volume.read(nr)?;
    match Mmp::parse(&block, nr, volume.sb.seed())?.status {
        Status::Clean => Ok(()),
        Status::Fsck => Err(Error::Refused("e2fsck runs on it (multiple mount protection)".into())),
        Status::InUse { .. } => Err(Error::Refused(
            "another host uses it (multiple mount protection); if none does, run e2fsck -f".into(),
        )),
    }
}

/// Refuses what stands against moving blocks or inodes.
pub(crate) fn admit_moves(volume: &Volume, moves_inodes: bool) -> Result<()> {
    let features = volume.sb.features();
    if features.ro_compat.contains(RoCompat::SHARED_BLOCKS) {
        return Err(Error::Refused(
            "files share blocks (shared_blocks), so none can be moved: run e2fsck -E unshare_blocks first"
                .into(),
        ));
    }
    if moves_inodes && features.compat.contains(Compat::STABLE_INODES) {
        return Err(Error::Refused(
            "the size needs other inode numbers, which the feature stable_inodes forbids".into(),
        ));
    }
    Ok(())
}
