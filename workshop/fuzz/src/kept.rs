//! Inputs that are kept with the project: for each target a file in `workshop/fuzz/kept`, an input a line in base64.
//!
//! They are where a fuzzer starts, and what [`smoke`](crate::smoke) runs changes to. A line that begins with
//! `#` is a remark. `cargo hunt fuzz keep` adds what a fuzzer found to the file; nothing takes a line out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// The inputs of a file.
///
/// # Errors
/// If the file can't be read, or a line of it is no input.
pub fn read(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    let wrong = |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| STANDARD.decode(line).map_err(|error| wrong(&error))).collect()
}

/// Adds inputs to a file.
///
/// # Errors
/// If it can't be written.
pub fn add(path: &Path, inputs: &[Vec<u8>]) -> io::Result<()> {
    let mut file = File::options().append(true).create(true).open(path)?;
    inputs.iter().try_for_each(|input| writeln!(file, "{}", STANDARD.encode(input)))
}
