//! The steps of a check, in their order, and the first of them: the superblock.

use crate::context::{Scan, Volume};
use crate::progress::Watch;
use crate::report::{Error, Options, Problem, Report, What};
use hectare_device::Device;
use hectare_ext4::casefold::Folding;
use hectare_ext4::dir::Format;
use hectare_ext4::error::{Corrupt, FormatError, Place};
use hectare_ext4::feature::{Compat, Incompat};
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::superblock::{SIZE, STATE_ERROR, STATE_VALID, SuperBlock};
use hectare_units::{u64_of, usize_of};
use std::num::NonZeroUsize;

/// The most clusters that are checked: the pages of their bitmap take 32 MiB.
const CLUSTERS_MAX: u64 = 1 << 36;

/// A feature whose structures are no longer documented, and which changes nothing else.
const UNJUDGED: &str = "imagic_inodes";

/// Checks a volume. If several threads find something that depends on which of them was first, one does it
/// anew.
pub(crate) fn run(
    device: &dyn Device,
    journal: Option<&dyn Device>,
    options: &Options,
    watch: &Watch<'_>,
) -> Result<Report, Error> {
    if options.has_others()
        && let Ok(Some(report)) = walk(device, journal, options, watch)
    {
        return Ok(report);
    }
    let report = walk(device, journal, &Options { threads: NonZeroUsize::MIN, ..*options }, watch)?;
    Ok(report.expect("one thread has an order"))
}

/// Walks over a volume; `None` if one thread is to do it.
fn walk(
    device: &dyn Device,
    journal: Option<&dyn Device>,
    options: &Options,
    watch: &Watch<'_>,
) -> Result<Option<Report>, Error> {
    let mut report = Report::default();
    let Some(sb) = superblock(device, options, &mut report)? else {
        return hectare_probe::instead(device)?.map_or(Ok(Some(report)), |what| Err(Error::NotAVolume(what)));
    };
    let clusters = sb.geometry().clusters_count().get();
    if clusters > CLUSTERS_MAX {
        return Err(Error::TooLarge(clusters));
    }
    let dirs = Format::of(&sb).or_else(|_| Format::of(&with_usual_hash(&sb))).ok();
    let mut volume = Volume { device, journal, sb, dirs, options: *options, watch };
    // Each thread has a table of all groups, and nothing to do if there are fewer groups.
    let groups = usize_of(volume.geometry().groups());
    volume.options.threads = options.threads.min(NonZeroUsize::new(groups).unwrap_or(NonZeroUsize::MIN));
    if volume.shares_blocks() {
        // Whether data or metadata came first decides, which threads can't know of each other.
        volume.options.threads = NonZeroUsize::MIN;
    }
    let mut scan = Scan::new(&volume, report, volume.claims()?);
    if !scan.check_superblock() || !scan.read_groups()? {
        scan.report.leave("everything the group descriptors lead to");
        return Ok(Some(scan.report));
    }
    scan.check_external_journal()?;
    scan.claim_group_metadata()?;
    scan.read_orphan_list()?;
    if !scan.scan_inodes()? {
        return Ok(None);
    }
    scan.finish_attributes();
    scan.report.notes.extend(scan.late_times.note());
    scan.check_quotas()?;
    if !scan.check_directories()? {
        return Ok(None);
    }
    scan.check_tree();
    scan.check_links();
    scan.check_bitmaps()?;
    Ok(Some(scan.report))
}

/// Reads the superblock; returns `None`, and reports a problem, if there is no sound one.
fn superblock(
    device: &dyn Device,
    options: &Options,
    report: &mut Report,
) -> Result<Option<SuperBlock>, Error> {
    let mut bytes = [0; SIZE];
    let parsed = if device.len().get() < SUPERBLOCK_OFFSET.get() + u64_of(SIZE) {
        Err(Corrupt::new("superblock", Place::Volume, "the device is too short for one").into())
    } else {
        device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
        SuperBlock::parse(&bytes, device.len())
    };
    match parsed {
        Ok(sb) => Ok(Some(sb)),
        Err(FormatError::Unsupported(what)) => Err(what.into()),
        Err(FormatError::Corrupt(corrupt)) => {
            report.tell(Problem::of(What::Superblock, corrupt), options.problems_max);
            report.leave("everything the superblock leads to");
            Ok(None)
        }
    }
}

impl Scan<'_> {
    /// What the superblock's own parser leaves open. False if the group descriptors can't be found.
    fn check_superblock(&mut self) -> bool {
        let sb = &self.volume.sb;
        let (faults, finds_descriptors) = (sb.faults(), sb.finds_descriptors());
        let needs_recovery = sb.features().incompat.contains(Incompat::RECOVER);
        for fault in faults {
            self.tell(What::Superblock, Place::Volume, fault);
        }
        // mke2fs makes some such volumes, the kernel mounts them, and `e2fsck -fn` exits with 0. Where the
        // blocks would lie over other metadata, the descriptors and bitmaps disagree, which is a problem.
        let kept = self.volume.geometry().reserved_gdt_blocks;
        if kept > 0 && !self.volume.sb.features().compat.contains(Compat::RESIZE_INODE) {
            let reason = format!("s_reserved_gdt_blocks is {kept}, but there is no resize inode");
            self.note_superblock(reason);
        }
        let size = self.volume.sb.raw().s_desc_size.get();
        let is_small = !self.volume.sb.features().incompat.contains(Incompat::BIT64);
        if is_small && size != 0 && !size.is_power_of_two() {
            let reason = format!("its descriptors have a size of {size}, without 64bit");
            self.tell(What::Superblock, Place::Volume, reason);
        }
        let high = self.volume.sb.raw().s_r_blocks_count_hi.get();
        if is_small && high != 0 {
            // e2fsck and this library take no notice; the kernel keeps all space for root.
            self.note_superblock(format!("s_r_blocks_count_hi is {high}, without the feature 64bit"));
        }
        if self.volume.sb.has_stray_journal_device() {
            let device = self.volume.sb.raw().s_journal_dev.get();
            self.note_superblock(format!("it has an internal journal, but s_journal_dev is {device:#x}"));
        }
        if let Some(fault) = self.volume.sb.extra_isize_fault() {
            self.note_superblock(fault);
        }
        self.note_state();
        if needs_recovery && !self.volume.options.allow_recovery {
            self.tell(What::Journal, Place::Volume, "it must be replayed first (needs_recovery)");
        }
        self.leave_unjudged();
        finds_descriptors
    }

    /// Marks that keep writers away until a repair, or e2fsck, takes them off. They are no faults: `e2fsck -fn` ends
    /// with 0.
    fn note_state(&mut self) {
        let sb = &self.volume.sb;
        let (state, has_journal) = (sb.state(), sb.features().compat.contains(Compat::HAS_JOURNAL));
        if state & STATE_ERROR != 0 {
            self.note_superblock("it is marked as having errors".to_owned());
        } else if state & STATE_VALID == 0 && !has_journal {
            self.note_superblock("it was not cleanly closed".to_owned());
        }
    }

    /// Notes something of the superblock.
    fn note_superblock(&mut self, reason: String) {
        let (what, place) = (What::Superblock, Place::Volume);
        self.report.notes.push(Problem { what, place, reason: reason.into() });
    }

    /// Names what a volume has that is not checked.
    fn leave_unjudged(&mut self) {
        let sb = &self.volume.sb;
        let features = *sb.features();
        if features.incompat.contains(Incompat::CASEFOLD) {
            match Folding::of(sb) {
                Ok(_) if !features.incompat.contains(Incompat::ENCRYPT) => {}
                Ok(_) => self.report.leave("order and hashes of names in encrypted casefolded directories"),
                Err(what) => {
                    self.report.leave(what.0);
                    self.tell(What::Superblock, Place::Volume, "the encoding of its names is unknown");
                }
            }
        }
        let names = features.unknown().names();
        if !names.is_empty() {
            let names = names.join(", ");
            self.report.leave(format!("what belongs to {names}"));
            let reason = format!("it has unknown features ({names}): whether it is sound can't be judged");
            self.tell(What::Superblock, Place::Volume, reason);
        }
        if features.names().iter().any(|name| name == UNJUDGED) {
            self.report.leave(format!("what belongs to {UNJUDGED}"));
        }
    }
}

/// A superblock whose default hash is known: it only counts for indexes to come.
fn with_usual_hash(sb: &SuperBlock) -> SuperBlock {
    let mut raw = *sb.raw();
    raw.s_def_hash_version = 1;
    SuperBlock::from_raw(raw).unwrap_or_else(|_| sb.clone())
}
