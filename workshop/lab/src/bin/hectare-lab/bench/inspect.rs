//! `hectare-lab bench inspect`.

use super::common::{check_html, write_html};
use super::report::read;
use hectare_cli::shared::{Failure, Outcome, Output};
use hectare_lab::inspect::inspect;
use std::path::PathBuf;

/// Inspect an image after a workload in a mounted directory: extents per file, fragmentation
///
/// A run in a directory can't see the placement of its files. Unmount the image, then use this command to add
/// what it finds in the image to the runs, and print them as JSON.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  hectare-lab bench append-vs-fallocate --on /mnt/ext4 --json > run.json\n  \
    umount /mnt/ext4\n  hectare-lab bench inspect disk.img run.json > kernel.json"
)]
pub(super) struct Arguments {
    /// Write a page with charts, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The image, not mounted
    image: PathBuf,
    /// What `bench WORKLOAD --json` printed; the findings are added to the runs that left their files
    run: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    check_html(arguments.html.as_deref())?;
    let mut report = read(&arguments.run)?;
    let mut seen = false;
    for run in &mut report.runs {
        let Some(folder) = &run.folder else { continue };
        let inspection = inspect(&arguments.image, folder);
        run.inspection = Some(inspection.map_err(|error| Failure::Line(error.to_string()))?);
        seen = true;
    }
    if !seen {
        return Err(Failure::of(arguments.run.display(), "no run in it left its files (--keep)"));
    }
    write_html(arguments.html.as_deref(), &report)?;
    Output::report().json(&report)
}
