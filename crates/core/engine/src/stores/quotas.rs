//! What users, groups and projects use, and what they may: the quota files' records, in memory.
//!
//! The records are a function of the inodes: each inode counts for its owner, its group and its project with
//! one inode and its `i_blocks`. So there is one place that keeps them: the guard through which an inode is
//! changed ([`crate::stores::inode_cache::InodeEdit`]) reports what the inode counted for before and after
//! ([`Quotas::moved`]), whatever the operation was. Only that an inode begins and ends to exist is reported
//! separately ([`Quotas::add_inodes`]), and that the inodes of its attributes' values, which count for its owners,
//! get others ([`Quotas::move_inodes`]). The records that have changed are rendered into the blocks of the quota
//! files with each commit ([`Quotas::render`]), like inodes and groups; so files and sums are durable together.
//!
//! Limits are checked before, when space or an inode is requested ([`Quotas::claim`]): a [`Claim`] counts for
//! its owners until what it stands for counts itself, or is not wanted any more. The first takes the place of the
//! second at once, under the lock of the books ([`Claim::settle`]), so that writers that run side by side get
//! together what the limit allows. The tree of a quota file is changed only for an id that has no record yet,
//! before the operation that would need one ([`crate::space::quota`]).
//!
//! Invariants: every id that counts has an [`Account`]; one whose record has no place in the file yet is in
//! `waiting`. Inodes of the format, the quota files among them, count for nobody.
//!
//! Locks: the books are locked last, for moments, and nothing is requested under that lock.

mod account;
mod book;

pub(crate) use account::Amount;
pub(crate) use book::{Book, Pieces};

use crate::caller;
use crate::clock;
use crate::error::{Error, Result};
use crate::stores::block_cache::BlockCache;
use hectare_ext4::inode::{Inode, InodeFlags};
use hectare_ext4::quota::{Info, Kind, Record, Slot};
use hectare_ext4::superblock::SuperBlock;
use hectare_ext4::time::Timestamp;
use hectare_units::{BlockSize, InodeNr};
use parking_lot::Mutex;
use std::sync::Arc;

/// Bytes of a sector, which `i_blocks` counts.
pub(crate) const SECTOR: u64 = 512;

/// The ids that something counts for: by [`Kind::index`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owners([u32; 3]);

impl Owners {
    pub(crate) fn of(inode: &Inode) -> Self {
        Self([inode.uid, inode.gid, inode.projid])
    }

    pub(crate) fn get(self, kind: Kind) -> u32 {
        self.0[kind.index()]
    }
}

/// What an inode counts for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Counted {
    owners: Owners,
    space: u64,
}

impl Counted {
    /// An inode that holds the value of an attribute counts with the files that have it.
    pub(crate) fn of(inode: &Inode) -> Self {
        let holds_value = inode.flags.contains(InodeFlags::EA_INODE);
        let space = if holds_value { 0 } else { inode.sectors.saturating_mul(SECTOR) };
        Self { owners: Owners::of(inode), space }
    }

    /// In bytes.
    pub(crate) fn space(&self) -> u64 {
        self.space
    }
}

/// The books of a volume.
pub(crate) struct Quotas {
    /// One for each kind that the volume counts, in that order.
    books: Mutex<Vec<Book>>,
    kinds: Vec<Kind>,
    /// Inodes beside the reserved ones that count for nobody.
    uncounted: Vec<InodeNr>,
    first_inode: InodeNr,
    fixed_time: Option<Timestamp>,
    /// Claims for what inodes have got that are still being changed.
    settling: Mutex<Vec<(InodeNr, Claim)>>,
}

impl Quotas {
    pub(crate) fn new(books: Vec<Book>, sb: &SuperBlock, fixed_time: Option<Timestamp>) -> Self {
        let orphans = sb.orphan_file_inode();
        Self {
            kinds: books.iter().map(Book::kind).collect(),
            uncounted: books.iter().map(Book::inode).chain(orphans).collect(),
            books: Mutex::new(books),
            first_inode: sb.first_inode(),
            fixed_time,
            settling: Mutex::default(),
        }
    }

    /// Whether an inode counts for anyone.
    pub(crate) fn counts(&self, nr: InodeNr) -> bool {
        (nr == InodeNr::ROOT || nr >= self.first_inode) && !self.uncounted.contains(&nr)
    }

    /// The kinds that are counted.
    pub(crate) fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// An inode has changed from what it counted for; its claims are settled.
    pub(crate) fn moved(&self, nr: InodeNr, before: &Counted, after: &Counted) {
        let settled: Vec<Claim> =
            self.settling.lock().extract_if(.., |(of, _)| *of == nr).map(|(_, claim)| claim).collect();
        if before == after && settled.is_empty() {
            return;
        }
        let now = self.now();
        self.post(settled, |book| {
            let (from, to) = (before.owners.get(book.kind()), after.owners.get(book.kind()));
            if before == after {
                return;
            }
            if from == to {
                return book.change(from, now, |used| {
                    used.space = used.space.saturating_sub(before.space).saturating_add(after.space);
                });
            }
            book.change(from, now, |used| {
                used.space = used.space.saturating_sub(before.space);
                used.inodes = used.inodes.saturating_sub(1);
            });
            book.change(to, now, |used| {
                used.space = used.space.saturating_add(after.space);
                used.inodes = used.inodes.saturating_add(1);
            });
        });
    }

    /// So many inodes exist from now on that did not, for which there may be a claim, and so many do no longer.
    /// They have no space.
    pub(crate) fn add_inodes(&self, owners: Owners, more: u64, fewer: u64, claim: Option<Claim>) {
        if more == fewer {
            return;
        }
        let now = self.now();
        self.post(claim, |book| {
            book.change(owners.get(book.kind()), now, |used| {
                used.inodes = used.inodes.saturating_add(more).saturating_sub(fewer);
            });
        });
    }

    /// Changes every book, with claims given back at the same moment.
    fn post(&self, settled: impl IntoIterator<Item = Claim>, mut change: impl FnMut(&mut Book)) {
        let mut books = self.books.lock();
        // First, so that a grace period that runs does not end in between.
        books.iter_mut().for_each(&mut change);
        for mut claim in settled {
            let held = std::mem::take(&mut claim.held);
            claim.give_back(&mut books, held);
        }
    }

    /// So many inodes count for other owners from now on. They have no space.
    pub(crate) fn move_inodes(&self, from: Owners, to: Owners, count: u64) {
        let now = self.now();
        for book in &mut *self.books.lock() {
            let (from, to) = (from.get(book.kind()), to.get(book.kind()));
            if from != to {
                book.change(from, now, |used| used.inodes = used.inodes.saturating_sub(count));
                book.change(to, now, |used| used.inodes = used.inodes.saturating_add(count));
            }
        }
    }

    /// Claims inodes, and up to `units` units of `unit` bytes, for these owners of the kinds for which
    /// `applies` holds. Returns how many units, at least one if any were requested.
    ///
    /// # Errors
    /// [`Error::QuotaExceeded`] if a limit applies to this thread ([`caller::on_behalf`]) and leaves no room.
    pub(crate) fn claim(
        self: &Arc<Self>,
        owners: Owners,
        applies: impl Fn(Kind) -> bool,
        (unit, units): (u64, u64),
        inodes: u64,
    ) -> Result<(u64, Claim)> {
        let (now, mut granted) = (self.now(), units);
        let mut books = self.books.lock();
        if caller::is_limited() {
            for book in books.iter().filter(|book| applies(book.kind())) {
                let (kind, id) = (book.kind(), owners.get(book.kind()));
                let room = book.room(id, now);
                granted = granted.min(room.space / unit.max(1));
                let refuse = |what| Err(Error::QuotaExceeded { kind, id, what });
                if units > 0 && granted == 0 {
                    return refuse("space");
                }
                if inodes > room.inodes {
                    return refuse("inodes");
                }
            }
        }
        let mut claim =
            Claim { quotas: Arc::clone(self), owners, kinds: [false; 3], held: Amount { space: 0, inodes } };
        claim.held.space = granted.saturating_mul(unit);
        for book in books.iter_mut().filter(|book| applies(book.kind())) {
            claim.kinds[book.kind().index()] = true;
            book.claim(owners.get(book.kind()), now, claim.held);
        }
        Ok((granted, claim))
    }

    /// What has to get a record in the files: these ids, if they have none, and whatever waits for one.
    pub(crate) fn missing(&self, owners: Option<Owners>) -> Vec<(Kind, u32)> {
        let books = self.books.lock();
        let of = |book: &Book| {
            let kind = book.kind();
            let asked = owners.map(|owners| owners.get(kind)).filter(|id| !book.has_place(*id));
            let mut ids: Vec<u32> = book.waiting().chain(asked).collect();
            ids.sort_unstable();
            ids.dedup();
            ids.into_iter().map(move |id| (kind, id)).collect::<Vec<_>>()
        };
        books.iter().flat_map(of).collect()
    }

    /// The file of a kind that is counted: its inode, and its header.
    pub(crate) fn file(&self, kind: Kind) -> Option<(InodeNr, Info)> {
        self.books.lock().iter().find(|book| book.kind() == kind).map(|book| (book.inode(), book.info()))
    }

    /// A record has got a place in the file, which may have grown.
    pub(crate) fn placed(&self, kind: Kind, id: u32, slot: Slot, info: Info, pieces: Pieces) {
        self.with(kind, |book| book.placed(id, slot, info, pieces));
    }

    /// Runs `change` on the book of a kind, if that is counted.
    pub(crate) fn with<R>(&self, kind: Kind, change: impl FnOnce(&mut Book) -> R) -> Option<R> {
        self.books.lock().iter_mut().find(|book| book.kind() == kind).map(change)
    }

    /// The records of a kind, in ascending order.
    pub(crate) fn records(&self, kind: Kind) -> Vec<(u32, Record)> {
        self.with(kind, |book| book.records()).unwrap_or_default()
    }

    /// Blocks that the running transaction will write for the records.
    pub(crate) fn dirty_blocks(&self) -> u32 {
        self.books.lock().iter().map(Book::dirty_blocks).sum()
    }

    /// Renders what has changed into the blocks of the files. For the committing thread, with no handle open.
    ///
    /// # Errors
    /// If a block can't be read.
    pub(crate) fn render(&self, blocks: &BlockCache, size: BlockSize) -> Result<()> {
        self.books.lock().iter_mut().try_for_each(|book| book.render(blocks, size))
    }

    /// Seconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        let now = self.fixed_time.unwrap_or_else(clock::coarse_now);
        u64::try_from(now.seconds).unwrap_or(0)
    }
}

/// What counts for its owners although no inode has it yet; given back when it is dropped, or settled.
pub(crate) struct Claim {
    quotas: Arc<Quotas>,
    owners: Owners,
    kinds: [bool; 3],
    held: Amount,
}

impl Claim {
    /// Adds bytes for the same owners.
    ///
    /// # Errors
    /// As [`Quotas::claim`]; nothing is added then.
    pub(crate) fn extend(&mut self, bytes: u64) -> Result<()> {
        let kinds = self.kinds;
        let (_, mut more) = self.quotas.claim(self.owners, |kind| kinds[kind.index()], (bytes, 1), 0)?;
        self.held.space += std::mem::take(&mut more.held).space;
        Ok(())
    }

    /// Gives all but so many bytes back.
    pub(crate) fn shrink_to(&mut self, bytes: u64) {
        let space = self.held.space.saturating_sub(bytes);
        self.held.space -= space;
        self.give_back(&mut self.quotas.books.lock(), Amount { space, inodes: 0 });
    }

    /// Leaves the claim to the change of an inode that is under way, in which that gets what was claimed: it
    /// lasts until the change counts. The caller holds the inode for changes.
    pub(crate) fn settle(self, nr: InodeNr) {
        let quotas = Arc::clone(&self.quotas);
        quotas.settling.lock().push((nr, self));
    }

    fn give_back(&self, books: &mut [Book], amount: Amount) {
        let now = self.quotas.now();
        for book in books.iter_mut().filter(|book| self.kinds[book.kind().index()]) {
            book.release(self.owners.get(book.kind()), now, amount);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.held != Amount::default() {
            self.give_back(&mut self.quotas.books.lock(), self.held);
        }
    }
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Claim")
            .field("owners", &self.owners)
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}
