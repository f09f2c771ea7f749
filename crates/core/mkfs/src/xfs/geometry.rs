//! The shape of an XFS volume: how many groups, of what length, and where and how long the log is.
//!
//! The rules are those that `mkfs.xfs` 6.1 was observed to follow, and give the same volumes. In short: four
//! groups, from 4 TiB on groups of the largest length; on striped storage 8 to 32 groups, of whole stripe
//! units, and not of whole stripes, so that their headers don't all lie on one disk; a log of a 2048th of the
//! volume in the middle group.
//!
//! Hazard: a rest at the end that is too short for a group is left unused, so the volume may be a little
//! smaller than asked for, and rules that go by its size go by that.

use super::options::{FormatOptions, GroupSize, LogSize, StripeOption};
use crate::error::{Error, Result};
use hectare_device::Topology;
use hectare_units::{Blocks, Bytes, GroupNr, low32};
use hectare_xfs::{Incompat, LogPlace, RoCompat, Run, Stripe, Volume};
use std::fmt;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// The smallest volume.
const VOLUME_MIN: u64 = 300 * MIB;
/// The largest volume: what a signed 64-bit offset reaches.
const VOLUME_MAX: u64 = i64::MAX.cast_unsigned();
/// The shortest group; one of the largest length is a block shorter than the maximum.
const GROUP_MIN: u64 = 16 * MIB;
const GROUP_MAX: u64 = TIB;
/// Groups as long as can be from here on; on striped storage from the second.
const LONG_GROUPS: u64 = 4 * TIB;
const LONG_STRIPED_GROUPS: u64 = 32 * TIB;
/// The shortest and longest log; see [`log_min`].
const LOG_MIN: u64 = 64 * MIB;
const LOG_MAX: u64 = 2 * GIB - 10 * MIB;
const LOG_BLOCKS_MAX: u64 = 1 << 20;
/// Bytes of volume for each byte of log.
const LOG_SHARE: u64 = 2048;
/// The longest unit of log writes, and what stands in for a stripe unit beyond it.
pub(super) const LOG_UNIT_MAX: u64 = 256 << 10;
const LOG_UNIT_FALLBACK: u32 = 32 << 10;
/// The largest stripe unit and width: superblocks have 32 bits, of units of 512 bytes in the kernel.
const STRIPE_MAX: u64 = GIB;
/// The largest sector.
const SECTOR_MAX: u32 = 32 << 10;
/// Smaller volumes don't follow the stripe of their device unasked.
const DEVICE_STRIPE_FROM: u64 = GIB;
/// The smallest directory block.
const DIRECTORY_BLOCK_MIN: u32 = 4096;

/// Something worth saying about the choices made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Note {
    /// The end of the device is too short for a group, and is not used.
    RestUnused(Bytes),
    /// Groups were made longer, to be whole stripe units.
    GroupsRounded(u32),
    /// Groups begin all on the same disk, as was asked for.
    GroupsOnOneDisk(u32),
    /// The stripe unit is too long for log writes.
    LogUnit(u32),
    /// The log was made shorter, to be whole blocks.
    LogTruncated(Bytes),
    /// The volume is laid out for the stripe unit and width that the device says, in bytes.
    StripeOfDevice(u64, u64),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RestUnused(bytes) => {
                write!(f, "the last {bytes} bytes are too short for an allocation group and are not used")
            }
            Self::GroupsRounded(blocks) => {
                write!(f, "allocation groups get {blocks} blocks, to be whole stripe units")
            }
            Self::GroupsOnOneDisk(better) => write!(
                f,
                "allocation groups of whole stripes all start on one disk; {better} blocks would avoid that"
            ),
            Self::LogUnit(bytes) => {
                write!(f, "the stripe unit is too long for log writes, which get {bytes} bytes")
            }
            Self::StripeOfDevice(unit, width) => write!(
                f,
                "laid out for the device's stripes of {width} bytes, {unit} on a disk; -d su=0,sw=0 for none"
            ),
            Self::LogTruncated(bytes) => write!(f, "the log gets {bytes} bytes, to be whole blocks"),
        }
    }
}

/// The shape of a volume of the size that is asked for, or of all whole sectors of a device, and what is
/// worth saying about it.
///
/// # Errors
/// If the size is impossible, or options are, alone or together.
pub(super) fn shape(options: &FormatOptions, device_len: Bytes) -> Result<(Volume, Vec<Note>)> {
    let size = match options.size {
        Some(size) => size,
        None => device_len - Bytes::new(device_len.get() % u64::from(sector_size(options, device_len)?)),
    };
    let given = stripe(options)?;
    let of_device = if options.stripe.is_none() { stripe_of_device(options, size) } else { None };
    // What the device says is a hint: where it can't be followed, the volume is made without.
    match of_device.map(|stripe| striped(options, size, Some(stripe))) {
        Some(Ok((volume, mut notes))) => {
            notes.push(Note::StripeOfDevice(options.device.minimum_io, options.device.optimal_io));
            Ok((volume, notes))
        }
        _ => striped(options, size, given),
    }
}

/// The same, with this stripe.
fn striped(options: &FormatOptions, size: Bytes, stripe: Option<Stripe>) -> Result<(Volume, Vec<Note>)> {
    let sector_size = sector_size(options, size)?;
    check_sizes(options, sector_size, size)?;
    let mut notes = Vec::new();
    let block = options.block_size;
    let groups = groups(options, size, stripe, &mut notes)?;
    let mut volume = Volume {
        block_size: block,
        sector_size,
        inode_size: options.inode_size,
        directory_block_size: directory_block_size(options)?,
        blocks: groups.blocks,
        group_blocks: groups.len,
        groups: groups.count,
        stripe,
        inode_percent: options.inode_percent.unwrap_or(inode_percent(groups.blocks.bytes(block))),
        ro_compat: ro_compat(options)?,
        incompat: incompat(options),
        log: LogPlace { group: GroupNr::new(groups.count / 2), run: Run { start: 0, len: 0 }, unit: 1 },
        uuid: options.uuid.unwrap_or_else(|| uuid::Uuid::new_v4().into_bytes()),
        label: options.padded_label()?,
    };
    volume.log = log(options, &volume, &mut notes)?;
    check_root(&volume)?;
    Ok((volume, notes))
}

/// Bytes of a sector: those that the device writes without reading, where blocks are as large.
fn sector_size(options: &FormatOptions, size: Bytes) -> Result<u32> {
    let Topology { logical_sector: least, physical_sector: best, .. } = options.device;
    match options.sector_size {
        Some(given) if given < least => {
            let reason = format!("the device has sectors of {least} bytes; give -s size={least}");
            Err(Error::option(format!("-s size={given}"), reason))
        }
        Some(given) => Ok(given),
        None => {
            let fits = best <= SECTOR_MAX.min(options.block_size.get());
            Ok(if fits && size.get().is_multiple_of(best.into()) { best } else { least })
        }
    }
}

fn check_sizes(options: &FormatOptions, sector: u32, size: Bytes) -> Result<()> {
    let block = options.block_size.get();
    let refuse = |option: String, reason: String| Err(Error::option(option, reason));
    if !size.get().is_multiple_of(sector.into()) {
        let reason = format!("it is not a multiple of the sector, {sector} bytes");
        return refuse(format!("size {size}"), reason);
    }
    if size.get() > VOLUME_MAX {
        return refuse(format!("size {size}"), format!("XFS takes at most {VOLUME_MAX} bytes"));
    }
    if sector > block {
        let reason = format!("a sector can't be larger than a block, {block} bytes; raise -b size=");
        return refuse(format!("-s size={sector}"), reason);
    }
    if options.inode_size > block / 2 {
        let reason = format!("an inode has at most half a block, {} bytes", block / 2);
        return refuse(format!("-i size={}", options.inode_size), reason);
    }
    Ok(())
}

fn directory_block_size(options: &FormatOptions) -> Result<u32> {
    let block = options.block_size.get();
    let size = options.directory_block_size.unwrap_or(block.max(DIRECTORY_BLOCK_MIN));
    if size < block {
        let reason = format!("a directory block can't be smaller than a block, {block} bytes");
        return Err(Error::option(format!("-n size={size}"), reason));
    }
    Ok(size)
}

fn ro_compat(options: &FormatOptions) -> Result<RoCompat> {
    if options.inobtcount == Some(true) && !options.finobt {
        return Err(Error::option("-m inobtcount=1", "it needs finobt; leave one of them out"));
    }
    let mut features = RoCompat::empty();
    features.set(RoCompat::FINOBT, options.finobt);
    features.set(RoCompat::RMAPBT, options.rmapbt);
    features.set(RoCompat::REFLINK, options.reflink);
    features.set(RoCompat::INOBTCOUNT, options.inobtcount.unwrap_or(options.finobt));
    Ok(features)
}

fn incompat(options: &FormatOptions) -> Incompat {
    let mut features = Incompat::FTYPE;
    features.set(Incompat::SPINODES, options.sparse);
    features.set(Incompat::BIGTIME, options.bigtime);
    features.set(Incompat::NREXT64, options.nrext64);
    features
}

/// Percent of the space that inodes may take.
fn inode_percent(size: Bytes) -> u8 {
    match size.get() {
        n if n < TIB => 25,
        n if n < 50 * TIB => 5,
        _ => 1,
    }
}

/// The stripe that the device suggests, unless it is nonsense, or the volume small.
fn stripe_of_device(options: &FormatOptions, size: Bytes) -> Option<Stripe> {
    let Topology { physical_sector, minimum_io: unit, optimal_io: width, .. } = options.device;
    let block = options.block_size.bytes().get();
    let is_striped = [unit, width].iter().all(|io| *io > physical_sector.into());
    let is_whole = unit.is_multiple_of(block) && width.is_multiple_of(unit.max(1)) && width <= STRIPE_MAX;
    (is_striped && is_whole && size.get() >= DEVICE_STRIPE_FROM).then(|| in_blocks(unit, width, block))
}

/// A stripe of at most [`STRIPE_MAX`] in blocks.
fn in_blocks(unit: u64, width: u64, block: u64) -> Stripe {
    Stripe { unit: low32(unit / block), width: low32(width / block) }
}

/// The stripe that is given.
fn stripe(options: &FormatOptions) -> Result<Option<Stripe>> {
    let StripeOption { unit, width } = options.stripe.unwrap_or_default();
    if (unit, width) == (0, 0) {
        return Ok(None);
    }
    let block = options.block_size.bytes().get();
    let reason = if unit == 0 || width == 0 {
        "unit and width are both 0 or both not".to_owned()
    } else if !unit.is_multiple_of(block) {
        format!("the unit is not a multiple of the block, {block} bytes")
    } else if !width.is_multiple_of(unit) {
        "the width is not a multiple of the unit".to_owned()
    } else if width > STRIPE_MAX {
        format!("a stripe has at most {STRIPE_MAX} bytes")
    } else {
        return Ok(Some(in_blocks(unit, width, block)));
    };
    Err(Error::option(format!("-d stripe of {unit} bytes in {width}"), reason))
}

/// Blocks of the volume, of a group, and the number of groups.
struct Groups {
    blocks: Blocks,
    len: u32,
    count: u32,
}

fn groups(
    options: &FormatOptions,
    size: Bytes,
    stripe: Option<Stripe>,
    notes: &mut Vec<Note>,
) -> Result<Groups> {
    let block = options.block_size.bytes().get();
    let (min, max) = (GROUP_MIN / block, GROUP_MAX / block - 1);
    let too_small = || Error::TooSmall { bytes: size.get(), reason: "XFS needs 300 MiB".to_owned() };
    let mut blocks = size.get() / block;
    if blocks * block < VOLUME_MIN {
        return Err(too_small());
    }
    let (option, asked) = match options.group_size {
        GroupSize::ByVolume => {
            ("allocation groups".to_owned(), default_group(options, blocks, stripe).min(max))
        }
        GroupSize::Count(count) => (format!("-d agcount={count}"), blocks.div_ceil(count.into())),
        GroupSize::Bytes(bytes) if !bytes.get().is_multiple_of(block) => {
            let reason = format!("it is not a multiple of the block, {block} bytes");
            return Err(Error::option(format!("-d agsize={bytes}"), reason));
        }
        GroupSize::Bytes(bytes) => (format!("-d agsize={bytes}"), bytes.get() / block),
    };
    if !(min..=max).contains(&asked) {
        let reason = format!("that is {asked} blocks a group; {min} to {max} are possible");
        return Err(Error::option(option, reason));
    }
    let len = match stripe {
        None => asked,
        Some(stripe) => aligned_group(asked, (min, max), stripe, options.group_size, notes),
    };
    let rest = blocks % len;
    if blocks > len && rest > 0 && rest < min {
        blocks -= rest;
        notes.push(Note::RestUnused(Bytes::new(rest * block)));
    }
    let count = blocks.div_ceil(len);
    if count < 2 {
        return Err(Error::option(option, "a volume has two allocation groups or more; make them shorter"));
    }
    if blocks * block < VOLUME_MIN {
        return Err(too_small());
    }
    match (u32::try_from(len), u32::try_from(count)) {
        (Ok(len), Ok(count)) => Ok(Groups { blocks: Blocks::new(blocks), len, count }),
        _ => Err(Error::option(option, "there would be 2^32 allocation groups or more; make them longer")),
    }
}

/// The length of groups that the size of the volume suggests, in blocks.
fn default_group(options: &FormatOptions, blocks: u64, stripe: Option<Stripe>) -> u64 {
    let block = options.block_size.bytes().get();
    let size = blocks * block;
    let long = if stripe.is_some() { LONG_STRIPED_GROUPS } else { LONG_GROUPS };
    let count = match stripe {
        _ if size >= long => return GROUP_MAX / block - 1,
        None => 4,
        Some(_) if size > 512 * GIB => 32,
        Some(_) if size > 8 * GIB => 16,
        Some(_) => 8,
    };
    blocks.div_ceil(count)
}

/// A length of whole stripe units, and not of whole stripes unless that was asked for.
fn aligned_group(
    asked: u64,
    (min, max): (u64, u64),
    stripe: Stripe,
    group_size: GroupSize,
    notes: &mut Vec<Note>,
) -> u64 {
    let (unit, width) = (u64::from(stripe.unit), u64::from(stripe.width));
    let up = asked.next_multiple_of(unit);
    let len = if up > max { asked / unit * unit } else { up };
    let by_volume = group_size == GroupSize::ByVolume;
    if len != asked && !by_volume {
        notes.push(Note::GroupsRounded(low32(len)));
    }
    if width == unit || !len.is_multiple_of(width) {
        return len;
    }
    let shorter = len - unit;
    if by_volume && shorter >= min {
        return shorter;
    }
    notes.push(Note::GroupsOnOneDisk(low32(shorter)));
    len
}

/// Where the log lies: in the middle group, behind its trees.
fn log(options: &FormatOptions, volume: &Volume, notes: &mut Vec<Note>) -> Result<LogPlace> {
    let block = volume.block_size;
    let unit = log_unit(options, volume, notes)?;
    let aligned = (unit >> block.shift()).max(1); // blocks
    let asked = match options.log_size {
        LogSize::Bytes(bytes) => format!("-l size={bytes}"),
        LogSize::ByVolume => "the log".to_owned(),
    };
    let refuse = |reason: String| Err(Error::option(asked.clone(), reason));
    let room = volume.log_blocks_max();
    let len = match options.log_size {
        LogSize::ByVolume => default_log(volume, aligned.into()),
        LogSize::Bytes(bytes) => match given_log(bytes, volume, notes) {
            Ok(len) if !len.is_multiple_of(aligned.into()) => {
                return refuse(format!("it is not a multiple of the log's stripe unit, {unit} bytes"));
            }
            Ok(len) if len > room.into() => {
                return refuse(format!("an allocation group has room for {room} blocks of log"));
            }
            Ok(len) => len,
            Err(reason) => return refuse(reason),
        },
    };
    // A log by default gives way to short groups, down to the shortest log.
    let len = low32(len.min(u64::from(room / aligned * aligned)));
    let min = log_min(volume);
    if u64::from(len) << block.shift() < min {
        return refuse(format!(
            "it needs {min} bytes in an allocation group, which has room for {room} blocks; lengthen groups"
        ));
    }
    let group = volume.log.group;
    // Aligned as a number of the file system, as mkfs.xfs does; where groups are no power of two of blocks,
    // that is another place than the aligned one on the device.
    let base = volume.block_number(group, 0);
    let number = (base + u64::from(volume.roots().end)).next_multiple_of(aligned.into());
    let run = Run { start: low32(number - base), len };
    let place = LogPlace { group, run, unit };
    let left = volume.group_len(group).checked_sub(run.start.saturating_add(run.len));
    let list = volume.free_list_blocks();
    if left.is_none_or(|left| left.max(run.start - volume.roots().end) < list) {
        return refuse("it leaves too little of its allocation group; make the log shorter".to_owned());
    }
    Ok(place)
}

/// Bytes that log writes are rounded up to.
fn log_unit(options: &FormatOptions, volume: &Volume, notes: &mut Vec<Note>) -> Result<u32> {
    let block = volume.block_size.get();
    if let Some(given) = options.log_unit {
        let reason = || format!("it is not a multiple of the block, {block} bytes");
        let is_whole = given > 0 && given.is_multiple_of(block);
        return is_whole
            .then_some(given)
            .ok_or_else(|| Error::option(format!("-l stripe unit of {given} bytes"), reason()));
    }
    if volume.sector_size > 512 {
        return Ok(block); // whatever the stripe
    }
    Ok(match volume.stripe.map(|stripe| u64::from(stripe.unit) * u64::from(block)) {
        Some(unit) if unit <= LOG_UNIT_MAX => low32(unit),
        Some(_) => {
            let unit = LOG_UNIT_FALLBACK.max(block);
            notes.push(Note::LogUnit(unit));
            unit
        }
        None => 1,
    })
}

/// The fewest bytes of log. Readers refuse one that can't hold three of their largest transactions, which
/// grow with the block. For blocks up to 16 KiB 64 MiB are always more than that; the others are the most
/// that `mkfs.xfs` was seen to ask for, over sizes to 100 TiB and all options, and may be more than it takes
/// itself.
fn log_min(volume: &Volume) -> u64 {
    let (reflink, rmapbt) =
        (volume.ro_compat.contains(RoCompat::REFLINK), volume.ro_compat.contains(RoCompat::RMAPBT));
    let nrext64 = volume.incompat.contains(Incompat::NREXT64);
    let striped = volume.stripe.is_some();
    let large = volume.blocks.bytes(volume.block_size).get() > TIB;
    match volume.block_size.get() {
        65536 if reflink && rmapbt => 186 * MIB,
        65536 if reflink && (large || striped) => 82 * MIB,
        32768 if reflink && rmapbt => 112 * MIB,
        32768 if nrext64 && (striped || !reflink) => 74 * MIB,
        _ => LOG_MIN,
    }
}

/// Blocks of a log of no given length: a multiple of `aligned` blocks, and no longer than the kernel takes.
fn default_log(volume: &Volume, aligned: u64) -> u64 {
    let block = volume.block_size.bytes().get();
    let most = LOG_BLOCKS_MAX.min(LOG_MAX / block);
    let share = (volume.blocks.get() / LOG_SHARE).clamp(log_min(volume) / block, most);
    share.next_multiple_of(aligned).min(most / aligned * aligned)
}

/// Blocks of a log whose length was given, or why it is impossible.
fn given_log(bytes: Bytes, volume: &Volume, notes: &mut Vec<Note>) -> std::result::Result<u64, String> {
    let block = volume.block_size;
    let (min, most) = (log_min(volume), LOG_MAX.min(LOG_BLOCKS_MAX << block.shift()));
    if !bytes.get().is_multiple_of(512) {
        return Err("it is not a multiple of 512 bytes".to_owned());
    }
    if !(min..=most).contains(&bytes.get()) {
        return Err(format!("a log of this volume has {min} to {most} bytes"));
    }
    let blocks = Blocks::new(bytes.get() >> block.shift());
    if blocks.bytes(block) != bytes {
        notes.push(Note::LogTruncated(blocks.bytes(block)));
    }
    Ok(blocks.get())
}

/// The first inodes lie where readers compute it; they must fit there.
fn check_root(volume: &Volume) -> Result<()> {
    let end = volume.root_block().saturating_add(volume.chunk_blocks());
    if end > volume.group_len(GroupNr::new(0)) {
        let reason = "the first inodes are aligned to it and don't fit an allocation group; make it smaller";
        return Err(Error::option("-d stripe unit", reason));
    }
    Ok(())
}
