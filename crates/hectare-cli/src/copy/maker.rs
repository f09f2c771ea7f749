//! Makes one file of a copy: what is kept of it, and the open file in the target that its content goes to.
//!
//! It has no state of its own, so that the walker and the threads of [`super::ordered`] use the same one.

use super::content::{Job, Pool};
use super::ends::{Meta, Options, Origin, Reason, Target, Unkept, Xattrs};
use crate::failure::{Failure, LeftOut, Outcome};
use hectare_engine::Kind;

/// What is needed to make files.
pub(super) struct Maker<'a, O: Origin, T: Target> {
    pub(super) origin: &'a O,
    pub(super) target: &'a T,
    pub(super) options: Options,
    pub(super) left_out: &'a LeftOut,
    pub(super) pool: &'a Pool<'a, O::File, T>,
}

/// The place of a new file.
pub(super) struct Spot<'s, D> {
    pub(super) dir: &'s D,
    pub(super) name: &'s [u8],
    /// Paths in the origin and in the target, for messages.
    pub(super) from: &'s [u8],
    pub(super) to: &'s [u8],
    /// What has the name already.
    pub(super) there: Option<Kind>,
}

impl<O: Origin, T: Target> Maker<'_, O, T> {
    pub(super) fn meta(&self, node: &O::Node, follow: bool) -> Result<Meta, Reason> {
        self.origin.meta(node, follow).map(|meta| self.options.adjust(meta))
    }

    pub(super) fn target_failed(&self, to: &[u8], reason: Reason) -> Failure {
        Failure::of(self.target.show(to), reason)
    }

    /// Reports attributes that the target has no room for.
    pub(super) fn tell_unkept(&self, to: &[u8], unkept: Unkept) {
        if let Some(reason) = unkept {
            self.left_out.tell(self.target.show(to), reason);
        }
    }

    pub(super) fn leave_out(&self, from: &[u8], reason: impl std::fmt::Display) -> Outcome {
        self.left_out.tell(self.origin.show(from), reason);
        Ok(())
    }

    /// The attributes to keep, if any; attributes that can't be read are left out.
    pub(super) fn kept(
        &self,
        node: &O::Node,
        from: &[u8],
        meta: Meta,
        follow: bool,
    ) -> Option<(Meta, Xattrs)> {
        self.options.preserve.then(|| match self.origin.xattrs(node, follow) {
            Ok(xattrs) => (meta, xattrs),
            Err(reason) => {
                self.left_out.tell(self.origin.show(from), reason);
                (meta, Vec::new())
            }
        })
    }

    /// The mode of what is made in the target.
    pub(super) fn mode(&self, meta: &Meta) -> u16 {
        if self.options.preserve { meta.mode } else { self.target.new_mode(meta.mode & 0o777) }
    }

    /// Opens a file, and makes it in the target; `None` if it can't be read, which is reported.
    pub(super) fn job(
        &self,
        node: &O::Node,
        meta: Meta,
        spot: &Spot<'_, T::Dir>,
        follow: bool,
    ) -> Outcome<Option<Job<O::File, T::File>>> {
        let Spot { dir, name, from, to, there } = *spot;
        let content = match self.origin.open(node, follow, &meta) {
            Ok(content) => content,
            Err(reason) => return self.leave_out(from, reason).map(|()| None),
        };
        let keep = self.kept(node, from, meta, follow);
        let made = (|| {
            if there.is_some_and(|kind| kind != Kind::File) {
                self.target.remove(dir, name)?;
            }
            match there {
                None if self.options.preserve => self.target.make_new(dir, name, &meta),
                _ => self.target.make_file(dir, name, self.mode(&meta), there == Some(Kind::File)),
            }
        })();
        let file = match made {
            Ok(file) => file,
            // Names that differ are the same in a directory without case.
            Err(_) if there.is_none() && matches!(self.target.find(dir, name), Ok(Some(_))) => {
                return self.leave_out(from, "another file has that name in the target").map(|()| None);
            }
            Err(reason) => return Err(self.target_failed(to, reason)),
        };
        let (from, to) = (self.origin.show(from), self.target.show(to));
        Ok(Some(Job { content, file, keep, from, to }))
    }
}
