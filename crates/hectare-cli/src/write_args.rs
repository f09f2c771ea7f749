//! Arguments of the commands that open an image: of all, and of those that write into it.

use crate::failure::{Failure, Outcome, tell};
use crate::heading;
use crate::image_device::{Hold, whole_device};
use crate::partition_args::Part;
use crate::reproducible;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use hectare_device::Device;
use hectare_engine::{
    DataMode, JournalDevice, OnError, OpenOptions, Policy, Recording, SizeClasses, Tunables, UnknownPolicy,
};
use hectare_ext4::superblock::Tolerances;
use hectare_probe::{FoundSuperblock, WhichSuperblock, find_superblock};
use std::path::PathBuf;
use std::str::FromStr;

/// Where the journal of an image is.
#[derive(clap::Args, Clone, Default)]
pub(crate) struct Journal {
    /// The device or file with the image's external journal (journal_dev) [default: the block device with its
    /// UUID]
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
}

impl Journal {
    /// The device that is named.
    pub(crate) fn device(&self, hold: Hold) -> Outcome<Option<JournalDevice>> {
        let path = self.journal.as_deref();
        let device = path.map(|path| whole_device(path, Part::default(), hold)).transpose()?;
        Ok(device.map(JournalDevice))
    }
}

/// What is tolerated of a damaged image that is only read.
#[derive(clap::Args, Clone, Copy, Default)]
#[command(next_help_heading = heading::DAMAGED)]
pub(crate) struct Tolerant {
    /// Damaged images: read with the superblock in block N (a backup, as in e2fsck -b), or with the first
    /// that is whole (auto); broken group descriptors come from backups, too
    #[arg(long, value_name = "N|auto", value_parser = parse_which)]
    superblock: Option<WhichSuperblock>,
    /// Damaged images: don't verify checksums of metadata
    #[arg(long)]
    ignore_checksums: bool,
    /// Damaged images: don't replay the journal; the volume is read as it lies
    #[arg(long)]
    no_journal: bool,
    /// Damaged images: read a file that is shorter than its volume; what is missing is an error where it is
    /// read
    #[arg(long)]
    allow_truncated: bool,
}

/// Parses the number of a block, or `auto`.
pub(crate) fn parse_which(text: &str) -> Result<WhichSuperblock, String> {
    match text {
        "auto" => Ok(WhichSuperblock::Auto),
        number => number
            .parse()
            .map(WhichSuperblock::Block)
            .map_err(|_| "it is neither the number of a block nor auto".to_owned()),
    }
}

impl Tolerant {
    /// Whether any of it is requested.
    pub(crate) fn is_given(&self) -> bool {
        self.superblock.is_some() || self.no_journal || self.tolerances() != Tolerances::default()
    }

    /// Whether the superblock is not to be the first one, come what may.
    pub(crate) fn names_superblock(&self) -> bool {
        self.superblock.is_some()
    }

    /// Whether the journal is left alone.
    pub(crate) fn no_journal(&self) -> bool {
        self.no_journal
    }

    /// What is given beside a superblock, by the name of its option.
    pub(crate) fn other_than_superblock(&self) -> Option<&'static str> {
        let given = [
            (self.ignore_checksums, "--ignore-checksums"),
            (self.no_journal, "--no-journal"),
            (self.allow_truncated, "--allow-truncated"),
        ];
        given.into_iter().find(|(is_given, _)| *is_given).map(|(_, name)| name)
    }

    /// What the parsers tolerate.
    pub(crate) fn tolerances(&self) -> Tolerances {
        let Self { ignore_checksums, allow_truncated, .. } = *self;
        Tolerances { ignore_checksums, allow_truncated }
    }

    /// The equivalent arguments for another process.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let superblock = self.superblock.map(|which| match which {
            WhichSuperblock::Block(block) => format!("--superblock={block}"),
            WhichSuperblock::Auto => "--superblock=auto".to_owned(),
        });
        let flags = [
            (self.ignore_checksums, "--ignore-checksums"),
            (self.no_journal, "--no-journal"),
            (self.allow_truncated, "--allow-truncated"),
        ];
        let flags = flags.into_iter().filter(|(is_given, _)| *is_given).map(|(_, name)| name.to_owned());
        superblock.into_iter().chain(flags).collect()
    }

    /// Finds the superblock that is to be read, and reports it.
    pub(crate) fn find(&self, name: &str, device: &dyn Device) -> Outcome<Option<FoundSuperblock>> {
        let Some(which) = self.superblock else { return Ok(None) };
        let found = find_superblock(device, which, self.tolerances());
        let found = found.map_err(|error| Failure::of(name, error))?.ok_or_else(|| {
            let where_ = match which {
                WhichSuperblock::Block(block) => format!("block {block} holds none, whatever the block size"),
                WhichSuperblock::Auto => "no copy was found".to_owned(),
            };
            Failure::of(name, format_args!("it has no usable superblock: {where_}"))
        })?;
        let size = found.superblock.geometry().block_size;
        tell(format_args!(
            "{name}: note: read with the superblock of group {}, in block {} of {size} bytes",
            found.group,
            size.block_at(found.at)
        ));
        Ok(Some(found))
    }

    /// Sets the options for opening the volume on `device`.
    pub(crate) fn apply(&self, name: &str, device: &dyn Device, options: &mut OpenOptions) -> Outcome {
        options.superblock_at = self.find(name, device)?.map(|found| found.at);
        options.tolerances = self.tolerances();
        options.no_replay |= self.no_journal;
        Ok(())
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
    #[command(flatten)]
    pub(crate) tolerant: Tolerant,
}

impl Looking {
    /// For reading an image that is named beside one that is written, unless `is_locked` with a lock of its
    /// own.
    pub(crate) fn of(part: Part, journal: Journal, is_locked: bool) -> Self {
        Self { part, journal, no_lock: is_locked, tolerant: Tolerant::default() }
    }

    /// Likewise, of a damaged image.
    pub(crate) fn tolerating(self, tolerant: Tolerant) -> Self {
        Self { tolerant, ..self }
    }

    /// Where the journal is.
    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
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
    /// added and left out after it (mballoc,-best-avail,+room: 'hectare-lab mechanisms' lists them)
    #[arg(long, value_name = "POLICY", default_value_t, help_heading = heading::ALLOCATION)]
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
#[command(next_help_heading = heading::ALLOCATION)]
pub struct Explain {
    /// Afterwards, print the search of the last 10,000 allocation requests, summed up, and the last N of them
    /// (5) one by one: docs/explain.md explains the lines
    #[arg(long = "explain", value_name = "N", num_args = 0..=1, require_equals = true,
        default_missing_value = "5")]
    pub last: Option<usize>,
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
pub struct Policies(pub Vec<Policy>);

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
#[command(next_help_heading = heading::ALLOCATION)]
pub struct Tuning {
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
    pub fn is_given(&self) -> bool {
        !self.given.is_empty() || self.classes.is_some()
    }

    /// The tunables with those that are given set.
    pub fn tunables(&self) -> Outcome<Tunables> {
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
pub fn data_mode_parser() -> impl TypedValueParser<Value = DataMode> {
    let named = |name: String| DataMode::ALL.into_iter().find(|mode| mode.name() == name);
    PossibleValuesParser::new(DataMode::ALL.map(DataMode::name))
        .map(move |name| named(name).unwrap_or_default())
}
