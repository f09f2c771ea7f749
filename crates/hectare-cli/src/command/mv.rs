//! `hectare mv`.

use crate::failure::{Failure, Outcome};
use crate::image::Image;
use crate::image_path::{ImagePath, split};
use crate::name::join;
use crate::os::same_file;
use crate::write_args::Writing;
use hectare_engine::{Error, InodeFlags, RenameMode};

/// Move or rename files inside one image
///
/// With several sources, or if the destination is a directory, they are moved into it. Of two names of one file
/// the first goes, as with mv(1).
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare mv disk.img:/old disk.img:/new\n  \
    hectare mv disk.img:/a disk.img:/b disk.img:/folder")]
pub(crate) struct Arguments {
    /// Fail if the new name exists, instead of replacing it
    #[arg(short = 'n', long, conflicts_with = "exchange")]
    no_clobber: bool,
    /// Exchange the two names atomically
    #[arg(long)]
    exchange: bool,
    /// One or more sources, then the destination: IMAGE:PATH, all in one image
    #[arg(required = true, num_args = 2.., value_name = "IMAGE:PATH", value_parser = ImagePath::parser())]
    places: Vec<ImagePath>,
    #[command(flatten)]
    writing: Writing,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let Some((to, from)) = arguments.places.split_last() else { return Ok(()) };
    if from.iter().any(|place| !same_file(&place.image, &to.image)) {
        return Err(Failure::Usage("mv works inside one image; use cp and rm between images".to_owned()));
    }
    Image::change(&to.image, &arguments.writing, |image| {
        let into = matches!(image.volume().metadata(&to.path), Ok(meta) if meta.is_dir());
        if from.len() > 1 && !into {
            return Err(image.fail(&to.path, &Error::NotADirectory));
        }
        from.iter().try_for_each(|place| rename(image, arguments, &place.path, &to.path, into))
    })
}

fn rename(image: &Image, arguments: &Arguments, from: &[u8], to: &[u8], into: bool) -> Outcome {
    let into = into && !arguments.exchange;
    let target = if into { join(to, split(from).1) } else { to.to_vec() };
    let mode = match (arguments.no_clobber, arguments.exchange) {
        (_, true) => RenameMode::Exchange,
        (true, _) => RenameMode::NoReplace,
        _ => RenameMode::Replace,
    };
    // Name the path that does not exist in the message.
    let blamed = match image.volume().resolve(from, false) {
        Err(_) => from,
        Ok(_) => &target,
    };
    let renamed = match (mode, two_names(image, from, &target)) {
        // The system call rename(2) does nothing here.
        (RenameMode::Replace, Some(Names::OfOneFile)) => image.volume().remove_file(from),
        (RenameMode::Replace, Some(Names::Same)) => {
            return Err(Failure::of(image.show(from), "source and destination are the same file"));
        }
        _ => image.volume().rename_path(from, &target, mode),
    };
    renamed.map_err(|error| image.fail(blamed, &error))
}

/// How two paths of one inode differ.
enum Names {
    /// They don't: one entry of one directory.
    Same,
    /// They are two entries.
    OfOneFile,
}

/// `None` unless both paths exist and are names of one file (links are not followed), and if nothing may be
/// removed: in a directory with case folding two names may be one entry, and a damaged volume may have two names
/// of a file that counts one link. A rename changes nothing then.
fn two_names(image: &Image, from: &[u8], to: &[u8]) -> Option<Names> {
    let resolve = |path: &[u8]| image.volume().resolve(path, false).ok();
    let nr = resolve(from).filter(|nr| resolve(to) == Some(*nr))?;
    let meta = image.volume().stat(nr).ok().filter(|meta| !meta.is_dir())?;
    let ((from_dir, from_name), (to_dir, to_name)) = (split(from), split(to));
    let dir = image.volume().resolve(from_dir, true).ok()?;
    let is_one_dir = image.volume().resolve(to_dir, true).ok() == Some(dir);
    if is_one_dir && from_name == to_name {
        return Some(Names::Same);
    }
    let folds = image.volume().stat(dir).ok()?.flags.contains(InodeFlags::CASEFOLD);
    (meta.links > 1 && !(is_one_dir && folds)).then_some(Names::OfOneFile)
}
