//! What the formatters of all kinds take on the command line: the image, its size, and how much to say of
//! what was made.

use super::failed;
use super::target::topology;
use crate::failure::Outcome;
use crate::image::{Hold, file_device};
use crate::name::shown;
use crate::output::Output;
use crate::partition_args;
use hectare_device::Topology;
use hectare_mkfs::Error;
use hectare_units::Bytes;
use serde::Serialize;
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The arguments that all formatters have. Those for overwriting and for a dry run are not among them: mke2fs
/// and mkfs.xfs have other letters for them.
#[derive(clap::Args)]
pub(super) struct ImageArguments {
    /// Say nothing but errors
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Print JSON: what was made
    #[arg(long)]
    json: bool,
    /// The image file or block device
    pub(super) image: PathBuf,
    /// The size; that of the file or device if not given
    pub(super) size: Option<String>,
}

impl ImageArguments {
    /// The image's name, fit to be printed.
    pub(super) fn shown(&self) -> String {
        shown(self.image.as_os_str().as_bytes())
    }

    /// For a dry run: the size that a volume will have for which `asked` is given, which is that, or what is
    /// there; and what it will have to do with.
    pub(super) fn look(&self, asked: Option<Bytes>) -> Outcome<(Bytes, Topology)> {
        match asked {
            Some(size) if !self.image.exists() => Ok((size, Topology::default())),
            _ => {
                let file = file_device(&self.image, Hold::Writers)?;
                let topology = topology(&file);
                Ok((asked.map_or_else(|| Ok(partition_args::cut(file)?.len()), Ok)?, topology))
            }
        }
    }

    /// The failure that `error` is, said of this image.
    pub(super) fn failed(&self, error: &Error) -> crate::failure::Failure {
        failed(&self.shown(), error)
    }

    /// Says what was made, in the way that is asked for: as `json` with its notes, or as `lines` and then the
    /// notes.
    pub(super) fn say<L: Display>(
        &self,
        json: impl Serialize,
        notes: &[impl Display],
        lines: impl IntoIterator<Item = L>,
    ) -> Outcome {
        let notes: Vec<String> = notes.iter().map(ToString::to_string).collect();
        if self.json {
            return Output::new().json(&WithNotes { made: json, notes });
        }
        let mut out = Output::new();
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
