//! Comparisons of the allocator: where space comes from, its cost, and its fragmentation.
//!
//! Volumes, workloads and claims are those of the allocator's issue; the kernel's figures for the same are in
//! its baseline.

use super::Options;
use super::figures::Metric;
use super::plan::{Aged, Bound, COARSE, Claim, ENGINE, FINE, KERNEL, Maker, Section, Side};
use hectare_lab::Through;

/// No free run holds what delayed allocation asks for at once: 8 to 16 MiB.
const COARSE_ONLY: Aged = Aged { longest: Some("7M"), ..COARSE };
const FINE_ONLY: Aged = Aged { longest: Some("2M"), ..FINE };
const POLICIES: [&str; 6] = ["mballoc", "mballoc-linear", "size-class", "hybrid", "best-fit", "first-fit"];
const MIXES: [&str; 5] =
    ["correlated-lifetimes", "four-sizes", "funny-sizes-high", "funny-sizes-low", "mixed-lifetimes"];

/// All sections, in the order they run.
pub(super) fn sections(options: &Options) -> Vec<Section> {
    let make = Maker { options };
    let mut all = make.small_work();
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

impl Maker<'_> {
    fn streams(&self, name: &str, aged: Aged, mixed: bool) -> Section {
        let size = if self.options.quick { "128M" } else { "2G" };
        let words = ["streams", "--keep", "--size", size, "--mixed", "--threads", "2"];
        let words = if mixed { &words[..] } else { &words[..4] };
        let claims = vec![
            Claim::new(ENGINE, Metric::ScannedPerExtent, Bound::AtMost(2.0)),
            Claim::new(ENGINE, Metric::SyncedBandwidth, Bound::TimesOf(1.0, KERNEL)),
        ];
        Section {
            name: name.to_owned(),
            volume: self.volume("100G", "4G", Some(aged)),
            words: self.words(words, &[]),
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
    let engine = |policy: &&str| Side::Engine {
        policy: Some((*policy).to_owned()),
        title: (*policy).to_owned(),
        through: Through::Cache,
    };
    std::iter::once(Side::Kernel { options: "" }).chain(POLICIES.iter().map(engine)).collect()
}
