//! SELinux file contexts: which label a path gets, as setfiles decides it.
//!
//! A line is `REGEX [TYPE] LABEL`. The regular expression has to match the whole path from the image's root;
//! the type (`--`, `-d`, `-l`, `-c`, `-b`, `-p`, `-s`) limits it to one kind of file; `<<none>>` as a label
//! means none. Beside the file, `.homedirs` and `.local` are read after it, and `.subs` and `.subs_dist`
//! replace the beginnings of paths before they are compared: the first once, then the second once, the last
//! line that applies in each.
//!
//! The rule, found with libselinux 3.4 (`selabel_lookup`): of the lines that match, the last one wins, but
//! lines without special characters come after all others. How long the stem of a regular expression is
//! plays no part; policies are sorted by it when they are made.
//!
//! Lines are found by their literal beginning: a path is looked up in a table for each length that any
//! beginning has, and only the lines found there are tried, from the last one on. So the time depends on what
//! a path has in common with lines, not on how many there are.

mod pattern;

use super::spec::read_text;
use crate::error::{Error, ShownPath};
use crate::tree::Kind;
use hectare_device::os::OsStrExt;
use pattern::Pattern;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::path::Path;

/// The longest file that is read; Debian's policy has 0.5 MiB.
const LEN_MAX: u64 = 64 << 20;
/// The most lines; Debian's policy has 5300.
const LINES_MAX: usize = 200_000;

/// Labels by path.
#[derive(Debug, Default)]
pub struct FileContexts {
    /// Those without special characters after the others, each in the order of the files.
    lines: Vec<Line>,
    /// The lines with each literal beginning, ascending.
    by_prefix: HashMap<Box<[u8]>, Vec<usize>>,
    /// The lengths that beginnings have.
    lengths: BTreeSet<usize>,
    /// Replaced beginnings of paths: those of `.subs`, then of `.subs_dist`.
    substitutions: [Vec<Substitution>; 2],
}

/// A beginning of paths, and what they are looked up with instead.
#[derive(Debug)]
struct Substitution {
    from: Box<[u8]>,
    to: Box<[u8]>,
}

#[derive(Debug)]
struct Line {
    pattern: Pattern,
    /// The type, as the second byte of its field.
    kind: Option<u8>,
    /// With its final NUL, as the kernel stores it; `None` for `<<none>>`.
    label: Option<Box<[u8]>>,
}

impl FileContexts {
    /// Reads a file, and those that belong to it as far as they exist.
    ///
    /// # Errors
    /// If one can't be read, or has a line that is not understood.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let mut contexts = Self::default();
        contexts.add(path)?;
        for ending in [".homedirs", ".local"] {
            let beside = beside(path, ending);
            if beside.exists() {
                contexts.add(&beside)?;
            }
        }
        for (at, ending) in [".subs", ".subs_dist"].into_iter().enumerate() {
            let beside = beside(path, ending);
            if beside.exists() {
                contexts.substitutions[at] = substitutions(&beside)?;
            }
        }
        contexts.index();
        Ok(contexts)
    }

    fn add(&mut self, path: &Path) -> Result<(), Error> {
        let text = read_text(path, LEN_MAX)?;
        for (number, line) in super::spec::numbered(&text) {
            let fault = |reason: String| spec_error(path, number, reason);
            let words: Vec<&[u8]> =
                line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
            let (regex, kind, label) = match words.as_slice() {
                [] => continue,
                [first, ..] if first.starts_with(b"#") => continue,
                [regex, label] => (regex, None, label),
                [regex, kind, label] => (regex, Some(kind), label),
                _ => return Err(fault("a line is REGEX [TYPE] LABEL".to_owned())),
            };
            let kind = match kind {
                None => None,
                Some([b'-', kind @ (b'-' | b'd' | b'l' | b'c' | b'b' | b'p' | b's')]) => Some(*kind),
                Some(other) => {
                    let other = ShownPath::new(other);
                    return Err(fault(format!("a type is one of -- -d -l -c -b -p -s, not `{other}`")));
                }
            };
            if self.lines.len() >= LINES_MAX {
                return Err(fault(format!("more than {LINES_MAX} lines")));
            }
            let pattern = Pattern::parse(regex).map_err(fault)?;
            let label = (**label != *b"<<none>>").then(|| [label, &b"\0"[..]].concat().into());
            self.lines.push(Line { pattern, kind, label });
        }
        Ok(())
    }

    fn index(&mut self) {
        self.lines.sort_by_key(|line| line.pattern.is_literal()); // stable
        for (at, line) in self.lines.iter().enumerate() {
            let prefix = line.pattern.prefix();
            self.lengths.insert(prefix.len());
            self.by_prefix.entry(prefix.into()).or_default().push(at);
        }
    }

    /// The label of a file of this kind at an absolute path, with its final NUL; `None` if it gets none.
    #[must_use]
    pub fn label(&self, path: &[u8], kind: &Kind<'_>) -> Option<&[u8]> {
        let path = self.substituted(path);
        let kind = match kind {
            Kind::Directory => b'd',
            Kind::File { .. } => b'-',
            Kind::Symlink { .. } => b'l',
            Kind::CharDevice { .. } => b'c',
            Kind::BlockDevice { .. } => b'b',
            Kind::Fifo => b'p',
            Kind::Socket => b's',
        };
        let mut best: Option<usize> = None;
        for len in self.lengths.range(..=path.len()) {
            for at in self.by_prefix.get(&path[..*len]).into_iter().flatten().rev() {
                let line = &self.lines[*at];
                if best.is_some_and(|best| best > *at) {
                    break;
                }
                if line.kind.is_none_or(|wanted| wanted == kind) && line.pattern.matches(&path) {
                    best = Some(*at);
                    break;
                }
            }
        }
        self.lines[best?].label.as_deref()
    }

    fn substituted(&self, path: &[u8]) -> Vec<u8> {
        let mut path = path.to_vec();
        for list in &self.substitutions {
            let applies = |from: &[u8]| {
                path.strip_prefix(from).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
            };
            if let Some(Substitution { from, to }) = list.iter().rev().find(|one| applies(&one.from)) {
                let rest = &path[from.len()..];
                let rest = if **to == *b"/" { rest.strip_prefix(b"/").unwrap_or(rest) } else { rest };
                path = [to, rest].concat();
            }
        }
        path
    }
}

fn beside(path: &Path, ending: &str) -> std::path::PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

fn substitutions(path: &Path) -> Result<Vec<Substitution>, Error> {
    let text = read_text(path, LEN_MAX)?;
    let mut found = Vec::new();
    for (number, line) in super::spec::numbered(&text) {
        let words: Vec<&[u8]> = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
        match words.as_slice() {
            [] => {}
            [first, ..] if first.starts_with(b"#") => {}
            [from, to] if from.starts_with(b"/") && to.starts_with(b"/") => {
                found.push(Substitution { from: (*from).into(), to: (*to).into() });
            }
            _ => return Err(spec_error(path, number, "a line is /ALIAS /ORIGINAL".to_owned())),
        }
    }
    Ok(found)
}

fn spec_error(path: &Path, line: u64, reason: String) -> Error {
    Error::Spec { file: ShownPath::new(path.as_os_str().as_bytes()), line, reason: reason.into() }
}
