//! Opens what is left of a volume: a superblock, the places of the inode tables, the log over the blocks.
//!
//! Nothing here fails but for want of a superblock, and of what it can be inferred from. What is broken is
//! noted, and done without.

use crate::inferred::{Inferred, infer};
use crate::map;
use crate::options::{Error, Options};
use crate::source::Source;
use crate::volume::Volume;
use hectare_device::Device;
use hectare_ext4::dir::Format;
use hectare_ext4::error::FormatError;
use hectare_ext4::feature::{Compat, Incompat};
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::superblock::{SIZE, SuperBlock, Tolerances};
use hectare_journal::recovery::{self, LogMap, LogRun, Recovery};
use hectare_probe::{WhichSuperblock, find_superblock};
use hectare_units::{BlockNr, Blocks, Bytes, InodeNr, u64_of};
use std::sync::Arc;

pub(crate) fn open(device: Arc<dyn Device>, options: &Options) -> Result<Volume, Error> {
    let mut notes = Vec::new();
    let source = Source::new(device);
    let Found { sb, is_first, table } = superblock(&source, options, &mut notes)?;
    let format = Format::of(&sb).map_err(|error| Error::Unsupported(error.to_string()))?;
    // Checksums are verified apart, and names are made harmless where they are used.
    let format = Format { checksums: false, opaque_names: true, ..format };
    let mut volume = Volume::new(source, sb, format, table, notes);
    volume.find_log(!is_first, options.no_journal);
    Ok(volume)
}

impl Volume {
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
