//! `hectare ln`.

use crate::failure::{Failure, Outcome};
use crate::image::Image;
use crate::image_path::{ImagePath, split};
use crate::name::join;
use crate::os::same_file;
use crate::umask;
use crate::write_args::Writing;
use hectare_device::os::OsStrExt;
use hectare_engine::Error;
use std::ffi::OsString;

/// Make a hard or symbolic link inside an image
///
/// If LINK is a directory, the link is made in it under the target's name.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hectare ln -s ../run disk.img:/var/run\n  hectare ln disk.img:/a disk.img:/b"
)]
pub(crate) struct Arguments {
    /// Make a symbolic link; TARGET is then any text, without an image
    #[arg(short, long)]
    symbolic: bool,
    /// Replace an existing file
    #[arg(short, long)]
    force: bool,
    /// What to link to: IMAGE:PATH, or with -s the link's text
    target: OsString,
    /// The link to make: IMAGE:PATH
    #[arg(value_name = "IMAGE:LINK", value_parser = ImagePath::parser())]
    link: ImagePath,
    #[command(flatten)]
    writing: Writing,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let target = if arguments.symbolic {
        arguments.target.as_bytes().to_vec()
    } else {
        let target = ImagePath::parse(&arguments.target);
        if !same_file(&target.image, &arguments.link.image) {
            return Err(Failure::Usage("a hard link and its target lie in one image".to_owned()));
        }
        target.path
    };
    Image::change(&arguments.link.image, &arguments.writing, |image| {
        let into = matches!(image.volume().metadata(&arguments.link.path), Ok(meta) if meta.is_dir());
        let link = match into {
            true => join(&arguments.link.path, split(&target).1),
            false => arguments.link.path.clone(),
        };
        if !arguments.symbolic {
            image.resolve(&target, false)?;
        }
        make(image, arguments, &target, &link).map_err(|error| image.fail(&link, &error))
    })
}

fn make(image: &Image, arguments: &Arguments, target: &[u8], link: &[u8]) -> hectare_engine::Result<()> {
    let volume = image.volume();
    if arguments.force {
        match volume.resolve(link, false) {
            Ok(nr) if !arguments.symbolic && volume.resolve(target, false)? == nr => return Ok(()),
            Ok(_) => volume.remove_file(link)?,
            Err(Error::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    if arguments.symbolic {
        return volume.symlink(target, link, umask::creation(0o777)).map(drop);
    }
    volume.hard_link(target, link)
}
