//! Resolves the path of an entry in the tree.
//!
//! Layers as registries serve them put entries below symbolic links of a layer below (`lib` to `usr/lib`).
//! Such a link is followed as by a system that runs in the image: an absolute target starts at the image's
//! root, and `..` stops there. Nothing outside of the tree is ever accessed. The last name of a path is not
//! followed: an entry replaces a link.
//!
//! Hazard: links can form loops, so a path follows [`LINKS_MAX`] of them at most, as Linux does.

use super::names;
use crate::source::builder::Builder;
use crate::source::visible::Dir;
use std::collections::HashMap;

/// Symbolic links that are followed in one path (Linux's `MAXSYMLINKS`).
const LINKS_MAX: u32 = 40;

/// What to do about missing directories of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    /// Make them; this layer's directory replaces what else has the name.
    Make,
    /// Make them where nothing has the name.
    Add,
    /// The path does not exist then.
    Stop,
    /// Continue by name: only the resolved path is needed.
    Pass,
}

/// Why a path does not lead to a directory.
pub(super) enum Stop {
    /// A name does not exist, or is no directory.
    NoWay,
    /// Too many links.
    Circle,
    /// A directory could not be added.
    Refused(crate::Error),
}

/// The directory at `path` and its real path, for what is no archive: missing directories are made if
/// `makes`, in no other thing's place. `Err(None)` if there is none.
pub(crate) fn directory(
    builder: &mut Builder<'_>,
    path: &[u8],
    makes: bool,
) -> Result<Option<(Dir, Vec<u8>)>, Option<crate::Error>> {
    let missing = if makes { Missing::Add } else { Missing::Stop };
    match Way::new(builder, missing).go(path) {
        Ok((dir, real)) => Ok(dir.map(|dir| (dir, real.unwrap_or_else(|| path.to_vec())))),
        Err(Stop::Refused(error)) => Err(Some(error)),
        Err(Stop::NoWay | Stop::Circle) => Err(None),
    }
}

/// What a layer has at real paths, before its entries are in the tree: links with their targets, and directories.
pub(super) type Listed = HashMap<Vec<u8>, Option<Vec<u8>>>;

/// The resolution of a path in the tree, from its root.
pub(super) struct Way<'b, 'o> {
    builder: &'b mut Builder<'o>,
    missing: Missing,
    listed: Option<&'b Listed>,
    /// The directories reached, the root first; `None` for one that is missing.
    dirs: Vec<Option<Dir>>,
    /// The name of each but the root.
    path: Vec<Vec<u8>>,
    links: u32,
}

impl<'b, 'o> Way<'b, 'o> {
    pub(super) fn new(builder: &'b mut Builder<'o>, missing: Missing) -> Self {
        let root = builder.root();
        Self { builder, missing, listed: None, dirs: vec![Some(root)], path: Vec::new(), links: 0 }
    }

    /// The same with these links and directories over those of the tree.
    pub(super) fn over(mut self, listed: &'b Listed) -> Self {
        self.listed = Some(listed);
        self
    }

    /// Walks to the directory at `path`. Returns it, unless it is missing and that is ignored, and its real
    /// path if a link was followed.
    pub(super) fn go(mut self, path: &[u8]) -> Result<(Option<Dir>, Option<Vec<u8>>), Stop> {
        let mut rest: Vec<Vec<u8>> = names(path).rev().map(<[u8]>::to_vec).collect();
        while let Some(name) = rest.pop() {
            match self.link(&name) {
                _ if name == b"." => {}
                _ if name == b".." => {
                    self.path.pop();
                    self.dirs.truncate(self.path.len() + 1);
                }
                Some(target) => {
                    self.links += 1;
                    if self.links > LINKS_MAX {
                        return Err(Stop::Circle);
                    }
                    if target.starts_with(b"/") {
                        self.path.clear();
                        self.dirs.truncate(1);
                    }
                    rest.extend(names(&target).rev().map(<[u8]>::to_vec));
                }
                None => {
                    let next = self.step(&name)?;
                    self.dirs.push(next);
                    self.path.push(name);
                }
            }
        }
        let followed = (self.links > 0).then(|| self.path.join(&b'/'));
        Ok((self.here(), followed))
    }

    fn here(&self) -> Option<Dir> {
        self.dirs.last().copied().flatten()
    }

    /// The target of `name`, if it is a link.
    fn link(&self, name: &[u8]) -> Option<Vec<u8>> {
        if let Some(said) = self.listed.and_then(|listed| listed.get(&self.real_path(name))) {
            return said.clone();
        }
        self.builder.target(self.builder.lookup(self.here()?, name)?).map(<[u8]>::to_vec)
    }

    /// The path of `name` in this directory.
    fn real_path(&self, name: &[u8]) -> Vec<u8> {
        self.path.iter().map(Vec::as_slice).chain([name]).collect::<Vec<_>>().join(&b'/')
    }

    /// The directory `name` in this one.
    fn step(&mut self, name: &[u8]) -> Result<Option<Dir>, Stop> {
        let Some(dir) = self.here() else { return Ok(None) };
        let known = self.builder.lookup(dir, name);
        if let Some(node) = known
            && self.builder.is_directory(node)
        {
            if self.missing == Missing::Make {
                self.builder.touch(dir, name);
            }
            return Ok(Some(self.builder.below(dir, node)));
        }
        match self.missing {
            Missing::Stop => Err(Stop::NoWay),
            Missing::Pass => Ok(None),
            Missing::Add if known.is_some() => Err(Stop::NoWay),
            // This layer itself says that it is something else; a layer below is overruled.
            Missing::Make if known.is_some() && !self.builder.is_from_below(dir, name) => Err(Stop::NoWay),
            Missing::Make | Missing::Add => {
                let shown = self.real_path(name);
                let made = self.builder.put_default_directory(dir, name, &shown).map_err(Stop::Refused)?;
                Ok(Some(self.builder.below(dir, made)))
            }
        }
    }
}
