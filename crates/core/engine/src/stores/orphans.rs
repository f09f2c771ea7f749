//! Records orphans: inodes that recovery has to free or truncate.
//!
//! An inode that has lost its last name but is open, or takes several transactions to free, would after a
//! crash be in use with nothing to find it by; one that is being truncated would keep blocks beyond its end.
//! Both are recorded on the volume, in the transaction that makes them so, and removed in the one that ends
//! it. The next opening for writing frees the former and resumes truncating the latter
//! (`open::orphan_cleanup`).
//!
//! The format has two places for them. The list runs from the superblock (`s_last_orphan`) through the
//! inodes, each naming the next where its time of deletion will be. The orphan file ([`OrphanFile`], feature
//! `orphan_file`) has slots, and saves writing a neighbour's inode; when it is full, the list takes the rest.
//! `orphan_present` is set as long as the file holds any.
//!
//! Locks: [`State`] is locked after a handle and before the data of an inode, one at a time; so callers that
//! add or remove hold no inode's data lock. The superblock comes after it.
//!
//! Invariants: the state here is what the running transaction would leave on the volume; a member's inode
//! stays in memory. An inode is added and removed under its operation lock; its neighbours change under the
//! lock here.
//!
//! A list or file that can't be followed keeps the volume from being written: inodes on it may be in use
//! without a name, or listed twice, and only a full check shows which. (The kernel mounts it, records the
//! error, and continues with whatever these inodes hold. Here `e2fsck -fy` has to run first; reading needs no
//! orphans, and works.)
//!
//! Without a journal a crash leaves anything, so nothing is recorded there, as in the kernel.

use crate::stores::block_cache::BlockCache;
use crate::stores::inode_cache::{CachedInode, InodeCache};
use crate::stores::orphan_file::{OrphanFile, Slot};
use hectare_ext4::superblock::SuperBlock;
use hectare_journal::Handle;
use hectare_units::InodeNr;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Blocks that adding or removing an orphan dirties: the inode and its neighbour, or a block of the orphan
/// file.
pub(crate) const ORPHAN_CREDITS: u32 = 3;

/// The orphans of a volume.
pub(crate) struct Orphans {
    /// Whether they are recorded on the volume.
    noted: bool,
    state: Mutex<State>,
    /// The number of members; usually none, and then there is no need to look.
    count: AtomicUsize,
    cleaned: OnceLock<Cleaned>,
}

/// How many orphans were cleaned up when a volume was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cleaned {
    /// Inodes without a name that were freed.
    pub freed: u64,
    /// Files that were truncated to their size.
    pub cut: u64,
}

/// The stores that recording an orphan changes.
pub(crate) struct Records<'a> {
    pub(crate) live_sb: &'a Mutex<SuperBlock>,
    pub(crate) blocks: &'a BlockCache,
    pub(crate) inodes: &'a InodeCache,
}

/// The members, and where they are recorded.
#[derive(Default)]
pub(crate) struct State {
    members: HashMap<InodeNr, Member>,
    /// The first of the list.
    pub(crate) head: Option<InodeNr>,
    pub(crate) file: Option<OrphanFile>,
    /// Members that are in the file.
    in_file: usize,
}

/// An orphan.
pub(crate) struct Member {
    pub(crate) inode: Arc<CachedInode>,
    pub(crate) place: Place,
}

/// Where an orphan is recorded.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// In the list, between two others.
    List {
        /// The inode that names it; the superblock if none does.
        before: Option<InodeNr>,
        /// The inode it names.
        after: Option<InodeNr>,
    },
    /// In the orphan file.
    File(Slot),
}

impl Orphans {
    /// The orphans of a volume; `noted` says whether it has a journal.
    pub(crate) fn new(noted: bool) -> Self {
        Self { noted, state: Mutex::default(), count: AtomicUsize::new(0), cleaned: OnceLock::new() }
    }

    /// Takes over the orphans that a volume has recorded; returns whether any are in the file.
    pub(crate) fn install(&self, state: State) -> bool {
        let in_file = state.in_file > 0;
        self.count.store(state.members.len(), Ordering::Release);
        *self.state.lock() = state;
        in_file
    }

    /// What was cleaned up, if that is done.
    pub(crate) fn cleaned(&self) -> Option<Cleaned> {
        self.cleaned.get().copied()
    }

    /// Notes what was cleaned up, the first time.
    pub(crate) fn note_cleaned(&self, cleaned: Cleaned) -> Cleaned {
        *self.cleaned.get_or_init(|| cleaned)
    }

    /// All of them, the list first and in its order, which makes each removal one of its first.
    pub(crate) fn all(&self) -> Vec<Arc<CachedInode>> {
        let state = self.state.lock();
        let mut all = Vec::with_capacity(state.members.len());
        let mut next = state.head;
        while let Some(member) = next.and_then(|nr| state.members.get(&nr)) {
            all.push(Arc::clone(&member.inode));
            next = match member.place {
                Place::List { after, .. } => after,
                Place::File(_) => None,
            };
        }
        let in_file = state.members.values().filter(|member| matches!(member.place, Place::File(_)));
        all.extend(in_file.map(|member| Arc::clone(&member.inode)));
        all
    }

    /// Adds an inode, if it is not recorded yet. The caller holds its operation lock, and no inode's data
    /// lock.
    pub(crate) fn add(&self, records: &Records<'_>, handle: &mut Handle<'_>, inode: &Arc<CachedInode>) {
        if !self.noted {
            return;
        }
        let mut state = self.state.lock();
        if state.members.contains_key(&inode.nr()) {
            return;
        }
        let slot = state.file.as_mut().and_then(|file| file.add(records.blocks, handle, inode.nr()));
        let place = match slot {
            Some(slot) => {
                if state.in_file == 0 {
                    records.live_sb.lock().set_orphan_present(true);
                }
                Place::File(slot)
            }
            None => state.put_in_front(records, handle, inode),
        };
        state.insert(Member { inode: Arc::clone(inode), place });
        self.count.store(state.members.len(), Ordering::Release);
    }

    /// Removes an inode, if it was recorded. The caller holds its operation lock, and no inode's data lock.
    pub(crate) fn remove(&self, records: &Records<'_>, handle: &mut Handle<'_>, nr: InodeNr) {
        // It can't appear or disappear meanwhile: the caller holds its lock.
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut state = self.state.lock();
        let Some(member) = state.members.remove(&nr) else { return };
        self.count.store(state.members.len(), Ordering::Release);
        match member.place {
            Place::File(slot) => {
                if let Some(file) = &mut state.file {
                    file.remove(records.blocks, handle, slot, nr);
                }
                state.in_file -= 1;
                if state.in_file == 0 {
                    records.live_sb.lock().set_orphan_present(false);
                }
            }
            Place::List { before, after } => {
                state.join(records, handle, before, after);
                set_next(records, handle, &member.inode, None);
            }
        }
    }
}

impl State {
    /// Whether an inode is a member.
    pub(crate) fn has(&self, nr: InodeNr) -> bool {
        self.members.contains_key(&nr)
    }

    /// Adds an orphan that the volume has recorded.
    pub(crate) fn insert(&mut self, member: Member) {
        self.in_file += usize::from(matches!(member.place, Place::File(_)));
        self.members.insert(member.inode.nr(), member);
    }

    /// Makes an inode the first of the list.
    fn put_in_front(
        &mut self,
        records: &Records<'_>,
        handle: &mut Handle<'_>,
        inode: &Arc<CachedInode>,
    ) -> Place {
        let after = self.head.replace(inode.nr());
        if let Some(Place::List { before, .. }) = self.place_mut(after) {
            *before = Some(inode.nr());
        }
        set_next(records, handle, inode, after);
        records.live_sb.lock().set_last_orphan(self.head);
        Place::List { before: None, after }
    }

    /// Links one member of the list (or the superblock) to another, or ends it there.
    fn join(
        &mut self,
        records: &Records<'_>,
        handle: &mut Handle<'_>,
        first: Option<InodeNr>,
        second: Option<InodeNr>,
    ) {
        if let Some(Place::List { before, .. }) = self.place_mut(second) {
            *before = first;
        }
        if let Some(Place::List { after, .. }) = self.place_mut(first) {
            *after = second;
        }
        match first.and_then(|first| self.members.get(&first)) {
            Some(member) => set_next(records, handle, &member.inode, second),
            None => {
                self.head = second;
                records.live_sb.lock().set_last_orphan(second);
            }
        }
    }

    fn place_mut(&mut self, nr: Option<InodeNr>) -> Option<&mut Place> {
        self.members.get_mut(&nr?).map(|member| &mut member.place)
    }
}

/// Sets the next inode in an inode of the list.
fn set_next(records: &Records<'_>, handle: &mut Handle<'_>, inode: &Arc<CachedInode>, next: Option<InodeNr>) {
    inode.edit(handle, records.inodes).dtime = next.map_or(0, InodeNr::get);
}
