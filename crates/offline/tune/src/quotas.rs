//! Turns quotas on and off: files that say what each owner uses, made by counting every inode.

use crate::error::{Error, Result};
use crate::file::{NewFile, remove};
use crate::volume::Volume;
use hectare_ext4::feature::Incompat;
use hectare_ext4::inode::{Inode, InodeFlags};
use hectare_ext4::quota::{self, Kind, Record};
use hectare_ext4::raw;
use hectare_ext4::time::Timestamp;
use hectare_mkfs::count_inode;
use hectare_units::{BlockNr, InodeNr, low32, u64_of};
use std::collections::BTreeMap;

/// All kinds.
pub(crate) const KINDS: [Kind; 3] = [Kind::User, Kind::Group, Kind::Project];

/// The number that a kind's file is known by in the superblock.
pub(crate) fn inode_of(raw: &raw::SuperBlock, kind: Kind) -> Option<InodeNr> {
    InodeNr::from_disk(match kind {
        Kind::User => raw.s_usr_quota_inum.get(),
        Kind::Group => raw.s_grp_quota_inum.get(),
        Kind::Project => raw.s_prj_quota_inum.get(),
    })
}

fn set_inode_of(raw: &mut raw::SuperBlock, kind: Kind, nr: u32) {
    match kind {
        Kind::User => raw.s_usr_quota_inum = nr.into(),
        Kind::Group => raw.s_grp_quota_inum = nr.into(),
        Kind::Project => raw.s_prj_quota_inum = nr.into(),
    }
}

/// Removes the file of a kind.
pub(crate) fn take_away(volume: &mut Volume<'_>, kind: Kind) -> Result<()> {
    let Some(nr) = inode_of(volume.sb().raw(), kind) else { return Ok(()) };
    remove(volume, nr)?;
    volume.edit(|raw| set_inode_of(raw, kind, 0))
}

/// Makes the files of kinds that have none, with what is in use now and without limits.
pub(crate) fn add(volume: &mut Volume<'_>, kinds: &[Kind], now: Timestamp) -> Result<()> {
    let is_missing = |kind: &Kind| inode_of(volume.sb().raw(), *kind).is_none();
    let missing: Vec<Kind> = kinds.iter().copied().filter(is_missing).collect();
    if missing.is_empty() {
        return Ok(());
    }
    // Before an inode is taken: its slot may still hold a removed file.
    let used = count(volume)?;
    for kind in missing {
        let nr = match kind {
            Kind::User => InodeNr::new(3),
            Kind::Group => InodeNr::new(4),
            Kind::Project => volume.take_inode()?,
        };
        let content = quota::build(kind, &used[kind.index()]);
        let size = volume.geometry().block_size;
        let file = NewFile {
            nr,
            blocks: low32(u64_of(content.len().div_ceil(size.len()))),
            goal: BlockNr::new(0),
            now,
        };
        let (mut inode, runs) = file.make(volume)?;
        inode.size = u64_of(content.len());
        inode.flags |= InodeFlags::IMMUTABLE;
        let blocks = runs.into_iter().flatten().map(BlockNr::new);
        for (block, piece) in blocks.zip(content.chunks(size.len())) {
            let mut bytes = piece.to_vec();
            bytes.resize(size.len(), 0);
            volume.write(block, &bytes)?;
        }
        volume.set_inode(nr, &inode)?;
        volume.edit(|raw| set_inode_of(raw, kind, nr.get()))?;
    }
    Ok(())
}

/// What each owner uses, by kind: all inodes that have an owner, so not those of the volume itself.
fn count(volume: &mut Volume<'_>) -> Result<[BTreeMap<u32, Record>; 3]> {
    let mut used: [BTreeMap<u32, Record>; 3] = std::array::from_fn(|_| BTreeMap::new());
    let sb = volume.sb().clone();
    // The feature may not be on yet, and the files of some kinds may be there.
    let own: Vec<InodeNr> = KINDS.into_iter().filter_map(|kind| inode_of(sb.raw(), kind)).collect();
    let values = sb.features().incompat.contains(Incompat::EA_INODE);
    volume.each_inode(&mut |_, nr, slot, in_use| {
        let has_owner = !own.contains(&nr) && quota::counts(&sb, nr, InodeFlags::empty());
        if !in_use || !has_owner {
            return Ok(());
        }
        let inode = Inode::parse(slot, nr, &sb)?;
        if values && inode.flags.contains(InodeFlags::EA_INODE) {
            let reason =
                format!("inode {nr} holds an attribute's value (ea_inode): let tune2fs count quotas");
            return Err(Error::refused(reason));
        }
        for kind in KINDS {
            count_inode(kind, &inode, 0, &mut used[kind.index()]);
        }
        Ok(())
    })?;
    Ok(used)
}
