//! Searches a device for superblocks of ext volumes, wherever they lie, and groups them into volumes.
//!
//! A superblock says how large its volume is, how large the groups are, and which group's copy it is: so
//! each copy, however far from the first, implies where the volume begins. Copies with the same UUID and the
//! same start are one volume. Journals hold copies of the first superblock as well; those imply starts in
//! the middle of their own volume and are counted there as [strays](Volume::strays).
//!
//! The device is read once, in order. Superblocks lie at multiples of 512 bytes, since partitions do. What
//! can't be read is skipped, in steps of [`STEP`], and counted.
//!
//! Hazards: a number of two bytes is met by chance every few hundred megabytes, so a candidate must have a
//! possible geometry, and a sound checksum if it has one. Memory is bounded: [`VOLUMES_MAX`] pairs of UUID
//! and start, [`COPIES_MAX`] places each; what is beyond is counted ([`Survey::left_out`]).
//!
//! What it is not: it opens no volume. A superblock may be all that is left of one.

use hectare_device::{Device, Result};
use hectare_ext4::superblock::{MAGIC, SIZE, SuperBlock};
use hectare_units::{Bytes, GroupNr, index_of, u64_of};
use std::collections::BTreeMap;
use std::fmt;

/// Bytes read at once.
const CHUNK: usize = 1 << 20;
/// Superblocks begin at multiples of this.
const ALIGNMENT: usize = 512;
/// Bytes that are skipped where the device can't be read.
const STEP: usize = 4096;
/// The most pairs of UUID and start that are kept as different volumes.
const VOLUMES_MAX: usize = 4096;
/// Places of copies that are kept for each.
const COPIES_MAX: usize = 64;

/// Where a volume begins, as a copy of its superblock implies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Start(i128);

impl Start {
    /// The place on the device; `None` if the volume begins before it.
    #[must_use]
    pub fn on_device(self) -> Option<Bytes> {
        u64::try_from(self.0).ok().map(Bytes::new)
    }
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.on_device() {
            Some(at) => write!(f, "byte {at}"),
            None => write!(f, "{} bytes before the device", self.0.unsigned_abs()),
        }
    }
}

/// A copy of a superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SuperblockCopy {
    /// Where it lies.
    pub at: Bytes,
    /// The group that it is the copy of.
    pub group: GroupNr,
}

/// A volume that superblocks imply.
#[derive(Clone, Debug)]
pub struct Volume {
    /// Where it begins.
    pub start: Start,
    /// The copy that was written last.
    pub superblock: SuperBlock,
    /// Copies and their places, in ascending order; the first [`COPIES_MAX`].
    pub copies: Vec<SuperblockCopy>,
    /// How many copies there are.
    pub copy_count: u64,
    /// Copies of the first superblock inside the volume, as journals hold them.
    pub strays: u64,
    /// The start of the smallest other volume in which this one lies whole: an image in a file, or what is
    /// left of an older volume.
    pub inside: Option<Start>,
}

impl Volume {
    /// The size that its superblock says.
    #[must_use]
    pub fn len(&self) -> Bytes {
        self.superblock.geometry().bytes()
    }

    /// Never: the parser refuses a volume without blocks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == Bytes::ZERO
    }

    /// Whether the first superblock is there, so that the volume can be opened by its start.
    #[must_use]
    pub fn has_primary(&self) -> bool {
        self.copies.first().is_some_and(|copy| copy.group.get() == 0)
    }

    fn end(&self) -> i128 {
        self.start.0 + i128::from(self.len().get())
    }
}

/// What a search found.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// The volumes, in the order of their starts.
    pub volumes: Vec<Volume>,
    /// Superblocks that are in none of them, because there were too many or because their group can't have
    /// one.
    pub left_out: u64,
    /// Bytes that could not be read.
    pub unreadable: Bytes,
}

/// Searches a device; `progress` is called with the bytes done.
///
/// # Errors
/// Never for storage that fails: what can't be read is skipped and counted.
pub fn search(device: &dyn Device, progress: &mut dyn FnMut(Bytes)) -> Result<Survey> {
    let mut found = Found::default();
    let mut bytes = vec![0; CHUNK + SIZE - ALIGNMENT];
    let mut at = 0;
    while at < device.len().get() {
        // The last superblock of a chunk may end in the next one.
        let len = index_of(u64_of(bytes.len()).min(device.len().get() - at));
        let chunk = &mut bytes[..len];
        found.unreadable += read(device, at, chunk);
        scan(&chunk[..len], |within, sb| found.add(at + u64_of(within), sb));
        at += u64_of(CHUNK);
        progress(Bytes::new(at).min(device.len()));
    }
    Ok(found.survey())
}

/// Reads what can be read, the rest as zeros; returns how many bytes those are.
fn read(device: &dyn Device, at: u64, chunk: &mut [u8]) -> Bytes {
    if device.read_at(Bytes::new(at), chunk).is_ok() {
        return Bytes::ZERO;
    }
    let mut unreadable = Bytes::ZERO;
    for (step, piece) in (0_u64..).zip(chunk.chunks_mut(STEP)) {
        if device.read_at(Bytes::new(at + step * u64_of(STEP)), piece).is_err() {
            piece.fill(0);
            unreadable += Bytes::of(piece.len());
        }
    }
    unreadable
}

/// Calls `found` with each superblock that begins in a chunk.
fn scan(chunk: &[u8], mut found: impl FnMut(usize, SuperBlock)) {
    const MAGIC_AT: usize = 0x38;
    for within in (0..chunk.len().min(CHUNK)).step_by(ALIGNMENT) {
        let Some(bytes) = chunk.get(within..within + SIZE) else { return };
        if bytes[MAGIC_AT..MAGIC_AT + 2] != MAGIC.to_le_bytes() {
            continue;
        }
        if let Ok(sb) = SuperBlock::parse(bytes, Bytes::new(u64::MAX)) {
            found(within, sb);
        }
    }
}

/// The superblocks found so far, by UUID and start.
#[derive(Default)]
struct Found {
    by_start: BTreeMap<(Start, [u8; 16]), Volume>,
    left_out: u64,
    unreadable: Bytes,
}

impl Found {
    fn add(&mut self, at: u64, sb: SuperBlock) {
        let Some(group) = group_of(&sb) else {
            self.left_out += 1;
            return;
        };
        let before = match group.get() {
            0 => Bytes::new(1024),
            _ => sb.geometry().first_block(group).offset(sb.geometry().block_size),
        };
        let start = Start(i128::from(at) - i128::from(before.get()));
        let copy = SuperblockCopy { at: Bytes::new(at), group };
        let key = (start, sb.uuid());
        if self.by_start.len() == VOLUMES_MAX && !self.by_start.contains_key(&key) {
            self.left_out += 1;
            return;
        }
        let volume = self.by_start.entry(key).or_insert_with(|| Volume {
            start,
            superblock: sb.clone(),
            copies: Vec::new(),
            copy_count: 0,
            strays: 0,
            inside: None,
        });
        if written(&sb) > written(&volume.superblock) {
            volume.superblock = sb;
        }
        volume.copy_count += 1;
        if volume.copies.len() < COPIES_MAX {
            volume.copies.push(copy);
        }
    }

    fn survey(self) -> Survey {
        let mut volumes: Vec<Volume> = Vec::new();
        // Ascending, so that a volume comes before what its journal holds.
        for volume in self.by_start.into_values() {
            let is_single = volume.copies.iter().all(|copy| copy.group.get() == 0);
            let owner = volumes.iter_mut().find(|other| {
                other.superblock.uuid() == volume.superblock.uuid()
                    && other.start < volume.start
                    && volume.start.0 < other.end()
            });
            match owner {
                Some(owner) if is_single => owner.strays += volume.copy_count,
                _ => volumes.push(volume),
            }
        }
        let places: Vec<(Start, i128)> = volumes.iter().map(|volume| (volume.start, volume.end())).collect();
        for volume in &mut volumes {
            let (start, end) = (volume.start, volume.end());
            let holders = places.iter().filter(|(other, other_end)| {
                *other <= start && end <= *other_end && (*other, *other_end) != (start, end)
            });
            volume.inside =
                holders.min_by_key(|(other, other_end)| other_end - other.0).map(|(other, _)| *other);
        }
        Survey { volumes, left_out: self.left_out, unreadable: self.unreadable }
    }
}

/// The time of the last write.
fn written(sb: &SuperBlock) -> u64 {
    u64::from(sb.raw().s_wtime.get()) | u64::from(sb.raw().s_wtime_hi) << 32
}

/// The group whose copy it is. The record has the low 16 bits of the number: the lowest group that fits them
/// and has a copy is taken.
fn group_of(sb: &SuperBlock) -> Option<GroupNr> {
    let geometry = sb.geometry();
    let low = u32::from(sb.raw().s_block_group_nr.get());
    let groups = (0..=0xffff_u32).map(|high| high << 16 | low).take_while(|group| *group < geometry.groups());
    groups.map(GroupNr::new).find(|group| geometry.has_super(*group))
}
