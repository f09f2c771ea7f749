//! Chooses operations that fit the existing files.

use super::super::format::Format;
use super::{Verb, Workload};
use crate::crash::content::Edit;
use crate::crash::op::Op;
use crate::crash::self_describing::{self, CELL};
use crate::crash::tree::{EntryKind, Tree};
use hectare_units::random::SplitMix64;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of all files, from which on none grows.
const TOTAL_MAX: u64 = 2 << 20;
/// Bytes of an attribute's value at most: three of them do not fit into a block of 1 KiB.
const ATTRIBUTE_MAX: u64 = 400;
/// Choices that may fail before something is chosen that always can be done.
const TRIES: usize = 20;

/// Chooses the operations of one thread.
pub(in crate::crash) struct Generator {
    random: SplitMix64,
    workload: Workload,
    /// Space is allocated in units of this many bytes.
    unit: u64,
    /// Whether files are mapped by blocks, which are neither allocated ahead nor moved.
    by_blocks: bool,
    /// Whether attributes may have values that no block holds.
    large_values: bool,
    tree: Tree,
    /// The files there are, those too that are only open, and their sizes.
    sizes: BTreeMap<u32, u64>,
    open: BTreeSet<u32>,
    next_id: u32,
    done: u32,
}

impl Generator {
    /// For a thread whose directory is the empty `tree`, with ids from `first_id` on, on a volume with space
    /// in units of that many bytes, and perhaps with room for large values of attributes.
    pub(in crate::crash) fn new(
        workload: Workload,
        random: SplitMix64,
        format: Format,
        tree: Tree,
        first_id: u32,
    ) -> Self {
        let (sizes, open) = (BTreeMap::new(), BTreeSet::new());
        Self {
            random,
            workload,
            unit: format.unit(),
            by_blocks: format.maps_by_blocks(),
            large_values: format.has_large_values(),
            tree,
            sizes,
            open,
            next_id: first_id,
            done: 0,
        }
    }

    /// The names as they are now.
    pub(in crate::crash) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The next operation; what is done of it must be [noted](Self::note).
    pub(in crate::crash) fn next(&mut self) -> Op {
        let op = (0..TRIES).find_map(|_| {
            let verb = self.random.weighed(self.workload.weights())?;
            self.choose(verb)
        });
        op.unwrap_or(Op::SyncAll)
    }

    /// Takes an operation as done.
    pub(in crate::crash) fn note(&mut self, op: &Op) {
        self.done += 1;
        self.tree.apply(op, self.done);
        match op {
            Op::Create { id, .. } => drop(self.sizes.insert(*id, 0)),
            Op::Edit { id, edit } => {
                let size = self.sizes.entry(*id).or_default();
                *size = edit.size_after(*size);
                self.open.insert(*id);
            }
            Op::SyncFile { id } | Op::SyncData { id } => drop(self.open.insert(*id)),
            Op::Close { id } => drop(self.open.remove(id)),
            _ => {}
        }
        let (tree, open) = (&self.tree, &self.open);
        self.sizes.retain(|id, _| open.contains(id) || tree.path(*id).is_some());
    }

    fn choose(&mut self, verb: Verb) -> Option<Op> {
        match verb {
            Verb::Create | Verb::MakeDir | Verb::Symlink | Verb::Link => self.make(verb),
            Verb::Rename => self.rename(),
            Verb::Exchange => self.exchange(),
            Verb::Unlink => {
                let path = self.pick_path(|kind| *kind != EntryKind::Directory)?;
                Some(Op::Unlink { path })
            }
            Verb::RemoveDir => self.remove_dir(),
            Verb::SetXattr | Verb::RemoveXattr => self.attribute(verb),
            Verb::Close => {
                let open: Vec<u32> = self.open.iter().copied().collect();
                self.random.pick(&open).map(|id| Op::Close { id: *id })
            }
            Verb::SyncFile => self.pick_file().map(|(id, _)| Op::SyncFile { id }),
            Verb::SyncData => self.pick_file().map(|(id, _)| Op::SyncData { id }),
            Verb::SyncDir => {
                self.pick_path(|kind| *kind == EntryKind::Directory).map(|path| Op::SyncDir { path })
            }
            Verb::SyncAll => Some(Op::SyncAll),
            _ => {
                let (id, size) = self.pick_file()?;
                self.edit(verb, size).map(|edit| Op::Edit { id, edit })
            }
        }
    }

    fn pick_path(&mut self, fits: impl Fn(&EntryKind) -> bool) -> Option<String> {
        let paths = self.tree.paths(fits);
        self.random.pick(&paths).map(|path| (*path).to_owned())
    }

    fn pick_file(&mut self) -> Option<(u32, u64)> {
        let files: Vec<(u32, u64)> = self.sizes.iter().map(|(id, size)| (*id, *size)).collect();
        self.random.pick(&files).copied()
    }

    /// A path nothing is at, in a directory there is.
    fn free_path(&mut self) -> Option<String> {
        let dir = self.pick_path(|kind| *kind == EntryKind::Directory)?;
        // In a large directory, long names fill blocks sooner.
        let padding = match self.workload {
            Workload::Directory => "n".repeat(hectare_units::index_of(20 + self.random.below(60))),
            _ => String::new(),
        };
        let path = format!("{dir}/{}{padding}", self.random.below(1000));
        self.tree.id(&path).is_none().then_some(path)
    }

    fn make(&mut self, verb: Verb) -> Option<Op> {
        if self.tree.paths(|_| true).len() >= self.workload.names_max() {
            return None;
        }
        let path = self.free_path()?;
        if verb == Verb::Link {
            let from = self.pick_path(|kind| *kind == EntryKind::File)?;
            return Some(Op::Link { from, to: path });
        }
        let id = self.next_id;
        self.next_id += 1;
        Some(match verb {
            Verb::MakeDir => Op::MakeDir { path, id },
            Verb::Symlink => {
                // Up to 59 bytes lie in the inode, more in a block.
                let len = [8, 59, 60, 200][hectare_units::index_of(self.random.below(4))];
                Op::Symlink { path, id, target: "s".repeat(len) }
            }
            _ => Op::Create { path, id },
        })
    }

    fn rename(&mut self) -> Option<Op> {
        let from = self.pick_path(|_| true)?;
        let is_dir = self.tree.paths(|kind| *kind == EntryKind::Directory).contains(&from.as_str());
        let to = if self.random.one_in(2) {
            self.pick_path(|kind| *kind != EntryKind::Directory)?
        } else {
            self.free_path()?
        };
        let onto_itself = self.tree.id(&from) == self.tree.id(&to);
        let below_itself = is_dir && to.starts_with(&format!("{from}/"));
        let over = is_dir && self.tree.id(&to).is_some();
        let fits = from != self.tree.top() && !onto_itself && !below_itself && !over;
        fits.then_some(Op::Rename { from, to })
    }

    fn exchange(&mut self) -> Option<Op> {
        let (a, b) = (self.pick_path(|_| true)?, self.pick_path(|_| true)?);
        let nested = |a: &str, b: &str| a == b || b.starts_with(&format!("{a}/"));
        let same = self.tree.id(&a) == self.tree.id(&b);
        (!same && !nested(&a, &b) && !nested(&b, &a)).then_some(Op::Exchange { a, b })
    }

    fn remove_dir(&mut self) -> Option<Op> {
        let path = self.pick_path(|kind| *kind == EntryKind::Directory)?;
        (path != self.tree.top() && self.tree.is_empty(&path)).then_some(Op::RemoveDir { path })
    }

    fn attribute(&mut self, verb: Verb) -> Option<Op> {
        let path = self.pick_path(|kind| !matches!(kind, EntryKind::Symlink(_)))?;
        let names = self.tree.attributes(&path);
        if verb == Verb::RemoveXattr {
            let name = (*self.random.pick(&names)?).to_owned();
            return Some(Op::RemoveXattr { path, name });
        }
        // Two large ones fill the block there can be.
        let name = format!("user.{}", self.random.below(2));
        if self.large_values && self.random.one_in(3) {
            let len = self_describing::SHARED_MIN * (1 + self.random.below(4));
            return Some(Op::SetXattr { path, name, len: hectare_units::index_of(len) });
        }
        let most = if self.random.one_in(2) { 40 } else { ATTRIBUTE_MAX };
        let len = 1 + self.random.below(most);
        Some(Op::SetXattr { path, name, len: hectare_units::index_of(len) })
    }

    /// A place below `end`: on a border of blocks, or anywhere.
    fn place(&mut self, end: u64) -> u64 {
        let at = self.random.below(end);
        at - at % if self.random.one_in(2) { self.unit } else { CELL }
    }

    /// A length from one cell on: some blocks, or anything.
    fn length(&mut self) -> u64 {
        let len = match self.random.below(4) {
            0 => self.unit * (1 + self.random.below(3)),
            1 => 1 + self.random.below(200),
            _ => 1 + self.random.below(self.workload.change_max()),
        };
        len.next_multiple_of(CELL).min(self.workload.change_max())
    }

    /// Pieces of a block with a block between them.
    fn comb(&mut self) -> Edit {
        let most = self.workload.size_max() / self.unit;
        let first = self.random.below(most - 1);
        let count = 1 + self.random.below((most - first) / 2);
        Edit::Comb { at: first * self.unit, each: self.unit, count }
    }

    fn edit(&mut self, verb: Verb, size: u64) -> Option<Edit> {
        let size_max = self.workload.size_max();
        let (at, len) = (self.place(size + 1), self.length());
        let within = len.min(size - at.min(size));
        let beyond = (at + len).min(size_max).saturating_sub(at);
        // Space beyond the end is not counted.
        let keep_size = self.random.one_in(3) && self.workload != Workload::Large;
        let edit = match verb {
            Verb::Allocate | Verb::Zero | Verb::Collapse | Verb::Insert if self.by_blocks => return None,
            Verb::Append => Edit::Write { at: size, len: len.min(size_max.saturating_sub(size)) },
            Verb::Overwrite => Edit::Write { at, len: within },
            Verb::WriteFar => {
                let at = self.place(size_max);
                Edit::Write { at, len: len.min(size_max - at) }
            }
            Verb::Comb => self.comb(),
            Verb::Cut => Edit::Resize { size: if self.random.one_in(4) { 0 } else { at } },
            Verb::Grow => Edit::Resize { size: (size + len).min(size_max).max(size) },
            Verb::Allocate => Edit::Allocate { at, len: beyond, keep_size },
            Verb::Punch => Edit::Punch { at, len: within },
            Verb::Zero => Edit::Zero { at, len: beyond, keep_size },
            Verb::Collapse | Verb::Insert => return self.moved(verb, size),
            _ => return None,
        };
        let empty = matches!(
            edit,
            Edit::Write { len: 0, .. }
                | Edit::Allocate { len: 0, .. }
                | Edit::Punch { len: 0, .. }
                | Edit::Zero { len: 0, .. }
        );
        let total: u64 = self.sizes.values().sum();
        let grows = edit.size_after(size) > size && total > TOTAL_MAX;
        (!empty && !grows).then_some(edit)
    }

    /// Ranges that move begin and end with blocks, and inside the file.
    fn moved(&mut self, verb: Verb, size: u64) -> Option<Edit> {
        let blocks = size / self.unit;
        if blocks < 2 {
            return None;
        }
        let at = self.random.below(blocks - 1);
        let len = self.unit * (1 + self.random.below((blocks - at - 1).min(3)));
        let at = at * self.unit;
        if verb == Verb::Collapse {
            return (at + len < size).then_some(Edit::Collapse { at, len });
        }
        (size + len <= self.workload.size_max()).then_some(Edit::Insert { at, len })
    }
}
