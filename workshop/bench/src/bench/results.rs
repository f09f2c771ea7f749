//! The results of a section: medians, spreads, ratios, claims; as a table and as JSON.

use super::figures::{Figures, Metric, shown};
use super::plan::{Bound, Claim, ENGINE, KERNEL, RAW, Section, Side};
use hectare_lab::paired_stats::Spread;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;

/// The sides that others are reported in multiples of.
const PEERS: [&str; 2] = [KERNEL, RAW];

/// A section's results.
pub(super) struct SectionResults {
    name: String,
    about: String,
    sides: Vec<String>,
    metrics: Vec<Metric>,
    /// Per side, in the order of rounds; `None` for a run that failed.
    rounds: Vec<Vec<Option<Figures>>>,
    claims: Vec<Judged>,
    /// The failures.
    pub(super) failures: Vec<String>,
}

/// A claim and whether it was met.
struct Judged {
    text: String,
    value: Option<f64>,
    met: bool,
}

impl SectionResults {
    pub(super) fn new(section: &Section, sides: Vec<Side>) -> Self {
        Self {
            name: section.name.clone(),
            about: section.about(),
            rounds: vec![Vec::new(); sides.len()],
            sides: sides.iter().map(Side::title).collect(),
            metrics: section.metrics.clone(),
            claims: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Takes the result of a side's next run.
    pub(super) fn take(&mut self, side: usize, result: Result<Figures, String>) {
        let figures = result.map_err(|error| self.failures.push(format!("{}: {error}", self.sides[side])));
        self.rounds[side].push(figures.ok());
    }

    /// Whether all ran and all claims are met.
    pub(super) fn is_good(&self) -> bool {
        self.failures.is_empty() && self.claims.iter().all(|claim| claim.met)
    }

    fn side(&self, title: &str) -> Option<usize> {
        self.sides.iter().position(|side| side == title)
    }

    fn values(&self, side: usize, metric: Metric) -> Vec<Option<f64>> {
        self.rounds[side].iter().map(|run| run.as_ref()?.values.get(&metric).copied()).collect()
    }

    fn spread(&self, title: &str, metric: Metric) -> Option<Spread> {
        Spread::of(&self.values(self.side(title)?, metric).into_iter().flatten().collect::<Vec<_>>())
    }

    /// The spread of the rounds' ratios of one side to another, of rounds in which both ran.
    fn ratio(&self, title: &str, peer: &str, metric: Metric) -> Option<Spread> {
        let (ours, theirs) = (self.values(self.side(title)?, metric), self.values(self.side(peer)?, metric));
        let pairs: (Vec<f64>, Vec<f64>) =
            ours.into_iter().zip(theirs).filter_map(|(ours, theirs)| ours.zip(theirs)).unzip();
        Spread::of_ratios(&pairs.0, &pairs.1).filter(|spread| spread.median.is_finite())
    }

    /// Decides the claims; those about a side that can't run here are left out.
    pub(super) fn judge(&mut self, section: &Section) {
        let runs = |claim: &&Claim| {
            let peer = match claim.bound {
                Bound::TimesOf(_, peer) | Bound::AtMostOf(peer) => peer,
                Bound::AtMost(_) | Bound::AtLeast(_) => claim.title,
            };
            self.side(claim.title).is_some() && self.side(peer).is_some()
        };
        self.claims = section.claims.iter().filter(runs).map(|claim| self.judged(claim)).collect();
    }

    fn judged(&self, claim: &Claim) -> Judged {
        let Claim { title, metric, bound } = claim;
        let name = metric.name();
        let own = || self.spread(title, *metric).map(|spread| spread.median);
        let (text, value, met) = match bound {
            Bound::TimesOf(least, peer) => {
                let value = self.ratio(title, peer, *metric).map(|spread| spread.median);
                let text = format!("{title}: {name} at least {least} times {peer}'s");
                (text, value, value.is_some_and(|value| value >= *least))
            }
            Bound::AtMostOf(peer) => {
                let theirs = self.spread(peer, *metric).map(|spread| spread.median);
                let met = own().zip(theirs).is_some_and(|(own, theirs)| own <= theirs);
                let theirs = theirs.map_or("unknown".to_owned(), shown);
                (format!("{title}: {name} at most {peer}'s ({theirs})"), own(), met)
            }
            Bound::AtMost(most) => {
                let met = own().is_some_and(|own| own <= *most);
                (format!("{title}: {name} at most {most}"), own(), met)
            }
            Bound::AtLeast(least) => {
                let met = own().is_some_and(|own| own >= *least);
                (format!("{title}: {name} at least {least}"), own(), met)
            }
        };
        Judged { text, value, met }
    }

    /// The section as a table: a row per figure, a column per side, median and extremes.
    pub(super) fn table(&self) -> String {
        let mut text = format!("\n{}: {}\n", self.name, self.about);
        let mut rows = vec![std::iter::once(String::new()).chain(self.sides.iter().cloned()).collect()];
        for metric in &self.metrics {
            let cell = |title: &String| {
                self.spread(title, *metric).map_or("-".to_owned(), |spread| {
                    let Spread { min, median, max } = spread;
                    if self.rounds.iter().all(|rounds| rounds.len() < 2) {
                        return shown(median);
                    }
                    format!("{} ({}-{})", shown(median), shown(min), shown(max))
                })
            };
            rows.push(
                std::iter::once(metric.name().to_owned())
                    .chain(self.sides.iter().map(cell))
                    .collect::<Vec<_>>(),
            );
        }
        let speed = self.metrics.iter().find(|metric| metric.is_speed());
        for (metric, peer) in speed.into_iter().flat_map(|metric| PEERS.map(|peer| (metric, peer))) {
            if self.side(peer).is_none() {
                continue;
            }
            let cell = |title: &String| {
                let ratio = self.ratio(title, peer, *metric).filter(|_| title != peer);
                ratio.map_or("-".to_owned(), |Spread { min, median, max }| {
                    format!("{} ({}-{})", shown(median), shown(min), shown(max))
                })
            };
            let heading = format!("{}, times {peer}", metric.name());
            rows.push(std::iter::once(heading).chain(self.sides.iter().map(cell)).collect());
        }
        text.push_str(&aligned(&rows));
        for Judged { text: claim, value, met } in &self.claims {
            let (value, verdict) =
                (value.map_or("nothing".to_owned(), shown), ["MISSED", "met"][usize::from(*met)]);
            let _ = writeln!(text, "{verdict}: {claim}: {value}");
        }
        for failure in &self.failures {
            let _ = writeln!(text, "FAILED {failure}");
        }
        text
    }

    fn json(&self) -> Value {
        let spread = |title: &String, metric: &Metric| {
            let spread = self.spread(title, *metric)?;
            let side = self.side(title)?;
            let times = |peer: &str| {
                let ratio = self.ratio(title, peer, *metric).filter(|_| title != peer);
                ratio.map(|r| json!({"median": r.median, "min": r.min, "max": r.max}))
            };
            Some((
                metric.name().to_owned(),
                json!({
                    "median": spread.median, "min": spread.min, "max": spread.max,
                    "rounds": self.values(side, *metric),
                    "times_kernel": times(KERNEL), "times_raw": times(RAW),
                }),
            ))
        };
        let sides: Vec<Value> = self
            .sides
            .iter()
            .zip(&self.rounds)
            .map(|(title, rounds)| {
                let figures: serde_json::Map<_, _> =
                    self.metrics.iter().filter_map(|metric| spread(title, metric)).collect();
                let runs: Vec<_> = rounds.iter().flatten().map(|figures| &figures.run).collect();
                json!({ "side": title, "figures": figures, "runs": runs })
            })
            .collect();
        let claims: Vec<Value> = self
            .claims
            .iter()
            .map(|claim| json!({ "claim": claim.text, "value": claim.value, "met": claim.met }))
            .collect();
        json!({
            "section": self.name, "about": self.about, "sides": sides, "claims": claims,
            "failures": self.failures,
        })
    }
}

/// Columns as wide as their widest cell, the first to the left, the others to the right.
pub(super) fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        for (nr, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = if nr == 0 { write!(text, "{cell:<width$}") } else { write!(text, "  {cell:>width$}") };
        }
        text.push('\n');
    }
    text
}

/// The claim across sections: 64 threads are not slower than 2. Returns what is to be said, and whether it is
/// met wherever both were measured.
pub(super) fn across(all: &[SectionResults]) -> (String, bool) {
    let (mut text, mut all_met) = (String::new(), true);
    for state in ["fresh", "aged"] {
        let rate = |threads: u32| {
            let name = format!("fallocate2-{state}-{threads}");
            let told = all.iter().find(|told| told.name == name)?;
            Some(told.spread(ENGINE, Metric::Rate)?.median)
        };
        if let Some((two, many)) = rate(2).zip(rate(64)) {
            let verdict = if many >= two { "met" } else { "MISSED" };
            all_met &= many >= two;
            let times = shown(many / two);
            let _ = writeln!(
                text,
                "\n{verdict}: fallocate2 {state}: 64 threads at least as fast as 2: {times} times"
            );
        }
    }
    (text, all_met)
}

/// Writes all sections and the machine they ran on.
pub(super) fn write(file: &Path, all: &[SectionResults]) -> std::io::Result<()> {
    let sections: Vec<Value> = all.iter().map(SectionResults::json).collect();
    write_json(file, &json!({ "machine": machine(), "sections": sections }))
}

/// The machine of the measurements.
pub(super) fn machine() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let model = read("/proc/cpuinfo");
    let model = model.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    json!({
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "cpus": std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        "cpu": model.trim_start_matches(['\t', ' ', ':']),
        "memory": read("/proc/meminfo").lines().next().unwrap_or_default(),
    })
}

/// Writes measurements to a file, and makes its directory.
pub(super) fn write_json(file: &Path, figures: &Value) -> std::io::Result<()> {
    let text = serde_json::to_string_pretty(figures)?;
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(file, text + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{Options, allocator, io};

    fn told(rates: &[(f64, f64)]) -> (SectionResults, Section) {
        let sections = allocator::sections(&Options::parse("allocator", &[]).unwrap());
        let section = sections.into_iter().find(|section| section.name == "fallocate2-fresh-1").unwrap();
        let mut told = SectionResults::new(&section, section.sides.clone());
        for (engine, kernel) in rates {
            for (side, rate) in [(0, engine), (1, kernel)] {
                let values = [(Metric::Rate, *rate)].into();
                told.take(side, Ok(Figures { values, run: Value::Null }));
            }
        }
        told.judge(&section);
        (told, section)
    }

    #[test]
    fn ratios_are_of_pairs_and_decide_the_claim() {
        let (good, _) = told(&[(1000.0, 50.0), (4000.0, 400.0), (120.0, 10.0)]);
        assert!(good.is_good());
        assert!(good.table().contains("12.0 (10.0-20.0)"), "{}", good.table());
        let (bad, _) = told(&[(1000.0, 50.0), (900.0, 100.0), (90.0, 10.0)]);
        assert!(!bad.is_good());
        assert!(bad.table().contains("MISSED: engine: operations/s at least 10 times kernel's: 9.00"));
        assert_eq!(bad.json()["sides"][0]["figures"]["operations/s"]["median"], 900.0);
    }

    #[test]
    fn more_threads_that_are_slower_are_a_missed_claim() {
        let sections = allocator::sections(&Options::parse("allocator", &[]).unwrap());
        let with = |threads: u32, rate| {
            let name = format!("fallocate2-fresh-{threads}");
            let section = sections.iter().find(|section| section.name == name).unwrap();
            let mut told = SectionResults::new(section, section.sides.clone());
            let engine = section.sides.iter().position(|side| side.title() == ENGINE).unwrap();
            told.take(engine, Ok(Figures { values: [(Metric::Rate, rate)].into(), run: Value::Null }));
            told
        };
        assert!(across(&[with(2, 10.0), with(64, 10.0)]).1);
        assert!(!across(&[with(2, 10.0), with(64, 9.0)]).1);
        assert!(across(&[with(2, 10.0)]).1);
    }

    #[test]
    fn a_section_with_a_limit_is_told_in_multiples_of_it() {
        let sections = io::sections(&Options::parse("io", &[]).unwrap());
        let section = sections.into_iter().find(|section| section.name == "random-overwrite-memory").unwrap();
        let mut told = SectionResults::new(&section, section.sides.clone());
        for (side, rate) in [90.0, 100.0, 10.0].into_iter().enumerate() {
            let values = [(Metric::Rate, rate)].into();
            told.take(side, Ok(Figures { values, run: Value::Null }));
        }
        told.judge(&section);
        let table = told.table();
        assert!(table.contains("MISSED: engine: operations/s at least 0.95 times raw's: 0.90"), "{table}");
        assert!(table.contains("met: engine: operations/s at least 5 times kernel's: 9.00"), "{table}");
        assert!(table.contains("times raw") && told.json()["sides"][0].to_string().contains("times_raw"));
    }

    #[test]
    fn a_failed_run_fails_the_section_and_leaves_its_pair_out() {
        let (mut told, section) = told(&[(1000.0, 50.0)]);
        told.take(0, Err("on purpose".into()));
        told.take(1, Ok(Figures { values: [(Metric::Rate, 1.0)].into(), run: Value::Null }));
        told.judge(&section);
        assert!(!told.is_good());
        assert!(
            told.table().contains("20.0 (20.0-20.0)") && told.table().contains("FAILED engine: on purpose")
        );
    }
}
