//! The free space of one group, for `benches/buddy.rs`.

use crate::bits;
use std::ops::Range;

/// Orders of a group with blocks of 4 KiB.
const ORDERS: u32 = 14;

/// A group of 32768 clusters.
pub struct Buddy(crate::buddy::Buddy);

impl Buddy {
    /// Clusters of the group.
    pub const LEN: u32 = 32_768;

    /// A group from its bitmap, whose missing words count as in use.
    #[must_use]
    pub fn new(words: Vec<u64>) -> Self {
        Self(crate::buddy::Buddy::new(words, Self::LEN, ORDERS))
    }

    /// The bitmap of a group in which everything is free.
    #[must_use]
    pub fn empty_words() -> Vec<u64> {
        vec![0; bits::words_for(Self::LEN)]
    }

    /// The bitmap of an aged group: free runs of 1 to 64 clusters between used ones of 1 to 64, the same each
    /// time.
    #[must_use]
    pub fn aged_words() -> Vec<u64> {
        let mut words = Self::empty_words();
        let (mut at, mut state) = (0, 0x9e37_79b9_u32);
        let mut length = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            1 + state % 64
        };
        while at < Self::LEN {
            let end = (at + length()).min(Self::LEN);
            bits::set(&mut words, &(at..end));
            at = end + length();
        }
        words
    }

    /// Free -> in use, for a range that is free as a whole.
    pub fn take(&mut self, range: &Range<u32>) {
        self.0.take(range);
    }

    /// In use -> free, for a range that is in use as a whole.
    pub fn give(&mut self, range: &Range<u32>) {
        self.0.give(range);
    }

    /// The first free run at or after `from`, measured no further than `limit` clusters.
    #[must_use]
    pub fn next_run(&self, from: u32, limit: u32) -> Option<Range<u32>> {
        self.0.next_run(from, limit)
    }
}
