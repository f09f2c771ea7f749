//! Shared code of these tests.

use hectare_check::{Error, Options, Report, check};
use hectare_device::{FileOptions, MemoryDevice};
use hectare_oracle::tool::{find, run, tool};
use std::path::Path;

/// Like e2fsck, which does not report a journal to be replayed.
pub(crate) fn options() -> Options {
    Options { allow_recovery: true, ..Options::default() }
}

/// Checks an image file.
pub(crate) fn check_file(image: &Path) -> Result<Report, Error> {
    check(&FileOptions::new().open(image).unwrap(), &options())
}

/// All problems as lines.
pub(crate) fn lines(report: &Report) -> String {
    let lines: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// What e2fsck says: its exit code (`None` if it did not end in time) and its output; `None` if it is not
/// installed.
pub(crate) fn e2fsck(image: &Path) -> Option<(Option<i32>, String)> {
    find("e2fsck")?;
    let mut command = tool("timeout")?;
    let said = run(command.args(["-k", "1", "20", "e2fsck", "-fn"]).arg(image));
    let exit = said.exit.filter(|code| *code < 124);
    Some((exit, said.report()))
}

/// An image in memory.
pub(crate) fn load(image: &Path) -> MemoryDevice {
    MemoryDevice::from_bytes(&std::fs::read(image).unwrap())
}
