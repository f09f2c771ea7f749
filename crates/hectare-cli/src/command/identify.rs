//! `hectare identify`.

mod json;
mod next;
mod text;

use crate::failure::{Failure, Outcome};
use crate::image_device::{Hold, as_it_lies, whole_device};
use crate::name::shown;
use crate::output::Output;
use crate::partition_args::Part;
use crate::progress::Progress;
use hectare_device::Device;
use hectare_device::os::OsStrExt;
use hectare_identify::{Survey, identify, search};
use next::Source;
use std::path::PathBuf;
use std::sync::Arc;

/// Say what lies on a device or in a file
///
/// Names what is there as a tree: a partition table and its partitions, each looked into in turn, file
/// systems, encrypted volumes, swap space, physical volumes, disk images, archives, with label, UUID, size
/// and state, and the next command for each. With --search the whole device is read, once, for superblocks
/// of ext2, ext3 and ext4: copies of one volume are shown together, with the start and the size that they
/// imply, also where the partition table or the first superblock is lost. Nothing is changed.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare identify disk.img\n  hectare identify --search /dev/sdb")]
pub(crate) struct Arguments {
    /// Read the whole device and list the ext volumes whose superblocks are found anywhere on it
    #[arg(long)]
    search: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The device or file
    #[arg(value_name = "DEVICE")]
    image: PathBuf,
    #[command(flatten)]
    part: Part,
    /// Read without a lock, even during writes by others: the output may mix several states
    #[arg(long)]
    no_lock: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let hold = if arguments.no_lock { Hold::Nobody } else { Hold::Writers };
    // What a disk image holds is a part of what it is.
    let disk: Arc<dyn Device> = match arguments.part.is_whole() {
        true => as_it_lies(&arguments.image, hold)?,
        false => whole_device(&arguments.image, arguments.part, hold)?,
    };
    let failed = |error: hectare_device::Error| Failure::Line(error.to_string());
    let base = match arguments.part.is_whole() {
        true => hectare_units::Bytes::ZERO,
        false => arguments.part.start(Arc::clone(&disk))?.unwrap_or_default(),
    };
    let device = arguments.part.of(disk)?;
    let place = identify(&*device).map_err(failed)?;
    let survey = arguments.search.then(|| survey(&*device)).transpose().map_err(failed)?;
    let source = Source::of(&arguments.image, arguments.part, base, device.len());
    if arguments.json {
        return Output::listing().json(&json::of(&place, survey.as_ref(), &source));
    }
    let mut out = Output::listing();
    let name = arguments.part.shown(&shown(arguments.image.as_os_str().as_bytes()));
    text::tree(&mut out, &name, &place, &source)?;
    if let Some(survey) = &survey {
        text::survey(&mut out, survey, &source)?;
    }
    out.finish()
}

fn survey(device: &dyn Device) -> hectare_device::Result<Survey> {
    let progress = Progress::new("searching");
    let mut before = 0;
    search(device, &mut |done| {
        progress.bytes(done.get() - before);
        before = done.get();
    })
}
