//! The state of a check, and the order of its steps.

use crate::bits::Bits;
use crate::directory::Directory;
use crate::inodes::Inodes;
use crate::report::{Error, Options, Problem, Report, What};
use crate::{blocks::Claims, reserved_inodes::Orphans};
use hectare_device::Device;
use hectare_ext4::dir::Format;
use hectare_ext4::error::{Corrupt, FormatError, Place};
use hectare_ext4::extent::{Extent, TreeGeometry};
use hectare_ext4::feature::{Compat, Incompat, RoCompat};
use hectare_ext4::geometry::{Geometry, SUPERBLOCK_OFFSET};
use hectare_ext4::group::GroupDesc;
use hectare_ext4::superblock::{SIZE, SuperBlock};
use hectare_units::{BlockNr, GroupNr, InodeNr, u64_of};
use std::borrow::Cow;

/// The most clusters that are checked: the pages of their bitmap take 32 MiB.
const CLUSTERS_MAX: u64 = 1 << 36;

/// Features whose structures are no longer documented or used.
const UNJUDGED: [&str; 5] = ["imagic_inodes", "lazy_bg", "snapshot_bitmap", "snapshot", "replica"];

/// The volume being checked.
pub(crate) struct Volume<'a> {
    pub(crate) device: &'a dyn Device,
    pub(crate) sb: SuperBlock,
    /// The form of its directories; `None` where the default hash is unknown.
    pub(crate) dirs: Option<Format>,
    pub(crate) options: Options,
}

impl Volume<'_> {
    pub(crate) fn geometry(&self) -> &Geometry {
        self.sb.geometry()
    }

    /// What an extent tree of inode `nr` is checked against.
    pub(crate) fn tree(&self, nr: InodeNr) -> TreeGeometry {
        let geometry = self.geometry();
        TreeGeometry {
            block_size: geometry.block_size,
            first_data_block: BlockNr::new(u64::from(geometry.first_data_block)),
            blocks_count: geometry.blocks_count,
            inode: nr,
        }
    }

    /// Whether a block can belong to a file.
    pub(crate) fn holds(&self, block: u64) -> bool {
        let geometry = self.geometry();
        block > u64::from(geometry.first_data_block) && block < geometry.blocks_count.get()
    }

    /// Reads whole blocks into `buffer`, from block `first` on.
    pub(crate) fn read(&self, first: BlockNr, buffer: &mut [u8]) -> Result<(), Error> {
        Ok(self.device.read_at(first.offset(self.geometry().block_size), buffer)?)
    }
}

/// A check under way.
pub(crate) struct Scan<'a> {
    pub(crate) volume: &'a Volume<'a>,
    pub(crate) report: Report,
    pub(crate) groups: Vec<GroupDesc>,
    /// Groups whose inode table lies in that of another, in ascending order.
    pub(crate) shared_tables: Vec<GroupNr>,
    pub(crate) claims: Claims,
    pub(crate) inodes: Inodes,
    pub(crate) directories: Vec<Directory>,
    /// Blocks of directories still to be read at most: all of them together are no more than the volume has.
    pub(crate) directory_blocks: u64,
    /// The extents of directories, and of files whose content is checked, one after another.
    pub(crate) runs: Vec<Extent>,
    pub(crate) orphans: Orphans,
    pub(crate) attributes: crate::attributes::Shared,
    /// Block buffers not in use.
    spare: Vec<Vec<u8>>,
}

impl Scan<'_> {
    /// Reports a problem.
    pub(crate) fn tell(&mut self, what: What, place: Place, reason: impl Into<Cow<'static, str>>) {
        let problem = Problem { what, place, reason: reason.into() };
        self.report.tell(problem, self.volume.options.problems_max);
    }

    /// Reports a problem of an inode.
    pub(crate) fn tell_inode(&mut self, nr: InodeNr, reason: impl Into<Cow<'static, str>>) {
        self.tell(What::Inode, Place::Inode(nr), reason);
    }

    /// Reports the finding of a parser.
    pub(crate) fn tell_corrupt(&mut self, what: What, corrupt: Corrupt) {
        self.report.tell(Problem::of(what, corrupt), self.volume.options.problems_max);
    }

    /// A buffer of one block, with anything in it.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_else(|| vec![0; self.volume.geometry().block_size.len()])
    }

    /// Takes a buffer back.
    pub(crate) fn give_back(&mut self, buffer: Vec<u8>) {
        self.spare.push(buffer);
    }
}

/// Checks a volume.
pub(crate) fn run(device: &dyn Device, options: &Options) -> Result<Report, Error> {
    let mut report = Report::default();
    let Some(sb) = superblock(device, options, &mut report)? else {
        return hectare_probe::instead(device)?.map_or(Ok(report), |what| Err(Error::NotAVolume(what)));
    };
    let clusters = sb.geometry().clusters_count().get();
    if clusters > CLUSTERS_MAX {
        return Err(Error::TooLarge(clusters));
    }
    let dirs = Format::of(&sb).ok();
    let volume = Volume { device, sb, dirs, options: *options };
    let mut scan = Scan {
        volume: &volume,
        report,
        groups: Vec::new(),
        shared_tables: Vec::new(),
        claims: Claims::new(Bits::new(clusters)?),
        inodes: Inodes::default(),
        directories: Vec::new(),
        directory_blocks: volume.geometry().blocks_count.get(),
        runs: Vec::new(),
        orphans: Orphans::default(),
        attributes: crate::attributes::Shared::default(),
        spare: Vec::new(),
    };
    if !scan.check_superblock() || !scan.read_groups()? {
        scan.report.leave("everything the group descriptors lead to");
        return Ok(scan.report);
    }
    scan.claim_group_metadata()?;
    scan.read_orphan_list()?;
    scan.scan_inodes()?;
    scan.finish_attributes();
    scan.check_directories()?;
    scan.check_tree();
    scan.check_links();
    scan.check_bitmaps()?;
    Ok(scan.report)
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
        if needs_recovery && !self.volume.options.allow_recovery {
            self.tell(What::Journal, Place::Volume, "it must be replayed first (needs_recovery)");
        }
        self.leave_unjudged();
        finds_descriptors
    }

    /// Names what a volume has that is not checked.
    fn leave_unjudged(&mut self) {
        let sb = &self.volume.sb;
        let features = sb.features();
        if features.incompat.contains(Incompat::CASEFOLD) {
            self.report.leave("order and hashes of names in casefolded directories");
        }
        if features.ro_compat.contains(RoCompat::QUOTA) {
            self.report.leave("the content of quota files");
        }
        if features.incompat.contains(Incompat::ENCRYPT) {
            self.report.leave("the policies of encrypted files");
        }
        if features.compat.contains(Compat::HAS_JOURNAL) && sb.journal_inode().is_none() {
            self.report.leave("the external journal");
        }
        let known = |name: &String| !name.starts_with("FEATURE_") && !UNJUDGED.contains(&name.as_str());
        let mut unknown = features.names();
        unknown.retain(|name| !known(name));
        if !unknown.is_empty() {
            self.report.leave(format!("what belongs to {}", unknown.join(", ")));
        }
    }
}
