//! `hectare map`.

use crate::failure::{Failure, LeftOut, Outcome};
use crate::image::Image;
use crate::map::layout::{Facts, layout};
use crate::map::survey::{Survey, survey};
use crate::name::shown;
use crate::output::{Output, write_file};
use crate::picture::{raster, svg};
use crate::write_args::Looking;
use hectare_device::Overwrite;
use hectare_device::os::OsStrExt;
use serde::Serialize;
use std::path::PathBuf;

/// Draw a picture of a volume: usage, fragmentation of free space, location of metadata
///
/// The output's name determines the type: .svg or .png. Without -o, SVG goes to standard output. On a small
/// volume a cell is a few blocks, on a larger one a group or several.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare map disk.img -o disk.svg\n  hectare map disk.img -o disk.png")]
pub(crate) struct Arguments {
    /// Where to write the picture: FILE.svg or FILE.png
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the cells as JSON instead of drawing them
    #[arg(long, conflicts_with = "output")]
    json: bool,
    /// The image or block device
    image: PathBuf,
    #[command(flatten)]
    looking: Looking,
}

#[derive(Serialize)]
struct JsonCell {
    blocks: u64,
    free: u64,
    longest_free_run: u64,
    metadata: u64,
    unreadable: bool,
}

enum Format {
    Svg,
    Png,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let format = match &arguments.output {
        None => Format::Svg,
        Some(path) => match path.extension().map(|extension| extension.to_ascii_lowercase()) {
            Some(extension) if extension == "svg" => Format::Svg,
            Some(extension) if extension == "png" => Format::Png,
            _ => return Err(Failure::Usage("the output's name ends in .svg or .png".to_owned())),
        },
    };
    let image = Image::read(&arguments.image, &arguments.looking)?;
    let left_out = LeftOut::default();
    let survey = survey(&image, &left_out);
    if arguments.json {
        Output::report().json(&json(&survey))?;
        return left_out.outcome();
    }
    let name = arguments.image.file_name().unwrap_or(arguments.image.as_os_str());
    let facts = Facts { name: shown(name.as_bytes()), superblock: image.volume().superblock() };
    let scene = layout(&facts, &survey);
    let drawn = match format {
        Format::Svg => svg::draw(&scene).into_bytes(),
        Format::Png => raster::draw(&scene).map_err(|error| Failure::of("the picture", error))?,
    };
    match &arguments.output {
        Some(path) => write_file(path, &drawn, Overwrite::Replace)?,
        None => {
            let mut out = Output::report();
            out.bytes(&drawn)?;
            out.finish()?;
        }
    }
    left_out.outcome()
}

fn json(survey: &Survey) -> Vec<JsonCell> {
    let cells = survey.cells.iter().filter(|cell| cell.blocks > 0);
    cells
        .map(|cell| JsonCell {
            blocks: cell.blocks,
            free: cell.free,
            longest_free_run: cell.longest,
            metadata: cell.metadata,
            unreadable: cell.unreadable,
        })
        .collect()
}
