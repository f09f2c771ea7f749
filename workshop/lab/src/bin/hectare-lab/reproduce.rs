//! `hectare-lab reproduce`: repeats published experiments.

use crate::bench::{check_html, write_page};
use crate::spinner::Spinner;
use clap::builder::PossibleValuesParser;
use hectare_cli::shared::{Failure, Outcome, Output};
use hectare_lab::reproduce::{self, EXPERIMENTS, Experiment, Options};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Repeat the published experiments behind Hectare's mechanisms
///
/// Prints the published table with our measurements before and after beside it: before is Hectare without the
/// mechanism, after is Hectare with it. Every contender of every round works on a fresh copy of one volume,
/// the order alternates, and the median, the difference and the standard deviation are printed. As root, the
/// kernel's ext4, XFS and btrfs run beside where that makes sense. Without a name, lists the experiments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare-lab reproduce\n  hectare-lab reproduce overwrite --quick\n  \
    hectare-lab reproduce best-available --rounds 5 --html out.html\n  \
    hectare-lab reproduce busy-groups --cpus 1,2,4,8,16,32,64\n  \
    hectare-lab reproduce size-classes --part append-vs-fallocate\n  \
    hectare-lab reproduce all --json > all.json")]
pub(crate) struct Arguments {
    /// The experiment, or all
    #[arg(value_parser = PossibleValuesParser::new(
        EXPERIMENTS.iter().map(|experiment| experiment.name).chain(["all"])
    ))]
    name: Option<String>,
    /// Number of rounds
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Small volumes, few files, two rounds: a smoke test whose numbers mean little
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
    /// Only the tables whose title contains this ("4 KiB", "four-sizes")
    #[arg(long, value_name = "TEXT", requires = "name")]
    part: Option<String>,
    /// Leave the kernel's file systems out
    #[arg(long)]
    no_kernel: bool,
    /// The numbers of virtual processors for busy-groups
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128,256",
        value_parser = clap::value_parser!(u32).range(1..=256))]
    cpus: Vec<u32>,
    /// The directory for the volumes, which are sparse files of up to 500 GiB and take up to 8 GiB; by
    /// default /dev/shm, which is in memory, or else the directory for temporary files
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// Print JSON, with the measurements of every round
    #[arg(long)]
    json: bool,
    /// Write a page with charts; the name ends in .html
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Rounds of a quick run.
const QUICK_ROUNDS: u32 = 2;

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    check_html(arguments.html.as_deref())?;
    let chosen: Vec<&Experiment> = match arguments.name.as_deref() {
        None => return list(arguments),
        Some("all") => EXPERIMENTS.iter().collect(),
        Some(name) => Experiment::named(name).into_iter().collect(),
    };
    let options = Options {
        rounds: if arguments.quick { QUICK_ROUNDS } else { arguments.rounds },
        quick: arguments.quick,
        kernel: !arguments.no_kernel,
        part: arguments.part.clone(),
        cpus: arguments.cpus.clone(),
        work: arguments.work.clone().unwrap_or_else(in_memory),
        stop: stop_on_signals()?,
    };
    let mut reproductions = Vec::new();
    for experiment in chosen {
        let spinner = Spinner::new();
        let reproduction =
            experiment.run(&options, |line| spinner.say(format!("{}: {line}", experiment.name)));
        drop(spinner);
        let reproduction = reproduction.map_err(|error| Failure::Line(error.to_string()))?;
        if !arguments.json {
            let mut out = Output::report();
            let between = if reproductions.is_empty() { "" } else { "\n" };
            write!(out, "{between}{}", reproduction.text())?;
            out.finish()?;
        }
        reproductions.push(reproduction);
    }
    if let Some(path) = arguments.html.as_deref() {
        write_page(path, &reproduce::page(&reproductions))?;
    }
    if arguments.json { Output::report().json(&reproductions) } else { Ok(()) }
}

fn list(arguments: &Arguments) -> Outcome {
    if arguments.html.is_some() {
        return Err(Failure::Usage("a page is made of an experiment: name one, or all".to_owned()));
    }
    let mut out = Output::report();
    if arguments.json {
        let listed = EXPERIMENTS.iter().map(|experiment| {
            let Experiment { name, title, source, differs, .. } = experiment;
            serde_json::json!({ "name": name, "title": title, "source": source, "differs": differs })
        });
        return out.json(&listed.collect::<Vec<_>>());
    }
    write!(out, "{}", reproduce::listed())?;
    out.finish()
}

/// A flag that the first signal to end sets, so that volumes are unmounted and removed after the current run. The
/// second one ends the process at once.
fn stop_on_signals() -> Outcome<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let second = flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop));
        let first = second.and_then(|_| flag::register(signal, Arc::clone(&stop)));
        first.map_err(|error| Failure::of("signals can't be handled", error))?;
    }
    Ok(stop)
}

/// The default directory for volumes.
fn in_memory() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}
