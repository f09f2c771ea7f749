//! The beginning and the end of a format, where order matters.
//!
//! Old signatures are wiped first ([`wipe`]), so that an interrupted format leaves nothing that could be
//! taken for the old volume, and the primary superblock is written last ([`seal`]), after everything else is
//! durable, so that a half-made volume is never taken for a whole one. Meanwhile a mark in its place says
//! what happened, for the next program that opens the device.

use crate::error::Result;
use crate::progress::{Run, Step};
use hectare_device::{Device, Error, Operation, Reason};
use hectare_ext4::superblock::UNFINISHED;
use hectare_units::{Bytes, index_of};
use hectare_xfs::superblock::copies;

/// Bytes wiped at either end: a ZFS pool has two labels of 256 KiB at each, those at the end before a
/// multiple of that; signatures of other formats lie within the first 68 KiB, copies of some within the last
/// 128.
const WIPE: Bytes = Bytes::kib(768);
/// Bytes zeroed of an old superblock: the largest sector that one can have.
const SUPERBLOCK_MAX: u64 = 32 << 10;
/// Where the primary superblock of an old volume may lie, and no more than that: of XFS, then of ext4, where
/// XFS keeps other headers.
const OLD_SUPERBLOCKS: [(Bytes, Bytes); 2] = [(Bytes::ZERO, Bytes::new(512)), (Bytes::kib(1), Bytes::kib(1))];

/// Bytes given up at a time, at least, and such pieces at most: some devices take seconds for one.
const DISCARD: u64 = 2 << 30;
const DISCARDS_MAX: u64 = 1024;

/// Zeros both ends of the device, where signatures lie, and of an old XFS volume the two superblock copies
/// that repair would go by, unless the device is known to read as zeros anyway. Marks the place of the
/// superblock.
///
/// Whatever the power does, an old XFS or ext4 volume is there as it was, or has no superblock.
pub(crate) fn wipe(device: &dyn Device, zeroed: bool, superblock: Bytes) -> Result<()> {
    refuse_read_only(device)?;
    if zeroed {
        return Ok(device.write_at(superblock, UNFINISHED)?);
    }
    let len = device.len();
    let head = WIPE.min(len);
    let copies = old_copies(device)?;
    for at in &copies {
        device.zero(*at, Bytes::new(SUPERBLOCK_MAX.min(len.get() - at.get())))?;
    }
    if !copies.is_empty() {
        // Without the head, nothing would find them again.
        device.flush()?;
    }
    for (at, len) in OLD_SUPERBLOCKS {
        if at + len <= head {
            device.zero(at, len)?;
            device.flush()?;
        }
    }
    device.zero(Bytes::ZERO, head)?;
    device.write_at(superblock, UNFINISHED)?;
    let tail = head.get().max(len.get().saturating_sub(WIPE.get()));
    if tail < len.get() {
        device.zero(Bytes::new(tail), len - Bytes::new(tail))?;
    }
    device.flush()?;
    Ok(())
}

/// Gives up what a [wiped](wipe) device holds up to the volume's `end`; whether all of that now reads as
/// zeros. A device that fails at it is one that can't: many do, and writing will show whether it is broken.
pub(crate) fn discard(device: &dyn Device, end: Bytes, run: Run<'_>) -> bool {
    let (len, start) = (end.get(), WIPE.min(end).get());
    let piece = DISCARD.max(len / DISCARDS_MAX);
    let mut at = start;
    while at < len {
        let piece = piece.min(len - at);
        if device.discard(Bytes::new(at), Bytes::new(piece)).is_err() {
            return false;
        }
        at += piece;
        run.tell(Step::Discard, at, len);
    }
    device.discards_to_zeros()
}

/// Where an XFS volume on the device keeps those superblock copies that name its root directory.
fn old_copies(device: &dyn Device) -> Result<Vec<Bytes>> {
    let mut sector = vec![0; index_of(device.len().get().min(512))];
    device.read_at(Bytes::ZERO, &mut sector)?;
    let Some((groups, apart)) = copies(&sector) else { return Ok(Vec::new()) };
    let last = groups.saturating_sub(1);
    let places = [last / 2, last].into_iter().filter_map(|group| u64::from(group).checked_mul(apart));
    Ok(places.filter(|at| *at < device.len().get()).map(Bytes::new).collect())
}

/// Makes everything durable, then the primary superblock.
pub(crate) fn seal(device: &dyn Device, at: Bytes, superblock: &[u8]) -> Result<()> {
    device.flush()?;
    device.write_at(at, superblock)?;
    device.flush()?;
    Ok(())
}

/// A device of a caller may say that it is read only, and write all the same.
pub(crate) fn refuse_read_only(device: &dyn Device) -> Result<()> {
    if device.is_read_only() {
        return Err(Error::new(device.name(), Operation::Write, None, Reason::ReadOnly).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_device::{CrashStates, MemoryDevice, OverlayDevice, RecordDevice};
    use hectare_xfs::{raw, superblock};
    use std::sync::Arc;
    use zerocopy::{FromZeros, IntoBytes};

    #[test]
    fn regression_all_labels_of_a_pool_are_wiped() {
        const LABEL: u64 = 256 << 10;
        let len = 16 * LABEL + (200 << 10);
        let device = MemoryDevice::new(Bytes::new(len));
        let halves = [0, 1, 14, 15].map(|label| Bytes::new(label * LABEL + LABEL / 2));
        for half in halves {
            device.write_at(half, &[0xa5; 128 << 10]).unwrap();
        }
        wipe(&device, false, Bytes::ZERO).unwrap();
        for half in halves {
            let mut found = vec![1; 128 << 10];
            device.read_at(half, &mut found).unwrap();
            assert!(found.iter().all(|byte| *byte == 0), "the label at {half}");
        }
    }

    /// It had no descriptors then, or no backups, and looked whole to programs that read its superblock.
    #[test]
    fn regression_a_power_cut_leaves_an_old_volume_as_it_was_or_without_its_superblock() {
        // Old ones have a block of a boot loader before them, or other headers behind.
        for (superblock, others) in [(0, 512..1 << 20), (1024, 2048..1 << 20)] {
            let old = vec![0xa5; 1 << 20];
            let image = Arc::new(MemoryDevice::new(Bytes::mib(1)));
            image.write_at(Bytes::ZERO, &old).unwrap();
            let device = RecordDevice::new(OverlayDevice::new(Arc::clone(&image)));
            wipe(&device, false, Bytes::ZERO).unwrap();
            let mut states = CrashStates::new(OverlayDevice::new(image), device.log());
            let (mut there, mut gone) = (0, 0);
            for (point, seed) in states.points().flat_map(|point| (0..20).map(move |seed| (point, seed))) {
                let mut found = old.clone();
                states.torn(point, seed).unwrap().read_at(Bytes::ZERO, &mut found).unwrap();
                if found[superblock..superblock + 512] == old[..512] {
                    there += 1;
                    assert!(found[others.clone()] == old[others.clone()], "point {point}, seed {seed}");
                } else {
                    gone += 1;
                }
            }
            assert!(there > 0 && gone > 20, "{there} with the superblock, {gone} without");
        }
    }

    /// The next format could not find them.
    #[test]
    fn regression_a_power_cut_leaves_no_old_copies_without_the_head() {
        const GROUP: u64 = 4 << 20;
        let image = Arc::new(MemoryDevice::new(Bytes::new(4 * GROUP)));
        let mut old = raw::SuperBlock::new_zeroed();
        old.sb_magicnum.set(superblock::MAGIC);
        old.sb_blocksize.set(4096);
        old.sb_agblocks.set(1024);
        old.sb_agcount.set(4);
        let at = |group: u64| Bytes::new(group * GROUP);
        (0..4).for_each(|group| image.write_at(at(group), old.as_bytes()).unwrap());
        let device = RecordDevice::new(OverlayDevice::new(Arc::clone(&image)));
        wipe(&device, false, Bytes::ZERO).unwrap();
        let mut states = CrashStates::new(OverlayDevice::new(image), device.log());
        let mut cut_between = 0;
        for (point, seed) in states.points().flat_map(|point| (0..20).map(move |seed| (point, seed))) {
            let state = states.torn(point, seed).unwrap();
            let is_there = |group| {
                let mut magic = [0; 4];
                state.read_at(at(group), &mut magic).unwrap();
                magic == *b"XFSB"
            };
            let [head, middle, last] = [0, 1, 3].map(is_there);
            assert!(head || !(middle || last), "point {point}, seed {seed}");
            cut_between += u32::from(head && !(middle && last));
        }
        assert!(cut_between > 0);
    }
}
