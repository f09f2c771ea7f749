//! The byte ranges of a file that are being overwritten: serializes writes that overlap.
//!
//! Writes inside written blocks share the operation lock of their file, and may take several steps on the
//! device. Each enters its range here first, and waits for every earlier one that overlaps it. So bytes that
//! two writes share end up wholly as one of them wrote them, whatever the device and the extents are.
//!
//! A lone writer costs two atomic operations: one word says that there is no writer, or holds the range of
//! the only one, or says that there is a crowd. Only a second writer, or a write longer than the word can
//! hold, makes a list of ranges under a mutex, which is used until it is empty again.
//!
//! Lock order: the operation lock (shared) -> a range -> the data lock of the inode. A thread holds one
//! range, and takes no operation lock and no handle while it does. A write waits only for earlier ones, in
//! the order of the list, so no two wait for each other, and short writes don't overtake a long one for ever.
//!
//! What it is not: a lock for readers, which don't enter, nor for holders of the exclusive operation lock,
//! which needn't.

use hectare_journal::lock_order::{self, LockRank, Ranked};
use hectare_units::low16;
use parking_lot::{Condvar, Mutex};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The word without a writer. As a range it would start beyond the end of the longest file.
const NOBODY: u64 = u64::MAX;
/// The word if the list has the writers.
const CROWD: u64 = u64::MAX - 1;
/// Bits of the word for the length of a range, less one.
const LEN_BITS: u32 = 16;

/// The writers that overwrite bytes of one file.
pub(crate) struct Writers {
    word: AtomicU64,
    crowd: OnceLock<Box<Crowd>>,
}

/// Concurrent writers.
#[derive(Default)]
struct Crowd {
    list: Mutex<List>,
    /// Signalled when a writer leaves.
    left: Condvar,
}

/// The active and the waiting writers, in order of arrival.
#[derive(Default)]
struct List {
    entries: Vec<Entry>,
    next_ticket: u64,
}

struct Entry {
    ticket: u64,
    range: Range<u64>,
}

/// A range with no other writer as long as this is held.
#[must_use = "the range is free again when this is dropped"]
pub(crate) struct Writing<'a> {
    writers: &'a Writers,
    range: Range<u64>,
    _ranked: Ranked,
}

impl Default for Writers {
    fn default() -> Self {
        Self { word: AtomicU64::new(NOBODY), crowd: OnceLock::new() }
    }
}

impl Writers {
    /// Waits for the writers of bytes in the range, which is not empty, and keeps others out of it. The
    /// caller holds the operation lock.
    #[inline]
    #[track_caller]
    pub(crate) fn enter(&self, range: Range<u64>) -> Writing<'_> {
        let ranked = lock_order::enter(LockRank::Range);
        if !self.replace(NOBODY, as_word(&range), Ordering::Acquire) {
            self.join(range.clone());
        }
        Writing { writers: self, range, _ranked: ranked }
    }

    /// Replaces the word `now` by another, if it is still there and the other can be represented.
    #[inline]
    fn replace(&self, now: u64, then: Option<u64>, order: Ordering) -> bool {
        then.is_some_and(|then| self.word.compare_exchange(now, then, order, Ordering::Relaxed).is_ok())
    }

    #[cold]
    fn join(&self, range: Range<u64>) {
        let crowd = self.crowd.get_or_init(Box::default);
        let mut list = crowd.list.lock();
        if list.entries.is_empty() {
            // A lone writer finds its word replaced, and looks for its range in the list.
            if let Some(lone) = as_range(self.word.swap(CROWD, Ordering::AcqRel)) {
                list.push(lone);
            }
        }
        let ticket = list.push(range);
        while list.must_wait(ticket) {
            crowd.left.wait(&mut list);
        }
    }

    #[inline]
    fn leave(&self, range: &Range<u64>) {
        let is_lone = as_word(range).is_some_and(|word| self.replace(word, Some(NOBODY), Ordering::Release));
        if !is_lone {
            self.part(range);
        }
    }

    #[cold]
    fn part(&self, range: &Range<u64>) {
        let Some(crowd) = self.crowd.get() else { return };
        let mut list = crowd.list.lock();
        list.remove(range);
        if list.entries.is_empty() {
            self.word.store(NOBODY, Ordering::Release);
        } else {
            drop(list);
            crowd.left.notify_all();
        }
    }
}

impl List {
    fn push(&mut self, range: Range<u64>) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.entries.push(Entry { ticket, range });
        ticket
    }

    /// Whether a range overlaps an earlier one.
    fn must_wait(&self, ticket: u64) -> bool {
        let Some(at) = self.entries.iter().position(|entry| entry.ticket == ticket) else { return false };
        let (earlier, own) = (&self.entries[..at], &self.entries[at].range);
        earlier.iter().any(|entry| entry.range.start < own.end && own.start < entry.range.end)
    }

    /// Removes a range that is being written: the first of its kind, as all others wait for it.
    fn remove(&mut self, range: &Range<u64>) {
        if let Some(at) = self.entries.iter().position(|entry| entry.range == *range) {
            self.entries.remove(at);
        }
    }
}

impl Drop for Writing<'_> {
    #[inline]
    fn drop(&mut self) {
        self.writers.leave(&self.range);
    }
}

/// A range as a word; `None` if it is too long, or begins too far out, for one.
#[inline]
fn as_word(range: &Range<u64>) -> Option<u64> {
    let more = range.end.checked_sub(range.start)?.checked_sub(1)?;
    let word = range.start << LEN_BITS | u64::from(low16(more));
    (as_range(word).as_ref() == Some(range)).then_some(word)
}

/// The range of a lone writer, if the word holds one.
fn as_range(word: u64) -> Option<Range<u64>> {
    let start = word >> LEN_BITS;
    (word != NOBODY && word != CROWD).then(|| start..start + u64::from(low16(word)) + 1)
}

#[cfg(test)]
mod tests;
