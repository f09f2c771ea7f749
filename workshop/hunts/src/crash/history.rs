//! What a thread did, when, and which of it was promised to last.
//!
//! Moments are places in the device's log: the numbers of events in the log when an operation began, and when
//! it had returned. A sync that had returned before a crash promises what had returned before the sync began.
//!
//! What each sync promises:
//! - of the volume: everything, of every thread;
//! - of a file: its content, and all operations on names and attributes up to the last that touched the file,
//!   since transactions reach the log in order;
//! - of a directory: those up to the last that touched a name in it.

use super::content::Edit;
use super::op::Op;
use super::tree::{Tree, digest_of};
use hectare_units::{low32, u64_of, usize_of};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// The mark that a sync of the volume begins with.
pub(super) const BEGINS: u64 = u64::MAX;

/// An operation that was done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) op: Op,
    /// Events in the log when it began; of a sync of the volume, with its mark.
    pub(super) began: usize,
    /// Events in the log when it had returned.
    pub(super) ended: usize,
}

/// What a thread did, in order; the operation at index n has the number n + 1.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct History {
    /// Its directory.
    pub(super) top: String,
    /// The identity of that.
    pub(super) id: u32,
    pub(super) done: Vec<Done>,
}

/// From some event on, the operations up to a number are known to be durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Promise {
    pub(super) from: usize,
    pub(super) upto: u32,
    pub(super) of: Of,
}

/// What of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Of {
    /// Names and attributes.
    Names,
    /// The content of one file.
    File(u32),
    /// The content of all files.
    Files,
}

/// The edits of one file: the number of the operation and what it did.
pub(super) type Edits = Vec<(u32, Edit)>;

/// A history, evaluated.
pub(super) struct EvaluatedHistory {
    /// The digest of the names after as many operations as its index says.
    pub(super) digests: Vec<u64>,
    /// By the ids of files.
    pub(super) edits: HashMap<u32, Edits>,
    /// In the order of their events.
    pub(super) promises: Vec<Promise>,
    /// Renames of a file over another: when, and which file took the place.
    pub(super) replaced: Vec<(u32, u32)>,
}

/// The number of the operation at an index.
pub(super) fn number(index: usize) -> u32 {
    low32(u64_of(index)) + 1
}

impl History {
    /// The names after the first operations.
    pub(super) fn tree_after(&self, count: u32) -> Tree {
        let mut tree = Tree::new(&self.top, self.id);
        for (n, done) in self.done.iter().enumerate().take(usize_of(count)) {
            tree.apply(&done.op, number(n));
        }
        tree
    }

    /// How many operations had returned before a sync of the volume began, by its mark. (Two that happened at
    /// the same number of events are in no order.)
    fn returned_before(&self, mark: usize) -> u32 {
        low32(u64_of(self.done.partition_point(|done| done.ended < mark)))
    }

    /// How many operations may have left something in the first `event` events.
    pub(super) fn begun_before(&self, event: usize) -> u32 {
        low32(u64_of(self.done.partition_point(|done| done.began < event)))
    }
}

/// Evaluates the histories of all threads.
pub(super) fn tell(histories: &[History]) -> Vec<EvaluatedHistory> {
    histories.iter().map(|history| tell_one(history, histories)).collect()
}

fn tell_one(history: &History, all: &[History]) -> EvaluatedHistory {
    let mut tree = Tree::new(&history.top, history.id);
    let mut told = EvaluatedHistory {
        digests: vec![digest_of(&tree.entries())],
        edits: HashMap::new(),
        promises: Vec::new(),
        replaced: Vec::new(),
    };
    let mut touched = Touched::default();
    for (n, done) in history.done.iter().enumerate() {
        let number = number(n);
        if let Op::Edit { id, edit } = &done.op {
            told.edits.entry(*id).or_default().push((number, *edit));
        }
        if let Op::Rename { from, to } = &done.op
            && let (Some(file), Some(_)) = (tree.id(from), tree.id(to))
        {
            told.replaced.push((number, file));
        }
        touched.note(&tree, &done.op, number);
        tree.apply(&done.op, number);
        told.digests.push(digest_of(&tree.entries()));
        touched.promise(&done.op, number - 1, done.ended, &mut told.promises);
    }
    for done in all.iter().flat_map(|history| &history.done).filter(|done| done.op == Op::SyncAll) {
        let upto = history.returned_before(done.began);
        told.promises.extend([Of::Names, Of::Files].map(|of| Promise { from: done.ended, upto, of }));
    }
    told.promises.sort_by_key(|promise| promise.from);
    told
}

/// Which operation on names or attributes touched something last.
#[derive(Default)]
struct Touched {
    files: HashMap<u32, u32>,
    directories: HashMap<String, u32>,
}

impl Touched {
    /// Notes what an operation touches that is done to this tree.
    fn note(&mut self, tree: &Tree, op: &Op, number: u32) {
        let names: &[&String] = match op {
            Op::Create { path, .. }
            | Op::MakeDir { path, .. }
            | Op::Symlink { path, .. }
            | Op::Unlink { path }
            | Op::RemoveDir { path } => &[path],
            Op::Link { from: a, to: b } | Op::Rename { from: a, to: b } | Op::Exchange { a, b } => &[a, b],
            Op::SetXattr { path, .. } | Op::RemoveXattr { path, .. } => {
                self.files.extend(tree.id(path).map(|id| (id, number)));
                return;
            }
            _ => return,
        };
        if let Op::Create { id, .. } | Op::MakeDir { id, .. } | Op::Symlink { id, .. } = op {
            self.files.insert(*id, number);
        }
        for path in names {
            self.files.extend(tree.id(path).map(|id| (id, number)));
            if matches!(op, Op::Link { from, .. } if from == *path) {
                continue; // that name stays as it is
            }
            let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
            self.directories.insert(parent.to_owned(), number);
        }
        if let Op::Rename { from, .. } | Op::Exchange { a: from, .. } = op
            && !tree.is_empty(from)
        {
            // Its directories have other paths now; what is known of them by path is not theirs.
            self.directories.clear();
        }
    }

    /// What a sync of one file or directory promises; `before` is the number of the operation before it.
    fn promise(&self, op: &Op, before: u32, from: usize, promises: &mut Vec<Promise>) {
        let names = match op {
            Op::SyncFile { id } | Op::SyncData { id } => {
                promises.push(Promise { from, upto: before, of: Of::File(*id) });
                self.files.get(id)
            }
            Op::SyncDir { path } => self.directories.get(path),
            _ => None,
        };
        promises.extend(names.map(|upto| Promise { from, upto: *upto, of: Of::Names }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(ops: Vec<Op>) -> History {
        let done = ops.into_iter().enumerate();
        let done = done.map(|(n, op)| Done { op, began: n * 10, ended: n * 10 + 10 }).collect();
        History { top: "t".into(), id: 1, done }
    }

    fn create(path: &str, id: u32) -> Op {
        Op::Create { path: path.into(), id }
    }

    #[test]
    fn syncs_promise_what_they_name() {
        let write = Op::Edit { id: 2, edit: Edit::Write { at: 0, len: 16 } };
        let ops = vec![create("t/a", 2), create("t/b", 3), write, Op::SyncFile { id: 2 }];
        let told = &tell(&[history(ops.clone())])[0];
        let file = Promise { from: 40, upto: 3, of: Of::File(2) };
        assert_eq!(told.promises, [file, Promise { from: 40, upto: 1, of: Of::Names }]);
        let mut with_dir = ops;
        with_dir.push(Op::SyncDir { path: "t".into() });
        let told = &tell(&[history(with_dir)])[0];
        assert_eq!(told.promises.last(), Some(&Promise { from: 50, upto: 2, of: Of::Names }));
        assert_eq!(told.edits[&2].len(), 1);
        assert_eq!(told.digests.len(), 6);
    }

    #[test]
    fn a_link_changes_the_directory_of_the_new_name_only() {
        let dir = Op::MakeDir { path: "t/d".into(), id: 3 };
        let link = Op::Link { from: "t/a".into(), to: "t/d/b".into() };
        let sync = |path: &str| Op::SyncDir { path: path.into() };
        let told = &tell(&[history(vec![create("t/a", 2), dir, link, sync("t"), sync("t/d")])])[0];
        let upto: Vec<u32> = told.promises.iter().map(|promise| promise.upto).collect();
        assert_eq!(upto, [2, 3]);
    }

    #[test]
    fn a_sync_of_the_volume_is_for_every_thread() {
        let one = history(vec![create("t/a", 2), create("t/b", 3), create("t/c", 4)]);
        let mut other = history(vec![Op::SyncAll]);
        other.done[0] = Done { op: Op::SyncAll, began: 21, ended: 25 };
        let told = &tell(&[one.clone(), other])[0];
        assert_eq!(told.promises[0], Promise { from: 25, upto: 2, of: Of::Names });
        assert_eq!((one.begun_before(20), one.begun_before(21), one.returned_before(20)), (2, 3, 1));
    }
}
