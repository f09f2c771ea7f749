//! `hectare ln`.

use crate::failure::{Failure, Outcome, tell};
use crate::image::Image;
use crate::image_path::{ImagePath, split};
use crate::name::{join, shown};
use crate::os::same_file;
use crate::umask;
use crate::write_args::Writing;
use hectare_device::os::OsStrExt;
use hectare_engine::{Error, RenameMode, Volume};
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
    let create = |link: &[u8]| match arguments.symbolic {
        true => volume.symlink(target, link, umask::creation(0o777)).map(drop),
        false => volume.hard_link(target, link),
    };
    let there = match volume.resolve(link, false) {
        Ok(nr) if arguments.force => nr,
        Err(error) if arguments.force && !matches!(error, Error::NotFound) => return Err(error),
        _ => return create(link),
    };
    if !arguments.symbolic && volume.resolve(target, false)? == there {
        return Ok(());
    }
    // Under another name first: a link that can't be made replaces nothing.
    let spare = spare_name(volume, split(link).0)?;
    create(&spare)?;
    let renamed = volume.rename_path(&spare, link, RenameMode::Replace);
    if renamed.is_err()
        && let Err(error) = volume.remove_file(&spare)
    {
        tell(format_args!("{}: it stays behind: {error}", shown(&spare)));
    }
    renamed
}

/// A path in a directory that nothing has.
fn spare_name(volume: &Volume, dir: &[u8]) -> hectare_engine::Result<Vec<u8>> {
    let mut number = 0_u64;
    loop {
        let path = join(dir, format!(".ln-{number}").as_bytes());
        match volume.resolve(&path, false) {
            Ok(_) => number += 1,
            Err(Error::NotFound) => return Ok(path),
            Err(error) => return Err(error),
        }
    }
}
