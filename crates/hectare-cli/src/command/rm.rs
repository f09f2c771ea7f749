//! `hectare rm`.

use crate::failure::{LeftOut, Outcome};
use crate::image::{Image, change_each};
use crate::image_path::{ImagePath, split};
use crate::walk;
use crate::write_args::Writing;
use hectare_engine::Error;

/// Remove files and directories inside an image
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare rm disk.img:/etc/motd\n  hectare rm -r disk.img:/var/cache")]
pub(crate) struct Arguments {
    /// Remove directories recursively
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Ignore files that don't exist
    #[arg(short, long)]
    force: bool,
    /// The files: IMAGE:PATH
    #[arg(required = true, value_name = "IMAGE:PATH", value_parser = ImagePath::parser())]
    places: Vec<ImagePath>,
    #[command(flatten)]
    writing: Writing,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let left_out = LeftOut::default();
    change_each(&arguments.places, &arguments.writing, |image, place| {
        remove(image, &place.path, arguments, &left_out)
    })?;
    left_out.outcome()
}

fn remove(image: &Image, path: &[u8], arguments: &Arguments, left_out: &LeftOut) -> Outcome {
    let (parent, name) = split(path);
    if matches!(name, b"" | b"." | b"..") {
        return Err(image.fail(path, &Error::Invalid("the root, '.' and '..' can't be removed")));
    }
    let found = image.volume().resolve(parent, true).and_then(|parent| {
        let found = image.volume().lookup(parent, name)?;
        // A slash at the end says that it is a directory; a link to one is none.
        if path.ends_with(b"/") && !image.volume().stat(found)?.is_dir() {
            return Err(Error::NotADirectory);
        }
        Ok(parent)
    });
    let parent = match found {
        Err(Error::NotFound) if arguments.force => return Ok(()),
        found => found.map_err(|error| image.fail(path, &error))?,
    };
    if arguments.recursive {
        walk::remove(image, parent, name, path, left_out);
        return Ok(());
    }
    match image.volume().unlink(parent, name) {
        Err(Error::IsADirectory) => {
            Err(image.fail(path, &Error::Invalid("it is a directory; rm -r removes it with all it holds")))
        }
        other => other.map_err(|error| image.fail(path, &error)),
    }
}
