//! Finds what a volume keeps copies of: its superblock and its group descriptors.
//!
//! [`find_superblock`] answers which superblock a volume can be read with if the first is lost. Nothing says
//! then how large a block is, so every size that a volume can have is tried, at the places where `mke2fs`
//! puts copies; then the beginning of the device is scanned.
//!
//! Hazard: a volume may hold images of other volumes, with superblocks of their own. A copy counts only if it
//! lies exactly where its own numbers say that a copy of its group lies.
//!
//! What it is not: it repairs nothing, and a copy is as old as the last program that wrote it.

use hectare_device::Device;
use hectare_ext4::error::FormatError;
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::group::GroupDesc;
use hectare_ext4::superblock::{MAGIC, SIZE, SuperBlock, Tolerances};
use hectare_units::{BlockSize, Bytes, GroupNr, index_of, low16, u64_of, usize_of};
use std::collections::BTreeSet;

/// Bytes from the beginning in which copies are looked for everywhere.
const SCANNED: u64 = 16 << 30;
/// Bytes read at once by the scan.
const STEP: u64 = 1 << 20;
/// Copies start at multiples of this.
const UNIT: u64 = 1024;
/// Offset of `s_magic` in a superblock.
const MAGIC_AT: usize = 0x38;
/// The most copies of a descriptor that are tried.
const COPIES_MAX: usize = 64;

/// Which superblock a volume is read with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhichSuperblock {
    /// The one in this block, counted in blocks of the volume, as for `e2fsck -b`.
    Block(u64),
    /// The first that is whole.
    Auto,
}

/// A superblock and where it lies.
#[derive(Clone, Debug)]
pub struct FoundSuperblock {
    /// What it says.
    pub superblock: SuperBlock,
    /// Its first byte on the device.
    pub at: Bytes,
    /// The group that it is the copy of.
    pub group: GroupNr,
}

/// Finds a superblock; `None` if there is none.
///
/// # Errors
/// What is wrong with the superblock in the block that was named. A part of the device that can't be read
/// holds none.
pub fn find_superblock(
    device: &dyn Device,
    which: WhichSuperblock,
    tolerances: Tolerances,
) -> Result<Option<FoundSuperblock>, FormatError> {
    match which {
        WhichSuperblock::Block(block) => in_block(device, block, tolerances),
        WhichSuperblock::Auto => Ok(anywhere(device, tolerances)),
    }
}

/// The superblock in a block, whatever the size of blocks is.
fn in_block(
    device: &dyn Device,
    block: u64,
    tolerances: Tolerances,
) -> Result<Option<FoundSuperblock>, FormatError> {
    let mut fault = None;
    let places = sizes().filter_map(|size| block.checked_mul(size.bytes().get()));
    for at in places.map(|at| if at == 0 { SUPERBLOCK_OFFSET.get() } else { at }) {
        match at_byte(device, at, tolerances) {
            Some(Ok(found)) => return Ok(Some(found)),
            Some(Err(error)) => fault = fault.or(Some(error)),
            None => {}
        }
    }
    fault.map_or(Ok(None), Err)
}

fn anywhere(device: &dyn Device, tolerances: Tolerances) -> Option<FoundSuperblock> {
    // A copy whose checksum is right is better than one before it.
    let strict = Tolerances { ignore_checksums: false, ..tolerances };
    let tries = if tolerances.ignore_checksums { vec![strict, tolerances] } else { vec![strict] };
    let usual = tries.iter().find_map(|tolerances| in_usual_places(device, *tolerances));
    usual.or_else(|| tries.into_iter().find_map(|tolerances| scan(device, tolerances)))
}

/// Finds a superblock where `mke2fs` puts it and its copies, the first before all others, without reading
/// anything else of the device; `None` if none is usable.
#[must_use]
pub fn in_usual_places(device: &dyn Device, tolerances: Tolerances) -> Option<FoundSuperblock> {
    usual_places(device.len()).into_iter().find_map(|at| at_byte(device, at, tolerances)?.ok())
}

/// Where `mke2fs` puts copies, for every size of blocks and clusters, the primary first.
fn usual_places(device: Bytes) -> BTreeSet<u64> {
    let mut places = BTreeSet::from([SUPERBLOCK_OFFSET.get()]);
    for size in sizes() {
        let bytes = size.bytes().get();
        for ratio_shift in 0..16 {
            let group = (8 * bytes * bytes) << ratio_shift;
            let first = if size == BlockSize::KIB1 { bytes } else { 0 };
            let powers = |base: u64| std::iter::successors(Some(base), move |power| power.checked_mul(base));
            for nr in [1].into_iter().chain([3, 5, 7].into_iter().flat_map(|base| powers(base).take(20))) {
                let at = nr.checked_mul(group).and_then(|at| at.checked_add(first));
                places.extend(at.filter(|at| *at < device.get()));
                // With clusters, the first group begins at block 0 also where blocks have 1 KiB.
                places.extend(at.map(|at| at - first).filter(|at| *at < device.get()));
            }
        }
    }
    places
}

fn sizes() -> impl Iterator<Item = BlockSize> {
    (10..=16).filter_map(BlockSize::from_shift)
}

/// The first copy among the first [`SCANNED`] bytes.
fn scan(device: &dyn Device, tolerances: Tolerances) -> Option<FoundSuperblock> {
    let end = device.len().get().min(SCANNED);
    let mut buffer = vec![0; index_of(STEP)];
    let mut at = 0;
    while at < end {
        let len = index_of((end - at).min(STEP));
        let read = device.read_at(Bytes::new(at), &mut buffer[..len]).is_ok();
        for (i, piece) in buffer[..len].chunks(index_of(UNIT)).enumerate().filter(|_| read) {
            if piece.get(MAGIC_AT..MAGIC_AT + 2) == Some(&MAGIC.to_le_bytes()) {
                let found = at_byte(device, at + UNIT * u64_of(i), tolerances).and_then(Result::ok);
                if found.is_some() {
                    return found;
                }
            }
        }
        at += u64_of(len);
    }
    None
}

/// The superblock at a byte: `None` if there is none, or if it belongs elsewhere.
fn at_byte(
    device: &dyn Device,
    at: u64,
    tolerances: Tolerances,
) -> Option<Result<FoundSuperblock, FormatError>> {
    let at = Bytes::new(at);
    let mut bytes = [0; SIZE];
    device.read_at(at, &mut bytes).ok()?;
    if bytes.get(MAGIC_AT..MAGIC_AT + 2) != Some(&MAGIC.to_le_bytes()) {
        return None;
    }
    let superblock = match SuperBlock::parse_tolerant(&bytes, device.len(), tolerances) {
        Ok(superblock) => superblock,
        Err(error) => return Some(Err(error)),
    };
    let group = group_at(&superblock, at)?;
    Some(Ok(FoundSuperblock { superblock, at, group }))
}

/// The group whose copy lies at a byte, if the superblock says that it is this copy.
fn group_at(superblock: &SuperBlock, at: Bytes) -> Option<GroupNr> {
    let geometry = superblock.geometry();
    if at == SUPERBLOCK_OFFSET {
        return Some(GroupNr::new(0));
    }
    let group = geometry.group_of(geometry.block_size.block_at(at))?;
    let says = superblock.raw().s_block_group_nr.get();
    let is_its_place = geometry.super_block(group).offset(geometry.block_size) == at;
    (is_its_place && geometry.has_super(group) && says == low16(u64::from(group.get()))).then_some(group)
}

/// A group's descriptor from the first copy in which it is usable; `read` reads whole blocks.
pub fn backup_desc(
    superblock: &SuperBlock,
    group: GroupNr,
    mut read: impl FnMut(Bytes, &mut [u8]) -> bool,
) -> Option<GroupDesc> {
    let geometry = superblock.geometry();
    let index = group.get() / geometry.descs_per_block();
    let at = usize_of(group.get() % geometry.descs_per_block() * geometry.desc_size);
    let mut block = vec![0; geometry.block_size.len()];
    geometry.desc_block_copies(index).skip(1).take(COPIES_MAX).find_map(|nr| {
        let slot = at..at + usize_of(geometry.desc_size);
        let is_read = read(nr.offset(geometry.block_size), &mut block);
        let desc = GroupDesc::parse_backup(&block[slot], group, superblock).ok()?;
        // Where descriptors have no checksums, zeros would be one.
        (is_read && desc.inode_table.get() > u64::from(geometry.first_data_block)).then_some(desc)
    })
}
