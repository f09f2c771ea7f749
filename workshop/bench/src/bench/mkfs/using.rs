//! Uses a new volume: opens a volume of a pebibyte or more, makes a directory, closes it again.
//!
//! Each time a new program starts, so that nothing of the volume is in its memory, though the file may be in
//! the host's. A format that is quick but leaves work for the first opening would show here.
//!
//! Hazard: a run takes ten milliseconds, so that its memory is sampled some ten times only.

use super::Outcome;
use super::measure::{measure, run};
use std::path::Path;
use std::process::Command;

/// Makes the volume of a case once, and uses it as often as there are rounds.
pub(super) fn use_volume(
    outcome: &mut Outcome<'_>,
    binary: &str,
    image: &Path,
    rounds: u32,
) -> Result<(), String> {
    let case = outcome.case;
    measure(binary, &case.ours_words(), image, Some(case.size))?;
    for round in 1..=rounds {
        let mut command = Command::new(binary);
        command.arg("mkdir").arg(format!("{}:/{round}", image.display()));
        let figures = run(command, image)?;
        eprintln!("  {} round {round}: {figures}", case.name);
        outcome.ours.push(figures);
    }
    Ok(())
}
