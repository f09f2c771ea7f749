//! The compared sections, as data; and makers for those that several comparisons have in common.
//!
//! The comparisons themselves are [`super::allocator`] and [`super::io`].

use super::Options;
use super::figures::Metric;
use hectare_lab::Through;

/// A volume to run on.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Volume {
    /// As mkfs takes it.
    pub(super) size: String,
    /// Fresh if none.
    pub(super) aged: Option<Aged>,
    /// Where its image lies.
    pub(super) place: Storage,
}

/// The storage of images.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Storage {
    /// In memory.
    Memory,
    /// On the disk that holds cargo's output.
    Disk,
}

impl Storage {
    /// In names.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
        }
    }

    const fn shown(self) -> &'static str {
        match self {
            Self::Memory => "in memory",
            Self::Disk => "on disk",
        }
    }
}

/// How a volume is aged, in the words of `hectare-lab age`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Aged {
    /// Fill in percent.
    pub(super) fill: &'static str,
    /// Mean free extent.
    pub(super) mean: &'static str,
    /// Longest free extent; random if none.
    pub(super) longest: Option<&'static str>,
}

/// The contender.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Side {
    /// The kernel, with mount options.
    Kernel {
        /// Empty for the kernel's own.
        options: &'static str,
    },
    /// The engine.
    Engine {
        /// Its own default if none.
        policy: Option<String>,
        /// Its title.
        title: String,
        /// How it reaches the image.
        through: Through,
    },
    /// `pread` and `pwrite` on a file of its own beside the image.
    Raw,
}

impl Side {
    pub(super) fn title(&self) -> String {
        match self {
            Self::Kernel { options: "" } => KERNEL.to_owned(),
            Self::Kernel { options } => format!("{KERNEL} {options}"),
            Self::Engine { title, .. } => title.clone(),
            Self::Raw => RAW.to_owned(),
        }
    }
}

/// What must be true of a side's median.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Bound {
    /// At least this many times the other side's: the median of the rounds' ratios.
    TimesOf(f64, &'static str),
    /// At most what the other side has, by medians.
    AtMostOf(&'static str),
    /// At most.
    AtMost(f64),
    /// At least.
    AtLeast(f64),
}

/// A claim of a section.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Claim {
    /// Of which side.
    pub(super) title: &'static str,
    /// Which figure.
    pub(super) metric: Metric,
    /// The bound.
    pub(super) bound: Bound,
}

impl Claim {
    pub(super) const fn new(title: &'static str, metric: Metric, bound: Bound) -> Self {
        Self { title, metric, bound }
    }

    /// The sides it mentions.
    #[cfg(test)]
    pub(super) fn titles(&self) -> impl Iterator<Item = String> {
        let other = match self.bound {
            Bound::TimesOf(_, other) | Bound::AtMostOf(other) => Some(other),
            Bound::AtMost(_) | Bound::AtLeast(_) => None,
        };
        std::iter::once(self.title).chain(other).map(str::to_owned)
    }
}

/// One comparison.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Section {
    pub(super) name: String,
    pub(super) volume: Volume,
    /// The workload and its flags.
    pub(super) words: Vec<String>,
    pub(super) sides: Vec<Side>,
    /// Rounds, if their number differs from the requested one.
    pub(super) rounds: Option<u32>,
    /// The reported metrics, in this order.
    pub(super) metrics: Vec<Metric>,
    pub(super) claims: Vec<Claim>,
}

impl Section {
    /// What it is, in a line.
    pub(super) fn about(&self) -> String {
        let Volume { size, aged, place } = &self.volume;
        let state = match aged {
            Some(Aged { fill, mean, longest }) => {
                let longest = longest.map_or(String::new(), |longest| format!(", longest {longest}"));
                format!("{fill} % full, mean free extent {mean}{longest}")
            }
            None => "fresh".to_owned(),
        };
        format!("{} on {size}, {state}, {}", self.words.join(" "), place.shown())
    }
}

/// The titles of sides.
pub(super) const KERNEL: &str = "kernel";
pub(super) const ENGINE: &str = Through::Cache.system();
pub(super) const RAW: &str = hectare_lab::run::RAW;

const FULL: Aged = Aged { fill: "95", mean: "64K", longest: None };
pub(super) const COARSE: Aged = Aged { fill: "50", mean: "4M", longest: None };
pub(super) const FINE: Aged = Aged { fill: "50", mean: "256K", longest: None };

/// Makes sections according to the command line.
pub(super) struct Maker<'o> {
    pub(super) options: &'o Options,
}

impl Maker<'_> {
    /// A volume in memory.
    pub(super) fn volume(&self, size: &str, quick: &str, aged: Option<Aged>) -> Volume {
        let size = if self.options.quick { quick } else { size }.to_owned();
        Volume { size, aged, place: Storage::Memory }
    }

    /// The arguments of a workload, and those added in a quick run.
    pub(super) fn words(&self, words: &[&str], quick: &[&str]) -> Vec<String> {
        let quick = if self.options.quick { quick } else { &[] };
        words.iter().chain(quick).map(|word| (*word).to_owned()).collect()
    }

    /// The duration of a time-bound run.
    pub(super) fn seconds(&self) -> String {
        if self.options.quick { 0.3 } else { self.options.seconds }.to_string()
    }

    /// The engine with its defaults.
    pub(super) fn engine(&self) -> Side {
        self.engine_through(Through::Cache)
    }

    /// The engine with another way to reach its image.
    pub(super) fn engine_through(&self, through: Through) -> Side {
        Side::Engine { policy: self.options.policy.clone(), title: through.system().to_owned(), through }
    }

    /// Allocation in small steps, the engine against the kernel.
    fn fallocate2(&self, name: &str, aged: Option<Aged>, threads: u32) -> Section {
        let seconds = self.seconds();
        let threads = threads.to_string();
        Section {
            name: name.to_owned(),
            volume: self.volume("64G", "4G", aged),
            words: self.words(&["fallocate2", "--apart", "--threads", &threads, "--seconds", &seconds], &[]),
            sides: vec![self.engine(), Side::Kernel { options: "" }],
            rounds: None,
            metrics: vec![Metric::Rate, Metric::ScannedPerOperation],
            claims: vec![Claim::new(ENGINE, Metric::Rate, Bound::TimesOf(10.0, KERNEL))],
        }
    }

    /// Many small files, the engine against the kernel in both modes of allocation.
    fn small_files(&self, name: &str, aged: Option<Aged>) -> Section {
        Section {
            name: name.to_owned(),
            volume: self.volume("100G", "4G", aged),
            words: self.words(&["small-files", "--keep", "--threads", "64"], &["--files", "2000"]),
            sides: self.against_both(),
            rounds: None,
            metrics: vec![
                Metric::SyncedRate,
                Metric::Rate,
                Metric::ScannedPerOperation,
                Metric::ExtentsPerFile,
            ],
            claims: vec![
                Claim::new(ENGINE, Metric::SyncedRate, Bound::TimesOf(2.0, KERNEL)),
                Claim::new(ENGINE, Metric::ScannedPerOperation, Bound::AtMostOf(KERNEL)),
            ],
        }
    }

    /// The engine, the kernel, and the kernel that allocates at once.
    pub(super) fn against_both(&self) -> Vec<Side> {
        vec![self.engine(), Side::Kernel { options: "" }, Side::Kernel { options: "nodelalloc" }]
    }

    /// The two above, on fresh volumes and on aged ones.
    pub(super) fn small_work(&self) -> Vec<Section> {
        let mut all = Vec::new();
        for (state, aged) in [("fresh", None), ("aged", Some(FULL))] {
            for threads in [1, 2, 64] {
                all.push(self.fallocate2(&format!("fallocate2-{state}-{threads}"), aged, threads));
            }
        }
        for (state, aged) in [("fresh", None), ("4M", Some(COARSE)), ("256K", Some(FINE))] {
            all.push(self.small_files(&format!("small-files-{state}"), aged));
        }
        all
    }
}
