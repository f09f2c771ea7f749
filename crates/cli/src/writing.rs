//! What every command that writes into an image takes.

use crate::failure::Outcome;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use hectare_engine::{JournalDevice, OnError, OpenOptions, Policy};
use std::path::PathBuf;

/// How an image is written.
#[derive(clap::Args)]
pub(crate) struct Writing {
    /// How space is chosen for what is written
    #[arg(long, value_name = "POLICY", default_value_t, value_parser = policy_parser())]
    policy: Policy,
    /// The device or file with the journal of an image that keeps it elsewhere (journal_dev)
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// What to do when metadata turns out to be broken: continue, or take no more changes (remount-ro; panic
    /// is the same here) [default: what the image says]
    #[arg(long, value_name = "BEHAVIOR", value_parser = errors_parser())]
    errors: Option<OnError>,
}

impl Writing {
    /// The options a volume is opened with.
    pub(crate) fn options(&self) -> Outcome<OpenOptions> {
        let journal = self.journal.as_deref().map(|path| crate::image::device(path, true)).transpose()?;
        let journal = journal.map(JournalDevice);
        Ok(OpenOptions { policy: self.policy, journal, errors: self.errors, ..OpenOptions::default() })
    }
}

/// Reads a behaviour on errors by its name.
fn errors_parser() -> impl TypedValueParser<Value = OnError> {
    PossibleValuesParser::new(OnError::ALL.map(OnError::name)).map(|name| name.parse().unwrap_or_default())
}

/// Reads a policy by its name.
pub(crate) fn policy_parser() -> impl TypedValueParser<Value = Policy> {
    PossibleValuesParser::new(Policy::ALL.map(Policy::name)).map(|name| name.parse().unwrap_or_default())
}
