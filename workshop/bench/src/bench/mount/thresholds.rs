//! The claims for a job, whether they hold, and the table of all jobs.

use super::jobs::Job;
use hectare_lab::paired_stats::Spread;
use std::fmt::Write;

/// Times fuse2fs from which on the limit leaves room for the claim, and the claim.
const ROOM: f64 = 6.0;
const TIMES: f64 = 5.0;
/// How much longer than the limit and the kernel together.
const LONGER: f64 = 1.25;
/// Of the kernel's speed with a large file.
const OF_KERNEL: f64 = 0.8;

/// How long a job took each side, round by round.
pub(super) struct Seconds {
    pub(super) hectare: Vec<f64>,
    pub(super) fuse2fs: Vec<f64>,
    pub(super) kernel: Vec<f64>,
    pub(super) null: Vec<f64>,
}

/// The rounds' ratios; of those rounds that both sides have.
struct Ratios {
    /// How many times faster than fuse2fs, and how many the limit is.
    times: Spread,
    room: Spread,
    /// How long, by what the limit and the kernel take together.
    share: Spread,
    /// How fast, by the kernel.
    of_kernel: Spread,
}

impl Ratios {
    fn new(seconds: &Seconds) -> Option<Self> {
        let Seconds { hectare, fuse2fs, kernel, null } = seconds;
        let limit: Vec<f64> = null.iter().zip(kernel).map(|(null, kernel)| null + kernel).collect();
        Some(Self {
            times: Spread::of_ratios(fuse2fs, hectare)?,
            room: Spread::of_ratios(fuse2fs, null)?,
            share: Spread::of_ratios(hectare, &limit)?,
            of_kernel: Spread::of_ratios(kernel, hectare)?,
        })
    }
}

/// A job with its claims.
pub(super) struct Verdict {
    job: Job,
    seconds: Seconds,
    ratios: Ratios,
    /// The claims that don't hold.
    missed: Vec<String>,
}

impl Verdict {
    /// `None` if a side has no round.
    pub(super) fn new(job: Job, seconds: Seconds) -> Option<Self> {
        let ratios = Ratios::new(&seconds)?;
        let Ratios { times, room, share, of_kernel } = &ratios;
        let mut missed = Vec::new();
        if room.median >= ROOM && times.median < TIMES {
            missed.push(format!("{:.1} times fuse2fs, not {TIMES}", times.median));
        }
        if share.median > LONGER {
            missed.push(format!("{:.2} of null and kernel, not {LONGER}", share.median));
        }
        if job.is_stream() && of_kernel.median < OF_KERNEL {
            missed.push(format!("{:.2} of the kernel's speed, not {OF_KERNEL}", of_kernel.median));
        }
        Some(Self { job, seconds, ratios, missed })
    }

    pub(super) fn is_met(&self) -> bool {
        self.missed.is_empty()
    }
}

/// The table, in Markdown.
pub(super) fn table(verdicts: &[Verdict]) -> String {
    let mut out = String::from(
        "\nSeconds and the rounds' ratios, median (least to most)\n\n\
         | job | hectare | fuse2fs | kernel | null | fuse2fs / hectare | fuse2fs / null \
         | hectare / (null + kernel) | kernel / hectare | |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for Verdict { job, seconds, ratios, missed } in verdicts {
        let Seconds { hectare, fuse2fs, kernel, null } = seconds;
        let seconds = [hectare, fuse2fs, kernel, null].map(|seconds| Spread::of(seconds));
        let seconds = seconds.map(|spread| spread.as_ref().map_or("-".to_owned(), shown)).join(" | ");
        let Ratios { times, room, share, of_kernel } = ratios;
        let ratios = [times, room, share, of_kernel].map(told).join(" | ");
        let said =
            if missed.is_empty() { "met".to_owned() } else { format!("MISSED: {}", missed.join("; ")) };
        let _ = writeln!(out, "| {job} | {seconds} | {ratios} | {said} |");
    }
    out
}

pub(super) fn shown(spread: &Spread) -> String {
    format!("{:.3} ({:.3} to {:.3})", spread.median, spread.min, spread.max)
}

/// A ratio.
fn told(spread: &Spread) -> String {
    format!("{:.2} ({:.2} to {:.2})", spread.median, spread.min, spread.max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(job: Job, hectare: f64, fuse2fs: f64, kernel: f64, null: f64) -> Verdict {
        let [hectare, fuse2fs, kernel, null] = [hectare, fuse2fs, kernel, null].map(|seconds| vec![seconds]);
        Verdict::new(job, Seconds { hectare, fuse2fs, kernel, null }).unwrap()
    }

    #[test]
    fn claims_are_judged_by_what_the_limit_allows() {
        assert!(verdict(Job::Create, 1.2, 7.0, 0.1, 1.0).is_met());
        assert!(!verdict(Job::Create, 1.37, 6.5, 0.1, 1.0).is_met(), "five times, where six are possible");
        assert!(verdict(Job::Create, 1.37, 5.5, 0.1, 1.0).is_met(), "six are not possible");
        assert!(!verdict(Job::Create, 1.4, 100.0, 0.1, 1.0).is_met(), "too far from the limit");
        assert!(
            !verdict(Job::Read, 1.3, 100.0, 1.0, 1.0).is_met(),
            "a stream at less than 0.8 of the kernel"
        );
        let table = table(&[verdict(Job::Read, 1.3, 100.0, 1.0, 1.0)]);
        assert!(table.contains("MISSED: 0.77 of the kernel's speed"), "{table}");
    }

    /// A slow minute slows every side; the claims compare sides that ran in it together.
    #[test]
    fn ratios_are_of_rounds() {
        let seconds = Seconds {
            hectare: vec![1.0, 3.0, 10.0],
            fuse2fs: vec![8.0],
            kernel: vec![0.1, 0.5, 1.0],
            null: vec![1.0, 2.0, 9.0],
        };
        let verdict = Verdict::new(Job::Create, seconds).unwrap();
        let Ratios { times, share, .. } = &verdict.ratios;
        assert!((times.median - 8.0).abs() < 1e-9 && (share.median - 1.0).abs() < 1e-9);
        assert!((share.max - 1.2).abs() < 1e-9 && verdict.is_met());
        let none = Seconds { hectare: vec![1.0], fuse2fs: vec![], kernel: vec![1.0], null: vec![1.0] };
        assert!(Verdict::new(Job::Create, none).is_none());
    }
}
