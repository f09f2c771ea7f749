//! `hectare mv`.

use crate::failure::{Failure, Outcome};
use crate::image::Image;
use crate::image_path::{ImagePath, split};
use crate::name::join;
use crate::os::same_file;
use crate::write_args::Writing;
use hectare_engine::{Error, RenameMode};

/// Move or rename files inside one image
///
/// With several sources, or if the destination is a directory, they are moved into it.
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
    image.volume().rename_path(from, &target, mode).map_err(|error| image.fail(blamed, &error))
}
