//! External journals: making one (`-O journal_dev`), and finding the one of a new volume (`-J device=`).
//!
//! A volume and its journal have blocks of the same size: without -b the volume takes the journal's.

use super::target::Goal;
use super::{Arguments, identify, whole_pages};
use crate::failure::{Failure, Outcome};
use crate::image_device::{Hold, file_device};
use crate::journal_search::{self, Wanted};
use crate::os;
use hectare_device::FileDevice;
use hectare_journal::recovery::uuid_text;
use hectare_mkfs::{FormatOptions, JournalDeviceId, external_journal, make_journal_device};
use hectare_units::{Bytes, hex};
use serde::Serialize;
use std::borrow::Cow;
use std::path::Path;

#[derive(Serialize)]
struct Json {
    blocks: u64,
    block_size: u32,
    uuid_hex: String,
}

/// Makes an external journal of the whole target.
pub(super) fn make(arguments: &Arguments, options: &FormatOptions, size: Option<Bytes>) -> Outcome {
    let image = &arguments.image;
    if arguments.dry_run {
        return Err(Failure::of("mkfs", "-O journal_dev makes nothing to show beforehand; leave -n out"));
    }
    let goal = Goal::open(&image.image, image.part, &image.shown(), size, arguments.force)?;
    let mut options = options.clone();
    identify(&mut options, whole_pages(goal.device().len()))?;
    let uuid = make_journal_device(goal.device(), &options).map_err(|error| image.failed(&error))?;
    let (block_size, _) = external_journal(goal.device(), true).map_err(|error| image.failed(&error))?;
    let blocks = goal.device().len().get() >> block_size.shift();
    goal.finish()?;
    let json = Json { blocks, block_size: block_size.get(), uuid_hex: hex(&uuid) };
    let line = format!("Creating journal device with {blocks} {}k blocks", block_size.get() / 1024);
    image.say(json, &[""; 0], [line, format!("Journal UUID: {}", uuid_text(&uuid))])
}

/// The journal that the new volume is to use, which the options then name.
pub(super) fn find(arguments: &Arguments, options: &mut FormatOptions) -> Outcome<Option<FileDevice>> {
    let Some(path) = arguments.format.journal_path() else { return Ok(None) };
    let path = &*by_name(path)?;
    let device = file_device(path, Hold::Everybody)?;
    let failed = |error: hectare_mkfs::Error| arguments.image.failed(&error);
    let (block_size, uuid) = external_journal(&device, arguments.force).map_err(failed)?;
    let wanted = *options.block_size.get_or_insert(block_size);
    if wanted != block_size {
        let reason = format_args!(
            "-J device={}: its blocks have {block_size} bytes, give -b {block_size}",
            path.display()
        );
        return Err(Failure::of("mkfs", reason));
    }
    options.journal_device = Some(JournalDeviceId { uuid, number: number_of(path)? });
    Ok(Some(device))
}

/// The device that is meant: a path, or the block device with the journal of that UUID or label.
pub(in crate::command) fn by_name(path: &Path) -> Outcome<Cow<'_, Path>> {
    let Some(wanted) = path.to_str().map(Wanted::parse).transpose()?.flatten() else {
        return Ok(path.into());
    };
    let found = journal_search::search(&wanted)?.ok_or_else(|| {
        let reason = format_args!("no block device that can be read has an external journal with {wanted}");
        Failure::of("mkfs", format_args!("-J device={}: {reason}", path.display()))
    });
    found.map(Cow::from)
}

/// The number of a block device as the format stores it: the minor's low byte, the major, the rest of the
/// minor; 0 for a file.
pub(in crate::command) fn number_of(path: &Path) -> Outcome<u32> {
    let metadata = std::fs::metadata(path).map_err(|error| Failure::of(path.display(), error))?;
    if !os::is_block_device(&metadata) {
        return Ok(0);
    }
    let (major, minor) = os::device_number(&metadata);
    Ok((minor & 0xff) | (major << 8) | ((minor & !0xff) << 12))
}
