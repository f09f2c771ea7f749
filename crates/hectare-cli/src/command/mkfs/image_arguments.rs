//! Command-line arguments of all formatters: the image, its size, and how much to print.

use super::failed;
use super::target::of_part;
use crate::failure::Outcome;
use crate::image_device::{Hold, is_there, with_topology};
use crate::name::shown;
use crate::output::Output;
use crate::partition_args::Part;
use hectare_device::Topology;
use hectare_device::os::OsStrExt;
use hectare_mkfs::Error;
use hectare_units::Bytes;
use serde::Serialize;
use std::fmt::Display;
use std::path::PathBuf;

/// The arguments of all formatters. Those for overwriting and for a dry run are not among them: mke2fs and
/// mkfs.xfs have different letters for them.
#[derive(clap::Args)]
pub(super) struct ImageArguments {
    /// Print nothing but errors
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Print JSON: what was made
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) part: Part,
    /// The image file or block device
    pub(super) image: PathBuf,
    /// The size; that of the file or device if not given
    pub(super) size: Option<String>,
}

impl ImageArguments {
    /// The image's name, safe to print.
    pub(super) fn shown(&self) -> String {
        shown(self.image.as_os_str().as_bytes())
    }

    /// For a dry run: the size that the volume would have given `asked` (that, or the size of what exists),
    /// and the topology to format for.
    pub(super) fn look(&self, asked: Option<Bytes>) -> Outcome<(Bytes, Topology)> {
        match asked {
            Some(size) if !is_there(&self.image) => Ok((size, Topology::default())),
            _ => {
                let (whole, topology) = with_topology(&self.image, self.part, Hold::Writers)?;
                let topology = of_part(topology, self.part);
                Ok((asked.map_or_else(|| Ok(self.part.of(whole)?.len()), Ok)?, topology))
            }
        }
    }

    /// The failure for `error`, with this image's name.
    pub(super) fn failed(&self, error: &Error) -> crate::failure::Failure {
        failed(&self.shown(), error)
    }

    /// Prints what was made, in the requested form: as `json` with its notes, or as `lines` followed by the
    /// notes.
    pub(super) fn say<L: Display>(
        &self,
        json: impl Serialize,
        notes: &[impl Display],
        lines: impl IntoIterator<Item = L>,
    ) -> Outcome {
        let notes: Vec<String> = notes.iter().map(ToString::to_string).collect();
        if self.json {
            return Output::report().json(&WithNotes { made: json, notes });
        }
        let mut out = Output::report();
        if self.quiet {
            return out.finish();
        }
        for line in lines {
            writeln!(out, "{line}")?;
        }
        for note in notes {
            writeln!(out, "note: {note}")?;
        }
        out.finish()
    }
}

#[derive(Serialize)]
struct WithNotes<J> {
    #[serde(flatten)]
    made: J,
    notes: Vec<String>,
}
