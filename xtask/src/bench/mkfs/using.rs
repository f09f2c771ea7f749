//! Using what was made: opening a volume of a pebibyte or more, making a folder, closing it again.
//!
//! Each time a program starts anew, so that nothing of the volume is in its memory, though the file may be in
//! the host's. A format that is quick but leaves work for whoever opens the volume would show here.

use super::measure::{self, Figures, measure};
use super::{MEMORY, MEMORY_MAX, SECONDS, TIB, Verdict, shown, spread, told};
use crate::scratch::Scratch;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

const PIB: u64 = 1024 * TIB;
/// Seconds that it may take.
const SECONDS_MAX: f64 = 0.2;

/// A volume, and words for mkfs that give it its shape.
struct Volume {
    name: &'static str,
    size: u64,
    shape: &'static [&'static str],
}

/// What is claimed, and the same without clusters, which has the most groups.
const VOLUMES: [Volume; 3] = [
    Volume { name: "using-1024T", size: PIB, shape: &[] },
    Volume { name: "using-single-1024T", size: PIB, shape: &["-O", "^bigalloc"] },
    Volume { name: "using-10240T", size: 10 * PIB, shape: &[] },
];

/// The names of all volumes.
pub(super) fn names() -> impl Iterator<Item = (&'static str, u64)> {
    VOLUMES.iter().map(|volume| (volume.name, volume.size))
}

/// What using a volume took.
pub(super) struct Used {
    name: &'static str,
    runs: Vec<Figures>,
    failure: Option<String>,
}

/// Uses all volumes that are wanted, as often as there are rounds.
pub(super) fn run(binary: &Path, rounds: u32, wanted: impl Fn(&str) -> bool) -> Vec<Used> {
    let all = VOLUMES.iter().filter(|volume| wanted(volume.name));
    all.map(|volume| {
        let mut runs = Vec::new();
        let failure = volume.used(binary, rounds, &mut runs).err();
        Used { name: volume.name, runs, failure }
    })
    .collect()
}

impl Volume {
    fn used(&self, binary: &Path, rounds: u32, runs: &mut Vec<Figures>) -> Result<(), String> {
        let scratch = Scratch::new(Path::new("/dev/shm"), super::NAME)?;
        let (image, binary) = (scratch.path().join("image"), binary.to_string_lossy());
        measure(&binary, &[&["mkfs", "-q"], self.shape].concat(), &image, Some(self.size))?;
        for round in 1..=rounds {
            let mut command = Command::new(&*binary);
            command.arg("mkdir").arg(format!("{}:/{round}", image.display()));
            let figures = measure::run(command, &image)?;
            eprintln!("  {} round {round}: {figures}", self.name);
            runs.push(figures);
        }
        Ok(())
    }
}

impl Used {
    fn claims(&self) -> Vec<Verdict> {
        let seconds = spread(&self.runs, SECONDS).map(|spread| spread.median);
        let memory = spread(&self.runs, MEMORY).map(|spread| spread.max);
        vec![
            Verdict::at_most(
                format!("at most {SECONDS_MAX} s to open, change and close it"),
                seconds,
                Some(SECONDS_MAX),
            ),
            Verdict::at_most(format!("at most {MEMORY_MAX} MiB of memory"), memory, Some(MEMORY_MAX)),
        ]
    }

    pub(super) fn is_good(&self) -> bool {
        self.failure.is_none() && self.claims().iter().all(|claim| claim.met)
    }

    pub(super) fn verdicts(&self) -> String {
        let mut text: String = self.claims().iter().map(|claim| claim.line(self.name)).collect();
        if let Some(failure) = &self.failure {
            let _ = writeln!(text, "FAILED {}: {failure}", self.name);
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "case": self.name, "runs": self.runs.iter().map(Figures::json).collect::<Vec<_>>(),
            "claims": self.claims().iter().map(Verdict::json).collect::<Vec<_>>(), "failure": self.failure,
        })
    }
}

/// All volumes as one table, for a page; nothing of none.
pub(super) fn table(all: &[Used]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n| used | seconds | peak MiB | write calls |\n|---|---|---|---|\n");
    for used in all {
        let cell = |of| spread(&used.runs, of).map_or("-".to_owned(), told);
        let writes = spread(&used.runs, |run| Some(run.writes)).map_or("-".to_owned(), |s| shown(s.median));
        let _ = writeln!(text, "| {} | {} | {} | {writes} |", used.name, cell(SECONDS), cell(MEMORY));
    }
    text
}
