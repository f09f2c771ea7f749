//! The other structures that a feature brings: the orphan file and the block of multiple mount protection.

use crate::error::{Error, Result};
use crate::file::{NewFile, remove};
use crate::volume::Volume;
use hectare_ext4::feature::{Compat, Incompat, RoCompat};
use hectare_ext4::mmp::{Mmp, Status};
use hectare_ext4::orphan::OrphanBlockMut;
use hectare_ext4::time::Timestamp;
use hectare_mkfs::orphan_blocks;
use hectare_units::BlockNr;

/// Seconds between two updates of the protection, unless others are asked for.
const MMP_INTERVAL: u16 = 5;

/// Removes the orphan file, which is empty.
pub(crate) fn take_orphan_file_away(volume: &mut Volume<'_>) -> Result<()> {
    if volume.sb().features().ro_compat.contains(RoCompat::ORPHAN_PRESENT) {
        return Err(Error::refused("the orphan file may have entries: run e2fsck -f first"));
    }
    if let Some(nr) = volume.sb().orphan_file_inode() {
        remove(volume, nr)?;
    }
    volume.edit(|raw| {
        raw.s_feature_compat = (raw.s_feature_compat.get() & !Compat::ORPHAN_FILE.bits()).into();
        raw.s_orphan_file_inum = 0.into();
    })
}

/// Makes an empty orphan file.
pub(crate) fn add_orphan_file(volume: &mut Volume<'_>, now: Timestamp) -> Result<()> {
    let nr = volume.take_inode()?;
    let blocks = orphan_blocks(volume.geometry().blocks_count);
    let (inode, runs) = NewFile { nr, blocks, goal: BlockNr::new(0), now }.make(volume)?;
    let seed = inode.seed(nr, volume.sb());
    for block in runs.into_iter().flatten().map(BlockNr::new) {
        let mut bytes = volume.read(block)?;
        let mut orphans = OrphanBlockMut::new(&mut bytes, block);
        orphans.format();
        seed.into_iter().for_each(|seed| orphans.seal(seed));
        volume.write(block, &bytes)?;
    }
    volume.set_inode(nr, &inode)?;
    volume.edit(|raw| {
        raw.s_feature_compat = (raw.s_feature_compat.get() | Compat::ORPHAN_FILE.bits()).into();
        raw.s_orphan_file_inum = nr.get().into();
    })
}

/// Frees the block of multiple mount protection.
pub(crate) fn take_mmp_away(volume: &mut Volume<'_>) -> Result<()> {
    let block = volume.sb().raw().s_mmp_block.get();
    volume.give_back(std::slice::from_ref(&(block..block + 1)))?;
    volume.edit(|raw| {
        raw.s_feature_incompat = (raw.s_feature_incompat.get() & !Incompat::MMP.bits()).into();
        raw.s_mmp_block = 0.into();
        raw.s_mmp_update_interval = 0.into();
    })
}

/// Takes a block for multiple mount protection.
pub(crate) fn add_mmp(volume: &mut Volume<'_>, interval: Option<u16>, now: Timestamp) -> Result<()> {
    let block = volume.take(1, BlockNr::new(0))?.first().map_or(0, |run| run.start);
    volume.edit(|raw| {
        raw.s_feature_incompat = (raw.s_feature_incompat.get() | Incompat::MMP.bits()).into();
        raw.s_mmp_block = block.into();
        raw.s_mmp_update_interval = interval.unwrap_or(MMP_INTERVAL).into();
    })?;
    write_mmp(volume, now)
}

/// Writes the block of multiple mount protection as that of a volume that is not in use.
pub(crate) fn write_mmp(volume: &Volume<'_>, now: Timestamp) -> Result<()> {
    let raw = volume.sb().raw();
    let mmp = Mmp {
        status: Status::Clean,
        time: now.seconds.max(0).cast_unsigned(),
        check_interval: raw.s_mmp_update_interval.get(),
    };
    let mut bytes = mmp.render(volume.sb().seed()).to_vec();
    bytes.resize(volume.geometry().block_size.len(), 0);
    volume.write(BlockNr::new(raw.s_mmp_block.get()), &bytes)
}

/// Refuses a volume that another machine has in use.
pub(crate) fn refuse_in_use(volume: &Volume<'_>, clear: bool) -> Result<()> {
    if clear || !volume.sb().features().incompat.contains(Incompat::MMP) {
        return Ok(());
    }
    let block = BlockNr::new(volume.sb().raw().s_mmp_block.get());
    let who = match Mmp::parse(&volume.read(block)?, block, volume.sb().seed())?.status {
        Status::Clean => return Ok(()),
        Status::Fsck => "e2fsck has it in use, or was interrupted".to_owned(),
        Status::InUse { node, device, .. } => format!("{node} has it in use as {device}, or crashed"),
    };
    Err(Error::refused(format!("{who} (multiple mount protection); if it does not: -f -E clear_mmp")))
}
