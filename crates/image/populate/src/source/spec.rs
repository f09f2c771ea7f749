//! Specifications: text files that say what a tree can't, line by line.
//!
//! A developer's tree has the developer's owners, and no devices. Three formats say what the image is to have
//! instead: mtree ([`mtree`]), the device tables of Buildroot and genext2fs ([`device_table`]), and Android's
//! fs_config ([`fs_config`]). Which one a file has is recognized by its content. Each is read into the same
//! [`Entry`]s, and those are applied to the tree in the order of the file ([`apply`](super::apply)).
//!
//! What an entry does: it changes the metadata of what is at its path; a directory, device, pipe, socket or
//! link that does not exist is made; a regular file is made only where the specification names its content.
//! Everything else is an error with file and line: a path that leads nowhere, a kind that is not what is
//! there, a size or digest that is not the file's, a word that is not understood. So is a specification
//! without entries: it would change nothing, and nobody gives one for that.
//!
//! Names of users and groups are not looked up, because an image's users are not this machine's; only `root`
//! is known everywhere. Symbolic links in the directories of a path are followed inside the image, as for
//! archives.

mod capability;
mod device_table;
mod digest;
mod entry;
mod fs_config;
mod lines;
mod mtree;

pub(super) use digest::Digest;
pub(super) use entry::{Change, Entry, EntryKind, Missing};
pub(crate) use lines::numbered;

use crate::error::{Error, ShownPath};
use hectare_device::os::OsStrExt;
use std::borrow::Cow;
use std::io::Read;
use std::path::Path;

/// The longest specification that is read: ten million entries of a hundred bytes.
const LEN_MAX: u64 = 1 << 30;

/// What one specification says.
#[derive(Clone, Debug)]
pub struct Spec {
    pub(super) name: Box<[u8]>,
    pub(super) entries: Vec<Entry>,
    /// Warnings about words that have no effect, a line each.
    pub(super) warnings: Vec<String>,
}

/// What is wrong with a line, and its number from 1.
#[derive(Debug)]
struct Fault {
    line: u64,
    reason: Cow<'static, str>,
}

/// What was found in a specification of one format.
#[derive(Debug, Default)]
struct Found {
    entries: Vec<Entry>,
    warnings: Vec<(u64, String)>,
}

impl Spec {
    /// Reads a specification: mtree, a device table, or fs_config.
    ///
    /// # Errors
    /// If the file can't be read, or a line is not understood.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let name = path.as_os_str().as_bytes();
        Self::parse(name, &read_text(path, LEN_MAX)?)
    }

    /// Reads a specification from memory; `name` is what errors call it.
    ///
    /// # Errors
    /// If a line is not understood.
    pub fn parse(name: &[u8], text: &[u8]) -> Result<Self, Error> {
        let fault =
            |fault: Fault| Error::Spec { file: ShownPath::new(name), line: fault.line, reason: fault.reason };
        let read = match recognize(text).map_err(fault)? {
            Format::Mtree => mtree::read(text),
            Format::DeviceTable => device_table::read(text),
            Format::FsConfig => fs_config::read(text),
        };
        let Found { entries, warnings } = read.map_err(fault)?;
        if entries.is_empty() {
            return Err(fault(Fault::new(1, "it has no entries, and would change nothing")));
        }
        let shown = ShownPath::new(name);
        let warnings = warnings.into_iter().map(|(line, text)| format!("{shown}:{line}: {text}")).collect();
        Ok(Self { name: name.into(), entries, warnings })
    }

    /// The error for a specification of which no entry has anything to apply to.
    pub(super) fn without_effect(&self) -> Error {
        let line = self.entries.first().map_or(1, |entry| entry.line);
        let reason = "the tree has none of the paths from here on, so nothing would change".into();
        Error::Spec { file: ShownPath::new(&self.name), line, reason }
    }

    /// The error for an entry that can't be applied.
    pub(super) fn refused(&self, entry: &Entry, reason: impl Into<Cow<'static, str>>) -> Error {
        let shown = ShownPath::new(&[b"/", &*entry.path].concat());
        let reason = format!("{shown}: {}", reason.into()).into();
        Error::Spec { file: ShownPath::new(&self.name), line: entry.line, reason }
    }
}

impl Fault {
    fn new(line: u64, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { line, reason: reason.into() }
    }
}

enum Format {
    Mtree,
    DeviceTable,
    FsConfig,
}

/// The format of a specification, by its first line that is no comment.
fn recognize(text: &[u8]) -> Result<Format, Fault> {
    let signed = text.strip_prefix(b"#mtree").is_some_and(|rest| !rest.starts_with(b" is"));
    if signed {
        return Ok(Format::Mtree);
    }
    let Some((line, words)) = numbered(text)
        .map(|(line, bytes)| (line, lines::words(bytes)))
        .find(|(_, words)| words.first().is_some_and(|word| !word.starts_with(b"#")))
    else {
        return Err(Fault::new(1, "it has no entries, and would change nothing"));
    };
    let is_number = |word: &&[u8]| word.iter().all(u8::is_ascii_digit);
    match words.as_slice() {
        [b"/set" | b"/unset", ..] | [_, b"type=dir" | b"type=file", ..] => Ok(Format::Mtree),
        [_, [kind], _, _, _, ..] if kind.is_ascii_alphabetic() => Ok(Format::DeviceTable),
        [_, rest @ ..] if rest.len() >= 3 && rest[..3].iter().all(is_number) => Ok(Format::FsConfig),
        // The root directory has an empty path.
        all @ [_, _, _, ..] if all[..3].iter().all(is_number) => Ok(Format::FsConfig),
        [first, rest @ ..] if !first.starts_with(b"|") && rest.iter().any(|word| word.contains(&b'=')) => {
            Ok(Format::Mtree)
        }
        _ => Err(Fault::new(
            line,
            "it is neither an mtree specification (`#mtree`, or PATH KEYWORD=VALUE ...), nor a device table \
             (NAME TYPE MODE UID GID MAJOR MINOR START INC COUNT), nor fs_config (PATH UID GID MODE)",
        )),
    }
}

/// A text file of at most this many bytes.
pub(crate) fn read_text(path: &Path, limit: u64) -> Result<Vec<u8>, Error> {
    let shown = || ShownPath::new(path.as_os_str().as_bytes());
    let failed = |doing| move |cause| Error::io(shown(), doing, cause);
    let file = std::fs::File::open(path).map_err(failed("open"))?;
    let mut text = Vec::new();
    file.take(limit + 1).read_to_end(&mut text).map_err(failed("read"))?;
    if hectare_units::u64_of(text.len()) > limit {
        let reason = format!("it is longer than {limit} bytes, too long for a description of files").into();
        return Err(Error::Refused { path: shown(), reason });
    }
    Ok(text)
}
