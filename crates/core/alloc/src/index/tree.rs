//! A set of small numbers as a hierarchical bitmap, changed and searched without locks.
//!
//! The lowest level has a bit per number. Each level above has an entry of two bits per *node* of the level
//! below, and the topmost level is a single node. A node is eight words, which is one cache line: 512 bits,
//! or 256 entries. Three levels so reach 33 million numbers, and a search touches the line it starts in, the
//! line it ends in, and a few lines of the levels between, which are small enough to stay in the cache.
//!
//! # Guarantees
//! - Once [`Tree::set`] has returned, the number is found by every search that starts afterwards, until it is
//!   cleared. There is no moment at which it is hidden, whatever others set and clear beside it.
//! - No call waits for another thread: a thread that is stopped half-way, wherever it is, stops no other.
//! - When nothing runs, an entry is set exactly if its node holds something.
//!
//! # The hazard, and the protocol
//! The hard part is removing an entry: between seeing a node empty and saying so one level up, another
//! thread may set a bit in the node, find its entry still there, and return. Restoring the entry on a
//! second look would hide the bit in between. An entry is therefore in one of four states:
//!
//! | state | meaning | a search |
//! |---|---|---|
//! | `EMPTY` | the node below holds nothing | skips it |
//! | `FULL` | it may hold something | looks |
//! | `CLOSING` | one thread, the closer, is looking whether it still does | looks |
//! | `TOUCHED` | as `CLOSING`, but a set got there since; the closer has to look again | looks |
//!
//! - *set*: set the bit; then from the lowest entry to the topmost: `EMPTY` -> `FULL`, `CLOSING` ->
//!   `TOUCHED`, others stay. It does not stop at a level that needs nothing: the thread that did the work
//!   there may not have got further.
//! - *clear*: clear the bit; if the node holds nothing, close its entry: `FULL` -> `CLOSING` makes one the
//!   closer; `CLOSING` -> `TOUCHED` leaves the work to the closer there is; others stay. The closer looks at
//!   the node again: if it is empty, `CLOSING` -> `EMPTY`, and the node that the entry lies in may be empty
//!   now, and so on upwards; if it is not, `CLOSING` -> `FULL`. If it finds `TOUCHED` instead, it goes
//!   back to `CLOSING` and looks again. Only the closer ever leaves `CLOSING` for anything but `TOUCHED`, and
//!   leaves `TOUCHED` at all.
//!
//! Why no set bit is hidden: all accesses but those of searches are `SeqCst`, so they have one order. Take
//! a `set` that found an entry anything but `EMPTY`, or made it so. To make it `EMPTY` later, a closer must
//! move it from `CLOSING`. Had the setter found `FULL`, or made it, the closer came after and looked at the
//! node after that: it saw the bit. Had the setter made it `TOUCHED`, or found it so, the closer had to move
//! it back to `CLOSING` and look after that: it saw the bit. A look is not a snapshot of the eight words, but
//! a bit that was set before the look began and not cleared is seen by it. The same holds one level up, with
//! "the entry is not `EMPTY`" in the place of "the bit is set". Searches need no order among their loads: no
//! entry above a set bit becomes `EMPTY` after `set` has returned, and a load never sees an older value of a
//! word than what happened before it.
//!
//! Why no entry stays over an empty node: the last to clear a bit sees the node empty and closes, or leaves
//! a mark for a closer that is yet to look. One case is left: a bit is cleared by another thread before its
//! setter has made the entry; so a setter that made one looks at the node once more.
//!
//! Searches end: each step moves to a greater number, and an entry over an empty node costs one look.
//!
//! What it is not: a snapshot. A search that runs beside changes may answer with a number that has just been
//! cleared; callers check under a lock of their own.

use crate::sync::{AtomicU64, Ordering, zeroed_words};
use hectare_units::usize_of;

/// Bytes of a cache line, to which nodes are aligned.
const LINE: usize = 64;
const BITS_OF_WORD: usize = 64;
const ENTRIES_OF_WORD: usize = 32;
/// The lower bit of each entry of a word.
const LOWER: u64 = 0x5555_5555_5555_5555;

const EMPTY: u64 = 0;
const FULL: u64 = 1;
const TOUCHED: u64 = 2;
const CLOSING: u64 = 3;

/// Words of zero that start on a cache line, which the allocator of memory cannot be asked for without its
/// touching every page, so a few words in front may go unused.
pub(crate) struct Words {
    all: Vec<AtomicU64>,
    first: usize,
}

impl Words {
    pub(crate) fn new(n: usize) -> Self {
        let slack = LINE / size_of::<u64>();
        let all = zeroed_words(n + slack);
        let first = match all.as_ptr().align_offset(LINE) {
            offset if offset <= slack => offset,
            _ => 0, // words of an explorer, which lie as they like
        };
        Self { all, first }
    }

    /// The words from one on.
    pub(crate) fn from(&self, word: usize) -> &[AtomicU64] {
        &self.all[self.first + word..]
    }
}

/// All nodes of one level.
struct Level {
    words: Words,
    nodes: usize,
}

impl Level {
    fn new(nodes: usize, words_of_node: usize) -> Self {
        Self { words: Words::new(nodes * words_of_node), nodes }
    }
}

/// The set of some of the numbers `0..len`, with nodes of `WORDS` words.
pub(crate) struct Tree<const WORDS: usize> {
    len: u32,
    /// Level 0 holds the bits, the others entries; the last has one node.
    levels: Vec<Level>,
}

/// The tree as it is used: a node is a cache line. Tests use smaller nodes.
pub(crate) type BitTree = Tree<8>;

impl<const WORDS: usize> Tree<WORDS> {
    const BITS: usize = WORDS * BITS_OF_WORD;
    const ENTRIES: usize = WORDS * ENTRIES_OF_WORD;

    /// The set of none or all of the numbers below `len`. An empty one takes address space, but hardly
    /// memory.
    pub(crate) fn new(len: u32, all_set: bool) -> Self {
        let mut nodes = usize_of(len).div_ceil(Self::BITS).max(1);
        let mut levels = vec![Level::new(nodes, WORDS)];
        while nodes > 1 {
            nodes = nodes.div_ceil(Self::ENTRIES);
            levels.push(Level::new(nodes, WORDS));
        }
        let tree = Self { len, levels };
        if all_set {
            tree.fill();
        }
        tree
    }

    /// Sets everything in a tree that no other thread has yet.
    fn fill(&self) {
        let mut units = usize_of(self.len);
        for (number, level) in self.levels.iter().enumerate() {
            let (of_word, full) =
                if number == 0 { (BITS_OF_WORD, u64::MAX) } else { (ENTRIES_OF_WORD, LOWER) };
            let words = level.words.from(0);
            for word in &words[..units / of_word] {
                word.store(full, Ordering::Relaxed);
            }
            if !units.is_multiple_of(of_word) {
                let below = (1 << ((units % of_word) * (BITS_OF_WORD / of_word))) - 1;
                words[units / of_word].store(full & below, Ordering::Relaxed);
            }
            units = level.nodes;
        }
    }

    /// The words of a node.
    fn node(&self, level: usize, node: usize) -> &[AtomicU64] {
        &self.levels[level].words.from(node * WORDS)[..WORDS]
    }

    /// The word that holds a number's bit, and the bit.
    fn bit(&self, i: u32) -> (&AtomicU64, u64) {
        assert!(i < self.len, "bit {i} of a tree of {}", self.len);
        let i = usize_of(i);
        (&self.node(0, i / Self::BITS)[i % Self::BITS / BITS_OF_WORD], 1 << (i % BITS_OF_WORD))
    }

    /// The word that holds an entry of a level above 0, and the entry's place in it.
    fn entry(&self, level: usize, entry: usize) -> (&AtomicU64, usize) {
        let word = entry % Self::ENTRIES / ENTRIES_OF_WORD;
        (&self.node(level, entry / Self::ENTRIES)[word], entry % ENTRIES_OF_WORD * 2)
    }

    fn is_empty(&self, level: usize, node: usize) -> bool {
        self.node(level, node).iter().all(|word| word.load(Ordering::SeqCst) == 0)
    }

    /// Whether the number is in the set.
    ///
    /// # Panics
    /// If it is not below the length; so do `set` and `clear`.
    #[cfg(all(test, not(feature = "shuttle")))]
    pub(crate) fn get(&self, i: u32) -> bool {
        let (word, bit) = self.bit(i);
        word.load(Ordering::Relaxed) & bit != 0
    }

    /// Puts the number into the set.
    pub(crate) fn set(&self, i: u32) {
        let (word, bit) = self.bit(i);
        word.fetch_or(bit, Ordering::SeqCst);
        let mut made = 0_u32;
        let mut node = usize_of(i) / Self::BITS;
        for level in 1..self.levels.len() {
            if self.open(level, node) {
                made |= 1 << level;
            }
            node /= Self::ENTRIES;
        }
        if made != 0 {
            self.look_again(i, made);
        }
    }

    /// Makes sure that an entry says its node may hold something; true if it said otherwise.
    fn open(&self, level: usize, entry: usize) -> bool {
        let (word, shift) = self.entry(level, entry);
        let mut seen = word.load(Ordering::SeqCst);
        loop {
            let state = (seen >> shift) & 3;
            let new = match state {
                EMPTY => FULL,
                CLOSING => TOUCHED,
                _ => return false,
            };
            match replace(word, seen, shift, new) {
                Ok(()) => return state == EMPTY,
                Err(now) => seen = now,
            }
        }
    }

    /// Closes those entries above a bit that its setter made, if others have emptied their nodes meanwhile.
    #[cold]
    fn look_again(&self, i: u32, made: u32) {
        let mut node = usize_of(i) / Self::BITS;
        for level in 1..self.levels.len() {
            if made & (1 << level) != 0 && self.is_empty(level - 1, node) {
                self.close(level, node);
            }
            node /= Self::ENTRIES;
        }
    }

    /// Takes the number out of the set.
    pub(crate) fn clear(&self, i: u32) {
        let (word, bit) = self.bit(i);
        if word.fetch_and(!bit, Ordering::SeqCst) != bit {
            return; // others are left in the word, or it was not there
        }
        let node = usize_of(i) / Self::BITS;
        if self.is_empty(0, node) {
            self.close(1, node);
        }
    }

    /// Takes away the entry of a node that was seen empty, and those above it that end up over nothing.
    fn close(&self, level: usize, node: usize) {
        let (mut level, mut entry) = (level, node);
        while level < self.levels.len() && self.close_one(level, entry) {
            entry /= Self::ENTRIES;
            if !self.is_empty(level, entry) {
                return;
            }
            level += 1;
        }
    }

    /// Closes one entry; true if it is `EMPTY` by this thread's doing.
    fn close_one(&self, level: usize, entry: usize) -> bool {
        let (word, shift) = self.entry(level, entry);
        let mut seen = word.load(Ordering::SeqCst);
        loop {
            let state = (seen >> shift) & 3;
            let new = match state {
                FULL => CLOSING,
                CLOSING => TOUCHED,
                _ => return false,
            };
            match replace(word, seen, shift, new) {
                Ok(()) if state == FULL => break,
                Ok(()) => return false,
                Err(now) => seen = now,
            }
        }
        self.finish_closing(level, entry)
    }

    /// The closer's part, from `CLOSING` on.
    fn finish_closing(&self, level: usize, entry: usize) -> bool {
        let (word, shift) = self.entry(level, entry);
        loop {
            let outcome = if self.is_empty(level - 1, entry) { EMPTY } else { FULL };
            let mut seen = word.load(Ordering::SeqCst);
            loop {
                let touched = (seen >> shift) & 3 == TOUCHED;
                match replace(word, seen, shift, if touched { CLOSING } else { outcome }) {
                    Ok(()) if touched => break,
                    Ok(()) => return outcome == EMPTY,
                    Err(now) => seen = now,
                }
            }
        }
    }

    /// The least number of the set that is not below `from`.
    pub(crate) fn next(&self, from: u32) -> Option<u32> {
        self.next_before(from, self.len)
    }

    /// The least number of the set in `from..end`.
    pub(crate) fn next_before(&self, from: u32, end: u32) -> Option<u32> {
        let end = usize_of(end.min(self.len));
        let mut at = usize_of(from);
        while at < end {
            // The levels above first: they are likely in the cache, and may save looking at the bits.
            let node = self.next_entry(1, at / Self::BITS, (end - 1) / Self::BITS)?;
            let start = if node == at / Self::BITS { at % Self::BITS } else { 0 };
            if let Some(bit) = first_bit(self.node(0, node), start) {
                let found = node * Self::BITS + bit;
                return (found < end).then(|| u32::try_from(found).ok()).flatten();
            }
            at = (node + 1) * Self::BITS;
        }
        None
    }

    /// The first entry of a level in `from..=last` that is not `EMPTY`.
    fn next_entry(&self, level: usize, from: usize, last: usize) -> Option<usize> {
        if level == self.levels.len() {
            return (from <= last).then_some(from); // above the topmost node there is nothing to ask
        }
        let mut at = from;
        while at <= last {
            let node = at / Self::ENTRIES;
            if let Some(entry) = first_entry(self.node(level, node), at % Self::ENTRIES) {
                let found = node * Self::ENTRIES + entry;
                return (found <= last).then_some(found);
            }
            at = self.next_entry(level + 1, node + 1, last / Self::ENTRIES)? * Self::ENTRIES;
        }
        None
    }

    /// How many numbers are in the set. Takes time in proportion to the part of the tree that is in use.
    pub(crate) fn count(&self) -> u32 {
        let last = self.levels[0].nodes - 1;
        let nodes = |from| self.next_entry(1, from, last);
        std::iter::successors(nodes(0), |node| nodes(node + 1))
            .flat_map(|node| self.node(0, node))
            .map(|word| word.load(Ordering::Relaxed).count_ones())
            .sum()
    }

    /// Whether every entry agrees with its node; when nothing else runs.
    #[cfg(test)]
    pub(crate) fn check(&self) -> Result<(), String> {
        for level in 1..self.levels.len() {
            for entry in 0..self.levels[level - 1].nodes {
                let (word, shift) = self.entry(level, entry);
                let state = (word.load(Ordering::SeqCst) >> shift) & 3;
                let expected = if self.is_empty(level - 1, entry) { EMPTY } else { FULL };
                if state != expected {
                    return Err(format!("entry {entry} of level {level} is {state}, should be {expected}"));
                }
            }
        }
        Ok(())
    }
}

/// Replaces one entry of a word, unless any of the word has changed since it was seen.
fn replace(word: &AtomicU64, seen: u64, shift: usize, state: u64) -> Result<(), u64> {
    let new = (seen & !(3 << shift)) | (state << shift);
    word.compare_exchange(seen, new, Ordering::SeqCst, Ordering::SeqCst).map(|_| ())
}

/// The first bit of a node that is set, at or after `from`.
#[inline]
fn first_bit(node: &[AtomicU64], from: usize) -> Option<usize> {
    let mut mask = u64::MAX << (from % BITS_OF_WORD);
    for (number, word) in node.iter().enumerate().skip(from / BITS_OF_WORD) {
        let bits = word.load(Ordering::Relaxed) & mask;
        if bits != 0 {
            return Some(number * BITS_OF_WORD + usize_of(bits.trailing_zeros()));
        }
        mask = u64::MAX;
    }
    None
}

/// The first entry of a node that is not `EMPTY`, at or after `from`.
fn first_entry(node: &[AtomicU64], from: usize) -> Option<usize> {
    let mut mask = u64::MAX << (from % ENTRIES_OF_WORD * 2);
    for (number, word) in node.iter().enumerate().skip(from / ENTRIES_OF_WORD) {
        let pairs = word.load(Ordering::Relaxed) & mask;
        if pairs != 0 {
            return Some(number * ENTRIES_OF_WORD + usize_of(pairs.trailing_zeros()) / 2);
        }
        mask = u64::MAX;
    }
    None
}

#[cfg(test)]
mod tests;
