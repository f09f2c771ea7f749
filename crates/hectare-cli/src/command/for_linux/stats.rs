//! `hectare stats`.
//!
//! The report comes from the server, which may be another user's program: every text in it is escaped as a
//! name is ([`text`]), and no number may be too large.

use crate::failure::{Failure, Outcome};
use crate::name::shown;
use crate::output::Output;
use hectare_fuse::Counted;
use hectare_monitor::{AskError, Report, ask, tune};
use indicatif::{BinaryBytes, HumanCount};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

/// Show statistics of a mount
///
/// Asks the server: number, latency and errors of requests of each kind, the counters of the allocator and
/// the journal, and memory use. All counters start with the mount. Only root and the user who mounted the
/// image may use this.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare stats /mnt\n  hectare stats --json /mnt\n  \
    hectare stats /mnt --set mb_max_to_scan=50")]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// First set a tunable of the allocator, under its name in /sys/fs/ext4, for every request from now on;
    /// may be repeated. The list at the end has all of them
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// The directory an image is mounted on, or anything below it
    dir: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let failed =
        |error: AskError| Failure::of(shown(arguments.dir.as_os_str().as_bytes()), text(&error.to_string()));
    if !arguments.set.is_empty() {
        tune(&arguments.dir, &arguments.set).map_err(failed)?;
    }
    let report = ask(&arguments.dir).map_err(failed)?;
    let mut out = Output::listing();
    if arguments.json {
        return out.json(&report);
    }
    head(&mut out, &report)?;
    operations(&mut out, &report)?;
    device(&mut out, &report)?;
    journal(&mut out, &report)?;
    memory(&mut out, &report)?;
    write!(out, "\n{}", report.allocator.text(report.groups))?;
    search(&mut out, &report)?;
    out.finish()
}

fn head(out: &mut Output, report: &Report) -> Outcome {
    let up = Duration::from_secs_f64(report.uptime_seconds.clamp(0.0, 1e15));
    writeln!(out, "{} on {}", text(&report.image), text(&report.dir))?;
    writeln!(out, "state:    {}, up {}", report.state(), indicatif::HumanDuration(up))?;
    if let Some(reason) = &report.stopped {
        writeln!(out, "reason:   {}", text(reason))?;
    }
    if report.broken_places > 0 {
        writeln!(out, "broken:   {} places", report.broken_places)?;
    }
    writeln!(out, "volume:   {} {}", text(&report.uuid), text(&report.label))?;
    if let Some(space) = &report.space {
        let used = space.size.saturating_sub(space.free);
        writeln!(
            out,
            "space:    {} of {} in use, {} available; {} of {} inodes in use",
            BinaryBytes(used),
            BinaryBytes(space.size),
            BinaryBytes(space.available),
            HumanCount(space.inodes.saturating_sub(space.free_inodes)),
            HumanCount(space.inodes)
        )?;
    }
    writeln!(out, "policy:   {}", text(&report.policy))?;
    writeln!(out, "process:  {}", report.pid)?;
    writeln!(out, "metrics:  {}", text(report.metrics.as_deref().unwrap_or("not served (--metrics)")))
}

fn operations(out: &mut Output, report: &Report) -> Outcome {
    let counted = &report.operations;
    writeln!(
        out,
        "\nrequests: {}; {} read, {} written",
        HumanCount(counted.times().count()),
        BinaryBytes(counted.bytes_read),
        BinaryBytes(counted.bytes_written)
    )?;
    let mut kinds: Vec<&Counted> = counted.kinds.iter().filter(|kind| kind.times.count() > 0).collect();
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.times.count()));
    writeln!(out, "  {:<16}{:>12}{:>11}{:>11}{:>11}  errors", "kind", "count", "mean", "median", "99 %")?;
    for kind in kinds {
        let times = &kind.times;
        let errors: Vec<_> =
            kind.errors.iter().map(|(errno, count)| format!("{} {count}", text(errno))).collect();
        let row = format!(
            "  {:<16}{:>12}{:>11}{:>11}{:>11}  {}",
            text(&kind.name),
            HumanCount(times.count()).to_string(),
            short(times.mean()),
            short(times.quantile(500)),
            short(times.quantile(990)),
            errors.join(", ")
        );
        writeln!(out, "{}", row.trim_end())?;
    }
    Ok(())
}

fn device(out: &mut Output, report: &Report) -> Outcome {
    writeln!(out, "\nimage:")?;
    for moved in report.device.iter().filter(|moved| moved.done > 0 || moved.failed > 0) {
        let failed = if moved.failed > 0 { format!("  {} failed", moved.failed) } else { String::new() };
        let (done, bytes) = (HumanCount(moved.done).to_string(), BinaryBytes(moved.bytes).to_string());
        writeln!(out, "  {:<16}{done:>12}{bytes:>14}{failed}", text(&moved.name))?;
    }
    if let Some(server) = &report.server {
        let (requests, reconnects) = (HumanCount(server.requests), HumanCount(server.reconnects));
        writeln!(out, "server:   {requests} requests, {reconnects} connections made again")?;
    }
    Ok(())
}

fn journal(out: &mut Output, report: &Report) -> Outcome {
    let journal = &report.journal;
    let longest = Duration::from_nanos(journal.longest_pause_nanoseconds);
    let within = |per_mille| short(journal.pauses.quantile(per_mille).min(longest));
    writeln!(
        out,
        "\njournal:  {} commits of {} changes; pauses {} in the median, 99 % within {}, {} at most",
        HumanCount(journal.commits),
        HumanCount(journal.handles),
        within(500),
        within(990),
        short(longest)
    )
}

fn memory(out: &mut Output, report: &Report) -> Outcome {
    let caches = &report.caches;
    writeln!(
        out,
        "memory:   {} blocks ({} to be written), {} inodes ({}), {} bitmaps, {} in the journal only",
        HumanCount(caches.blocks),
        HumanCount(caches.dirty_blocks),
        HumanCount(caches.inodes),
        HumanCount(caches.dirty_inodes),
        HumanCount(caches.loaded_groups),
        HumanCount(caches.journal_blocks)
    )?;
    writeln!(
        out,
        "          {} without a place yet, {} kept for what comes next, {} free with the next commit",
        BinaryBytes(caches.delayed_bytes),
        BinaryBytes(caches.reserved_bytes),
        BinaryBytes(caches.pending_bytes)
    )
}

fn search(out: &mut Output, report: &Report) -> Outcome {
    let search = &report.search;
    writeln!(out, "contention: {}", search.contention)?;
    if !search.classes.is_empty() {
        writeln!(out, "class_units:")?;
    }
    for class in &search.classes {
        writeln!(out, "\t{}: {}", text(&class.class), class.units)?;
    }
    writeln!(out, "tunables:")?;
    for (name, value) in &search.tunables {
        writeln!(out, "\t{}={value}", text(name))?;
    }
    Ok(())
}

/// A text of the report on one line, harmless to a terminal.
fn text(told: &str) -> String {
    shown(told.as_bytes())
}

/// A time with three digits or so; none for zero.
fn short(time: Duration) -> String {
    if time.is_zero() { "-".into() } else { format!("{time:.1?}") }
}
