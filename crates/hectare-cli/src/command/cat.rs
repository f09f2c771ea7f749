//! `hectare cat`.

use crate::failure::Outcome;
use crate::image::{Image, read_each_verified};
use crate::image_path::ImagePath;
use crate::output::Output;
use crate::write_args::Looking;
use hectare_units::u64_of;

/// Bytes read at a time.
const STEP: usize = 1 << 20;

/// Print the content of files inside an image
#[derive(clap::Args)]
#[command(after_help = "Example:\n  hectare cat disk.img:/etc/fstab")]
pub(crate) struct Arguments {
    /// The files: IMAGE:PATH
    #[arg(required = true, value_name = "IMAGE:PATH", value_parser = ImagePath::parser())]
    places: Vec<ImagePath>,
    /// Verify what is read of files that fs-verity seals
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    looking: Looking,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let mut out = Output::listing();
    read_each_verified(&arguments.places, &arguments.looking, arguments.verify, |image, place| {
        print(image, &place.path, &mut out)
    })?;
    out.finish()
}

/// Prints the content of a file.
pub(super) fn print(image: &Image, path: &[u8], out: &mut Output) -> Outcome {
    let fail = |error| image.fail(path, &error);
    let file = image.volume().open_file(path).map_err(fail)?;
    let (mut buffer, mut at) = (vec![0; STEP], 0);
    loop {
        let n = file.read_at(at, &mut buffer).map_err(fail)?;
        if n == 0 {
            return Ok(());
        }
        out.bytes(&buffer[..n])?;
        at += u64_of(n);
    }
}
