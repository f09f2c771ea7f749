//! Gives a volume of the same size another form of its base metadata: wider or narrower descriptors
//! (`64bit`), backups in other groups (`sparse_super`, `sparse_super2`), descriptor blocks reserved for
//! growing or not (`resize_inode`). And makes room for what its caller puts somewhere itself.
//!
//! A journal in the way is refused ([`make_room`]): it can't log what moves it. [`room`] says what must be
//! free, and [`is_journal_in`] whether the journal lies there.
//!
//! Everything is written straight to the device, in no order that a crash could survive: it is a copy, which
//! the caller compares with the volume and writes in an order of its own.

use crate::admit;
use crate::commit::write_backups;
use crate::error::{Error, Result};
use crate::evacuate;
use crate::inodes;
use crate::metadata;
use crate::reserve;
use crate::reshape;
use crate::staging;
use crate::target;
use crate::volume::Volume;
use hectare_device::Device;
use hectare_ext4::feature::{Compat, Features, Incompat, RoCompat};
use hectare_ext4::geometry::Geometry;
use hectare_ext4::superblock::SuperBlock;
use hectare_ext4::time::Timestamp;
use hectare_units::{ClusterNr, low16};
use rangemap::RangeSet;
use std::ops::Range;
use std::sync::Arc;

/// The features that [`convert`] turns on and off.
pub const CONVERTED: Features = Features {
    compat: Compat::RESIZE_INODE.union(Compat::SPARSE_SUPER2),
    incompat: Incompat::BIT64,
    ro_compat: RoCompat::SPARSE_SUPER,
};
/// Bytes of a wide descriptor.
const WIDE: u16 = 64;
/// Groups that `sparse_super2` gives a backup to: the first behind the primary one, and the last.
const BACKUPS: usize = 2;

/// Gives the volume on `copy` those of the features in [`CONVERTED`] that `goal` has. What lies in the way of
/// its metadata is moved.
///
/// # Errors
/// [`Error::Refused`], [`Error::Size`] and [`Error::NoSpace`] say what is in the way; the copy is of no use
/// then.
pub fn convert(copy: &Arc<dyn Device>, goal: &Features, now: Timestamp) -> Result<()> {
    let mut volume = Volume::open(Arc::clone(copy), true)?;
    admit::admit(&volume)?;
    let new = form(&volume.sb, goal)?;
    let occupied = reshape::occupied(&mut volume, &new)?;
    if !occupied.is_empty() {
        evacuate::evacuate(&mut volume, occupied, new.geometry().inodes_count())?;
        volume.stage()?;
    }
    let table = reserve::empty(&mut volume)?;
    let new = form(&volume.sb, goal)?;
    reshape::reshape(&mut volume, new)?;
    reserve::fill(&mut volume, table, now)?;
    write(&mut volume, copy)
}

/// Moves what files have where [`convert`] would put metadata, and in the blocks `also`, elsewhere; says
/// whether anything had to. Clusters that were left are free, and were not used again.
///
/// # Errors
/// As [`convert`].
pub fn make_room(copy: &Arc<dyn Device>, goal: &Features, also: &[Range<u64>]) -> Result<bool> {
    let mut volume = Volume::open(Arc::clone(copy), true)?;
    admit::admit(&volume)?;
    let new = form(&volume.sb, goal)?;
    let clusters = occupied(&mut volume, &new, also)?;
    if clusters.is_empty() {
        return Ok(false);
    }
    if has_journal_in(&mut volume, &clusters)? {
        // It can't be moved in a transaction of its own log.
        let what = "its journal lies where metadata of the new form is to lie: move it first, with tune -J \
                    location=BLOCK";
        return Err(Error::Refused(what.into()));
    }
    evacuate::evacuate(&mut volume, clusters, new.geometry().inodes_count())?;
    write(&mut volume, copy)?;
    Ok(true)
}

/// Clusters of the new form, of which some are in use, and those of the blocks `also`.
fn occupied(volume: &mut Volume, new: &SuperBlock, also: &[Range<u64>]) -> Result<RangeSet<u64>> {
    let mut clusters = reshape::occupied(volume, new)?;
    for range in also {
        metadata::insert(&mut clusters, metadata::clusters(volume.geometry(), range));
    }
    Ok(clusters)
}

fn has_journal_in(volume: &mut Volume, clusters: &RangeSet<u64>) -> Result<bool> {
    let Some(nr) = evacuate::journal(volume) else { return Ok(false) };
    let inode = inodes::read(volume, nr)?;
    evacuate::is_touched(volume, nr, &inode, clusters)
}

/// Whether [`make_room`] would find the journal in the way. Nothing is changed.
///
/// # Errors
/// As [`convert`].
pub fn is_journal_in(device: &Arc<dyn Device>, goal: &Features, also: &[Range<u64>]) -> Result<bool> {
    let mut volume = Volume::open(Arc::clone(device), false)?;
    let new = form(&volume.sb, goal)?;
    let clusters = occupied(&mut volume, &new, also)?;
    has_journal_in(&mut volume, &clusters)
}

/// The blocks where [`convert`] would put metadata and has none now, in use or not. Nothing is changed.
///
/// # Errors
/// As [`convert`].
pub fn room(device: &Arc<dyn Device>, goal: &Features) -> Result<Vec<Range<u64>>> {
    let volume = Volume::open(Arc::clone(device), false)?;
    let new = form(&volume.sb, goal)?;
    let geometry = volume.geometry();
    let block = |cluster| geometry.cluster_start(ClusterNr::new(cluster)).get();
    let gained = reshape::gained(&volume, &new);
    Ok(gained.into_iter().map(|clusters| block(clusters.start)..block(clusters.end)).collect())
}

fn write(volume: &mut Volume, copy: &Arc<dyn Device>) -> Result<()> {
    volume.stage()?;
    let size = volume.geometry().block_size;
    volume.copies.make(copy, size)?;
    for (nr, bytes) in staging::newer(&volume.staged, None) {
        copy.write_at(nr.offset(size), &bytes)?;
    }
    write_backups(volume)
}

/// The superblock of the volume with the features of `goal`.
fn form(old: &SuperBlock, goal: &Features) -> Result<SuperBlock> {
    let mut raw = *old.raw();
    let geometry = old.geometry();
    let wide = goal.incompat.contains(Incompat::BIT64);
    let mut features = *old.features();
    features.compat = (features.compat - CONVERTED.compat) | (goal.compat & CONVERTED.compat);
    features.incompat.set(Incompat::BIT64, wide);
    features.ro_compat.set(RoCompat::SPARSE_SUPER, goal.ro_compat.contains(RoCompat::SPARSE_SUPER));
    if !wide && geometry.blocks_count.get() > u64::from(u32::MAX) {
        return Err(Error::Size(format!("{} blocks need the feature 64bit", geometry.blocks_count)));
    }
    if wide && !goal.incompat.contains(Incompat::EXTENTS) {
        return Err(Error::Size("the feature 64bit needs the feature extent, which the volume lacks".into()));
    }
    raw.s_feature_compat = features.compat.bits().into();
    raw.s_feature_incompat = features.incompat.bits().into();
    raw.s_feature_ro_compat = features.ro_compat.bits().into();
    if wide != old.features().incompat.contains(Incompat::BIT64) {
        raw.s_desc_size = if wide { WIDE } else { 0 }.into();
    }
    let has_two = features.compat.contains(Compat::SPARSE_SUPER2);
    if has_two != old.features().compat.contains(Compat::SPARSE_SUPER2) {
        raw.s_backup_bgs = if has_two { backups(geometry) } else { [0; BACKUPS] }.map(Into::into);
    }
    raw.s_reserved_gdt_blocks = low16(reserve(old, &features, wide)?.into()).into();
    Ok(SuperBlock::from_raw(raw)?)
}

/// The groups of the two backups; 0 where there is none.
fn backups(geometry: &Geometry) -> [u32; BACKUPS] {
    let groups = geometry.groups();
    [u32::from(groups > 1), if groups > 2 { groups - 1 } else { 0 }]
}

/// Descriptor blocks reserved for growing, of which descriptors that become wider take some.
fn reserve(old: &SuperBlock, features: &Features, wide: bool) -> Result<u32> {
    let geometry = old.geometry();
    if !features.compat.contains(Compat::RESIZE_INODE) {
        return Ok(0);
    }
    if features.incompat.contains(Incompat::META_BG) {
        return Err(Error::Refused(
            "resize_inode: a volume with meta_bg needs no reserved descriptors".into(),
        ));
    }
    let desc_size = if wide == old.features().incompat.contains(Incompat::BIT64) {
        geometry.desc_size
    } else if wide {
        WIDE.into()
    } else {
        32
    };
    let per_block = geometry.block_size.get() / desc_size;
    let needed = geometry.groups().div_ceil(per_block);
    let most = geometry.block_size.get() / 4;
    if old.features().compat.contains(Compat::RESIZE_INODE) {
        let room = geometry.desc_blocks() + geometry.reserved_gdt_blocks;
        return Ok(room.saturating_sub(needed).min(most));
    }
    let reserved = target::growth_reserve(geometry, per_block).saturating_sub(needed).min(most);
    if u64::from(reserved + needed) > u64::from(geometry.blocks_per_group()) * 3 / 4 {
        return Err(Error::Refused("resize_inode: the descriptors would fill most of a group".into()));
    }
    Ok(reserved)
}
