//! Makes a fast commit: records of what changed in the running transaction since the last commit.
//!
//! An fsync needs what one file and its names are now, and that costs a full commit bitmaps, descriptors,
//! tables and the superblock. A fast commit holds what the operations noted
//! ([`crate::stores::fast_changes`]), a block as a rule. All that was noted is written, not only what is
//! asked for: names and maps depend on each other.
//!
//! The order of the records is what replaying them needs, here and in the kernel: the names in the order in
//! which they changed, each new inode before its first; then for each file what its blocks are mapped to,
//! and the inode last, with the size and the count of links that the others lead to.
//!
//! Hazards:
//! - a file without a name that is still open was left by an earlier transaction, as an orphan; what
//!   happens to it now is not recorded, since it is gone after a crash;
//! - records say nothing of directories but names: their times are those of the replay.
//!
//! What it is not: a decision. The journal asks for records when it is to make something safe
//! ([`hectare_journal::Commit::fast_records`]).

use crate::state::State;
use crate::stores::fast_changes::{NameChange, Notes};
use crate::stores::inode_cache::CachedInode;
use hectare_ext4::inode::{BASE_SIZE, Inode, InodeFlags, Kind};
use hectare_journal::format::FastRecord;
use hectare_units::{InodeNr, usize_of};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Forms of files whose changes a record does not hold.
const UNFIT: InodeFlags = InodeFlags::INLINE_DATA
    .union(InodeFlags::ENCRYPT)
    .union(InodeFlags::VERITY)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::EA_INODE);

/// The records of everything noted; `None` if the transaction must be committed in full. Called with no
/// handle open.
pub(super) fn records(state: &State) -> Option<Vec<FastRecord>> {
    let changed = state.inodes.take_changed();
    let notes = state.fast.take()?;
    // In the order of their numbers, each once.
    let files: BTreeMap<InodeNr, Arc<CachedInode>> = changed
        .into_iter()
        .filter(|inode| !inode.is_freed() && inode.get().kind() != Some(Kind::Directory))
        .map(|inode| (inode.nr(), inode))
        .collect();
    let made = notes.names.iter().filter_map(|change| match change {
        NameChange::Created(entry) => Some(entry.inode),
        _ => None,
    });
    Fast { state, made: made.collect(), files, notes }.records()
}

struct Fast<'a> {
    state: &'a State,
    /// The files that changed and are in use.
    files: BTreeMap<InodeNr, Arc<CachedInode>>,
    /// Those that were made since the last commit.
    made: HashSet<InodeNr>,
    notes: Notes,
}

impl Fast<'_> {
    fn records(&self) -> Option<Vec<FastRecord>> {
        let mut records = Vec::new();
        self.names(&mut records)?;
        for (nr, inode) in &self.files {
            if inode.get().links == 0 {
                continue;
            }
            records.extend(self.notes.ranges.get(nr).into_iter().flat_map(|ranges| ranges.records(*nr)));
            records.push(self.inode(inode, self.made.contains(nr))?);
        }
        Some(records)
    }

    fn names(&self, records: &mut Vec<FastRecord>) -> Option<()> {
        for change in &self.notes.names {
            let (entry, record): (_, fn(_) -> _) = match change {
                NameChange::Created(entry) => (entry, FastRecord::Create),
                NameChange::Linked(entry) => (entry, FastRecord::Link),
                NameChange::Unlinked(entry) => (entry, FastRecord::Unlink),
            };
            if matches!(change, NameChange::Created(_)) {
                records.push(self.inode(self.files.get(&entry.inode)?, true)?);
            }
            records.push(record(entry.clone()));
        }
        Some(())
    }

    /// The record of an inode: as it is now, with the time of its last overwrite. A new one is written
    /// whole, over what its place in the table held before.
    fn inode(&self, inode: &CachedInode, whole: bool) -> Option<FastRecord> {
        let (nr, data) = (inode.nr(), inode.as_to_be_written());
        // One that is yet to be truncated is found through its place among the orphans, which is not
        // recorded.
        if !is_fit(&data) || self.state.orphans.holds(nr) {
            return None;
        }
        let mut raw = vec![0; usize_of(self.state.geometry().inode_size)];
        data.render(&mut raw, nr, &self.state.sb);
        let used = raw.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let recorded = BASE_SIZE + usize::from(data.extra_isize);
        if !whole && used <= recorded {
            raw.truncate(recorded.min(raw.len()));
        }
        Some(FastRecord::Inode { inode: nr, raw })
    }
}

fn is_fit(data: &Inode) -> bool {
    data.kind() == Some(Kind::File)
        && data.flags.contains(InodeFlags::EXTENTS)
        && !data.flags.intersects(UNFIT)
}
