//! `hectare mkdir`.

use crate::failure::Outcome;
use crate::image::{Image, change_each};
use crate::image_path::ImagePath;
use crate::umask;
use crate::write_args::Writing;
use hectare_engine::{Changes, Error};
use hectare_populate::ModeChange;

/// Make directories inside an image
///
/// They belong to the user who runs the command; chown changes that.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  hectare mkdir -p disk.img:/srv/www/static")]
pub(crate) struct Arguments {
    /// Make parent directories as needed; existing directories are no error
    #[arg(short, long)]
    parents: bool,
    /// Permissions, octal or symbolic as in chmod; the umask does not apply
    #[arg(short, long, value_name = "MODE", value_parser = super::chmod::parse_mode)]
    mode: Option<ModeChange>,
    /// The directories: IMAGE:PATH
    #[arg(required = true, value_name = "IMAGE:PATH", value_parser = ImagePath::parser())]
    places: Vec<ImagePath>,
    #[command(flatten)]
    writing: Writing,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    change_each(&arguments.places, &arguments.writing, |image, place| {
        make(image, &place.path, arguments).map_err(|error| image.fail(&place.path, &error))
    })
}

fn make(image: &Image, path: &[u8], arguments: &Arguments) -> hectare_engine::Result<()> {
    let volume = image.volume();
    let creation = umask::creation(0o777);
    if arguments.parents {
        match volume.resolve(path, true) {
            // An existing directory keeps its mode.
            Ok(nr) if volume.stat(nr)?.is_dir() => return Ok(()),
            Ok(_) => return Err(Error::NotADirectory),
            Err(Error::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    let nr = if arguments.parents {
        volume.create_dir_all(path, creation)?
    } else {
        volume.create_dir(path, creation)?
    };
    if let Some(mode) = &arguments.mode {
        let permissions = Some(mode.apply(0o777, true));
        volume.change(nr, &Changes { permissions, ..Changes::default() })?;
    }
    Ok(())
}
