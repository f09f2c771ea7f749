//! `hectare check`.

use crate::failure::{Failure, Outcome};
use crate::image::Image;
use crate::logical::device;
use crate::name::{JsonName, shown};
use crate::output::Output;
use crate::write_args::Looking;
use hectare_check::{Options, Problem, Report};
use hectare_device::{Device, OverlayDevice};
use hectare_ext4::feature::Incompat;
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_units::GroupNr;
use serde::Serialize;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Check a volume for errors, without changing it
///
/// Reads every structure of the volume and prints one line for each that violates the format: superblock and
/// group descriptors, inodes, block maps, attributes, directories and their indexes, links, bitmaps and
/// counts. File data is not read. The verdict is that of e2fsck -fn; a journal that must be replayed and
/// orphans left by a crash are problems, too. A journal given with --journal is replayed in memory first, and
/// the result is checked; with --superblock, the volume as it would be with that one. Nothing is repaired.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  hectare check disk.img\n\nExit codes: 0 sound, 1 problems, 2 wrong usage."
)]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The image or block device
    image: PathBuf,
    /// Number of threads (as many as the machine runs at once, if not given)
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    #[command(flatten)]
    looking: Looking,
}

#[derive(Serialize)]
struct Json {
    image: JsonName,
    clean: bool,
    problem_count: u64,
    /// The first thousand problems.
    problems: Vec<JsonProblem>,
    notes: Vec<JsonProblem>,
    unchecked: Vec<String>,
    groups: u32,
    inodes_used: u32,
    directories: u32,
    clusters_used: u64,
}

#[derive(Serialize)]
struct JsonProblem {
    what: &'static str,
    place: String,
    reason: String,
}

impl JsonProblem {
    fn of(problem: &Problem) -> Self {
        Self {
            what: problem.what.code(),
            place: problem.place.to_string(),
            reason: problem.reason.clone().into_owned(),
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let name = shown(arguments.image.as_os_str().as_bytes());
    let device = judged(arguments)?;
    let threads = arguments.threads.or_else(|| std::thread::available_parallelism().ok());
    let options = Options { threads: threads.unwrap_or(NonZeroUsize::MIN), ..Options::default() };
    let report = hectare_check::check(&*device, &options).map_err(|error| Failure::of(&name, error))?;
    if arguments.json {
        Output::new().json(&json(&report, &arguments.image))?;
    } else {
        print(&report, &name)?;
    }
    match report.problem_count {
        0 => Ok(()),
        1 => Err(Failure::of(&name, "1 problem")),
        count => Err(Failure::of(&name, format_args!("{count} problems"))),
    }
}

/// The device to check: the volume as it is, or with a given journal replayed over it in memory.
fn judged(arguments: &Arguments) -> Outcome<Arc<dyn Device>> {
    if let Some(option) = arguments.looking.tolerant.other_than_superblock() {
        return Err(Failure::Usage(format!(
            "{option}: a check reports what is wrong, and tolerates nothing"
        )));
    }
    let with_backup = arguments.looking.tolerant.names_superblock();
    if !arguments.looking.has_journal() && !with_backup {
        return device(&arguments.image, arguments.looking.part, arguments.looking.hold());
    }
    let image = Image::read(&arguments.image, &arguments.looking)?;
    let mut sb = image.volume().superblock().clone();
    let replayed = OverlayDevice::new(Arc::clone(image.volume().device()));
    if sb.features().incompat.contains(Incompat::RECOVER) {
        // The overlay has no more to recover.
        sb.set_needs_recovery(false);
    } else if !with_backup {
        return Ok(Arc::new(replayed));
    }
    replayed
        .write_at(SUPERBLOCK_OFFSET, &sb.render(GroupNr::new(0)))
        .map_err(|error| Failure::Line(error.to_string()))?;
    Ok(Arc::new(replayed))
}

fn json(report: &Report, image: &Path) -> Json {
    Json {
        image: JsonName(image.as_os_str().as_bytes().to_vec()),
        clean: report.is_clean(),
        problem_count: report.problem_count,
        problems: report.problems.iter().map(JsonProblem::of).collect(),
        notes: report.notes.iter().map(JsonProblem::of).collect(),
        unchecked: report.unchecked.clone(),
        groups: report.counts.groups,
        inodes_used: report.counts.inodes_used,
        directories: report.counts.directories,
        clusters_used: report.counts.clusters_used,
    }
}

fn print(report: &Report, name: &str) -> Outcome {
    let mut out = Output::new();
    for problem in &report.problems {
        writeln!(out, "{problem}")?;
    }
    let kept = hectare_units::u64_of(report.problems.len());
    if report.problem_count > kept {
        writeln!(out, "and {} more", report.problem_count - kept)?;
    }
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    for what in &report.unchecked {
        writeln!(out, "not checked: {what}")?;
    }
    if report.is_clean() {
        let counts = &report.counts;
        writeln!(
            out,
            "{name}: clean, {} inodes ({} directories) and {} clusters in use",
            counts.inodes_used, counts.directories, counts.clusters_used
        )?;
    }
    out.finish()
}
