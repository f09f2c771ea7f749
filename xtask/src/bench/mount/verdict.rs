//! What is claimed of a job, whether it holds, and the table of all.

use super::jobs::Job;
use hectare_lab::paired::Spread;
use std::fmt::Write;

/// Times fuse2fs from which on the limit leaves room for the claim, and the claim.
const ROOM: f64 = 6.0;
const TIMES: f64 = 5.0;
/// How much longer than the limit and the kernel together.
const LONGER: f64 = 1.25;
/// Of the kernel's speed with a large file.
const OF_KERNEL: f64 = 0.8;

/// How long a job took each side.
pub(super) struct Seconds {
    pub(super) hectare: Spread,
    pub(super) fuse2fs: Spread,
    pub(super) kernel: Spread,
    pub(super) null: Spread,
}

/// A job with its claims.
pub(super) struct Verdict {
    job: Job,
    seconds: Seconds,
    /// What does not hold.
    missed: Vec<String>,
}

impl Verdict {
    pub(super) fn new(job: Job, seconds: Seconds) -> Self {
        let [hectare, fuse2fs, kernel, null] =
            [&seconds.hectare, &seconds.fuse2fs, &seconds.kernel, &seconds.null].map(|spread| spread.median);
        let mut missed = Vec::new();
        if fuse2fs / null >= ROOM && fuse2fs / hectare < TIMES {
            missed.push(format!("{:.1} times fuse2fs, not {TIMES}", fuse2fs / hectare));
        }
        let limit = LONGER * (null + kernel);
        if hectare > limit {
            missed.push(format!("{:.2} of null and kernel, not {LONGER}", hectare / (null + kernel)));
        }
        if job.is_stream() && kernel / hectare < OF_KERNEL {
            missed.push(format!("{:.2} of the kernel's speed, not {OF_KERNEL}", kernel / hectare));
        }
        Self { job, seconds, missed }
    }

    pub(super) fn is_met(&self) -> bool {
        self.missed.is_empty()
    }
}

/// The table, in Markdown.
pub(super) fn table(verdicts: &[Verdict]) -> String {
    let mut out = String::from(
        "\nSeconds, median (least to most)\n\n\
         | job | hectare | fuse2fs | kernel | null | fuse2fs / hectare | fuse2fs / null \
         | hectare / (null + kernel) | |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for Verdict { job, seconds, missed } in verdicts {
        let Seconds { hectare, fuse2fs, kernel, null } = seconds;
        let (times, room) = (fuse2fs.median / hectare.median, fuse2fs.median / null.median);
        let share = hectare.median / (null.median + kernel.median);
        let all = [hectare, fuse2fs, kernel, null].map(shown).join(" | ");
        let said =
            if missed.is_empty() { "met".to_owned() } else { format!("MISSED: {}", missed.join("; ")) };
        let _ = writeln!(out, "| {job} | {all} | {times:.1} | {room:.1} | {share:.2} | {said} |");
    }
    out
}

pub(super) fn shown(spread: &Spread) -> String {
    format!("{:.3} ({:.3} to {:.3})", spread.median, spread.min, spread.max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(job: Job, hectare: f64, fuse2fs: f64, kernel: f64, null: f64) -> Verdict {
        let [hectare, fuse2fs, kernel, null] =
            [hectare, fuse2fs, kernel, null].map(|seconds| Spread::of(&[seconds]).unwrap());
        Verdict::new(job, Seconds { hectare, fuse2fs, kernel, null })
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
}
