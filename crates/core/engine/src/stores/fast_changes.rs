//! What fast commits will record: the changes of names and maps since the last commit of either kind.
//!
//! A fast commit ([`crate::state::fast_commit`]) writes what changed as records about files, and not the
//! blocks that changed. So each operation has to say what it did. One that does not is *unfit*, and so is the
//! transaction it belongs to: it is committed in full. That is the default. A handle makes its transaction
//! unfit unless the operation asked for one with `Core::start_recorded`, and such an operation notes
//! here each name it adds or removes; maps are noted where they change (`space::map_edit`), and inodes
//! where they are edited ([`crate::stores::inode_cache`]). Those parts of operations that shift extents, or
//! change attributes, the superblock or files being truncated make the transaction unfit themselves.
//!
//! Invariant: notes are made with a handle open, and taken with none, so a fast commit has all of an
//! operation or nothing.
//!
//! Who else replays fast commits decides what is recorded at all. The kernel (6.18) loses some kinds of
//! files, so only regular ones are. e2fsck (1.47) does not free an inode that lost its last name, and takes
//! a number that is used again for its old file; so no inode is freed by a fast commit.
//!
//! The first fast commit of a transaction empties the log, which pays for itself with the second one. After
//! an unfit transaction the next is likely to be unfit as well, so it is not begun before one was fit.
//!
//! Hazard: memory. More changes than an area takes make the transaction unfit, and then none are kept.

use hectare_journal::format::{FastEntry, FastRecord};
use hectare_units::{BlockNr, InodeNr, LogicalBlock};
use parking_lot::Mutex;
use rangemap::RangeMap;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of the area that a change takes at least: a range or a name.
const CHANGE_BYTES_MIN: u64 = 16;

/// The longest extent that a record holds, written or not.
const RANGE_MAX: u64 = 32_767;

/// A change of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NameChange {
    /// An inode that was just made got its first name.
    Created(FastEntry),
    /// An inode got another name.
    Linked(FastEntry),
    /// An inode lost a name.
    Unlinked(FastEntry),
}

/// What a block of a file is mapped to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mapped {
    /// Nothing.
    Hole,
    /// The block this many after it, wrapping, on the device.
    At { ahead: u64, unwritten: bool },
}

/// The new mappings of a file's blocks, where they have changed.
#[derive(Default)]
pub(crate) struct Ranges {
    map: RangeMap<u64, Mapped>,
}

/// What was noted.
#[derive(Default)]
pub(crate) struct Notes {
    /// In the order in which they were made.
    pub(crate) names: Vec<NameChange>,
    pub(crate) ranges: HashMap<InodeNr, Ranges>,
}

/// The notes of a volume.
pub(crate) struct FastChanges {
    /// Changes that are kept at most; 0 if the volume has no fast commits.
    most: usize,
    unfit: AtomicBool,
    /// Whether the last transaction was fit.
    steady: AtomicBool,
    /// The notes, and how many changes they are.
    notes: Mutex<(Notes, usize)>,
}

impl FastChanges {
    /// For a log whose fast commits take up to so many bytes; 0 for no fast commits.
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            most: usize::try_from(capacity / CHANGE_BYTES_MIN).unwrap_or(usize::MAX),
            unfit: AtomicBool::new(capacity == 0),
            steady: AtomicBool::new(true),
            notes: Mutex::default(),
        }
    }

    /// Whether the volume has fast commits.
    pub(crate) fn is_on(&self) -> bool {
        self.most > 0
    }

    /// Whether the running transaction may be committed fast, so far.
    pub(crate) fn is_fit(&self) -> bool {
        !self.unfit.load(Ordering::Acquire)
    }

    /// Whether a fast commit is worth a try now.
    pub(crate) fn is_promising(&self) -> bool {
        self.is_fit() && self.steady.load(Ordering::Acquire)
    }

    /// The running transaction has changes that are not recorded.
    pub(crate) fn make_unfit(&self) {
        if self.is_fit() {
            self.unfit.store(true, Ordering::Release);
        }
    }

    /// Notes a change if it may become part of a fast commit. `change` returns how many notes it adds.
    fn note(&self, change: impl FnOnce(&mut Notes) -> usize) {
        if !self.is_fit() {
            return;
        }
        let mut held = self.notes.lock();
        let (notes, count) = &mut *held;
        *count += change(notes);
        if *count > self.most {
            *held = Default::default();
            self.make_unfit();
        }
    }

    /// Notes a change of a name.
    pub(crate) fn note_name(&self, change: impl FnOnce() -> NameChange) {
        self.note(|notes| {
            notes.names.push(change());
            1
        });
    }

    /// Notes that `len` blocks of a file from `first` on are mapped to those from `start` on.
    pub(crate) fn note_mapped(
        &self,
        nr: InodeNr,
        first: LogicalBlock,
        len: u32,
        start: BlockNr,
        unwritten: bool,
    ) {
        let first = u64::from(first.get());
        let mapped = Mapped::At { ahead: start.get().wrapping_sub(first), unwritten };
        self.note_range(nr, first, first + u64::from(len), mapped);
    }

    /// Notes that the blocks of a file from `first` to before `end` are a hole.
    pub(crate) fn note_unmapped(&self, nr: InodeNr, first: LogicalBlock, end: u64) {
        self.note_range(nr, first.get().into(), end, Mapped::Hole);
    }

    fn note_range(&self, nr: InodeNr, first: u64, end: u64, mapped: Mapped) {
        if first < end {
            self.note(|notes| {
                let map = &mut notes.ranges.entry(nr).or_default().map;
                let before = map.len();
                map.insert(first..end, mapped);
                map.len().saturating_sub(before)
            });
        }
    }

    /// Takes what was noted, for a fast commit; `None` if that can't be made. Called with no handle open.
    pub(crate) fn take(&self) -> Option<Notes> {
        let (notes, _) = std::mem::take(&mut *self.notes.lock());
        self.is_fit().then_some(notes)
    }

    /// Begins anew, for a full commit: what is noted now is part of that. Called with no handle open.
    pub(crate) fn restart(&self) {
        if self.is_on() {
            *self.notes.lock() = Default::default();
            let was_unfit = self.unfit.swap(false, Ordering::AcqRel);
            self.steady.store(!was_unfit, Ordering::Release);
        }
    }
}

impl Ranges {
    /// The records of the file's new mappings.
    pub(crate) fn records(&self, inode: InodeNr) -> impl Iterator<Item = FastRecord> {
        self.map.iter().flat_map(move |(range, mapped)| {
            let (end, step) = match mapped {
                Mapped::Hole => (range.end, u64::from(u32::MAX)),
                Mapped::At { .. } => (range.end, RANGE_MAX),
            };
            let parts = (range.start..end).step_by(hectare_units::index_of(step));
            parts.map(move |at| part(inode, at, step.min(end - at), *mapped))
        })
    }
}

fn part(inode: InodeNr, at: u64, len: u64, mapped: Mapped) -> FastRecord {
    let first = LogicalBlock::new(hectare_units::low32(at));
    match mapped {
        Mapped::Hole => FastRecord::DelRange { inode, first, len: hectare_units::low32(len) },
        Mapped::At { ahead, unwritten } => FastRecord::AddRange {
            inode,
            first,
            len: hectare_units::low16(len),
            start: BlockNr::new(at.wrapping_add(ahead)),
            unwritten,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeNr = InodeNr::new(12);

    fn at(block: u32) -> LogicalBlock {
        LogicalBlock::new(block)
    }

    #[test]
    fn the_last_mapping_of_each_block_counts() {
        let changes = FastChanges::new(4096);
        changes.note_mapped(FILE, at(0), 10, BlockNr::new(100), true);
        changes.note_mapped(FILE, at(10), 40_000, BlockNr::new(110), true);
        changes.note_mapped(FILE, at(2), 3, BlockNr::new(102), false);
        changes.note_unmapped(FILE, at(40_000), 1 << 32);
        let notes = changes.take().unwrap();
        let add = |first, len, start, unwritten| FastRecord::AddRange {
            inode: FILE,
            first: at(first),
            len,
            start: BlockNr::new(start),
            unwritten,
        };
        let expected = [
            add(0, 2, 100, true),
            add(2, 3, 102, false),
            add(5, 32_767, 105, true),
            add(32_772, 40_000 - 32_772, 32_872, true),
            FastRecord::DelRange { inode: FILE, first: at(40_000), len: u32::MAX - 39_999 },
        ];
        assert_eq!(notes.ranges[&FILE].records(FILE).collect::<Vec<_>>(), expected);
        assert!(changes.take().unwrap().ranges.is_empty());
    }

    #[test]
    fn too_many_changes_need_a_full_commit() {
        let changes = FastChanges::new(CHANGE_BYTES_MIN * 6);
        for n in 0..7u32 {
            assert!(changes.is_fit(), "{n}");
            changes.note_mapped(FILE, at(n * 2), 1, BlockNr::new(50), false);
        }
        assert!(!changes.is_fit() && changes.take().is_none());
        changes.restart();
        assert!(changes.take().unwrap().ranges.is_empty());
    }

    #[test]
    fn an_unfit_transaction_is_followed_by_a_full_commit_first() {
        let changes = FastChanges::new(4096);
        assert!(changes.is_promising());
        changes.make_unfit();
        assert!(!changes.is_promising());
        changes.restart();
        assert!(changes.is_fit() && !changes.is_promising());
        changes.restart();
        assert!(changes.is_promising());
    }

    #[test]
    fn a_volume_without_an_area_notes_nothing() {
        let changes = FastChanges::new(0);
        changes.note_unmapped(FILE, at(0), 1);
        changes.restart();
        assert!(!changes.is_on() && !changes.is_fit() && changes.take().is_none());
    }
}
