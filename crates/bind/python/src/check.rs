//! Whether a volume is sound.

use crate::failure::Failure;
use crate::watched::watched;
use hectare::Watch;
use hectare::check::{Problem, Report, check_watched};
use pyo3::prelude::*;
use std::path::PathBuf;

/// Code of the structure, place, reason, and the line that has them all.
type Found = (String, String, String, String);
/// Problems, their number, notes, what was left out, and groups, inodes, directories and clusters.
type Checked = (Vec<Found>, u64, Vec<Found>, Vec<String>, (u32, u32, u32, u64));

fn found(problem: &Problem) -> Found {
    let place = problem.place.to_string();
    (problem.what.code().to_owned(), place, problem.reason.to_string(), problem.to_string())
}

/// Checks the volume in a file, and changes nothing.
#[pyfunction]
#[expect(clippy::needless_pass_by_value)] // what Python's arguments become
pub(crate) fn check(py: Python<'_>, image: PathBuf, progress: Option<Py<PyAny>>) -> PyResult<Checked> {
    let judge = |watch: &Watch| -> Result<Report, Failure> { Ok(check_watched(&image, watch)?) };
    let report: Result<Report, Failure> = watched(py, progress.as_ref(), judge)?;
    let report = report.map_err(|failure| failure.about(image.as_os_str().as_encoded_bytes()))?;
    let all = |problems: &[Problem]| problems.iter().map(found).collect();
    let counts = report.counts;
    Ok((
        all(&report.problems),
        report.problem_count,
        all(&report.notes),
        report.unchecked.clone(),
        (counts.groups, counts.inodes_used, counts.directories, counts.clusters_used),
    ))
}
