//! `hectare age`.

use super::format_options::with_suffix;
use crate::failure::{Failure, Outcome};
use crate::image::{Hold, device};
use crate::name::{JsonName, shown};
use crate::output::Output;
use hectare_lab::age::{self, Figures, Options, Report};
use hectare_units::Bytes;
use serde::Serialize;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Fill a volume and cut up its free space, to a given degree and from a seed
///
/// For comparisons on volumes that are not fresh. Free extents get exponentially distributed lengths and
/// are spread over the whole volume; everything else is filled by files in /aged, without any data
/// being written, so that an image in a sparse file stays small. The same seed makes the same image of the
/// same image. Fill and mean are counted on the finished volume, as e2freefrag counts them; exit code 1
/// if they are not within 2 % of what was asked.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare age --fill 95 --mean 64K --seed 1 disk.img\n  \
    hectare age --fill 50 --mean 4M --longest 7M --seed 7 --json disk.img")]
pub(crate) struct Arguments {
    /// Used blocks in percent of all
    #[arg(long, value_name = "PCT")]
    fill: f64,
    /// The mean length of a free extent: a number of bytes, or with a suffix K, M, G
    #[arg(long, value_name = "SIZE", value_parser = |text: &str| with_suffix(text, 1))]
    mean: u64,
    /// The greatest length of a free extent, likewise; without it, chance decides
    #[arg(long, value_name = "SIZE", value_parser = |text: &str| with_suffix(text, 1))]
    longest: Option<u64>,
    /// Where chance starts
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print JSON: what was asked for and what was reached
    #[arg(long)]
    json: bool,
    /// The image or block device
    image: PathBuf,
}

#[derive(Serialize)]
struct Json {
    image: JsonName,
    #[serde(flatten)]
    report: Report,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let name = shown(arguments.image.as_os_str().as_bytes());
    let device = device(&arguments.image, Hold::Everybody)?;
    let options = Options {
        fill: arguments.fill,
        mean: Bytes::new(arguments.mean),
        longest: arguments.longest.map(Bytes::new),
        seed: arguments.seed,
    };
    let report = age::age(&device, &options).map_err(|error| Failure::of(&name, error))?;
    say(arguments, report)?;
    if report.is_reached() {
        return Ok(());
    }
    let Figures { fill, mean, .. } = report.reached;
    Err(Failure::of(&name, format_args!("not reached: fill {fill:.2} %, mean free extent {mean:.0} bytes")))
}

fn say(arguments: &Arguments, report: Report) -> Outcome {
    let mut out = Output::new();
    if arguments.json {
        let image = JsonName(arguments.image.as_os_str().as_bytes().to_vec());
        return out.json(&Json { image, report });
    }
    out.name(arguments.image.as_os_str().as_bytes())?;
    let Report { seed, files, runs, .. } = report;
    writeln!(out, ": aged from seed {seed}: {files} files of {runs} extents in {}", age::DIRECTORY)?;
    writeln!(out, "{:<9}{:>9}{:>22}{:>16}", "", "full", "mean free extent", "free extents")?;
    let rows = [("before", report.before), ("wanted", report.wanted), ("reached", report.reached)];
    for (what, Figures { fill, mean, extents }) in rows {
        let mean = mean / 1024.0;
        writeln!(out, "{what:<9}{fill:>7.2} %{mean:>18.2} KiB{extents:>16}")?;
    }
    out.finish()
}
