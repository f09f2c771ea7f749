//! `hectare trim`.

use crate::failure::{Failure, Outcome};
use crate::image::Image;
use crate::os;
use crate::output::Output;
use crate::size_arg::parse_size;
use crate::write_args::Writing;
use indicatif::HumanBytes;
use std::path::{Path, PathBuf};

/// Give the free space of a volume back to its host
///
/// The free blocks become holes of the image file; on a block device they are discarded (as fstrim does). What
/// removed files held can't be recovered afterwards.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare trim disk.img\n  hectare trim -m 1M /dev/sdb1")]
pub(crate) struct Arguments {
    /// Leave free runs that are shorter (suffixes: k, M, G...)
    #[arg(short, long, value_name = "BYTES", value_parser = parse_size, default_value = "0")]
    minimum: u64,
    /// The image or device
    image: PathBuf,
    #[command(flatten)]
    writing: Writing,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let before = allocated(&arguments.image);
    let mut trimmed = 0;
    Image::change(&arguments.image, &arguments.writing, |image| {
        let bytes = image.volume().superblock().geometry().bytes().get();
        let done = image.volume().trim(0..bytes, arguments.minimum);
        trimmed = done.map_err(|error| Failure::of(image.name(), error))?;
        Ok(())
    })?;
    let mut out = Output::report();
    write!(out, "{} of free space discarded", HumanBytes(trimmed))?;
    if let (Some(before), Some(after)) = (before, allocated(&arguments.image)) {
        write!(out, "; the file takes {}, it took {}", HumanBytes(after), HumanBytes(before))?;
    }
    writeln!(out)?;
    out.finish()
}

/// The bytes that a file takes on the host, if that says so.
fn allocated(path: &Path) -> Option<u64> {
    let meta = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    os::allocated(&meta)
}
