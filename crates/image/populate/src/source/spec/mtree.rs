//! mtree(5): `path keyword=value ...`, as bsdtar, NetBSD's makefs and mtree, and Bazel's tar rules write it.
//!
//! Paths have one of two forms. A word with a slash (after its first byte) is a full path from the top; one
//! without is a name in the current directory, and if it is a directory, it becomes the current one, until a
//! line `..`. `/set` gives defaults for the lines that follow, `/unset` takes them back. A backslash at the
//! end continues a line. Bytes are escaped as vis(3) does it ([`words`]).
//!
//! What is done with a keyword: [`keywords`].

mod keywords;
mod words;

use super::entry::EntryKind;
use super::lines::numbered;
use super::{Fault, Found};
use keywords::Keywords;
use std::collections::BTreeSet;
use words::{shown, unescape, words};

/// The longest line, continuations included: a path and a target of 4095 bytes, each byte escaped, and more.
const LINE_MAX: usize = 64 << 10;
/// The longest path: Linux's `PATH_MAX` without its final NUL.
const PATH_MAX: usize = 4095;
/// The deepest directory: such a path has no more names.
const DEPTH_MAX: usize = 2048;

/// Reads a specification.
pub(super) fn read(text: &[u8]) -> Result<Found, Fault> {
    let mut reader = Reader::default();
    let mut pending: Option<(u64, Vec<u8>)> = None;
    for (line, bytes) in numbered(text) {
        let (line, bytes) = match pending.take() {
            Some((first, mut begun)) => {
                begun.extend_from_slice(bytes);
                (first, begun)
            }
            None => (line, bytes.to_vec()),
        };
        if bytes.len() > LINE_MAX {
            return Err(Fault::new(line, format!("the line is longer than {LINE_MAX} bytes")));
        }
        if is_continued(&bytes) {
            pending = Some((line, bytes[..bytes.len() - 1].to_vec()));
        } else {
            reader.line(line, &bytes)?;
        }
    }
    match pending {
        Some((line, _)) => Err(Fault::new(line, "the line is continued, but the file ends")),
        None => Ok(reader.found),
    }
}

/// Whether a line ends with a backslash that is not escaped itself, and is no comment.
fn is_continued(line: &[u8]) -> bool {
    let slashes = line.iter().rev().take_while(|byte| **byte == b'\\').count();
    slashes % 2 == 1 && !line.trim_ascii_start().starts_with(b"#")
}

#[derive(Default)]
struct Reader {
    found: Found,
    defaults: Keywords,
    /// The current directory: names from the top, an empty one for the top itself (`.`).
    place: Vec<Vec<u8>>,
    /// What a warning was given about, which one is enough for.
    warned: BTreeSet<String>,
}

impl Reader {
    fn line(&mut self, line: u64, bytes: &[u8]) -> Result<(), Fault> {
        let words = words(bytes);
        match words.split_first() {
            None => Ok(()),
            Some((first, _)) if first.starts_with(b"#") => Ok(()),
            Some((&b"..", [])) => match self.place.pop() {
                Some(_) => Ok(()),
                None => Err(Fault::new(line, "`..` leads out of the top directory")),
            },
            Some((&b"/set", rest)) => {
                for word in rest {
                    self.defaults.set(word, &mut self.found.warnings, line, &mut self.warned)?;
                }
                Ok(())
            }
            Some((&b"/unset", rest)) => {
                for word in rest {
                    self.defaults.unset(word, line)?;
                }
                Ok(())
            }
            Some((first, _)) if first.starts_with(b"/") && !first[1..].contains(&b'/') => {
                Err(Fault::new(line, format!("{} is neither `/set` nor `/unset`", shown(first))))
            }
            Some((first, rest)) => self.entry(line, first, rest),
        }
    }

    fn entry(&mut self, line: u64, word: &[u8], rest: &[&[u8]]) -> Result<(), Fault> {
        let mut keywords = self.defaults.clone();
        for word in rest {
            keywords.set(word, &mut self.found.warnings, line, &mut self.warned)?;
        }
        let is_full = word.contains(&b'/');
        let name = unescape(word).map_err(|reason| Fault::new(line, reason))?;
        if !is_full && name.contains(&b'/') {
            return Err(Fault::new(line, "a name with an escaped slash"));
        }
        let path = match (is_full, &*name) {
            (true, _) => super::lines::clean(&name),
            (false, b"..") => None,
            (false, b".") => Some(self.path(&[])),
            (false, name) => Some(self.path(name)),
        };
        let path = path.ok_or_else(|| Fault::new(line, "a path with `..`"))?;
        if path.len() > PATH_MAX {
            return Err(Fault::new(line, format!("a path longer than {PATH_MAX} bytes")));
        }
        let is_directory = keywords.kind() == Some(EntryKind::Directory);
        let entry = keywords.entry(line, &path).map_err(|reason| Fault::new(line, reason))?;
        self.found.entries.push(entry);
        if is_directory && !is_full {
            if self.place.len() >= DEPTH_MAX {
                return Err(Fault::new(line, format!("directories are nested deeper than {DEPTH_MAX}")));
            }
            self.place.push(if name == b"." { Vec::new() } else { name });
        }
        Ok(())
    }

    /// The path of a name in the current directory.
    fn path(&self, name: &[u8]) -> Vec<u8> {
        let names = self.place.iter().map(Vec::as_slice).chain([name]).filter(|name| !name.is_empty());
        names.collect::<Vec<_>>().join(&b'/')
    }
}
