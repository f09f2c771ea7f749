//! `hectare explain`: traces a request on an image, or shows the recorded requests of a mount.

use crate::explanation::text::{self, Detail};
use crate::explanation::{LAST, Units, how, lines, page, picture, summary};
use crate::failure::{Failure, Outcome};
use crate::image::Image;
use crate::name::shown;
use crate::output::{Output, refuse_input, write_file};
use crate::picture::svg;
use crate::size_arg::parse_size;
use crate::write_args::{Looking, Policies, Tuning};
use hectare_device::Overwrite;
use hectare_device::os::OsStrExt;
use hectare_engine::{Ask, AskGoal, Explanation, OpenOptions};
use hectare_units::{BlockNr, Clusters};
use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Explain allocation: what each pass of the search skips and why, what it scans, and what it allocates
///
/// On an image, makes one request in memory under each of the policies: nothing is written, and the
/// allocation is discarded. The search begins as after a mount: nothing is known of a group but its
/// descriptor. On a mount (the directory), shows the trace of the last requests; it must have been mounted
/// with --explain.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare explain disk.img --want 8M\n  \
    hectare explain disk.img --want 8M --asked 64K --goal /srv/db --policy mballoc,-best-avail,hybrid\n  \
    hectare explain disk.img --append --want 1M --goal /var/log/syslog\n  \
    hectare explain disk.img --want 8M --html why.html\n  \
    hectare mount --explain disk.img /mnt; hectare explain /mnt\n\n\
    docs/explain.md says what the lines mean.")]
pub(crate) struct Arguments {
    /// Requested length of one run
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    want: Option<u64>,
    /// Part of it that is needed at once: no pass trims below that [default: all of it]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    asked: Option<u64>,
    /// Shortest useful run [default: a block]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    least: Option<u64>,
    /// Goal: a block number, or a path inside, for the block that would continue its file [default: the first
    /// block]
    #[arg(long, value_name = "PATH|BLOCK")]
    goal: Option<OsString>,
    /// Request this much as an append to the file at the goal, including what the policy preallocates for
    /// files
    #[arg(long, requires = "goal")]
    append: bool,
    /// Allocation policy; an explanation for each of a list (mballoc,-best-avail,hybrid are two:
    /// 'hectare-lab mechanisms' lists what can be added and left out) [default: hybrid]
    #[arg(long, value_name = "POLICY,...")]
    policy: Option<Policies>,
    #[command(flatten)]
    tuning: Tuning,
    /// List all groups, not only the first ones; on a mount, every recorded request
    #[arg(short, long)]
    verbose: bool,
    /// Print JSON: all events, in order; lengths and places in clusters
    #[arg(long)]
    json: bool,
    /// Write a page with pictures to a file whose name ends in .html
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a picture of the groups (skipped, scanned, allocated from) to a file whose name ends in .svg
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// An image or block device; or the directory it is mounted on
    #[arg(value_name = "IMAGE|DIR")]
    place: PathBuf,
    #[command(flatten)]
    looking: Looking,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    for (path, end) in [(&arguments.html, "html"), (&arguments.svg, "svg")] {
        if path.as_ref().is_some_and(|path| path.extension().is_none_or(|found| found != end)) {
            return Err(Failure::Usage(format!("the name of --{end} FILE ends in .{end}")));
        }
        path.iter().try_for_each(|path| refuse_input(path, &[&arguments.place]))?;
    }
    let name = shown(arguments.place.file_name().unwrap_or(arguments.place.as_os_str()).as_bytes());
    if arguments.place.is_dir() {
        let explanation = of_mount(arguments)?;
        return tell(arguments, &name, &[explanation]);
    }
    tell(arguments, &name, &of_image(arguments)?)
}

fn of_mount(arguments: &Arguments) -> Outcome<Explanation> {
    let about_one = arguments.want.is_some() || arguments.goal.is_some() || arguments.policy.is_some();
    if about_one || arguments.tuning.is_given() || !arguments.looking.part.is_whole() {
        let reason = "a mount reports the requests it had; to ask about a request of your own, give an image";
        return Err(Failure::Usage(reason.to_owned()));
    }
    let fail = |error: &dyn std::fmt::Display| {
        Failure::of(shown(arguments.place.as_os_str().as_bytes()), shown(error.to_string().as_bytes()))
    };
    let recorded = crate::os::explanation_of_mount(&arguments.place).map_err(|error| fail(&error))?;
    recorded.ok_or_else(|| fail(&"it was not mounted with --explain, so nothing is recorded"))
}

fn of_image(arguments: &Arguments) -> Outcome<Vec<Explanation>> {
    let want = arguments.want.ok_or_else(|| Failure::Usage("--want says how much: --want 8M".to_owned()))?;
    let asked = arguments.asked.unwrap_or(want);
    if want == 0 || asked == 0 || arguments.least == Some(0) {
        return Err(Failure::Usage("--want, --asked and --least are at least a byte".to_owned()));
    }
    if asked > want || arguments.least.is_some_and(|least| least > asked) {
        return Err(Failure::Usage(
            "--asked is no more than --want, --least no more than --asked".to_owned(),
        ));
    }
    let tunables = arguments.tuning.tunables()?;
    let image = Image::read(&arguments.place, &arguments.looking)?;
    let cluster = image.volume().superblock().geometry().cluster_bytes();
    let clusters = |bytes: u64| Clusters::new(bytes.div_ceil(cluster));
    let (want, asked) = (clusters(want), clusters(asked));
    let least = arguments.least.map_or(Clusters::ONE, clusters);
    let ask = Ask { want, asked, least, goal: goal(arguments, &image)? };
    let default = [hectare_engine::Policy::default()];
    let policies = arguments.policy.as_ref().map_or(&default[..], |policies| &policies.0);
    let explain = |policy: &hectare_engine::Policy| {
        let options = OpenOptions { policy: *policy, tunables, ..OpenOptions::read_only() };
        image.volume().explain(&ask, &options).map_err(|error| Failure::of(image.name(), error))
    };
    policies.iter().map(explain).collect()
}

/// The goal of the request.
fn goal(arguments: &Arguments, image: &Image) -> Outcome<AskGoal> {
    let geometry = image.volume().superblock().geometry();
    let first = geometry.first_block(hectare_units::GroupNr::new(0));
    let Some(goal) = &arguments.goal else { return Ok(AskGoal::Block(first)) };
    if let Some(block) = goal.to_str().and_then(|text| text.parse().ok()) {
        if arguments.append {
            return Err(Failure::Usage("--append needs a file: --goal PATH".to_owned()));
        }
        let block = BlockNr::new(block);
        if geometry.group_of(block).is_none() {
            let (first, last) = (first.get(), geometry.blocks_count.get().saturating_sub(1));
            let reason = format!("block {block} is not on the volume, which has blocks {first} to {last}");
            return Err(Failure::of(image.name(), reason));
        }
        return Ok(AskGoal::Block(block));
    }
    let nr = image.resolve(goal.as_bytes(), true)?;
    Ok(if arguments.append { AskGoal::Append(nr) } else { AskGoal::Behind(nr) })
}

/// Prints explanations, and writes the other requested files.
fn tell(arguments: &Arguments, name: &str, explanations: &[Explanation]) -> Outcome {
    let last = if arguments.verbose { usize::MAX } else { LAST };
    write(arguments.svg.as_deref(), || svg::draw(&picture::scene(name, explanations)))?;
    write(arguments.html.as_deref(), || page::draw(name, explanations, last))?;
    if arguments.json {
        return Output::listing().json(&explanations);
    }
    let mut out = Output::listing();
    let detail = if arguments.verbose { Detail::Full } else { Detail::Short };
    for (at, explanation) in explanations.iter().enumerate() {
        write!(out, "{}{}", if at > 0 { "\n" } else { "" }, lines(explanation, last, detail))?;
        if arguments.append {
            let pieces = summary::pieces(Units::of(explanation), &explanation.trace.requests);
            writeln!(out, "\nin all {pieces}")?;
        }
    }
    if explanations.len() > 1 {
        write!(out, "\n{}", side_by_side(explanations))?;
    }
    out.finish()
}

fn write(path: Option<&Path>, draw: impl FnOnce() -> String) -> Outcome {
    path.map_or(Ok(()), |path| write_file(path, draw().as_bytes(), Overwrite::Replace))
}

/// A line for each policy.
fn side_by_side(explanations: &[Explanation]) -> String {
    let width = explanations.iter().map(|one| how(one).chars().count()).max().unwrap_or(0).max(6);
    let mut table = format!("{:<width$}  {:>6} {:>7} {:>6}  answer\n", "policy", "passed", "scanned", "runs");
    for explanation in explanations {
        let units = Units::of(explanation);
        let requests = &explanation.trace.requests;
        let sum = summary::Sum::of(requests, |_| true);
        let answer = match &requests[..] {
            [only] => text::answer(units, only),
            many => summary::pieces(units, many),
        };
        let policy = how(explanation);
        let _ = writeln!(
            table,
            "{policy:<width$}  {:>6} {:>7} {:>6}  {answer}",
            sum.passed, sum.scanned, sum.runs
        );
    }
    table
}
