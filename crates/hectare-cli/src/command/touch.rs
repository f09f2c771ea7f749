//! `hectare touch`.

use crate::clock;
use crate::failure::{Failure, Outcome};
use crate::image::{Image, change_each};
use crate::image_path::ImagePath;
use crate::name::shown;
use crate::output::reason;
use crate::write_args::Writing;
use crate::{os, reproducible, umask};
use hectare_device::os::OsStrExt;
use hectare_engine::{Changes, Error, NewNode, Timestamp};
use std::path::PathBuf;

/// Set times of files inside an image, and make empty files
///
/// Both the time of access and that of change become now, or what is given. A file that does not exist is
/// made.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
#[command(after_help = "Examples:\n  hectare touch disk.img:/etc/machine-id\n  \
    hectare touch -c -d 2026-11-26T08:00:00Z disk.img:/etc/fstab\n  \
    hectare touch -r README.md disk.img:/srv")]
pub(crate) struct Arguments {
    /// Set the time of access only
    #[arg(short)]
    access: bool,
    /// Set the time of change of the content only
    #[arg(short)]
    modification: bool,
    /// Make no file
    #[arg(short = 'c', long)]
    no_create: bool,
    /// This time (2026-11-26, 2026-11-26T08:00:00Z, @SECONDS) instead of now
    #[arg(short, long, value_name = "TIME", value_parser = clock::parse)]
    date: Option<Timestamp>,
    /// The times of this file of the host instead of now
    #[arg(short, long, value_name = "FILE", conflicts_with = "date")]
    reference: Option<PathBuf>,
    /// Set the times of a symbolic link itself, and create no file
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// The files: IMAGE:PATH
    #[arg(required = true, value_name = "IMAGE:PATH", value_parser = ImagePath::parser())]
    places: Vec<ImagePath>,
    #[command(flatten)]
    writing: Writing,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let (atime, mtime) = times(arguments)?;
    let changes = Changes {
        atime: (arguments.access || !arguments.modification).then_some(atime),
        mtime: (arguments.modification || !arguments.access).then_some(mtime),
        ..Changes::default()
    };
    change_each(&arguments.places, &arguments.writing, |image, place| {
        touch(image, &place.path, arguments, &changes).map_err(|error| image.fail(&place.path, &error))
    })
}

fn touch(image: &Image, path: &[u8], arguments: &Arguments, changes: &Changes) -> hectare_engine::Result<()> {
    let volume = image.volume();
    let nr = match volume.resolve(path, !arguments.no_dereference) {
        Err(Error::NotFound) if arguments.no_create => return Ok(()),
        Err(Error::NotFound) if !arguments.no_dereference => {
            volume.make(path, NewNode::File, umask::creation(0o666))?
        }
        found => found?,
    };
    volume.change(nr, changes)
}

/// The times of access and of change to set.
fn times(arguments: &Arguments) -> Outcome<(Timestamp, Timestamp)> {
    if let Some(path) = &arguments.reference {
        let meta = std::fs::metadata(path)
            .map_err(|error| Failure::of(shown(path.as_os_str().as_bytes()), reason(&error)))?;
        return Ok(os::times(&meta));
    }
    if let Some(date) = arguments.date {
        return Ok((date, date));
    }
    let now = match reproducible::epoch()? {
        Some(epoch) => Timestamp::from_seconds(epoch),
        None => Timestamp::now(),
    };
    Ok((now, now))
}
