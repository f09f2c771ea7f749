//! What is compared: the sections, as data.
//!
//! Volumes, workloads and claims are those of the allocator's issue; the kernel's figures for the same are in
//! its baseline. The flags of `hectare bench` that a section needs are all here.

use super::Options;
use super::figures::Metric;

/// A volume to run on.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Volume {
    /// As mkfs takes it.
    pub(super) size: String,
    /// Fresh if none.
    pub(super) aged: Option<Aged>,
}

/// How a volume is aged, in the words of `hectare age`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Aged {
    /// Fill in percent.
    pub(super) fill: &'static str,
    /// Mean free extent.
    pub(super) mean: &'static str,
    /// Longest free extent; chance decides if none.
    pub(super) longest: Option<&'static str>,
}

const FULL: Aged = Aged { fill: "95", mean: "64K", longest: None };
const COARSE: Aged = Aged { fill: "50", mean: "4M", longest: None };
const FINE: Aged = Aged { fill: "50", mean: "256K", longest: None };
/// No free run holds what delayed allocation asks for at once: 8 to 16 MiB.
const COARSE_ONLY: Aged = Aged { longest: Some("7M"), ..COARSE };
const FINE_ONLY: Aged = Aged { longest: Some("2M"), ..FINE };

/// Who runs.
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
        /// What it is called.
        title: String,
    },
}

impl Side {
    pub(super) fn title(&self) -> String {
        match self {
            Self::Kernel { options: "" } => KERNEL.to_owned(),
            Self::Kernel { options } => format!("{KERNEL} {options}"),
            Self::Engine { title, .. } => title.clone(),
        }
    }
}

/// What must be true of a side's median.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Bound {
    /// At least so many times the other side's: the median of the rounds' ratios.
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
    /// What is claimed.
    pub(super) bound: Bound,
}

impl Claim {
    const fn new(title: &'static str, metric: Metric, bound: Bound) -> Self {
        Self { title, metric, bound }
    }

    /// The sides it speaks of.
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
    /// Rounds, where they are not as many as asked for.
    pub(super) rounds: Option<u32>,
    /// What is told, in this order.
    pub(super) metrics: Vec<Metric>,
    pub(super) claims: Vec<Claim>,
}

impl Section {
    /// What it is, in a line.
    pub(super) fn about(&self) -> String {
        let Volume { size, aged } = &self.volume;
        let state = match aged {
            Some(Aged { fill, mean, longest }) => {
                let longest = longest.map_or(String::new(), |longest| format!(", longest {longest}"));
                format!("{fill} % full, mean free extent {mean}{longest}")
            }
            None => "fresh".to_owned(),
        };
        format!("{} on {size}, {state}", self.words.join(" "))
    }
}

pub(super) const KERNEL: &str = "kernel";
pub(super) const ENGINE: &str = "engine";
const POLICIES: [&str; 6] = ["mballoc", "mballoc-linear", "size-class", "hybrid", "best-fit", "first-fit"];
const MIXES: [&str; 5] =
    ["correlated-lifetimes", "four-sizes", "funny-sizes-high", "funny-sizes-low", "mixed-lifetimes"];

/// All sections, in the order they run.
pub(super) fn sections(options: &Options) -> Vec<Section> {
    let make = Maker { options };
    let mut all = Vec::new();
    for (state, aged) in [("fresh", None), ("aged", Some(FULL))] {
        for threads in [1, 2, 64] {
            all.push(make.fallocate2(&format!("fallocate2-{state}-{threads}"), aged, threads));
        }
    }
    for (state, aged) in [("fresh", None), ("4M", Some(COARSE)), ("256K", Some(FINE))] {
        all.push(make.small_files(&format!("small-files-{state}"), aged));
    }
    for (state, aged) in [("4M", COARSE_ONLY), ("256K", FINE_ONLY)] {
        all.push(make.streams(&format!("streams-{state}"), aged, false));
        all.push(make.streams(&format!("streams-mixed-{state}"), aged, true));
    }
    all.push(make.appends("append-vs-fallocate", false));
    all.push(make.appends("append-vs-fallocate-no-sync", true));
    all.push(make.appenders());
    all.extend(MIXES.iter().map(|mix| make.mix(mix)));
    all
}

struct Maker<'o> {
    options: &'o Options,
}

impl Maker<'_> {
    fn volume(&self, size: &str, quick: &str, aged: Option<Aged>) -> Volume {
        Volume { size: if self.options.quick { quick } else { size }.to_owned(), aged }
    }

    fn words(&self, words: &[&str], quick: &[&str]) -> Vec<String> {
        let quick = if self.options.quick { quick } else { &[] };
        words.iter().chain(quick).map(|word| (*word).to_owned()).collect()
    }

    fn engine(&self) -> Side {
        Side::Engine { policy: self.options.policy.clone(), title: ENGINE.to_owned() }
    }

    fn fallocate2(&self, name: &str, aged: Option<Aged>, threads: u32) -> Section {
        let seconds = if self.options.quick { 0.3 } else { self.options.seconds }.to_string();
        let threads = threads.to_string();
        Section {
            name: name.to_owned(),
            volume: self.volume("64G", "4G", aged),
            words: self.words(&["fallocate2", "--threads", &threads, "--seconds", &seconds], &[]),
            sides: vec![self.engine(), Side::Kernel { options: "" }],
            rounds: None,
            metrics: vec![Metric::Rate, Metric::ScannedPerOperation],
            claims: vec![Claim::new(ENGINE, Metric::Rate, Bound::TimesOf(10.0, KERNEL))],
        }
    }

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

    fn streams(&self, name: &str, aged: Aged, mixed: bool) -> Section {
        let words: &[&str] =
            if mixed { &["streams", "--keep", "--mixed", "--threads", "2"] } else { &["streams", "--keep"] };
        let claims = vec![
            Claim::new(ENGINE, Metric::ScannedPerExtent, Bound::AtMost(2.0)),
            Claim::new(ENGINE, Metric::SyncedBandwidth, Bound::TimesOf(1.0, KERNEL)),
        ];
        Section {
            name: name.to_owned(),
            volume: self.volume("100G", "4G", Some(aged)),
            words: self.words(words, &["--size", "128M"]),
            sides: self.against_both(),
            rounds: None,
            metrics: vec![
                Metric::SyncedBandwidth,
                Metric::Scanned,
                Metric::ScannedPerExtent,
                Metric::KibPerExtent,
            ],
            claims: if mixed { Vec::new() } else { claims },
        }
    }

    fn appends(&self, name: &str, no_sync: bool) -> Section {
        let mut claims = vec![Claim::new("mballoc", Metric::Fragmented, Bound::AtLeast(1.0))];
        for policy in ["size-class", "hybrid"] {
            claims.push(Claim::new(policy, Metric::Fragmented, Bound::AtMost(0.0)));
            claims.push(Claim::new(policy, Metric::FragmentedPercent, Bound::AtMost(0.0)));
            claims.push(Claim::new(policy, Metric::ExtentsPerFile, Bound::AtMost(2.0)));
            claims.push(Claim::new(policy, Metric::SyncedBandwidth, Bound::TimesOf(1.0, KERNEL)));
            claims.push(Claim::new(policy, Metric::SyncedBandwidth, Bound::TimesOf(1.0, "mballoc")));
        }
        let words: &[&str] =
            if no_sync { &["append-vs-fallocate", "--no-sync"] } else { &["append-vs-fallocate"] };
        Section {
            name: name.to_owned(),
            volume: self.volume("32G", "8G", None),
            words: self.words(words, &["--scale", "0.03"]),
            sides: with_every_policy(),
            rounds: None,
            metrics: FRAGMENTATION.to_vec(),
            claims,
        }
    }

    fn mix(&self, mix: &str) -> Section {
        Section {
            name: mix.to_owned(),
            volume: self.volume("32G", "8G", None),
            words: self.words(&[mix], &["--scale", "0.03"]),
            sides: with_every_policy(),
            rounds: Some(1),
            metrics: FRAGMENTATION.to_vec(),
            claims: Vec::new(),
        }
    }

    fn appenders(&self) -> Section {
        Section {
            name: "many-appenders".to_owned(),
            volume: self.volume("64G", "8G", None),
            words: self.words(&["many-appenders", "--threads", "64"], &["--size", "4M"]),
            sides: vec![self.engine(), Side::Kernel { options: "" }],
            rounds: None,
            metrics: vec![Metric::KibPerExtent, Metric::ExtentsPerFile, Metric::Rate],
            claims: vec![Claim::new(ENGINE, Metric::KibPerExtent, Bound::AtLeast(1_800.0))],
        }
    }

    fn against_both(&self) -> Vec<Side> {
        vec![self.engine(), Side::Kernel { options: "" }, Side::Kernel { options: "nodelalloc" }]
    }
}

const FRAGMENTATION: [Metric; 7] = [
    Metric::Fragmented,
    Metric::Used,
    Metric::FragmentedPercent,
    Metric::StrictPercent,
    Metric::SyncedBandwidth,
    Metric::ExtentsPerFile,
    Metric::Scanned,
];

fn with_every_policy() -> Vec<Side> {
    let engine =
        |policy: &&str| Side::Engine { policy: Some((*policy).to_owned()), title: (*policy).to_owned() };
    std::iter::once(Side::Kernel { options: "" }).chain(POLICIES.iter().map(engine)).collect()
}
