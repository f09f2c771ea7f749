//! `hectare chown`.

use crate::failure::{LeftOut, Outcome};
use crate::image::change_each;
use crate::image_path::ImagePath;
use crate::passwd::Owner;
use crate::walk;
use crate::write_args::Writing;
use hectare_engine::{Caller, Changes};

/// Change owners inside an image
///
/// USER and GROUP are numbers; names are looked up in this system's /etc/passwd and /etc/group. Set-ID bits
/// and capabilities of files are cleared, as by the kernel. Symbolic links that are named are followed unless -P
/// is given; with -R, links below are changed themselves.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hectare chown 33:33 disk.img:/srv/www\n  hectare chown -R 0:0 disk.img:/"
)]
pub(crate) struct Arguments {
    /// Change everything below, recursively
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Change a symbolic link itself, not its target
    #[arg(short = 'P', long)]
    no_dereference: bool,
    /// The new owners: USER, USER:GROUP, :GROUP, or NAME: for the user and the login group
    #[arg(value_name = "USER:GROUP", value_parser = Owner::parse)]
    owner: Owner,
    /// The files: IMAGE:PATH
    #[arg(required = true, value_name = "IMAGE:PATH", value_parser = ImagePath::parser())]
    places: Vec<ImagePath>,
    #[command(flatten)]
    writing: Writing,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let left_out = LeftOut::default();
    change_each(&arguments.places, &arguments.writing, |image, place| {
        let Owner { uid, gid } = arguments.owner;
        // On behalf of somebody, whom the engine clears set-ID bits and capabilities for.
        let change =
            |nr| image.volume().change_as(nr, &Changes { uid, gid, ..Changes::default() }, &Caller::ROOT);
        let nr = image.resolve(&place.path, !arguments.no_dereference)?;
        if arguments.recursive {
            return walk::each(image, nr, &place.path, &left_out, change);
        }
        change(nr).map_err(|error| image.fail(&place.path, &error))
    })?;
    left_out.outcome()
}
