//! Finds the superblock, from a backup if it has to be.
//!
//! A primary superblock whose checksum alone is wrong counts if a backup has the same geometry; else the
//! first backup that parses does. Backups lie at the start of groups, so their places follow from the block
//! size; each size is tried. Only where no group's start holds one is the device searched.

use crate::error::Error;
use crate::know::places::{GROUPS_MAX, contested};
use crate::mends::Mend;
use crate::stage::overlay::Overlay;
use hectare_check::What;
use hectare_device::Device;
use hectare_ext4::checksum::crc32c;
use hectare_ext4::error::{Corrupt, FormatError, Place};
use hectare_ext4::feature::{Compat, Incompat, RoCompat};
use hectare_ext4::geometry::{Geometry, SUPERBLOCK_OFFSET};
use hectare_ext4::group::GroupDesc;
use hectare_ext4::raw;
use hectare_ext4::superblock::{MAGIC, SIZE, SuperBlock, Tolerances};
use hectare_units::{Bytes, GroupNr, u64_of, usize_of};
use zerocopy::FromBytes;

/// Groups that have backups.
const BACKUP_GROUPS: [u64; 10] = [1, 3, 5, 7, 9, 25, 27, 49, 81, 125];
/// Bytes of a group descriptor with `64bit`.
const DESC_SIZE: u16 = 64;
/// How far a device is searched for superblocks.
const SEARCHED: Bytes = Bytes::gib(4);

/// A superblock that can be worked with.
pub(crate) struct Found {
    pub(crate) sb: SuperBlock,
    /// What had to be done for it.
    pub(crate) mends: Vec<Mend>,
    /// Whether it is not the primary one.
    pub(crate) from_backup: bool,
}

impl Found {
    fn new(sb: SuperBlock) -> Self {
        Self { sb, mends: Vec::new(), from_backup: false }
    }

    /// Notes what was done for it.
    fn mended(&mut self, text: impl Into<String>, loses: bool) {
        let (what, place, text) = (What::Superblock, Place::Volume, text.into());
        self.mends.push(Mend { what, place, text, loses });
    }

    /// Puts another in its place.
    fn replace(&mut self, device: &Overlay, sb: &SuperBlock) -> Result<(), Error> {
        self.sb = SuperBlock::from_raw(*sb.raw()).map_err(Error::NoSuperblock)?;
        Ok(device.write_at(SUPERBLOCK_OFFSET, &self.sb.render(GroupNr::new(0)))?)
    }
}

/// Finds the superblock, and says what had to be done for it.
pub(crate) fn find(device: &Overlay) -> Result<Found, Error> {
    let bytes = read(device, SUPERBLOCK_OFFSET)?;
    let found = match SuperBlock::parse(&bytes, Bytes::new(u64::MAX)) {
        Ok(sb) => believed(device, Found::new(sb))?,
        Err(error) => rescued(device, &bytes, error)?,
    };
    fitted(device, found)
}

/// A primary superblock that can be read, or a backup if that is not believed.
fn believed(device: &Overlay, mut found: Found) -> Result<Found, Error> {
    let Some(why) = doubt(device, &found.sb) else {
        let found = with_right_descriptors(device, with_right_revision(device, found)?)?;
        return with_fitting_layout(device, found);
    };
    if let Some(backup) = backup(device, None)?.filter(|backup| doubt(device, backup).is_none()) {
        // Features that nobody knows are given up with it.
        let loses = !found.sb.features().unknown().names().is_empty();
        found.mended(format!("{why}: restored from a backup"), loses);
        found.replace(device, &backup)?;
        found.from_backup = true;
    }
    Ok(found)
}

/// What takes the place of a primary superblock that can't be read.
fn rescued(device: &Overlay, bytes: &[u8; SIZE], error: FormatError) -> Result<Found, Error> {
    let wrong_checksum = || "its checksum was wrong: made right".to_owned();
    let (sb, text, from_backup) = if let Some(sb) = with_one_checksum(bytes) {
        (sb, format!("{}: uninit_bg is cleared, metadata_csum stays", reason(&error)), false)
    } else {
        let torn = SuperBlock::parse_torn(bytes, Bytes::new(u64::MAX)).ok();
        match (backup(device, torn.as_ref())?, torn) {
            (Some(backup), Some(torn)) if same_geometry(&torn, &backup) => (torn, wrong_checksum(), false),
            (Some(backup), _) => (backup, format!("{}: restored from a backup", reason(&error)), true),
            (None, Some(torn)) => (torn, wrong_checksum(), false),
            (None, None) => match patched(bytes) {
                Some(sb) => (sb, format!("{}: made right", reason(&error)), false),
                None => return Err(Error::NoSuperblock(error)),
            },
        }
    };
    let mut found = Found::new(sb.clone());
    found.mended(text, false);
    found.replace(device, &sb)?;
    found.from_backup = from_backup;
    Ok(found)
}

/// Why a superblock that can be read is not believed if there is a backup: the volume is too long, or it
/// contradicts itself and has unknown features, which then are damage, too. Where its checksum is right, those
/// were set on purpose.
fn doubt(device: &Overlay, sb: &SuperBlock) -> Option<String> {
    if !is_possible(device, sb) {
        return Some(format!("its size of {} is impossible on this device", sb.geometry().bytes()));
    }
    let unknown = sb.features().unknown().names();
    let fault = sb.faults().into_iter().next().filter(|_| !unknown.is_empty());
    let fault = fault.filter(|_| !sb.features().metadata_csum())?;
    Some(format!("{fault}, and it has unknown features ({})", unknown.join(", ")))
}

/// Whether enough of a volume of this length can be on the device.
fn is_possible(device: &Overlay, sb: &SuperBlock) -> bool {
    device.len().get() >= sb.geometry().bytes().get() / 4
}

/// Makes the device as long as the volume says it is, if only its end is missing.
fn fitted(device: &Overlay, mut found: Found) -> Result<Found, Error> {
    let (want, have) = (found.sb.geometry().bytes(), device.len());
    if want <= have {
        return Ok(found);
    }
    if !is_possible(device, &found.sb) {
        let reason = format!("the volume has {want} bytes, the device only {have}: too little is left of it");
        return Err(Error::Refused(reason));
    }
    let text =
        format!("the device has {have} bytes of the volume's {want}: the missing end is made of zeros");
    found.mended(text, true);
    device.resize(want)?;
    Ok(found)
}

fn reason(error: &FormatError) -> String {
    match error {
        FormatError::Corrupt(corrupt) => corrupt.reason.clone().into_owned(),
        FormatError::Unsupported(what) => what.0.clone(),
    }
}

fn read(device: &Overlay, at: Bytes) -> Result<[u8; SIZE], Error> {
    let mut bytes = [0; SIZE];
    if at.get() + u64_of(SIZE) > device.len().get() {
        let corrupt = Corrupt::new("superblock", Place::Volume, "the device is too short for one");
        return Err(Error::NoSuperblock(corrupt.into()));
    }
    device.read_at(at, &mut bytes)?;
    Ok(bytes)
}

fn same_geometry(a: &SuperBlock, b: &SuperBlock) -> bool {
    let (mut x, mut y) = (a.geometry().clone(), b.geometry().clone());
    (x.features.incompat, y.features.incompat) =
        (x.features.incompat - Incompat::RECOVER, y.features.incompat - Incompat::RECOVER);
    x.features.ro_compat -= RoCompat::ORPHAN_PRESENT | RoCompat::LARGE_FILE;
    y.features.ro_compat -= RoCompat::ORPHAN_PRESENT | RoCompat::LARGE_FILE;
    x == y && a.uuid() == b.uuid()
}

/// The first backup that can be used.
fn backup(device: &Overlay, torn: Option<&SuperBlock>) -> Result<Option<SuperBlock>, Error> {
    let mut places: Vec<u64> = Vec::new();
    if let Some(torn) = torn {
        let geometry = torn.geometry();
        let groups =
            (1..geometry.groups().min(1 << 16)).map(GroupNr::new).filter(|nr| geometry.has_super(*nr));
        places.extend(groups.take(64).map(|nr| geometry.super_block(nr).offset(geometry.block_size).get()));
    }
    for shift in 10..=16 {
        let first = u64::from(shift == 10);
        places.extend(BACKUP_GROUPS.iter().map(|group| (group * (8 << shift) + first) << shift));
    }
    for at in places {
        if let Some(sb) = usable(device, at)? {
            return Ok(Some(sb));
        }
    }
    let end = device.len().get().min(SEARCHED.get());
    let mut chunk = vec![0; 1 << 20];
    let mut at = 1 << 20;
    while at + u64_of(chunk.len()) <= end && torn.is_none() {
        device.read_at(Bytes::new(at), &mut chunk)?;
        for i in (0..chunk.len()).step_by(1024) {
            let found = chunk[i + 0x38..i + 0x3a] == MAGIC.to_le_bytes();
            if found && let Some(sb) = usable(device, at + u64_of(i))? {
                return Ok(Some(sb));
            }
        }
        at += u64_of(chunk.len());
    }
    Ok(None)
}

/// The backup at a place, if there is one and it says that it lies there.
fn usable(device: &Overlay, at: u64) -> Result<Option<SuperBlock>, Error> {
    if at + u64_of(SIZE) > device.len().get() {
        return Ok(None);
    }
    let bytes = read(device, Bytes::new(at))?;
    let Ok(sb) = SuperBlock::parse(&bytes, Bytes::new(u64::MAX)) else { return Ok(None) };
    let geometry = sb.geometry();
    let block = geometry.block_size.block_at(Bytes::new(at));
    let lies_there = geometry.group_of(block).is_some_and(|group| {
        let there = geometry.super_block(group).offset(geometry.block_size).get() == at;
        group.get() > 0 && there && geometry.has_super(group)
    });
    Ok(lies_there.then_some(sb))
}

/// A superblock whose counts are made to agree with its geometry; `None` if that does not suffice.
fn patched(bytes: &[u8]) -> Option<SuperBlock> {
    let mut raw = raw::SuperBlock::read_from_bytes(bytes).ok()?;
    if raw.s_magic.get() != MAGIC {
        return None;
    }
    let bit64 = raw.s_feature_incompat.get() & Incompat::BIT64.bits() != 0;
    let size = raw.s_desc_size.get();
    if bit64 && (!(DESC_SIZE..=1024).contains(&size) || !size.is_power_of_two()) {
        raw.s_desc_size = DESC_SIZE.into();
    }
    take_old_checksums(&mut raw);
    let clusters = raw.s_feature_ro_compat.get() & RoCompat::BIGALLOC.bits() != 0;
    if raw.s_log_block_size.get() == 0 && !clusters {
        raw.s_first_data_block = 1.into();
    }
    let per_group = u64::from(raw.s_blocks_per_group.get()).max(1);
    let hi = if bit64 { u64::from(raw.s_blocks_count_hi.get()) } else { 0 };
    let blocks = u64::from(raw.s_blocks_count_lo.get()) | hi << 32;
    let groups = blocks.saturating_sub(u64::from(raw.s_first_data_block.get())).div_ceil(per_group);
    if raw.s_rev_level.get() > 0 && raw.s_first_ino.get() < 11 {
        raw.s_first_ino = 11.into();
    }
    let room = blocks.checked_mul(1 << (10 + raw.s_log_block_size.get().min(6)))?;
    let by_count = u64::from(raw.s_inodes_count.get()).checked_div(groups)?;
    // The number in each group counts before that of all, if the tables fit the volume.
    [u64::from(raw.s_inodes_per_group.get()), by_count].into_iter().find_map(|per_group| {
        let inodes = groups.checked_mul(per_group)?;
        let fits = inodes.checked_mul(u64::from(raw.s_inode_size.get()))? <= room;
        raw.s_inodes_per_group = u32::try_from(per_group).ok().filter(|_| fits)?.into();
        raw.s_inodes_count = u32::try_from(inodes).ok()?.into();
        SuperBlock::from_raw(raw).ok()
    })
}

/// Of two kinds of checksums of descriptors the newer counts.
fn take_old_checksums(raw: &mut raw::SuperBlock) -> bool {
    let features = RoCompat::from_bits_retain(raw.s_feature_ro_compat.get());
    let both = features.contains(RoCompat::METADATA_CSUM | RoCompat::GDT_CSUM);
    if both {
        raw.s_feature_ro_compat = (features - RoCompat::GDT_CSUM).bits().into();
    }
    both
}

/// A superblock whose checksum is right, and of which nothing is wrong but that it has two kinds of checksums
/// of descriptors.
fn with_one_checksum(bytes: &[u8; SIZE]) -> Option<SuperBlock> {
    let mut raw = raw::SuperBlock::read_from_bytes(bytes).ok()?;
    let sealed = raw.s_checksum.get() == crc32c(!0, &bytes[..SIZE - 4]);
    if !sealed || !take_old_checksums(&mut raw) {
        return None;
    }
    SuperBlock::from_raw(raw).ok()
}

/// Features, and a size of inodes, are those of revision 1.
fn with_right_revision(device: &Overlay, mut found: Found) -> Result<Found, Error> {
    let mut raw = *found.sb.raw();
    let features = [raw.s_feature_compat, raw.s_feature_incompat, raw.s_feature_ro_compat];
    let has_features = features.iter().any(|word| word.get() != 0);
    if raw.s_rev_level.get() != 0 || !has_features || raw.s_inode_size.get() == 0 {
        return Ok(found);
    }
    raw.s_rev_level = 1.into();
    let Ok(sb) = SuperBlock::from_raw(raw) else { return Ok(found) };
    let text = "it has features, but is of revision 0: now 1".to_owned();
    found.mended(text, false);
    found.replace(device, &sb)?;
    Ok(found)
}

/// A superblock whose descriptors are all sound if they have the usual size, and are not with the one that it
/// says.
fn with_right_descriptors(device: &Overlay, mut found: Found) -> Result<Found, Error> {
    let mut raw = *found.sb.raw();
    let size = raw.s_desc_size.get();
    if !found.sb.features().incompat.contains(Incompat::BIT64) || size == DESC_SIZE {
        return Ok(found);
    }
    raw.s_desc_size = DESC_SIZE.into();
    let Ok(usual) = SuperBlock::from_raw(raw) else { return Ok(found) };
    if are_sound(device, &found.sb)? || !are_sound(device, &usual)? {
        return Ok(found);
    }
    let text = format!("its descriptors have {DESC_SIZE} bytes, not {size}: made right");
    found.mended(text, false);
    found.replace(device, &usual)?;
    Ok(found)
}

/// A superblock by which the group descriptors do not contradict each other, if that is the backup and not
/// the primary one: features that say where metadata lie, or how long a descriptor is, may be wrong in it.
fn with_fitting_layout(device: &Overlay, mut found: Found) -> Result<Found, Error> {
    // A right checksum says that features which nobody knows were set on purpose.
    let is_unknown = !found.sb.features().unknown().names().is_empty();
    if found.sb.geometry().groups() > GROUPS_MAX || is_unknown && found.sb.features().metadata_csum() {
        return Ok(found);
    }
    let contested = contradictions(device, &found.sb)?;
    if contested == 0 {
        return Ok(found);
    }
    let backup = backup(device, Some(&found.sb))?;
    let Some(backup) = backup.filter(|backup| is_possible(device, backup)) else { return Ok(found) };
    // Too many blocks kept for growing are mended without it.
    let mut geometry = backup.geometry().clone();
    geometry.reserved_gdt_blocks = found.sb.geometry().reserved_gdt_blocks;
    let same_size = geometry.blocks_count == found.sb.geometry().blocks_count;
    let differs = same_size && layout(&geometry) != layout(found.sb.geometry());
    if !differs || backup.uuid() != found.sb.uuid() || contradictions(device, &backup)? >= contested {
        return Ok(found);
    }
    let text = "the group descriptors agree with a backup of it, and not with it: restored from the backup";
    found.mended(text, is_unknown);
    found.replace(device, &backup)?;
    found.from_backup = true;
    Ok(found)
}

/// A geometry without the features that do not shape it.
fn layout(geometry: &Geometry) -> Geometry {
    let mut layout = geometry.clone();
    layout.features.compat &= Compat::SPARSE_SUPER2 | Compat::RESIZE_INODE;
    layout.features.incompat &= Incompat::META_BG | Incompat::BIT64 | Incompat::FLEX_BG;
    layout.features.ro_compat &= RoCompat::SPARSE_SUPER | RoCompat::BIGALLOC;
    layout
}

/// How many groups have a descriptor that can't be, or that contradicts others, whatever their checksums.
fn contradictions(device: &Overlay, sb: &SuperBlock) -> Result<usize, Error> {
    let tolerances = Tolerances { ignore_checksums: true, allow_truncated: true };
    let bytes = sb.render(GroupNr::new(0));
    let Ok(sb) = SuperBlock::parse_tolerant(&bytes, Bytes::new(u64::MAX), tolerances) else { return Ok(0) };
    let Some(descs) = descriptors(device, &sb)? else { return Ok(usize_of(sb.geometry().groups())) };
    let broken = descs.iter().filter(|desc| desc.is_none()).count();
    // Without each in its place they can't be compared.
    let descs: Vec<GroupDesc> = descs.into_iter().flatten().collect();
    Ok(if broken > 0 { broken } else { contested(sb.geometry(), &descs).len() })
}

/// Whether all descriptors are, or the first of very many.
fn are_sound(device: &Overlay, sb: &SuperBlock) -> Result<bool, Error> {
    Ok(descriptors(device, sb)?.is_some_and(|descs| descs.iter().all(Option::is_some)))
}

/// The descriptors by a superblock, or the first of very many, each `None` that can't be; `None` if they do not
/// all lie on the device.
fn descriptors(device: &Overlay, sb: &SuperBlock) -> Result<Option<Vec<Option<GroupDesc>>>, Error> {
    let geometry = sb.geometry();
    let (per, size) = (geometry.descs_per_block(), usize_of(geometry.desc_size));
    let mut block = vec![0; geometry.block_size.len()];
    let mut descs = Vec::new();
    for nr in 0..geometry.groups().min(GROUPS_MAX) {
        if nr.is_multiple_of(per) {
            let at = geometry.desc_block(nr / per).offset(geometry.block_size);
            if at.get() + u64_of(block.len()) > device.len().get() {
                return Ok(None);
            }
            device.read_at(at, &mut block)?;
        }
        let slot = &block[usize_of(nr % per) * size..][..size];
        descs.push(GroupDesc::parse(slot, GroupNr::new(nr), sb).ok());
    }
    Ok(Some(descs))
}
