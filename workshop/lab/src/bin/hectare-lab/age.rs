//! `hectare-lab age`.

use hectare_cli::shared::{
    Failure, Hold, JsonName, Outcome, Output, Part, device, reason, shown, with_suffix,
};
use hectare_lab::age::{self, Figures, FreefragOutput, Histogram, Options, Reached, Report, Shape};
use hectare_units::Bytes;
use serde::Serialize;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// More than e2freefrag prints.
const TABLE_BYTES: u64 = 1 << 20;

/// Fill a volume and fragment its free space to a given degree, from a seed
///
/// For comparisons on volumes that are not fresh. The lengths of free extents are exponentially distributed
/// around a mean, or follow a histogram: a given one, another volume's, or one printed by e2freefrag. Free
/// extents are spread over the whole volume; everything else is filled by files in /aged, without writing any
/// data, so that an image in a sparse file stays small. The same seed makes the same image of the same image.
/// The result is counted on the finished volume, as e2freefrag counts it; the exit code is 1 if fill or mean
/// differ by more than 2 % from the request, or a range's share of the free blocks by more than 1 %.
#[derive(clap::Args)]
#[command(
    override_usage = "hectare-lab age [OPTIONS] <--mean|--histogram|--like|--e2freefrag> <IMAGE>",
    after_help = "Examples:\n  hectare-lab age --fill 95 --mean 64K --seed 1 disk.img\n  \
    hectare-lab age --fill 50 --mean 4M --longest 7M --seed 7 --json disk.img\n  \
    hectare-lab age --fill 50 --histogram 2M-4M:85:3887K,4M-8M:10:7980K disk.img\n  \
    e2freefrag old.img > old.txt; hectare-lab age --e2freefrag old.txt disk.img",
    group = clap::ArgGroup::new("shape").required(true).args(["mean", "histogram", "like", "e2freefrag"])
)]
pub(crate) struct Arguments {
    /// Used blocks in percent of all; --like and --e2freefrag imply their own
    #[arg(long, value_name = "PCT", required_unless_present_any = ["like", "e2freefrag"])]
    fill: Option<f64>,
    /// Mean length of a free extent, in bytes or with a suffix K, M, G
    #[arg(long, value_name = "SIZE", value_parser = |text: &str| with_suffix(text, 1))]
    mean: Option<u64>,
    /// Maximum length of a free extent, likewise; random if not given
    #[arg(long, value_name = "SIZE", requires = "mean", value_parser = |text: &str| with_suffix(text, 1))]
    longest: Option<u64>,
    /// Percent of the free blocks in free extents of FROM to below TO bytes, for each range, and their mean
    /// length there (evenly spread if not given). Shares that add up to less than 100 are scaled in
    /// proportion
    #[arg(long, value_name = "FROM-TO:PCT[:MEAN],...")]
    histogram: Option<Histogram>,
    /// Reproduce the free extents of this image
    #[arg(long, value_name = "IMAGE")]
    like: Option<PathBuf>,
    /// Reproduce the free extents of the volume whose e2freefrag (or hectare freefrag) output is in this file
    #[arg(long, value_name = "FILE")]
    e2freefrag: Option<PathBuf>,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print JSON: the request and the result
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    part: Part,
    /// The image or block device
    image: PathBuf,
}

#[derive(Serialize)]
struct Json<'a> {
    image: JsonName,
    #[serde(flatten)]
    report: &'a Report,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let name = shown(arguments.image.as_os_str().as_bytes());
    let options = arguments.options()?;
    let device = device(&arguments.image, arguments.part, Hold::Everybody)?;
    let report = age::age(&device, &options).map_err(|error| Failure::of(&name, error))?;
    say(arguments, &report)?;
    if report.is_reached() {
        return Ok(());
    }
    let Figures { fill, mean, .. } = report.reached;
    let off = report.ranges.iter().filter(|range| !range.is_near());
    let off: String = off.map(|range| format!(", {:.2} % {}", range.reached, lengths(range))).collect();
    Err(Failure::of(
        &name,
        format_args!("not reached: fill {fill:.2} %, mean free extent {mean:.0} bytes{off}"),
    ))
}

impl Arguments {
    fn options(&self) -> Outcome<Options> {
        let (shape, said) = match (self.mean, &self.histogram, self.told()?) {
            (Some(mean), ..) => {
                let (mean, longest) = (Bytes::new(mean), self.longest.map(Bytes::new));
                (Shape::Exponential { mean, longest }, None)
            }
            (None, Some(histogram), _) => (Shape::Histogram(histogram.clone()), None),
            (None, None, Some(told)) => (Shape::Histogram(told.histogram), told.fill),
            (None, None, None) => return Err(Failure::Usage("give --mean or a histogram".to_owned())),
        };
        let missing = || Failure::Usage("how full the volume was is not said there: give --fill".to_owned());
        Ok(Options { fill: self.fill.or(said).ok_or_else(missing)?, shape, seed: self.seed })
    }

    /// What is reported about another volume.
    fn told(&self) -> Outcome<Option<FreefragOutput>> {
        let name = |path: &PathBuf| shown(path.as_os_str().as_bytes());
        if let Some(path) = &self.like {
            let other = device(path, self.part, Hold::Writers)?;
            return age::like(&other).map(Some).map_err(|error| Failure::of(name(path), error));
        }
        let Some(path) = &self.e2freefrag else { return Ok(None) };
        let read = |mut bytes: Vec<u8>| {
            std::fs::File::open(path)?.take(TABLE_BYTES).read_to_end(&mut bytes).map(|_| bytes)
        };
        let bytes = read(Vec::new()).map_err(|error| Failure::of(name(path), reason(&error)))?;
        let told = String::from_utf8_lossy(&bytes).parse().map_err(|error| Failure::of(name(path), error))?;
        Ok(Some(told))
    }
}

/// `2M-4M`.
fn lengths(range: &Reached) -> String {
    format!("{}-{}", age::short(range.from), age::short(range.to))
}

fn say(arguments: &Arguments, report: &Report) -> Outcome {
    let mut out = Output::report();
    if arguments.json {
        let image = JsonName(arguments.image.as_os_str().as_bytes().to_vec());
        return out.json(&Json { image, report });
    }
    out.name(arguments.image.as_os_str().as_bytes())?;
    let Report { seed, files, runs, .. } = *report;
    writeln!(out, ": aged from seed {seed}: {files} files of {runs} extents in {}", age::DIRECTORY)?;
    writeln!(out, "{:<9}{:>9}{:>22}{:>16}", "", "full", "mean free extent", "free extents")?;
    let rows = [("before", report.before), ("wanted", report.wanted), ("reached", report.reached)];
    for (what, Figures { fill, mean, extents }) in rows {
        let mean = mean / 1024.0;
        writeln!(out, "{what:<9}{fill:>7.2} %{mean:>18.2} KiB{extents:>16}")?;
    }
    if !report.ranges.is_empty() {
        writeln!(out, "free extents of      wanted    reached    free extents")?;
    }
    for range in &report.ranges {
        let (lengths, wanted, reached, extents) =
            (lengths(range), range.wanted, range.reached, range.extents);
        writeln!(out, "{lengths:<16}{wanted:>9.2} %{reached:>9.2} %{extents:>16}")?;
    }
    out.finish()
}
