//! The words of `-E` that are about more than the format: taken out of the lists, or refused by name.
//!
//! What remains goes to the formatter, which refuses what it does not know.

use crate::failure::{Failure, Outcome};
use crate::partition_args::Part;
use hectare_host::{Pretence, pretence};

/// Words that mke2fs knows and that can't be done, and why.
const REFUSED: [(&str, &str); 6] = [
    (
        "android_sparse",
        "Android's sparse format is not written; leave it out, and convert the image with img2simg",
    ),
    ("desc_size", "descriptors have 64 bytes with -O 64bit, else 32"),
    ("desc-size", "descriptors have 64 bytes with -O 64bit, else 32"),
    ("orphan_file_size", "the orphan file has its usual size"),
    ("revision", "only revision 1 can be made"),
    ("root_selinux", "the root directory's context can't be set; label the source of -d instead"),
];

/// What the lists say.
#[derive(Default)]
pub(super) struct Words {
    /// What is left for the formatter.
    pub(super) rest: Vec<String>,
    /// `offset=`.
    pub(super) part: Part,
    /// `no_copy_xattrs`.
    pub(super) no_attributes: bool,
    /// `root_owner` without a value: the caller. Given with one it is the formatter's.
    pub(super) root_owner: Option<(u32, u32)>,
}

impl Words {
    pub(super) fn of<'a>(lists: impl Iterator<Item = &'a String>) -> Outcome<Self> {
        let mut words = Self::default();
        for word in lists.flat_map(|list| list.split(',')).filter(|word| !word.is_empty()) {
            words.add(word)?;
        }
        Ok(words)
    }

    fn add(&mut self, word: &str) -> Outcome {
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        let refuse = |reason: &str| Err(Failure::of("mke2fs", format_args!("-E {word}: {reason}")));
        if let Some((_, reason)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
            return refuse(reason);
        }
        match (name, value) {
            ("offset", value) => match value.and_then(|value| value.parse().ok()) {
                Some(offset) => self.part = Part::from_byte(offset),
                None => return refuse("it needs a number of bytes: offset=BYTES"),
            },
            ("no_copy_xattrs", None) => self.no_attributes = true,
            ("root_owner", None) => self.root_owner = Some(caller()),
            // The zeros are written all the same, or the device is known to have them.
            ("assume_storage_prezeroed", None | Some("0" | "1")) => {}
            _ => self.rest.push(word.to_owned()),
        }
        Ok(())
    }
}

/// User and group of the caller, as programs such as fakeroot report them.
fn caller() -> (u32, u32) {
    match pretence() {
        Pretence::InEffect(_) => (0, 0),
        _ => crate::os::caller(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_taken_out_or_refused_by_name() {
        let lists = ["stride=4,offset=1024".to_owned(), "no_copy_xattrs,root_owner=1:2,nodiscard".to_owned()];
        let words = Words::of(lists.iter()).unwrap_or_else(|_| panic!("all are known"));
        assert_eq!(words.rest, ["stride=4", "root_owner=1:2", "nodiscard"]);
        assert!(words.no_attributes && words.part == Part::from_byte(1024) && words.root_owner.is_none());
        for word in ["android_sparse", "root_selinux=x", "offset=1M", "offset"] {
            match Words::of([word.to_owned()].iter()) {
                Err(Failure::Line(line)) => assert!(line.contains(&format!("-E {word}: ")), "{line}"),
                _ => panic!("{word}"),
            }
        }
    }
}
