//! A directory of a host that has no more than the standard library, as origin or target of a copy.
//!
//! Everything is reached by its path, and a name is looked at before it is used: links are copied, not
//! followed, and what was opened must be what was looked at, where files have numbers. But a process that
//! replaces a directory by a link at that very moment leads the copy out: the directory must not be one
//! that others change.
//!
//! What the host can't keep is counted, and reported once: extended attributes, owners and modes where
//! there are none, times of links. What it can't have at all is left out by name: devices and pipes, links
//! on Windows, names that mean something else there ([`names`]), and a name that differs from one that is
//! there only as the host does not tell apart (case).

mod below;
mod names;
mod origin;
mod target;

pub(crate) use below::Below;
pub(crate) use origin::{LocalOrigin, Node};
pub(crate) use target::LocalTarget;

use super::{failed, kind_of, meta_of};
use crate::copy::ends::Reason;
use hectare_host::{Identity, Stat};
use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;

fn replaced() -> Reason {
    "it was replaced by something else meanwhile".to_owned()
}

/// What a path leads to, if anything; a link is followed if `follow` says so.
fn look(path: &Path, follow: bool) -> io::Result<Option<Metadata>> {
    match if follow { fs::metadata(path) } else { fs::symlink_metadata(path) } {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What distinguishes a file from others. Where files have no numbers, its path does, and when it was made.
fn identity(path: &Path, stat: &Stat) -> Identity {
    if cfg!(unix) {
        return stat.identity;
    }
    let mut hasher = DefaultHasher::new();
    (path, stat.identity).hash(&mut hasher);
    Identity { device: 0, inode: hasher.finish() }
}
