//! Opens what is left of a volume: a superblock, the places of the inode tables, the log over the blocks.
//!
//! Nothing here fails but for want of a superblock, and of what it can be inferred from. What is broken is
//! noted, and done without.

use crate::inferred::{Inferred, infer};
use crate::map;
use crate::places::{self, Table};
use crate::plausible::{self, Judged};
use crate::source::Source;
use crate::{Error, Options};
use hectare_device::Device;
use hectare_ext4::dir::Format;
use hectare_ext4::error::FormatError;
use hectare_ext4::extent::TreeGeometry;
use hectare_ext4::feature::{Compat, Incompat};
use hectare_ext4::geometry::{Geometry, SUPERBLOCK_OFFSET};
use hectare_ext4::superblock::{SIZE, SuperBlock, Tolerances};
use hectare_journal::recovery::{self, LogMap, LogRun, Recovery};
use hectare_probe::{WhichSuperblock, find_superblock};
use hectare_units::{BlockNr, Blocks, Bytes, InodeNr, u64_of, usize_of};
use std::sync::Arc;

/// What is left of a volume.
pub(crate) struct Volume {
    pub(crate) source: Source,
    pub(crate) sb: SuperBlock,
    /// The form of its directories.
    pub(crate) format: Format,
    /// Where the first inode table lies, if that is known without a descriptor.
    first_table: Option<BlockNr>,
    /// Where the inode tables lie, in the order of the disk.
    pub(crate) tables: Vec<Table>,
    /// The first block of the table of each group.
    table_of: Vec<BlockNr>,
    /// The log, wherever its blocks lie.
    pub(crate) log: Option<LogMap>,
    /// What is wrong with the volume as a whole.
    pub(crate) notes: Vec<String>,
}

impl Volume {
    pub(crate) fn open(device: Arc<dyn Device>, options: &Options) -> Result<Self, Error> {
        let mut notes = Vec::new();
        let source = Source::new(device);
        let Found { sb, is_first, table } = superblock(&source, options, &mut notes)?;
        let format = Format::of(&sb).map_err(|error| Error::Unsupported(error.to_string()))?;
        // Checksums are verified apart, and names are made harmless where they are used.
        let format = Format { checksums: false, opaque_names: true, ..format };
        let (tables, table_of) = (Vec::new(), Vec::new());
        let mut volume = Self { source, sb, format, first_table: table, tables, table_of, log: None, notes };
        volume.find_tables();
        volume.find_log(!is_first, options.no_journal);
        Ok(volume)
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        self.sb.geometry()
    }

    pub(crate) fn tree(&self, nr: InodeNr) -> TreeGeometry {
        TreeGeometry::of(self.geometry(), nr)
    }

    fn find_tables(&mut self) {
        let (mut tables, notes) = places::tables(&self.source, &self.sb, self.first_table);
        self.table_of = tables.iter().map(|table| table.at).collect();
        tables.sort_by_key(|table| table.at);
        self.tables = tables;
        self.notes.extend(notes);
    }

    /// Lays the log over the blocks, if it is needed.
    fn find_log(&mut self, is_backup: bool, left_alone: bool) {
        let Some(nr) = self.sb.journal_inode() else {
            if self.sb.features().compat.contains(Compat::HAS_JOURNAL) {
                self.notes.push("the journal lies on another device and was not replayed".into());
            }
            return;
        };
        let Some(map) = self.log_map(nr) else {
            self.notes.push("the journal's inode is broken: the journal was not replayed".into());
            return;
        };
        self.log = Some(map);
        let says = self.sb.features().incompat.contains(Incompat::RECOVER);
        if left_alone || !(says || is_backup) {
            return;
        }
        if let Err(reason) = self.replay() {
            self.notes.push(format!("the journal was not replayed: {reason}"));
        }
    }

    fn replay(&mut self) -> Result<(), String> {
        let Some(map) = &self.log else { return Ok(()) };
        let device = self.source.device();
        let recovery: Recovery = recovery::read(&**device, map, self.geometry().blocks_count)
            .map_err(|error| error.to_string())?;
        if !recovery.needed() {
            return Ok(());
        }
        let view =
            recovery.laid_over(Arc::clone(device), Arc::clone(device)).map_err(|error| error.to_string())?;
        self.source = Source::new(Arc::new(view));
        // Tables and descriptors may be different now.
        self.find_tables();
        match recovery.fast_commits().len() {
            0 => Ok(()),
            count => Err(format!("of {count} fast commits; its transactions were")),
        }
    }

    fn log_map(&self, nr: InodeNr) -> Option<LogMap> {
        let judged = self.inode(nr)?;
        let mapped = map::map(self, nr, &judged.inode, &mut u64::MAX.clone());
        let runs = mapped.extents.iter().filter(|extent| !extent.unwritten).map(|extent| LogRun {
            first: extent.logical,
            start: extent.physical,
            len: Blocks::new(extent.len.into()),
        });
        LogMap::internal(self.geometry().block_size, runs.collect(), self.source.device().len()).ok()
    }

    /// Where the slot of an inode lies, in bytes of the device.
    pub(crate) fn slot_at(&self, nr: InodeNr) -> Option<u64> {
        let (group, index) = self.geometry().inode_slot(nr)?;
        let table = self.table_of.get(group.index())?;
        let start = table.get().checked_mul(self.geometry().block_size.bytes().get())?;
        start.checked_add(u64::from(index) * u64::from(self.geometry().inode_size))
    }

    /// The inode in a slot.
    pub(crate) fn inode_at(&self, at: u64, nr: InodeNr) -> Option<Judged> {
        let mut slot = vec![0; usize_of(self.geometry().inode_size)];
        self.source.read_near(at, &mut slot);
        plausible::judge(&slot, nr, &self.sb)
    }

    /// An inode by its number.
    pub(crate) fn inode(&self, nr: InodeNr) -> Option<Judged> {
        self.inode_at(self.slot_at(nr)?, nr)
    }

    /// A block; bytes that can't be read are zeros.
    pub(crate) fn block(&self, nr: BlockNr) -> Vec<u8> {
        let size = self.geometry().block_size;
        let mut block = vec![0; size.len()];
        self.source.read(nr.offset(size).get(), &mut block);
        block
    }

    /// Blocks of the volume that the device has.
    pub(crate) fn blocks_there(&self) -> u64 {
        let size = self.geometry().block_size;
        self.geometry().blocks_count.get().min(self.source.len() >> size.shift())
    }
}

/// The superblock to go by.
struct Found {
    sb: SuperBlock,
    /// Whether it is the first of the volume, and not a copy or an inferred one.
    is_first: bool,
    /// Where the first inode table lies, if that is how it was found.
    table: Option<BlockNr>,
}

fn superblock(source: &Source, options: &Options, notes: &mut Vec<String>) -> Result<Found, Error> {
    let device = &**source.device();
    let cut = Tolerances { allow_truncated: true, ignore_checksums: false };
    let mut bytes = [0; SIZE];
    let first = device.read_at(SUPERBLOCK_OFFSET, &mut bytes).map_err(|error| error.to_string());
    let first = first.and_then(|()| {
        SuperBlock::parse_tolerant(&bytes, device.len(), cut).map_err(|error| error.to_string())
    });
    let reason = match (options.superblock, first) {
        (None, Ok(sb)) => {
            if sb.geometry().bytes() > device.len() {
                notes.push(format!(
                    "the device has {} of {} bytes of the volume",
                    device.len(),
                    sb.geometry().bytes()
                ));
            }
            return Ok(Found { sb, is_first: true, table: None });
        }
        (None, Err(reason)) => reason,
        (Some(_), _) => "another one was requested".to_owned(),
    };
    let which = options.superblock.unwrap_or(WhichSuperblock::Auto);
    let tolerances = Tolerances { allow_truncated: true, ignore_checksums: true };
    let found = find_superblock(device, which, tolerances).ok().flatten();
    let Some(found) = found else {
        // A sound superblock that asks for what can't be read is not a missing one; `auto` insists.
        if let (None, Err(FormatError::Unsupported(what))) =
            (options.superblock, SuperBlock::parse(&bytes, Bytes::new(u64::MAX)))
        {
            return Err(Error::Unsupported(what.to_string()));
        }
        let inferred = match which {
            WhichSuperblock::Auto => inferred(source, &reason, notes),
            WhichSuperblock::Block(_) => None,
        };
        return inferred.ok_or(Error::NoSuperblock(reason));
    };
    let place = format!("the superblock of group {} at byte {} is used", found.group, found.at);
    notes.push(format!("{place}: {reason}"));
    // A checksum that is right where it was not required says that the others count, too.
    let mut bytes = [0; SIZE];
    let strict = device.read_at(found.at, &mut bytes).ok();
    let strict = strict.and_then(|()| SuperBlock::parse_tolerant(&bytes, device.len(), cut).ok());
    let is_first = u64_of(SIZE) == found.at.get();
    Ok(Found { sb: strict.unwrap_or(found.superblock), is_first, table: None })
}

/// What is made of a volume without any superblock.
fn inferred(source: &Source, reason: &str, notes: &mut Vec<String>) -> Option<Found> {
    let Inferred { sb, table } = infer(source)?;
    let geometry = sb.geometry();
    notes.push(format!(
        "no superblock can be used, nor any copy of it ({reason}): what it said was inferred from the root \
         directory, whose inode is in the table at block {table}: blocks of {} bytes, inodes of {}, {} of \
         them in a group",
        geometry.block_size, geometry.inode_size, geometry.inodes_per_group
    ));
    Some(Found { sb, is_first: false, table: Some(table) })
}
