//! The lines of a file of sections, keys and values, as systemd has them.
//!
//! Facts: `systemd.syntax(7)`: comments begin with `#` or `;`, a backslash at the end of a line joins the
//! next one by a space, spaces around `=` are left out.

use crate::error::{Error, Result};

/// The only section.
const SECTION: &str = "Partition";

/// A file, read.
pub(super) struct File {
    pub(super) name: String,
    pub(super) lines: Vec<Line>,
}

/// A key and its value.
pub(super) struct Line {
    /// The number of the line, from 1.
    pub(super) number: usize,
    pub(super) key: String,
    pub(super) value: String,
}

impl File {
    /// An error about a key.
    pub(super) fn wrong(&self, line: &Line, reason: impl std::fmt::Display) -> Error {
        self.error(Some(line.number), format!("{}: {reason}", line.key))
    }

    /// An error about a line.
    pub(super) fn error(&self, line: Option<usize>, reason: impl std::fmt::Display) -> Error {
        let reason = reason.to_string().replace(['\n', '\r'], " ");
        Error::Spec { file: self.name.clone(), line, reason }
    }
}

/// Reads a text.
pub(super) fn parse(name: &str, text: &str) -> Result<File> {
    let mut file = File { name: name.to_owned(), lines: Vec::new() };
    let mut inside = false;
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let number = at + 1;
        let mut line = line.trim().to_owned();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        while let Some(begun) = line.strip_suffix('\\') {
            let next = lines.by_ref().map(|(_, next)| next.trim()).find(|next| !next.starts_with(['#', ';']));
            line = format!("{} {}", begun.trim_end(), next.unwrap_or_default());
            if next.is_none() {
                break;
            }
        }
        if let Some(section) = line.strip_prefix('[') {
            if section.strip_suffix(']') != Some(SECTION) {
                return Err(file.error(Some(number), format!("{line}: there is only [{SECTION}] here")));
            }
            inside = true;
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            return Err(file.error(Some(number), format!("{line:?} is not KEY=VALUE")));
        };
        let line = Line { number, key: key.trim().to_owned(), value: value.trim().to_owned() };
        if !inside {
            return Err(file.wrong(&line, format!("it comes before [{SECTION}]")));
        }
        file.lines.push(line);
    }
    Ok(file)
}
