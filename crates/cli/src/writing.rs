//! What every command that writes into an image takes.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use hectare_engine::{OpenOptions, Policy};

/// How an image is written.
#[derive(clap::Args)]
pub(crate) struct Writing {
    /// How space is chosen for what is written
    #[arg(long, value_name = "POLICY", default_value_t, value_parser = policy_parser())]
    policy: Policy,
}

impl Writing {
    /// The options a volume is opened with.
    pub(crate) fn options(&self) -> OpenOptions {
        OpenOptions { policy: self.policy, ..OpenOptions::default() }
    }
}

/// Reads a policy by its name.
pub(crate) fn policy_parser() -> impl TypedValueParser<Value = Policy> {
    PossibleValuesParser::new(Policy::ALL.map(Policy::name)).map(|name| name.parse().unwrap_or_default())
}
