//! Adds single files of the host to a tree under construction.
//!
//! They come after all sources and before specifications, as one layer over a settled tree. What has the name
//! is replaced, as by any layer, but for a directory: that a whole directory goes because a file was added is
//! never meant. Missing directories are made; symbolic links among the directories are followed inside the
//! image.
//!
//! An added file has the host file's mode, times and holes, belongs to root, and has no extended attributes:
//! owner and labels of a developer's machine mean nothing in an image. What the options say for everything
//! applies, and what the argument says comes last.

use super::addition::{Addition, OPTION, refused};
use super::builder::{Builder, Draft};
use super::host_file;
use super::tar::place;
use crate::error::Error;
use crate::handle::SourceHandle;

/// Adds files, the later ones over the earlier ones.
pub(crate) fn add(builder: &mut Builder<'_>, additions: &[Addition]) -> Result<(), Error> {
    builder.settle(SourceHandle::List { name: OPTION.into() })?;
    additions.iter().try_for_each(|addition| addition.add_to(builder))
}

impl Addition {
    fn add_to(&self, builder: &mut Builder<'_>) -> Result<(), Error> {
        let fault = |reason: &str| refused(&self.argument, reason.to_owned());
        let failed = |error: Error| refused(&self.argument, error.to_string());
        let (parent, name) = match self.path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&self.path[..at], &self.path[at + 1..]),
            None => (&[][..], &*self.path),
        };
        let (kind, meta) = host_file::regular(&self.host).map_err(failed)?;
        let (dir, parent) = match place::directory(builder, parent, true) {
            Ok(Some(found)) => found,
            Err(Some(error)) => return Err(failed(error)),
            Ok(None) | Err(None) => {
                return Err(fault("one of the directories in its path is something else in the image"));
            }
        };
        if builder.lookup(dir, name).is_some_and(|node| builder.is_directory(node)) {
            return Err(fault("the image has a directory of that name"));
        }
        let path = super::folder::join(&parent, name);
        let node = builder.put(dir, name, &path, Draft { kind, meta, xattrs: Vec::new() }).map_err(failed)?;
        let node = &mut builder.nodes[node.index()];
        node.mode = self.mode.unwrap_or(node.mode);
        node.uid = self.uid.unwrap_or(node.uid);
        node.gid = self.gid.unwrap_or(node.gid);
        Ok(())
    }
}
