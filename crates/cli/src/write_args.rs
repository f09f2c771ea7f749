//! Arguments of the commands that open an image: of all, and of those that write into it.

use crate::failure::{Failure, Outcome};
use crate::image_device::{Hold, file_device};
use crate::partition_args::Part;
use crate::reproducible;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use hectare_engine::{
    DataMode, JournalDevice, OnError, OpenOptions, Policy, Recording, SizeClasses, Tunables, UnknownPolicy,
};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// Where the journal of an image is.
#[derive(clap::Args, Clone, Default)]
pub(crate) struct Journal {
    /// The device or file with the image's external journal (journal_dev)
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
}

impl Journal {
    fn device(&self, hold: Hold) -> Outcome<Option<JournalDevice>> {
        let path = self.journal.as_deref();
        let device = path.map(|path| file_device(path, hold)).transpose()?;
        Ok(device.map(|device| JournalDevice(Arc::new(device))))
    }
}

/// How an image is read.
#[derive(clap::Args, Clone, Default)]
pub(crate) struct Looking {
    #[command(flatten)]
    pub(crate) part: Part,
    #[command(flatten)]
    journal: Journal,
    /// Read without a lock, even during writes by others (a mount, a virtual machine): the output may mix
    /// several states, or look corrupt
    #[arg(long)]
    no_lock: bool,
}

impl Looking {
    /// For reading an image that is named beside one that is written, unless `is_locked` with a lock of its
    /// own.
    pub(crate) fn of(part: Part, journal: Journal, is_locked: bool) -> Self {
        Self { part, journal, no_lock: is_locked }
    }

    /// Whether a journal was named.
    pub(crate) fn has_journal(&self) -> bool {
        self.journal.journal.is_some()
    }

    /// Which processes it locks out.
    pub(crate) fn hold(&self) -> Hold {
        if self.no_lock { Hold::Nobody } else { Hold::Writers }
    }

    /// The options for opening an image to read: its journal is replayed in memory.
    pub(crate) fn options(&self) -> Outcome<OpenOptions> {
        Ok(OpenOptions { journal: self.journal.device(self.hold())?, ..OpenOptions::read_only() })
    }
}

/// How an image is written.
#[derive(clap::Args)]
pub(crate) struct Writing {
    #[command(flatten)]
    pub(crate) part: Part,
    /// Allocation policy: mballoc, mballoc-linear, size-class, hybrid, best-fit or first-fit; mechanisms are
    /// added and left out after it (mballoc,-best-avail,+room: 'hectare bench mechanisms' lists them)
    #[arg(long, value_name = "POLICY", default_value_t)]
    policy: Policy,
    #[command(flatten)]
    tuning: Tuning,
    /// Data mode of the journal, instead of the image's default
    #[arg(long, value_name = "MODE", value_parser = data_mode_parser())]
    data: Option<DataMode>,
    /// Behaviour on metadata corruption: continue, or take no more changes (remount-ro; panic is the same
    /// here) [default: the image's]
    #[arg(long, value_name = "BEHAVIOR", value_parser = errors_parser())]
    errors: Option<OnError>,
    #[command(flatten)]
    pub(crate) journal: Journal,
    #[command(flatten)]
    pub(crate) explain: Explain,
}

/// Whether to report the search of allocation requests.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct Explain {
    /// Afterwards, print the search of the last 10,000 allocation requests, summed up, and the last N of them
    /// (5) one by one: docs/explain.md explains the lines
    #[arg(long = "explain", value_name = "N", num_args = 0..=1, require_equals = true,
        default_missing_value = "5")]
    pub(crate) last: Option<usize>,
}

impl Explain {
    /// The recording that this needs.
    pub(crate) fn recording(self) -> Option<Recording> {
        self.last.map(|_| Recording::LAST)
    }
}

impl Writing {
    /// How an image is read by a command that would write it, and only looks.
    pub(crate) fn looking(&self) -> Looking {
        Looking::of(self.part, self.journal.clone(), false)
    }

    /// The options a volume is opened with.
    pub(crate) fn options(&self) -> Outcome<OpenOptions> {
        let (policy, tunables) = (self.policy, self.tuning.tunables()?);
        let journal = self.journal.device(Hold::Everybody)?;
        let (data_mode, errors, record) = (self.data, self.errors, self.explain.recording());
        let given =
            OpenOptions { policy, tunables, data_mode, journal, errors, record, ..OpenOptions::default() };
        reproducible::fixed(given)
    }
}

/// Policies, as a list.
#[derive(Clone, Debug)]
pub(crate) struct Policies(pub(crate) Vec<Policy>);

impl FromStr for Policies {
    type Err = UnknownPolicy;

    /// A name that begins with a sign belongs to the policy before it.
    fn from_str(list: &str) -> Result<Self, UnknownPolicy> {
        let mut policies: Vec<String> = Vec::new();
        for word in list.split(',') {
            match policies.last_mut() {
                Some(policy) if word.starts_with(['+', '-']) => *policy += &format!(",{word}"),
                _ => policies.push(word.to_owned()),
            }
        }
        policies.iter().map(|policy| policy.parse()).collect::<Result<_, _>>().map(Self)
    }
}

/// The tunables of the allocator.
#[derive(clap::Args)]
pub(crate) struct Tuning {
    /// A tunable of the allocator, under its name in /sys/fs/ext4 (mb_max_to_scan=50), or stripe; may be
    /// repeated [default: the kernel's, and the stripe that the image was made for]
    #[arg(long = "tunable", value_name = "NAME=VALUE")]
    given: Vec<String>,
    /// Bounds of the size classes, for policies that set groups apart by sizes (+classes): up to 8 increasing
    /// sizes, multiples of the image's clusters [default: 128K,8M]
    #[arg(long, value_name = "SIZE,...")]
    classes: Option<SizeClasses>,
}

impl Tuning {
    /// Whether any is given.
    pub(crate) fn is_given(&self) -> bool {
        !self.given.is_empty() || self.classes.is_some()
    }

    /// The tunables with those that are given set.
    pub(crate) fn tunables(&self) -> Outcome<Tunables> {
        let mut tunables = Tunables { classes: self.classes.unwrap_or_default(), ..Tunables::default() };
        for given in &self.given {
            tunables.set(given).map_err(|error| Failure::Usage(format!("--tunable {error}")))?;
        }
        Ok(tunables)
    }
}

/// Parses a behaviour on errors by its name.
fn errors_parser() -> impl TypedValueParser<Value = OnError> {
    PossibleValuesParser::new(OnError::ALL.map(OnError::name)).map(|name| name.parse().unwrap_or_default())
}

/// Parses a data mode by its name.
pub(crate) fn data_mode_parser() -> impl TypedValueParser<Value = DataMode> {
    let named = |name: String| DataMode::ALL.into_iter().find(|mode| mode.name() == name);
    PossibleValuesParser::new(DataMode::ALL.map(DataMode::name))
        .map(move |name| named(name).unwrap_or_default())
}
