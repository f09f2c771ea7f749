//! `hectare check`.

use crate::failure::{Failure, Outcome};
use crate::image::{Image, journal_of};
use crate::logical::device;
use crate::name::{JsonName, shown};
use crate::output::Output;
use crate::write_args::Looking;
use hectare_check::{Options, Problem, Report};
use hectare_device::os::OsStrExt;
use hectare_device::{Device, OverlayDevice};
use hectare_ext4::feature::{Compat, Incompat};
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::superblock::{SIZE, SuperBlock};
use hectare_journal::recovery::{self, LogMap, RecoveryError};
use hectare_units::GroupNr;
use serde::Serialize;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Check a volume for errors, without changing it
///
/// Reads every structure of the volume and prints one line for each that violates the format: superblock and
/// group descriptors, inodes, block maps, attributes, directories and their indexes, links, bitmaps and
/// counts. File data is not read. The verdict is that of e2fsck -fn; a journal that must be replayed and
/// orphans left by a crash are problems, too. A journal on another device, named with --journal or found by
/// its
/// UUID, is replayed in memory first, and the result is checked; with --superblock, the volume as it would be
/// with that one. Nothing is repaired.
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
    let judged = judged(arguments)?;
    let threads = arguments.threads.or_else(|| std::thread::available_parallelism().ok());
    let options = Options { threads: threads.unwrap_or(NonZeroUsize::MIN), ..Options::default() };
    let report = judged.check(&options).map_err(|error| Failure::of(&name, error))?;
    if arguments.json {
        Output::report().json(&json(&report, &arguments.image))?;
    } else {
        print(&report, &name)?;
    }
    match report.problem_count {
        0 => Ok(()),
        1 => Err(Failure::of(&name, "1 problem")),
        count => Err(Failure::of(&name, format_args!("{count} problems"))),
    }
}

/// What is checked.
struct Judged {
    device: Arc<dyn Device>,
    /// The volume's journal, if that lies on another device and was found.
    journal: Option<Arc<dyn Device>>,
}

impl Judged {
    fn check(&self, options: &Options) -> Result<Report, hectare_check::Error> {
        match &self.journal {
            Some(journal) => hectare_check::check_with_journal(&*self.device, &**journal, options),
            None => hectare_check::check(&*self.device, options),
        }
    }
}

/// The devices to check: the volume as it is, or with a journal on another device replayed over it in memory.
fn judged(arguments: &Arguments) -> Outcome<Judged> {
    let looking = &arguments.looking;
    if let Some(option) = looking.tolerant.other_than_superblock() {
        return Err(Failure::Usage(format!(
            "{option}: a check reports what is wrong, and tolerates nothing"
        )));
    }
    let device = device(&arguments.image, looking.part, looking.hold())?;
    let journal = journal_of(&*device, looking.journal(), looking.hold())?;
    if !looking.tolerant.names_superblock() && (journal.is_none() || !needs_recovery(&*device)) {
        return Ok(Judged { device, journal });
    }
    // A block device can't be opened twice.
    drop(device);
    replayed(arguments, journal)
}

/// Whether the superblock says that the journal is to be replayed.
fn needs_recovery(device: &dyn Device) -> bool {
    let mut bytes = [0; SIZE];
    let sb = device.read_at(SUPERBLOCK_OFFSET, &mut bytes).ok();
    let sb = sb.and_then(|()| SuperBlock::parse(&bytes, device.len()).ok());
    sb.is_some_and(|sb| sb.features().incompat.contains(Incompat::RECOVER))
}

/// The volume with what its journal holds in place, and the journal as it is then.
fn replayed(arguments: &Arguments, journal: Option<Arc<dyn Device>>) -> Outcome<Judged> {
    let image = Image::read_with_journal(&arguments.image, &arguments.looking, journal.clone())?;
    let mut sb = image.volume().superblock().clone();
    let device = OverlayDevice::new(Arc::clone(image.volume().device()));
    // The overlay has no more to recover.
    sb.set_needs_recovery(false);
    device
        .write_at(SUPERBLOCK_OFFSET, &sb.render(GroupNr::new(0)))
        .map_err(|error| Failure::Line(error.to_string()))?;
    let is_outside = sb.features().compat.contains(Compat::HAS_JOURNAL) && sb.journal_inode().is_none();
    let journal = journal.filter(|_| is_outside).map(|journal| emptied(journal, &sb)).transpose();
    let journal = journal.map_err(|error| Failure::of(image.name(), error))?;
    Ok(Judged { device: Arc::new(device), journal })
}

/// A journal on another device after it was replayed.
fn emptied(journal: Arc<dyn Device>, sb: &SuperBlock) -> Result<Arc<dyn Device>, RecoveryError> {
    let geometry = sb.geometry();
    let journal = OverlayDevice::new(journal);
    let map = LogMap::external(&journal, geometry.block_size, &sb.raw().s_journal_uuid)?;
    let recovery = recovery::read(&journal, &map, geometry.blocks_count)?;
    journal.write_at(recovery.superblock_offset(), &recovery.clean_superblock())?;
    Ok(Arc::new(journal))
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
    let mut out = Output::report();
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
