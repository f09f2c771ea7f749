//! `hectare undo`.

use crate::failure::{Failure, Outcome};
use crate::image::journal_of;
use crate::image_device::{Hold, while_repaired};
use crate::logical::device;
use crate::name::shown;
use crate::output::Output;
use crate::partition_args::Part;
use crate::write_args::Journal;
use hectare_device::os::OsStrExt;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

/// Put back what a repair changed
///
/// Takes the undo file that 'hectare repair' made. Before anything is written, every place that the repair
/// changed must be as it left it; else the volume was changed since, or is another, and stays as it is. A volume
/// with multiple mount protection is marked as in use meanwhile, as by 'hectare repair'.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  hectare undo disk.img disk.img.undo-1\n\nExit codes: 0 done, 1 failed, 2 wrong \
                  usage."
)]
pub(crate) struct Arguments {
    /// Do not wait for the host that has marked the volume as in use (multiple mount protection): only if that
    /// host is known to be down
    #[arg(long)]
    ignore_mmp: bool,
    /// The image or block device
    image: PathBuf,
    /// The undo file
    file: PathBuf,
    #[command(flatten)]
    journal: Journal,
    #[command(flatten)]
    part: Part,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let name = shown(arguments.image.as_os_str().as_bytes());
    let undo = shown(arguments.file.as_os_str().as_bytes());
    let file = File::open(&arguments.file).map_err(|error| Failure::of(&undo, error))?;
    let device = device(&arguments.image, arguments.part, Hold::Everybody)?;
    let ignores = arguments.ignore_mmp;
    let (count, released) = while_repaired(&arguments.image, &name, &device, ignores, |device, mark| {
        let journal = journal_of(&**device, &arguments.journal, Hold::Everybody)?;
        mark.check().map_err(|error| Failure::of(&name, error))?;
        hectare_repair::undo(&**device, journal.as_deref(), &mut BufReader::new(file))
            .map_err(|error| Failure::of(format_args!("{name} with {undo}"), error))
    })?;
    let mut out = Output::report();
    let printed =
        writeln!(out, "{name}: {count} bytes are as they were before the repair").and_then(|()| out.finish());
    released?;
    printed
}
