//! The state of a check: the volume, and what is remembered of it.
//!
//! What this is not: the checks, each of which is a module above, or their order (that is `steps`).

pub(crate) mod attributes;
pub(crate) mod claims;
pub(crate) mod directory;
pub(crate) mod inodes;
pub(crate) mod orphans;
pub(crate) mod quotas;
pub(crate) mod reader;

use crate::bits::Bits;
use crate::late_times::LateTimes;
use crate::progress::Watch;
use crate::report::{Error, Options, Problem, Report, What};
use attributes::Shared;
use claims::Claims;
use directory::Directory;
use hectare_device::Device;
use hectare_ext4::dir::Format;
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::extent::{Extent, TreeGeometry};
use hectare_ext4::feature::RoCompat;
use hectare_ext4::geometry::Geometry;
use hectare_ext4::group::GroupDesc;
use hectare_ext4::superblock::SuperBlock;
use hectare_units::{BlockNr, GroupNr, InodeNr};
use inodes::Inodes;
use orphans::Orphans;
use quotas::Quotas;
use std::borrow::Cow;
use std::sync::Arc;

/// The volume being checked.
pub(crate) struct Volume<'a> {
    pub(crate) device: &'a dyn Device,
    /// Its journal, if that lies on another device and is known.
    pub(crate) journal: Option<&'a dyn Device>,
    pub(crate) sb: SuperBlock,
    /// The form of its directories; `None` where the default hash is unknown.
    pub(crate) dirs: Option<Format>,
    pub(crate) options: Options,
    pub(crate) watch: &'a Watch<'a>,
}

impl Volume<'_> {
    pub(crate) fn geometry(&self) -> &Geometry {
        self.sb.geometry()
    }

    /// Whether several files may have the same blocks of data.
    pub(crate) fn shares_blocks(&self) -> bool {
        self.sb.features().ro_compat.contains(RoCompat::SHARED_BLOCKS)
    }

    /// No claims of its clusters.
    pub(crate) fn claims(&self) -> Result<Claims, Error> {
        let clusters = self.geometry().clusters_count().get();
        let data = self.shares_blocks().then(|| Bits::new(clusters)).transpose()?;
        Ok(Claims::new(Bits::new(clusters)?, data))
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
    pub(crate) groups: Arc<Vec<GroupDesc>>,
    /// Groups whose inode table lies in that of another, in ascending order.
    pub(crate) shared_tables: Arc<Vec<GroupNr>>,
    pub(crate) claims: Claims,
    pub(crate) inodes: Inodes,
    pub(crate) directories: Vec<Directory>,
    /// The extents of directories, and of files whose content is checked, one after another.
    pub(crate) runs: Vec<Extent>,
    pub(crate) orphans: Arc<Orphans>,
    pub(crate) attributes: Shared,
    pub(crate) quotas: Quotas,
    pub(crate) late_times: LateTimes,
    /// Block buffers not in use.
    spare: Vec<Vec<u8>>,
}

impl<'a> Scan<'a> {
    /// One that has seen nothing of a volume yet.
    pub(crate) fn new(volume: &'a Volume<'a>, report: Report, claims: Claims) -> Self {
        Self {
            volume,
            report,
            groups: Arc::default(),
            shared_tables: Arc::default(),
            claims,
            inodes: Inodes::default(),
            directories: Vec::new(),
            runs: Vec::new(),
            orphans: Arc::default(),
            attributes: Shared::default(),
            quotas: Quotas::default(),
            late_times: LateTimes::default(),
            spare: Vec::new(),
        }
    }
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
