//! Options that the workloads share: where they run, how often, and what is printed.

use crate::spinner::Spinner;
use hectare_cli::shared::{
    Detail, Explain, Failure, Outcome, Output, Policies, Tuning, data_mode_parser, lines, short_time, shown,
    tell, write_file,
};
use hectare_device::Overwrite;
use hectare_engine::{DataMode, Timestamp};
use hectare_lab::{After, Bench, On, Policy, Report, Run, Settings, Through, Workload, bench, bench_afresh};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where a workload runs, and what is reported of it.
#[derive(clap::Args)]
pub(super) struct Common {
    /// Target: an image by Hectare's engine, or a directory; repeat for more targets. direct:IMAGE is the
    /// engine bypassing the host's page cache, dax:IMAGE the engine on an image that lies in memory, raw:FILE
    /// a bare file (random-overwrite only), which is created and must not exist
    #[arg(long, value_name = "engine:IMAGE|DIR|...", required = true, value_parser = parse_on)]
    on: Vec<BenchTarget>,
    /// Allocation policy; one run for each of a list, each on a fresh copy of the image (see --fresh).
    /// Mechanisms are added and left out after a name: mballoc,-best-avail,hybrid are two policies ('hectare-lab
    /// mechanisms' lists them)
    #[arg(long, value_name = "POLICY,...")]
    policy: Option<Policies>,
    #[command(flatten)]
    tuning: Tuning,
    /// Disable delayed allocation: the engine allocates on every write
    #[arg(long)]
    nodelalloc: bool,
    /// Data mode of the engine's journal, instead of the image's default
    #[arg(long, value_name = "MODE", value_parser = data_mode_parser())]
    data: Option<DataMode>,
    /// A name for the runs in reports
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// Give every run a fresh copy of the image, beside it, which is removed after the run: a reflink where
    /// the file system can (XFS, Btrfs), else a copy without its holes. The default with several policies
    /// unless --in-place or --keep is given: otherwise the second would find what the first has left
    #[arg(long, conflicts_with_all = ["keep", "in_place"])]
    fresh: bool,
    /// Run on the image itself, one policy after another
    #[arg(long)]
    in_place: bool,
    /// Keep the files of the last run in the directory bench-WORKLOAD (the default of the fragmentation
    /// workloads and many-appenders, with one policy)
    #[arg(long, conflicts_with = "remove")]
    keep: bool,
    /// Remove the files afterwards (the default of the other workloads)
    #[arg(long)]
    remove: bool,
    /// Remove the directory of an earlier call instead of refusing to start
    #[arg(long)]
    replace: bool,
    /// Print the allocator's counters, too, in the layout of the kernel's mb_stats (JSON always has them)
    #[arg(long)]
    stats: bool,
    #[command(flatten)]
    explain: Explain,
    /// Print JSON, which `bench report` reads
    #[arg(long)]
    json: bool,
    /// Write a page with charts; the name ends in .html
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// The thread counts.
#[derive(clap::Args)]
pub(super) struct Threads {
    /// Number of threads; one run for each of a list
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1",
        value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(super) threads: Vec<u32>,
}

#[derive(Clone, Debug)]
enum BenchTarget {
    Image(PathBuf, Through),
    Folder(PathBuf),
    Raw(PathBuf),
}

fn parse_on(text: &str) -> Result<BenchTarget, String> {
    if text.is_empty() {
        return Err("give engine:IMAGE or a directory".to_owned());
    }
    if let Some(file) = text.strip_prefix("raw:") {
        let missing = || "raw: is followed by a file".to_owned();
        return Some(file)
            .filter(|file| !file.is_empty())
            .map(|file| BenchTarget::Raw(file.into()))
            .ok_or_else(missing);
    }
    for through in Through::ALL {
        let prefix = through.prefix();
        match text.strip_prefix(prefix).and_then(|rest| rest.strip_prefix(':')) {
            Some("") => return Err(format!("{prefix}: is followed by an image")),
            Some(image) => return Ok(BenchTarget::Image(image.into(), through)),
            None => {}
        }
    }
    Ok(BenchTarget::Folder(text.into()))
}

impl Common {
    /// Runs the workload on every target and prints the results.
    pub(super) fn run(&self, workload: &Workload, threads: &[u32]) -> Outcome {
        check_html(self.html.as_deref())?;
        let mut runs = Vec::new();
        for on in self.places()? {
            let bench = Bench {
                workload: workload.clone(),
                on,
                threads: threads.to_vec(),
                after: self.after(workload),
                replace: self.replace || self.policies().len() > 1,
                label: self.label.clone(),
            };
            runs.extend(one(&bench, self.is_afresh(&bench.on))?);
        }
        self.tell(runs)
    }

    /// Refuses with this reason unless all targets are directories.
    pub(super) fn check_folders(&self, why: &str) -> Outcome {
        match self.on.iter().all(|place| matches!(place, BenchTarget::Folder(_))) {
            true => Ok(()),
            false => Err(Failure::Usage(why.to_owned())),
        }
    }

    /// Whether a run gets a copy of its own: on request, or because there are several policies, and there is
    /// a file to copy. A copy of a sparsely used image costs little; --in-place avoids it.
    fn is_afresh(&self, on: &On) -> bool {
        let On::Engine { image, .. } = on else { return false };
        let several = self.policies().len() > 1 && !self.in_place && !self.keep;
        self.fresh || (several && image.is_file())
    }

    fn after(&self, workload: &Workload) -> After {
        if self.keep || (workload.leaves_files() && !self.remove) { After::Keep } else { After::Remove }
    }

    fn policies(&self) -> &[Policy] {
        self.policy.as_ref().map_or(&[Policy::HYBRID], |policies| &policies.0)
    }

    fn places(&self) -> Outcome<Vec<On>> {
        let tunables = self.tuning.tunables()?;
        let settings = |policy: &Policy| Settings {
            policy: *policy,
            tunables,
            data_mode: self.data,
            delayed_allocation: !self.nodelalloc,
            explain: self.explain.last.is_some(),
            ..Settings::default()
        };
        let mut places = Vec::new();
        for place in &self.on {
            match place {
                BenchTarget::Image(image, through) => {
                    let (image, through) = (image.clone(), *through);
                    let on =
                        |policy| On::Engine { image: image.clone(), through, settings: settings(policy) };
                    places.extend(self.policies().iter().map(on));
                }
                BenchTarget::Folder(folder) => places.push(On::Directory(folder.clone())),
                BenchTarget::Raw(file) => places.push(On::Raw(file.clone())),
            }
        }
        let by_engine = self.on.iter().any(|place| matches!(place, BenchTarget::Image(..)));
        for (given, what) in [
            (self.policy.is_some(), "--policy says how the engine chooses space"),
            (self.tuning.is_given(), "--tunable and --classes say how the engine searches for space"),
            (self.nodelalloc, "--nodelalloc says when the engine chooses space"),
            (self.fresh, "--fresh copies an image"),
            (self.explain.last.is_some(), "--explain says how the engine searches for space"),
            (self.data.is_some(), "--data says how the engine journals file data"),
        ] {
            if given && !by_engine {
                return Err(Failure::Usage(format!("{what}: give --on engine:IMAGE")));
            }
        }
        Ok(places)
    }

    fn tell(&self, runs: Vec<Run>) -> Outcome {
        let report = Report { made: Some(short_time(Timestamp::now())), ..Report::here(runs) };
        write_html(self.html.as_deref(), &report)?;
        if self.json {
            return Output::report().json(&report);
        }
        let mut out = Output::report();
        write!(out, "{}", report.table())?;
        if self.stats {
            for run in &report.runs {
                stats(&mut out, run)?;
            }
        }
        if let Some(last) = self.explain.last {
            for run in &report.runs {
                explain(&mut out, run, last)?;
            }
        }
        out.finish()?;
        for run in &report.runs {
            for remark in &run.remarks {
                tell(format_args!("{}: {remark}", run.target));
            }
            if let Some(folder) = &run.folder {
                tell(format_args!("{}: files left in /{folder}", run.target));
            }
        }
        Ok(())
    }
}

/// One target, with a progress line on a terminal.
fn one(bench_of: &Bench, afresh: bool) -> Outcome<Vec<Run>> {
    let spinner = Spinner::new();
    let place = match &bench_of.on {
        On::Engine { image, settings, .. } => {
            format!("{} by {}", shown(image.as_os_str().as_bytes()), settings.policy)
        }
        On::Directory(place) | On::Raw(place) => shown(place.as_os_str().as_bytes()),
    };
    let say = |line: &str| spinner.say(format!("{line} on {place}"));
    let runs = if afresh { bench_afresh(bench_of, say) } else { bench(bench_of, say) };
    drop(spinner);
    runs.map_err(|error| Failure::Line(error.to_string()))
}

/// Names the run whose lines follow.
fn heading(out: &mut Output, run: &Run) -> Outcome {
    let threads = if run.threads == 1 { "thread" } else { "threads" };
    writeln!(out, "\n{}, {} {threads}:", run.title(), run.threads)
}

fn explain(out: &mut Output, run: &Run, last: usize) -> Outcome {
    let Some(explanation) = &run.explanation else { return Ok(()) };
    heading(out, run)?;
    write!(out, "{}", lines(explanation, last, Detail::Short))
}

fn stats(out: &mut Output, run: &Run) -> Outcome {
    heading(out, run)?;
    match &run.allocator {
        Some(stats) => write!(out, "{}", stats.shown()),
        None => writeln!(out, "\tnobody counted"),
    }
}

/// Refuses before anything is run: a name that ends otherwise may be an image's.
pub(crate) fn check_html(path: Option<&Path>) -> Outcome {
    let ends = |path: &Path| path.extension().is_some_and(|end| end == "html" || end == "htm");
    match path {
        Some(path) if !ends(path) => Err(Failure::Usage("the page's name ends in .html".to_owned())),
        _ => Ok(()),
    }
}

/// Writes the page if one was asked for.
pub(super) fn write_html(path: Option<&Path>, report: &Report) -> Outcome {
    let Some(path) = path else { return Ok(()) };
    write_page(path, &report.page())
}

/// Writes a page.
pub(crate) fn write_page(path: &Path, page: &str) -> Outcome {
    write_file(path, page.as_bytes(), Overwrite::Replace)
}
