//! Copying trees between the host and images, and between images.
//!
//! A copy goes from an [`Origin`] to a [`Target`]; each is either a directory of the host ([`host`]) or a
//! volume ([`volume`]). One thread walks the origin and creates names in the target, parents first; several
//! threads copy the content of files. A directory gets its final attributes when everything in it has been
//! made, because making things changes its times. Origins that know where their files lie are read in that
//! order ([`ordered`]).
//!
//! A file or directory that can't be read is reported and left out, and the copy continues; the first write
//! error ends it.
//!
//! Hazards: an image may be hostile. Names that would leave the target directory (`..`, anything with a `/`)
//! are left out, nothing is ever written through a symbolic link that the copy met or made, and a directory
//! that is met twice is not entered again. A file may change while it is read: it is copied up to its size
//! when it was opened.

pub(crate) mod content;
mod ends;
pub(crate) mod host;
mod maker;
mod ordered;
pub(crate) mod volume;

pub(crate) use ends::{Content, Meta, Named, Options, Origin, Reason, Special, Target, Xattrs};

use crate::failure::{Failure, LeftOut, Outcome};
use crate::name::join;
use crate::progress::Progress;
use content::Pool;
use hectare_engine::Kind;
use hectare_export::MET_TWICE;
use hectare_host::Identity;
use hectare_units::InodeNr;
use maker::{Maker, Spot};
use ordered::Later;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The destination of one file.
pub(crate) struct Goal<D> {
    /// Into this directory,
    pub(crate) dir: D,
    /// under this name; `None` to put what a directory holds into `dir` itself.
    pub(crate) name: Option<Vec<u8>>,
    /// The path of `dir` from the target's top.
    pub(crate) path: Vec<u8>,
}

/// What one command has made in its target so far, from one source after the other.
pub(crate) struct Made<F> {
    /// The first names of files with several, for each image that sources are in, and for the host.
    first_names: HashMap<Option<PathBuf>, HashMap<Identity, F>>,
    /// The paths of files, if there are several sources.
    paths: Option<HashSet<Vec<u8>>>,
}

impl<F> Made<F> {
    /// Nothing yet, of one source or `several`.
    pub(crate) fn new(several: bool) -> Self {
        Self { first_names: HashMap::new(), paths: several.then(HashSet::new) }
    }
}

/// A directory that is being copied.
struct Level<C, D> {
    /// `None` if it can't be listed.
    children: Option<C>,
    from: Arc<[u8]>,
    dir: D,
    to: Arc<[u8]>,
    /// Whether this copy made it, so that nothing is in it but what the copy puts there.
    is_new: bool,
    /// Its attributes, set when all its content has been copied.
    leave: Option<Leave>,
}

struct Leave {
    mode: u16,
    kept: Option<(Meta, Xattrs)>,
}

struct Copier<'a, O: Origin, T: Target> {
    maker: Maker<'a, O, T>,
    /// The stack of directories being copied.
    levels: Vec<Level<O::Children, T::Dir>>,
    /// The first names of files with several.
    first_names: &'a mut HashMap<Identity, T::First>,
    /// The paths of files that the command has made, if it has several sources.
    paths: &'a mut Option<HashSet<Vec<u8>>>,
    entered: HashSet<Identity>,
    /// The file of the host that the target lies in, if the origin is of the host.
    own_file: Option<Identity>,
    /// Directories the copy made: it must not copy them again.
    made: HashSet<InodeNr>,
    /// Files of an ordered origin, which are copied when the walk is over,
    later: Vec<Later<O::Node, T::Dir>>,
    /// and directories that get their attributes after that.
    finished: Vec<(T::Dir, Arc<[u8]>, Leave)>,
}

/// Copies one file or directory, recursively. What a command with several sources has `made` before is linked to,
/// and not replaced.
pub(crate) fn copy<O: Origin, T: Target>(
    origin: &O,
    target: &T,
    source: (O::Node, Vec<u8>),
    goal: Goal<T::Dir>,
    options: Options,
    progress: &Progress,
    made: &mut Made<T::First>,
) -> Outcome {
    let left_out = LeftOut::default();
    let Made { first_names, paths } = made;
    let first_names = first_names.entry(origin.image().map(Path::to_owned)).or_default();
    let pool = Pool::new(target, &left_out, progress);
    let walked = std::thread::scope(|scope| {
        if options.latest.is_none() {
            pool.start(scope, options.threads);
        }
        let mut copier = Copier {
            maker: Maker { origin, target, options, left_out: &left_out, pool: &pool },
            levels: Vec::new(),
            first_names,
            paths,
            entered: HashSet::new(),
            own_file: target.own_file().filter(|_| origin.image().is_none()),
            made: HashSet::new(),
            later: Vec::new(),
            finished: Vec::new(),
        };
        let walked =
            copier.start(source, goal).and_then(|()| copier.run()).and_then(|()| copier.copy_later());
        pool.finish();
        walked
    });
    walked?;
    pool.outcome()?;
    left_out.outcome()
}

impl<'a, O: Origin, T: Target> std::ops::Deref for Copier<'a, O, T> {
    type Target = Maker<'a, O, T>;

    fn deref(&self) -> &Self::Target {
        &self.maker
    }
}

impl<O: Origin, T: Target> Copier<'_, O, T> {
    fn start(&mut self, (node, from): (O::Node, Vec<u8>), goal: Goal<T::Dir>) -> Outcome {
        let follow = self.options.follow;
        let Goal { dir, name, path } = goal;
        if let Some(name) = name {
            let to = join(&path, &name);
            return self.visit(&node, &from, &dir, &name, to, follow);
        }
        let meta = self.meta(&node, follow).map_err(|e| Failure::of(self.origin.show(&from), e))?;
        self.enter(&node, &from, meta, dir, path, false);
        Ok(())
    }

    fn run(&mut self) -> Outcome {
        while let Some(level) = self.levels.last_mut() {
            let maker = &self.maker;
            if maker.pool.has_failed() {
                break; // its outcome says why
            }
            match level.children.as_mut().and_then(|children| maker.origin.next_child(children)) {
                Some(Ok((name, node))) => {
                    let (from, to, dir) =
                        (join(&level.from, &name), join(&level.to, &name), level.dir.clone());
                    if is_possible(&name) {
                        self.visit(&node, &from, &dir, &name, to, false)?;
                    } else {
                        self.leave_out(&from, "the directory is corrupt: no file can have that name")?;
                    }
                }
                Some(Err(reason)) => maker.left_out.tell(maker.origin.show(&level.from), reason),
                None => self.leave()?,
            }
        }
        Ok(())
    }

    /// Finishes the innermost directory.
    fn leave(&mut self) -> Outcome {
        let Some(Level { dir, to, leave: Some(leave), .. }) = self.levels.pop() else {
            return Ok(());
        };
        if O::ORDERED {
            self.finished.push((dir, to, leave));
            return Ok(());
        }
        self.finish_dir(&dir, &to, &leave)
    }

    fn finish_dir(&self, dir: &T::Dir, to: &[u8], leave: &Leave) -> Outcome {
        let done = self.target.finish_dir(dir, leave.mode, leave.kept.as_ref());
        self.tell_unkept(to, done.map_err(|reason| self.target_failed(to, reason))?);
        Ok(())
    }

    /// Copies the files of an ordered origin, then finishes its directories, the inner ones first.
    fn copy_later(&mut self) -> Outcome {
        let files = std::mem::take(&mut self.later);
        if !files.is_empty() && !self.pool.has_failed() {
            ordered::copy_all(&self.maker, files, self.options.threads)?;
        }
        for (dir, to, leave) in std::mem::take(&mut self.finished) {
            if self.pool.has_failed() {
                break;
            }
            self.finish_dir(&dir, &to, &leave)?;
        }
        Ok(())
    }

    fn visit(
        &mut self,
        node: &O::Node,
        from: &[u8],
        dir: &T::Dir,
        name: &[u8],
        to: Vec<u8>,
        follow: bool,
    ) -> Outcome {
        if let Some(reason) = self.target.refuses_name(dir, name) {
            return self.leave_out(from, reason);
        }
        if O::ORDERED && self.origin.is_plain_file(node) {
            return self.plain_file(node, from, dir, name, &to);
        }
        let meta = match self.meta(node, follow) {
            Ok(meta) => meta,
            Err(reason) => return self.leave_out(from, reason),
        };
        let there = self.find(dir, name, &to)?;
        if let Some(reason) = self.stays(dir, name, there, meta.kind) {
            return self.leave_out(from, format_args!("{}: {reason}", self.target.show(&to)));
        }
        if meta.kind == Kind::Directory {
            return self.visit_directory(node, from, meta, dir, name, to, there);
        }
        if there == Some(Kind::Directory) {
            return self.leave_out(from, "a directory is in the way where it should go");
        }
        if there.is_some() && self.paths.as_ref().is_some_and(|made| made.contains(&to)) {
            let reason = "this command has made that file from another source, and does not replace it";
            return self.leave_out(from, format_args!("{}: {reason}", self.target.show(&to)));
        }
        let several = self.options.hard_links && meta.links > 1;
        if let Some(first) = self.first_names.get(&meta.id).filter(|_| several) {
            let linked = match there {
                Some(_) => self.target.remove(dir, name),
                None => Ok(()),
            };
            let linked = linked.and_then(|()| self.target.link(first, dir, name));
            linked.map_err(|reason| self.target_failed(&to, reason))?;
            self.note_made(&to);
            return Ok(());
        }
        let first = if meta.kind == Kind::File {
            self.file(node, from, meta, dir, name, &to, there, follow)?
        } else {
            self.special(node, from, meta, dir, name, &to, there)?
        };
        if let (Some(first), true) = (first, several) {
            self.first_names.insert(meta.id, first);
        }
        Ok(())
    }

    /// Notes that the command has made a file.
    fn note_made(&mut self, to: &[u8]) {
        if let Some(paths) = self.paths {
            paths.insert(to.to_vec());
        }
    }

    /// What has a name in the target.
    fn find(&self, dir: &T::Dir, name: &[u8], to: &[u8]) -> Outcome<Option<Kind>> {
        if O::ORDERED && self.levels.last().is_some_and(|level| level.is_new) {
            return Ok(None);
        }
        self.target.find(dir, name).map_err(|reason| self.target_failed(to, reason))
    }

    /// Why what has a name in the target is not replaced, if that is so.
    fn stays(&self, dir: &T::Dir, name: &[u8], there: Option<Kind>, by: Kind) -> Option<Reason> {
        there.and_then(|there| self.target.stays(dir, name, there, by))
    }

    /// Notes a file of an ordered origin.
    fn plain_file(&mut self, node: &O::Node, from: &[u8], dir: &T::Dir, name: &[u8], to: &[u8]) -> Outcome {
        let there = self.find(dir, name, to)?;
        if let Some(reason) = self.stays(dir, name, there, Kind::File) {
            return self.leave_out(from, format_args!("{}: {reason}", self.target.show(to)));
        }
        if there == Some(Kind::Directory) {
            return self.leave_out(from, "a directory is in the way where it should go");
        }
        let paths = self.levels.last().map(|level| (Arc::clone(&level.from), Arc::clone(&level.to)));
        let (from, to) = paths.unwrap_or_default();
        let (node, dir, place) = (node.clone(), dir.clone(), self.origin.place(node));
        self.later.push(Later { node, dir, name: name.into(), from, to, there, place });
        Ok(())
    }

    #[allow(clippy::too_many_arguments)] // the parts of one step
    fn visit_directory(
        &mut self,
        node: &O::Node,
        from: &[u8],
        meta: Meta,
        dir: &T::Dir,
        name: &[u8],
        to: Vec<u8>,
        there: Option<Kind>,
    ) -> Outcome {
        if !self.options.recursive {
            return self.leave_out(from, "it is a directory; cp -r copies it with all it holds");
        }
        let made = match there {
            Some(Kind::Directory) => self.target.enter(dir, name),
            Some(_) => {
                return self.leave_out(from, "something else is in the way where its directory should go");
            }
            None => self.target.make_dir(dir, name, self.mode(&meta)),
        };
        let made = made.map_err(|reason| self.target_failed(&to, reason))?;
        self.enter(node, from, meta, made, to, there.is_none());
        Ok(())
    }

    /// Makes a directory the innermost: its content is copied next, and its own attributes after that.
    fn enter(&mut self, node: &O::Node, from: &[u8], meta: Meta, dir: T::Dir, to: Vec<u8>, new: bool) {
        let target = self.target.dir_inode(&dir);
        let itself = target.and_then(|(volume, _)| self.origin.inode_in(node, volume));
        if let Some((_, nr)) = target {
            self.made.insert(nr);
        }
        if itself.is_some_and(|nr| self.made.contains(&nr)) {
            self.left_out.tell(self.origin.show(from), "a directory can't be copied into itself");
            return;
        }
        if !self.entered.insert(meta.id) {
            self.left_out.tell(self.origin.show(from), MET_TWICE);
            return;
        }
        let children = match self.origin.children(node, &meta) {
            Ok(children) => Some(children),
            Err(reason) => {
                self.left_out.tell(self.origin.show(from), reason);
                None
            }
        };
        let leave = (self.options.preserve || new)
            .then(|| Leave { mode: self.mode(&meta), kept: self.kept(node, from, meta, false) });
        self.levels.push(Level { children, from: from.into(), dir, to: to.into(), leave, is_new: new });
    }

    #[allow(clippy::too_many_arguments)] // the parts of one step
    fn file(
        &mut self,
        node: &O::Node,
        from: &[u8],
        meta: Meta,
        dir: &T::Dir,
        name: &[u8],
        to: &[u8],
        there: Option<Kind>,
        follow: bool,
    ) -> Outcome<Option<T::First>> {
        let same = self.target.dir_inode(dir).and_then(|(volume, parent)| {
            let nr = self.origin.inode_in(node, volume)?;
            volume.lookup(parent, name).ok().filter(|found| *found == nr)
        });
        if self.own_file == Some(meta.id) {
            return self.leave_out(from, "it is the image that is copied into").map(|()| None);
        }
        if same.is_some() {
            self.left_out.tell(self.origin.show(from), "it would be copied onto itself");
            return Ok(None);
        }
        let several = self.options.hard_links && meta.links > 1;
        let Some(job) = self.job(node, meta, &Spot { dir, name, from, to, there }, follow)? else {
            return Ok(None);
        };
        let first = several.then(|| self.target.first(&job.file, dir, name)).transpose();
        let first = first.map_err(|reason| self.target_failed(to, reason))?;
        self.pool.take(job);
        self.note_made(to);
        Ok(first)
    }

    #[allow(clippy::too_many_arguments)] // the parts of one step
    fn special(
        &mut self,
        node: &O::Node,
        from: &[u8],
        meta: Meta,
        dir: &T::Dir,
        name: &[u8],
        to: &[u8],
        there: Option<Kind>,
    ) -> Outcome<Option<T::First>> {
        if let Some(reason) = self.target.refuses(meta.kind) {
            return self.leave_out(from, reason).map(|()| None);
        }
        let special = if meta.kind == Kind::Symlink {
            match self.origin.read_link(node) {
                Ok(target) => Special::Symlink(target),
                Err(reason) => return self.leave_out(from, reason).map(|()| None),
            }
        } else if self.options.recursive {
            Special::Node(meta.kind, meta.device)
        } else {
            return self
                .leave_out(from, "it is no regular file; cp -r copies devices and pipes")
                .map(|()| None);
        };
        let keep = self.kept(node, from, meta, false);
        let made = (|| {
            if there.is_some() {
                self.target.remove(dir, name)?;
            }
            self.target.make_special(dir, name, &special, self.mode(&meta), keep.as_ref())
        })();
        match made {
            // Devices need root in a directory of the host; the rest of the tree does not.
            Err(reason) if matches!(special, Special::Node(..)) => {
                self.left_out.tell(self.target.show(to), reason);
                Ok(None)
            }
            made => {
                let (first, unkept) = made.map_err(|reason| self.target_failed(to, reason))?;
                self.tell_unkept(to, unkept);
                self.note_made(to);
                Ok(Some(first))
            }
        }
    }
}

/// Whether a name read from a directory can be made in another one.
fn is_possible(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}
