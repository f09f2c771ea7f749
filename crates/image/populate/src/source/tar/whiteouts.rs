//! Applies the whiteouts of a layer before any of its entries.
//!
//! A whiteout counts for the layers below, wherever it stands in its own one: an entry before it must find
//! nothing of what it hides, no link to follow and no directory to go into. So an archive over others is read
//! twice, and the first time only its whiteouts count, the ones of upper directories first.
//!
//! Hazard: the layer's own entries can lie on the path of a whiteout, as a directory in place of a link below.
//! The whiteout is meant for the path as the layer has it, so these entries are collected, too: what the layer
//! describes as a directory is no link, and its links lead where it says.

use super::place::{Listed, Missing, Way};
use super::split;
use crate::source::builder::Builder;
use crate::source::names::whiteout;

/// The first whiteout in a path: the directory it is in, its name, and whether the path ends with it.
pub(super) fn first_in(path: &[u8]) -> Option<(&[u8], &[u8], bool)> {
    let mut at = 0;
    for name in path.split(|byte| *byte == b'/') {
        let end = at + name.len();
        if whiteout(name).is_some() {
            return Some((&path[..at.saturating_sub(1)], name, end == path.len()));
        }
        at = end + 1;
    }
    None
}

/// What a layer says of a path, as far as it counts for whiteouts.
enum Said {
    Whiteout,
    Directory,
    Link(Vec<u8>),
}

/// The whiteouts of a layer, and its directories and links.
#[derive(Default)]
pub(super) struct Whiteouts {
    all: Vec<(Vec<u8>, Said)>,
    any: bool,
}

impl Whiteouts {
    /// Takes in a whiteout.
    pub(super) fn add(&mut self, path: Vec<u8>) {
        self.any = true;
        self.all.push((path, Said::Whiteout));
    }

    /// Takes in a directory, or a link with its target.
    pub(super) fn lies_on_the_way(&mut self, path: Vec<u8>, target: Option<Vec<u8>>) {
        self.all.push((path, target.map_or(Said::Directory, Said::Link)));
    }

    /// Hides what the whiteouts name.
    pub(super) fn apply(mut self, builder: &mut Builder<'_>) {
        if !self.any {
            return;
        }
        self.all.sort_by_key(|(path, said)| (super::names(path).count(), matches!(said, Said::Whiteout)));
        let mut listed = Listed::new();
        for (path, said) in self.all {
            let (parent, name) = split(&path);
            let Ok((dir, real)) = Way::new(builder, Missing::Pass).over(&listed).go(parent) else { continue };
            let target = match (said, dir) {
                (Said::Whiteout, Some(dir)) => {
                    builder.whiteout(dir, name);
                    continue;
                }
                // Without its directory there is nothing to hide.
                (Said::Whiteout, None) => continue,
                (Said::Directory, _) => None,
                (Said::Link(target), _) => Some(target),
            };
            let real = real.unwrap_or_else(|| parent.to_vec());
            let names: Vec<&[u8]> = super::names(&real).chain([name]).collect();
            listed.insert(names.join(&b'/'), target);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_whiteout_of_a_path_is_found() {
        assert_eq!(first_in(b"a/b"), None);
        assert_eq!(first_in(b".wh.a"), Some((&b""[..], &b".wh.a"[..], true)));
        assert_eq!(first_in(b"a/.wh.b"), Some((&b"a"[..], &b".wh.b"[..], true)));
        assert_eq!(first_in(b".wh..wh.plnk/1.2"), Some((&b""[..], &b".wh..wh.plnk"[..], false)));
        assert_eq!(first_in(b"a/.wh.b/.wh.c"), Some((&b"a"[..], &b".wh.b"[..], false)));
    }
}
