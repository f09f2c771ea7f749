//! `hectare-lab bench report`.

use super::common::{check_html, write_html};
use hectare_cli::shared::{Failure, Outcome, Output, reason, shown};
use hectare_lab::Report;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Compare runs: a table, or a page with charts
#[derive(clap::Args)]
#[command(after_help = "Example:\n  hectare-lab bench report engine.json kernel.json --html both.html")]
pub(super) struct Arguments {
    /// Write a page with charts; the name ends in .html
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON: all runs in one
    #[arg(long)]
    json: bool,
    /// What `bench WORKLOAD --json` printed
    #[arg(required = true, value_name = "RUN.json")]
    runs: Vec<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    check_html(arguments.html.as_deref())?;
    let reports = arguments.runs.iter().map(|path| read(path)).collect::<Outcome<Vec<_>>>()?;
    let report = Report::merged(reports);
    write_html(arguments.html.as_deref(), &report)?;
    let mut out = Output::listing();
    if arguments.json {
        return out.json(&report);
    }
    write!(out, "{}", report.table())?;
    out.finish()
}

/// Reads what a run has printed.
pub(super) fn read(path: &Path) -> Outcome<Report> {
    let name = || shown(path.as_os_str().as_bytes());
    let text = std::fs::read(path).map_err(|error| Failure::of(name(), reason(&error)))?;
    serde_json::from_slice(&text)
        .map_err(|error| Failure::of(name(), format_args!("not what bench --json prints: {error}")))
}
