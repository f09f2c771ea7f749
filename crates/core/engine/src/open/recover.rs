//! Recovers the journal that the last user of a volume left, before the volume is used.
//!
//! For writing, the log is replayed into the device, and a new one is begun behind it. For reading only, the
//! device is not touched: the blocks of the log are read in place of the originals. The log counts only if
//! the superblock says `needs_recovery`; without that, its content is old.
//!
//! The superblock itself may be torn: it has two sectors, and a power cut may leave one of them old. Every
//! write of it to its final location puts a copy into the log first. So where its checksum is wrong and the
//! log holds a valid copy, the copy counts; the fields of a superblock that never change suffice to find the
//! log.
//!
//! The journal may lie on a device of its own, which the caller must give
//! ([`OpenOptions::journal`](crate::OpenOptions)) and which is known by its UUID.
//!
//! Fast commits are replayed after the log ([`fast`]), and made into a transaction of the log. None are written
//! here: e2fsck (1.47), which a boot runs before anything else, loses some of what the kernel replays
//! (docs/decisions/0022). Their area is emptied before the log is used, since e2fsck takes records of an older
//! transaction for damage, and then drops the whole log.
//!
//! Orphan cleanup comes after this, when the volume can be used ([`crate::open::orphan_cleanup`]).

mod fast;
mod inode;

use crate::error::{Error, Result};
use crate::open::assemble::Recovered;
use crate::open::check::check_writable;
use crate::options::OpenOptions;
use crate::stores::volume_journal::{VolumeLog, since_1970};
use hectare_device::{Device, OverlayDevice, RememberingDevice};
use hectare_ext4::error::{Corrupt, FormatError, Place};
use hectare_ext4::feature::{Compat, Incompat};
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::superblock::{self, ERRCODE_IO, RecordedError, SuperBlock};
use hectare_journal::Log;
use hectare_journal::format::{JournalCompat, JournalIncompat, JournalSuperblock};
use hectare_journal::recovery::{self, LogMap, Recovery, RecoveryError};
use hectare_units::{BlockSize, Bytes, GroupNr, LogicalBlock, TxnId};
use log::info;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

/// Where a log lies.
struct LogPlace {
    device: Arc<dyn Device>,
    map: LogMap,
    /// Whether that device is not the volume's.
    external: bool,
}

impl From<RecoveryError> for Error {
    fn from(error: RecoveryError) -> Self {
        match error {
            RecoveryError::Device(error) => error.into(),
            RecoveryError::Format(error) => error.into(),
            other => Corrupt::new("the journal", Place::Volume, other.to_string()).into(),
        }
    }
}

/// Recovers the journal of the volume on `device`.
pub(crate) fn recover(device: &Arc<dyn Device>, sb: SuperBlock, options: &OpenOptions) -> Result<Recovered> {
    let needed = sb.features().incompat.contains(Incompat::RECOVER);
    let has_journal = sb.features().compat.contains(Compat::HAS_JOURNAL);
    // Reading only is possible without a journal that lies elsewhere; the superblock shows that it is needed.
    let elsewhere = sb.journal_inode().is_none() && options.journal.is_none();
    if !has_journal || (options.read_only && (!needed || elsewhere || options.no_replay)) {
        return Ok(Recovered { device: Arc::clone(device), sb, log: None, clean: !needed });
    }
    let place = find(device, &sb, options)?;
    let read = || recovery::read(&*place.device, &place.map, sb.geometry().blocks_count);
    let mut recovery = read()?;
    if needed {
        info!(device = device.name(), read_only = options.read_only, blocks = recovery.blocks().len(),
            fast_commits = recovery.fast_commits().len(); "what the journal holds is replayed");
    }
    if options.read_only {
        return replayed_in_memory(device, sb, &place, &recovery, options);
    }
    if needed && !recovery.fast_commits().is_empty() {
        make_full(device, &sb, &place, &recovery, options)?;
        recovery = read()?;
    }
    let sb = if needed { replay(device, sb, &place, &recovery, options)? } else { sb };
    check_writable(&sb, options)?;
    let log = start(device, &sb, &place, &recovery)?;
    Ok(Recovered { device: Arc::clone(device), sb, log: Some(log), clean: !needed })
}

/// Finds the log and verifies that it is this volume's.
fn find(device: &Arc<dyn Device>, sb: &SuperBlock, options: &OpenOptions) -> Result<LogPlace> {
    if let Some(nr) = sb.journal_inode() {
        let map = inode::log_map(&**device, sb, nr, options.superblock_at.is_some())?;
        return Ok(LogPlace { device: Arc::clone(device), map, external: false });
    }
    let Some(journal) = &options.journal else {
        let uuid = recovery::uuid_text(&sb.raw().s_journal_uuid);
        let what = format!("its journal lies on another device, which has the UUID {uuid}");
        let how = "name that device (--journal FILE; for a mount -o journal_path=FILE)";
        return Err(Error::Unsupported(format!("the volume can't be used alone: {what}; {how}")));
    };
    let device: Arc<dyn Device> = Arc::new(RememberingDevice::new(Arc::clone(&journal.0)));
    let map = LogMap::external(&*device, sb.geometry().block_size, &sb.raw().s_journal_uuid)?;
    Ok(LogPlace { device, map, external: true })
}

/// The superblock of a volume, from the log if the one on the device is torn.
pub(crate) fn read_superblock(device: &Arc<dyn Device>, options: &OpenOptions) -> Result<SuperBlock> {
    if let Some(at) = options.superblock_at {
        return from_backup(device, at, options);
    }
    let parse = |bytes: &[u8], len| SuperBlock::parse_tolerant(bytes, len, options.tolerances);
    let error = match superblock_of(&**device, parse) {
        Err(error @ Error::Corrupt(_)) => error,
        read => return read,
    };
    if let Some(instead) = hectare_probe::instead(&**device)? {
        return Err(Error::NotAVolume(instead));
    }
    // Without a copy, the superblock's error is the one to return.
    from_log(device, options).map_err(|_| error)
}

/// The superblock at a byte of the device. Backups don't say whether the journal is needed: it does.
fn from_backup(device: &Arc<dyn Device>, at: Bytes, options: &OpenOptions) -> Result<SuperBlock> {
    let parse = |bytes: &[u8], len| SuperBlock::parse_tolerant(bytes, len, options.tolerances);
    let mut sb = superblock_at(&**device, at, parse)?;
    let has_journal = sb.journal_inode().is_some() || options.journal.is_some();
    if has_journal && !options.no_replay {
        let place = find(device, &sb, options)?;
        let recovery = recovery::read(&*place.device, &place.map, sb.geometry().blocks_count)?;
        sb.set_needs_recovery(recovery.needed());
    }
    Ok(sb)
}

/// The superblock that the log holds.
fn from_log(device: &Arc<dyn Device>, options: &OpenOptions) -> Result<SuperBlock> {
    let torn = superblock_of(&**device, SuperBlock::parse_torn)?;
    let geometry = torn.geometry();
    let place = find(device, &torn, options)?;
    let recovery = recovery::read(&*place.device, &place.map, geometry.blocks_count)?;
    if !recovery.needed() {
        return staged(&place, &recovery, &torn);
    }
    let view = recovery.laid_over(Arc::clone(device), Arc::clone(&place.device))?;
    let mut sb = superblock_of(&view, SuperBlock::parse)?;
    // Needed or not, this reads the log.
    sb.set_needs_recovery(true);
    Ok(sb)
}

/// The copy that goes into a clean log before the superblock is written: the last block before the commit
/// block with which the log ends.
fn staged(place: &LogPlace, recovery: &Recovery, torn: &SuperBlock) -> Result<SuperBlock> {
    let none = || Corrupt::new("the journal", Place::Volume, "it holds no copy of the superblock");
    let (first, end) = (recovery.superblock().first().get(), recovery.superblock().end().get());
    let from_first = recovery.head().get().wrapping_sub(first);
    let at = LogicalBlock::new(from_first.checked_sub(2).map_or(end - 2 + from_first, |at| first + at));
    let (nr, _) = place.map.locate(at).ok_or_else(none)?;
    let size = torn.geometry().block_size;
    let mut block = vec![0; size.len()];
    place.device.read_at(nr.offset(size), &mut block)?;
    let sb = SuperBlock::parse(&block[size.within(SUPERBLOCK_OFFSET)..], Bytes::new(u64::MAX))?;
    if sb.uuid() != torn.uuid() || sb.geometry().bytes() != torn.geometry().bytes() {
        return Err(none().into());
    }
    Ok(sb)
}

fn superblock_of(
    device: &dyn Device,
    parse: impl FnOnce(&[u8], Bytes) -> std::result::Result<SuperBlock, FormatError>,
) -> Result<SuperBlock> {
    superblock_at(device, SUPERBLOCK_OFFSET, parse)
}

fn superblock_at(
    device: &dyn Device,
    at: Bytes,
    parse: impl FnOnce(&[u8], Bytes) -> std::result::Result<SuperBlock, FormatError>,
) -> Result<SuperBlock> {
    let size = Bytes::of(superblock::SIZE);
    if at.checked_add(size).is_none_or(|end| device.len() < end) {
        let what = format!("{} bytes are too few for a superblock", device.len());
        return Err(Corrupt::new("the superblock", Place::Volume, what).into());
    }
    let mut bytes = [0; superblock::SIZE];
    device.read_at(at, &mut bytes)?;
    Ok(parse(&bytes, device.len())?)
}

/// Overlays the log's blocks on a device that must not be written.
fn replayed_in_memory(
    device: &Arc<dyn Device>,
    found: SuperBlock,
    place: &LogPlace,
    recovery: &Recovery,
    options: &OpenOptions,
) -> Result<Recovered> {
    let view = recovery.laid_over(Arc::clone(device), Arc::clone(&place.device))?;
    let mut view: Arc<dyn Device> = Arc::new(view);
    let parse = |bytes: &[u8], len| SuperBlock::parse_tolerant(bytes, len, options.tolerances);
    let replayed = superblock_of(&*view, parse);
    // Who names another superblock does not trust the first.
    let mut sb = replayed.ok().filter(|_| options.superblock_at.is_none()).unwrap_or_else(|| found.clone());
    if !recovery.fast_commits().is_empty() {
        view = Arc::new(OverlayDevice::new(view));
        fast::replay(Arc::clone(&view), sb.clone(), options, recovery.fast_commits())?;
        if options.superblock_at.is_none() {
            sb = superblock_of(&*view, parse)?;
        }
    }
    // The log may know less of errors than the superblock did.
    sb.keep_errors_of(&found);
    Ok(Recovered { device: view, sb, log: None, clean: false })
}

/// Makes the fast commits into the transaction that they are a part of, and logs it, in a log that holds
/// nothing else. A crash before its commit block leaves an empty log with the fast commits.
fn make_full(
    device: &Arc<dyn Device>,
    before: &SuperBlock,
    place: &LogPlace,
    recovery: &Recovery,
    options: &OpenOptions,
) -> Result<()> {
    recovery.apply(&*place.device, &**device)?;
    device.flush()?;
    let sb = superblock_of(&**device, SuperBlock::parse).unwrap_or_else(|_| before.clone());
    check_writable(&sb, options)?;
    let overlay = Arc::new(OverlayDevice::new(Arc::clone(device)));
    fast::replay(Arc::clone(&overlay) as Arc<dyn Device>, sb.clone(), options, recovery.fast_commits())?;
    let blocks = fast::changed_blocks(&overlay, sb.geometry())?;
    let running = recovery.running_sequence();
    let mut log = log_from(device, place, log_superblock(&sb, recovery, true)?, running);
    let (need, have) = (log.needed(blocks.len(), 0), log.len());
    if need > have {
        return Err(Error::Unsupported(format!(
            "the journal's fast commits change {need} blocks, and it holds {have}: e2fsck -fy replays them"
        )));
    }
    log.begin(running)?;
    log.append(&blocks, &[], since_1970(options.now()))?;
    Ok(())
}

/// Checkpoints the log, and marks it as clean; returns the superblock to write then. The one on the device
/// keeps saying that the log is needed, until the volume is closed.
fn replay(
    device: &Arc<dyn Device>,
    before: SuperBlock,
    place: &LogPlace,
    recovery: &Recovery,
    options: &OpenOptions,
) -> Result<SuperBlock> {
    recovery.apply(&*place.device, &**device)?;
    device.flush()?;
    let mut sb = superblock_of(&**device, SuperBlock::parse).unwrap_or_else(|_| before.clone());
    // The log may know less of errors than the superblock did.
    sb.keep_errors_of(&before);
    if recovery.errno() != 0 {
        sb.record_error(&RecordedError {
            function: "journal recovery",
            block: None,
            inode: None,
            time: options.now(),
            code: ERRCODE_IO,
        });
        // Before the log drops it.
        sb.set_needs_recovery(true);
        device.write_at(SUPERBLOCK_OFFSET, &sb.render(GroupNr::new(0)))?;
        device.flush()?;
    }
    place.device.write_at(recovery.superblock_offset(), &recovery.clean_superblock())?;
    place.device.flush()?;
    Ok(sb)
}

/// Begins a new log behind the old content.
fn start(
    device: &Arc<dyn Device>,
    sb: &SuperBlock,
    place: &LogPlace,
    recovery: &Recovery,
) -> Result<VolumeLog> {
    let mut superblock = log_superblock(sb, recovery, false)?;
    superblock.set_errno(0);
    let mut log = log_from(device, place, superblock, recovery.next_sequence());
    if let Some(area) = area_of_kernel(sb, recovery) {
        log = log.ending_before(LogicalBlock::new(area.start.get() - 1));
        empty(place, area.start, sb.geometry().block_size)?;
    }
    VolumeLog::new(log, Arc::clone(device), sb.geometry().block_size)
}

/// The area for fast commits that the kernel sets aside in the log of this volume when it mounts it.
fn area_of_kernel(sb: &SuperBlock, recovery: &Recovery) -> Option<Range<LogicalBlock>> {
    if !sb.features().compat.contains(Compat::FAST_COMMIT) {
        return None;
    }
    // A superblock that allows no area has none.
    log_superblock(sb, recovery, true).ok()?.fast_commit_area()
}

/// Makes a block of the log durably zeros, if it does not begin so; it may lie behind the log.
fn empty(place: &LogPlace, block: LogicalBlock, size: BlockSize) -> Result<()> {
    let Some((nr, _)) = place.map.locate(block) else { return Ok(()) };
    let mut bytes = vec![0; size.len()];
    place.device.read_at(nr.offset(size), &mut bytes)?;
    if bytes.iter().any(|byte| *byte != 0) {
        bytes.fill(0);
        place.device.write_durable(nr.offset(size), &[IoSlice::new(&bytes)])?;
    }
    Ok(())
}

/// A new log that starts with transaction `first`.
fn log_from(device: &Arc<dyn Device>, place: &LogPlace, superblock: JournalSuperblock, first: TxnId) -> Log {
    let volume = place.external.then(|| Arc::clone(device));
    Log::new(Arc::clone(&place.device), place.map.clone(), superblock, first, volume)
}

/// The superblock of a log to be written, with its features. Where `fast`, the log has an area for fast commits,
/// unless it is too small.
fn log_superblock(sb: &SuperBlock, recovery: &Recovery, fast: bool) -> Result<JournalSuperblock> {
    let features = sb.features();
    let mut superblock = recovery.superblock().clone();
    let mut incompat = JournalIncompat::REVOKE;
    incompat.set(JournalIncompat::CSUM_V3, features.metadata_csum());
    incompat.set(JournalIncompat::BIT64, features.incompat.contains(Incompat::BIT64));
    superblock.set_features(JournalCompat::empty(), incompat)?;
    if fast {
        let mut with_area = superblock.clone();
        with_area.set_features(JournalCompat::empty(), incompat | JournalIncompat::FAST_COMMIT)?;
        if with_area.fast_commit_area().is_some() {
            return Ok(with_area);
        }
    }
    Ok(superblock)
}
