//! The free space of one group as a binary buddy system.
//!
//! Order 0 is the in-use bitmap itself: a bit per cluster, set = in use. On top of it lie the orders from 1
//! Order 0 is the in-use bitmap itself: a bit per cluster, set = in use. Above it are the orders from 1
//! up: in order k a set bit `i` says that `i << k .. (i + 1) << k` is a *free chunk*. The kernel's buddy
//! block uses the opposite sense, where a free chunk is a clear bit. Nothing of the buddy bitmap reaches the
//! disk, and in this sense an empty order is a row of zeros. The orders share one allocation.
//!
//! The bitmap alone determines the chunks: they are the largest aligned blocks of 2^k clusters, k below the
//! number of orders, that are wholly free. All operations preserve this, so a group that was changed a
//! thousand times equals one built afresh from its bitmap.
//!
//! Invariants ([`Buddy::check`]):
//! - a free cluster is in exactly one chunk; as a chunk of order 0 it has no bit of its own but is a free
//!   cluster that no chunk of a higher order covers;
//! - no two buddies below the highest order are both free chunks;
//! - `counters[k]` is the number of chunks of order k, and bit k of `present` says whether there are any;
//! - `fragments` is the number of maximal free runs, `first_free` the first free cluster or else the length.
//!
//! Hazards: [`take`](Buddy::take) and [`give`](Buddy::give) trust their callers that the whole range is
//! free or in use; release builds don't check, and a wrong range breaks the invariants. A bitmap read from
//! disk can hold anything; the owner has to check that it holds as many free clusters as it should.
//!
//! What it is not: it neither locks nor knows why a cluster is in use.

use crate::bits;
use crate::sync::{Cost, charge};
use hectare_units::{low32, u64_of, usize_of};
use std::ops::Range;

/// The most orders a group can have, those of a volume with blocks of 64 KiB.
const ORDERS_MAX: usize = 18;

/// Bits in a word, and its logarithm: a chunk of this order is a whole word of the bitmap.
const WORD: u32 = 64;
const WORD_ORDER: u32 = WORD.ilog2();

/// Every other bit of a word, from the lowest.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// The free chunks of a group.
pub(crate) struct Buddy {
    /// The in-use bitmap. Bits beyond the end are set.
    words: Box<[u64]>,
    /// The orders from 1 up, one after the other, each starting with a word of its own and with at
    /// least one place more than chunks fit into the group. Bits beyond the end of an order are clear.
    chunks: Box<[u64]>,
    /// Where each order starts in `chunks` and the one before ends; there is nothing of order 0.
    offsets: [u32; ORDERS_MAX + 1],
    counters: [u32; ORDERS_MAX],
    /// Bit k: `counters[k]` is not 0.
    present: u32,
    /// The highest order.
    top: u32,
    len: u32,
    free: u32,
    fragments: u32,
    first_free: u32,
}

impl Buddy {
    /// The buddies of an in-use bitmap of `len` clusters, in `orders` orders
    /// ([`Config::orders`](crate::Config::orders)). Words that are missing count as used, bits beyond the end
    /// are ignored.
    ///
    /// # Panics
    /// If `orders` is not one of 2 to 18.
    pub(crate) fn new(mut words: Vec<u64>, len: u32, orders: u32) -> Self {
        assert!((2..=ORDERS_MAX).contains(&usize_of(orders)), "{orders} orders are not 2 to {ORDERS_MAX}");
        words.resize(bits::words_for(len), u64::MAX);
        let mut words = words.into_boxed_slice();
        bits::set(&mut words, &(len..len.next_multiple_of(WORD)));
        let mut buddy = Self {
            words,
            chunks: Box::default(),
            offsets: [0; ORDERS_MAX + 1],
            counters: [0; ORDERS_MAX],
            present: 0,
            top: orders - 1,
            len,
            free: 0,
            fragments: 0,
            first_free: len,
        };
        buddy.survey();
        buddy.generate();
        buddy
    }

    /// Counts what the bitmap alone says: free clusters and runs, and where the first is.
    fn survey(&mut self) {
        let mut before = 0;
        for word in &self.words {
            let free = !word;
            let starts = free & !(free << 1 | before);
            before = free >> (WORD - 1);
            self.free += free.count_ones();
            self.fragments += starts.count_ones();
        }
        self.first_free = bits::first_clear(&self.words, &(0..self.len)).unwrap_or(self.len);
    }

    /// Makes the orders from the bitmap, each from the one below: what is wholly free there and has a buddy
    /// that is so too is one up here, and what has none stays as a chunk.
    fn generate(&mut self) {
        for order in 1..=self.top {
            // One place more than there can be chunks: the last clusters may be too few for one, and a look
            // at their place must not fall on the next order.
            let words = (self.len >> order) / WORD + 1;
            self.offsets[usize_of(order) + 1] = self.offsets[usize_of(order)] + words;
        }
        let mut chunks = vec![0; usize_of(self.offsets[usize_of(self.top) + 1])];
        for (at, word) in self.words.iter().enumerate() {
            let (alone, pairs) = pair_up(!word);
            self.counters[0] += alone.count_ones();
            put_half(&mut chunks, at, pairs);
        }
        for order in 1..=usize_of(self.top) {
            let [start, end] = [order, order + 1].map(|order| usize_of(self.offsets[order]));
            let (level, above) = chunks.split_at_mut(end);
            for (at, word) in level[start..].iter_mut().enumerate() {
                if order < usize_of(self.top) {
                    let (alone, pairs) = pair_up(*word);
                    put_half(above, at, pairs);
                    *word = alone;
                }
                self.counters[order] += word.count_ones();
            }
        }
        self.chunks = chunks.into_boxed_slice();
        self.present =
            (0..=self.top).filter(|order| self.counters[usize_of(*order)] > 0).map(|k| 1 << k).sum();
    }

    /// Clusters of the group.
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    /// Free clusters.
    pub(crate) const fn free(&self) -> u32 {
        self.free
    }

    /// Maximal runs of free clusters.
    pub(crate) const fn fragments(&self) -> u32 {
        self.fragments
    }

    /// The first free cluster; the length of the group if none is free.
    pub(crate) const fn first_free(&self) -> u32 {
        self.first_free
    }

    /// Free chunks per order.
    pub(crate) fn counters(&self) -> &[u32] {
        &self.counters[..=usize_of(self.top)]
    }

    /// The in-use bitmap: a set bit is a cluster in use or beyond the end.
    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    /// The highest order of which there is a free chunk.
    pub(crate) const fn largest_order(&self) -> Option<u32> {
        self.present.checked_ilog2()
    }

    /// The order that stands for the mean length of the free runs, rounded down: mean lengths from 2^(k+1)
    /// to below 2^(k+2) are order k, shorter ones order 0. Source: the kernel's index by average fragment
    /// size, which differs from the order of a chunk by one.
    pub(crate) fn average_order(&self) -> Option<u32> {
        let mean = self.free.checked_div(self.fragments)?;
        Some(mean.ilog2().saturating_sub(1).min(self.top))
    }

    /// Free -> in use, for a range that is free as a whole.
    pub(crate) fn take(&mut self, range: &Range<u32>) {
        let Range { start, end } = *range;
        if start >= end {
            return;
        }
        debug_assert_eq!(bits::count(&self.words, range), 0, "clusters {range:?} of a group are free");
        charge(Cost::Change, 1);
        let (left, right) = self.free_beside(range);
        self.fragments = self.fragments + u32::from(left) + u32::from(right) - 1;
        self.free -= end - start;
        let mut at = start;
        while at < end {
            let order = self.order_at(at);
            let next = ((at >> order) + 1) << order;
            self.remove(order, at >> order);
            self.split(order, at, end.min(next));
            at = next;
        }
        bits::set(&mut self.words, range);
        if start == self.first_free {
            self.first_free = match self.free {
                0 => self.len,
                _ => bits::first_clear(&self.words, &(end..self.len)).unwrap_or(self.len),
            };
        }
    }

    /// In use -> free, for a range that is in use as a whole.
    pub(crate) fn give(&mut self, range: &Range<u32>) {
        let Range { start, end } = *range;
        if start >= end {
            return;
        }
        debug_assert_eq!(
            bits::count(&self.words, range),
            end - start,
            "clusters {range:?} of a group are used"
        );
        charge(Cost::Change, 1);
        let (left, right) = self.free_beside(range);
        self.fragments = self.fragments + 1 - u32::from(left) - u32::from(right);
        self.free += end - start;
        self.first_free = self.first_free.min(start);
        bits::clear(&mut self.words, range);
        self.join(range);
    }

    /// The start of the first chunk of the lowest order that is at least `order` and has chunks.
    pub(crate) fn chunk(&self, order: u32) -> Option<u32> {
        let fitting = self.present.checked_shr(order)?;
        if fitting == 0 {
            return None;
        }
        let order = order + fitting.trailing_zeros();
        if order == 0 {
            return self.first_alone();
        }
        let level = &self.chunks[usize_of(self.offsets[usize_of(order)])..];
        let index = bits::first_set(level, &(self.first_free >> order..self.len >> order))?;
        Some(index << order)
    }

    /// The length of the free run from `at` on, measured no further than `limit` clusters; 0 if `at` is in
    /// use or beyond the end.
    pub(crate) fn run_at(&self, at: u32, limit: u32) -> u32 {
        let end = at.saturating_add(limit).min(self.len);
        bits::first_set(&self.words, &(at..end)).unwrap_or(end).saturating_sub(at)
    }

    /// The first free run at or after `from`, measured no further than `limit` clusters, which is at least 1.
    /// Of a run that `from` lies inside, it is the rest.
    pub(crate) fn next_run(&self, from: u32, limit: u32) -> Option<Range<u32>> {
        let start = bits::first_clear(&self.words, &(from.max(self.first_free)..self.len))?;
        charge(Cost::Extent, 1);
        Some(start..start + self.run_at(start, limit))
    }

    /// The length of the longest free run. It looks at all of them.
    pub(crate) fn longest(&self) -> u32 {
        bits::clear_runs(&self.words, self.first_free..self.len)
            .map(|run| run.end - run.start)
            .max()
            .unwrap_or(0)
    }

    fn is_free(&self, at: u32) -> bool {
        self.words[usize_of(at / WORD)] >> (at % WORD) & 1 == 0
    }

    /// Whether the clusters before and after a range are free.
    fn free_beside(&self, range: &Range<u32>) -> (bool, bool) {
        let left = range.start > 0 && self.is_free(range.start - 1);
        (left, range.end < self.len && self.is_free(range.end))
    }

    /// The word and bit of a chunk. The buddy of a chunk that exists has its bit in the same word.
    fn place(&self, order: u32, index: u32) -> (usize, u64) {
        (usize_of(self.offsets[usize_of(order)] + index / WORD), 1 << (index % WORD))
    }

    /// Whether this is a chunk. Of order 0 only those may be asked for that no higher order can cover.
    fn has(&self, order: u32, index: u32) -> bool {
        if order == 0 {
            return self.is_free(index);
        }
        let (word, bit) = self.place(order, index);
        self.chunks[word] & bit != 0
    }

    /// Makes it a chunk.
    fn insert(&mut self, order: u32, index: u32) {
        if order > 0 {
            let (word, bit) = self.place(order, index);
            self.chunks[word] |= bit;
        }
        self.counters[usize_of(order)] += 1;
        self.present |= 1 << order;
    }

    /// Makes it one no more.
    fn remove(&mut self, order: u32, index: u32) {
        if order > 0 {
            let (word, bit) = self.place(order, index);
            self.chunks[word] &= !bit;
        }
        let counter = &mut self.counters[usize_of(order)];
        *counter -= 1;
        self.present &= !(u32::from(*counter == 0) << order);
    }

    /// The order of the chunk that holds a free cluster.
    fn order_at(&self, at: u32) -> u32 {
        // The word of the bitmap shows on which side of its own order to look.
        let within = (1 << WORD_ORDER.min(self.top)) - 1;
        let whole = self.words[usize_of(at / WORD)] == 0;
        let mut orders = self.present & if whole { !within } else { (1 << WORD_ORDER) - 2 };
        while orders != 0 {
            let order = orders.trailing_zeros();
            if self.has(order, at >> order) {
                return order;
            }
            orders &= orders - 1;
        }
        0
    }

    /// Makes chunks of what a chunk of `order` has beside `start..end`, after it was removed.
    ///
    /// What lies before is split at the set bits of `start`: bit k is a chunk of order k that ends where the
    /// lower bits are cleared. What lies behind is the mirror image: where bit k of `end - 1` is clear, a
    /// chunk of order k starts at the next multiple of 2^k.
    fn split(&mut self, order: u32, start: u32, end: u32) {
        let below = (1 << order) - 1;
        let last = end - 1;
        for k in ones(start & below) {
            self.insert(k, (start >> k) - 1);
        }
        for k in ones(!last & below) {
            self.insert(k, (last >> k) + 1);
        }
    }

    /// Makes chunks of a range, joined with the free buddies beside it; its bits are clear already.
    fn join(&mut self, range: &Range<u32>) {
        let Range { mut start, mut end } = *range;
        for order in 0..self.top {
            if start + 1 == end {
                return self.rise(order, start);
            }
            // Only at its edges can something have its buddy outside the range.
            if start % 2 == 1 {
                if self.has(order, start - 1) {
                    start -= 1;
                    self.remove(order, start);
                } else {
                    self.insert(order, start);
                    start += 1;
                }
            }
            if end % 2 == 1 {
                if self.has(order, end) {
                    self.remove(order, end);
                    end += 1;
                } else {
                    end -= 1;
                    self.insert(order, end);
                }
            }
            if start >= end {
                return;
            }
            (start, end) = (start / 2, end / 2);
        }
        for index in start..end {
            self.insert(self.top, index);
        }
    }

    /// Makes a chunk of something free, joined with its buddy as long as that is free too.
    fn rise(&mut self, mut order: u32, mut index: u32) {
        while order < self.top && self.has(order, index ^ 1) {
            self.remove(order, index ^ 1);
            order += 1;
            index /= 2;
        }
        self.insert(order, index);
    }

    /// The first chunk of order 0.
    fn first_alone(&self) -> Option<u32> {
        let from = usize_of(self.first_free / WORD);
        let found =
            self.words[from..].iter().map(|word| pair_up(!word).0).zip(from..).find(|(bits, _)| *bits != 0);
        found.map(|(bits, word)| low32(u64_of(word)) * WORD + bits.trailing_zeros())
    }

    /// Verifies every invariant from scratch, cluster by cluster. For tests.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub(crate) fn check(&self) -> Result<(), String> {
        let holds = |claim: bool, what: &dyn Fn() -> String| if claim { Ok(()) } else { Err(what()) };
        let padding = self.len..self.len.next_multiple_of(WORD);
        holds(self.words.len() == bits::words_for(self.len), &|| "the bitmap has another length".into())?;
        holds(bits::first_clear(&self.words, &padding).is_none(), &|| "a bit beyond the end is free".into())?;

        let free: Vec<bool> = (0..self.len).map(|at| self.is_free(at)).collect();
        let mut covered = vec![false; free.len()];
        let mut counters = [0; ORDERS_MAX];
        for order in 1..=self.top {
            let [from, to] = [order, order + 1].map(|order| self.offsets[usize_of(order)]);
            for index in 0..(to - from) * WORD {
                if !self.has(order, index) {
                    continue;
                }
                let name = || format!("chunk {index} of order {order}");
                let clusters = usize_of(index << order)..usize_of((index + 1) << order);
                holds(clusters.end <= free.len(), &|| format!("{} lies beyond the end", name()))?;
                holds(free[clusters.clone()].iter().all(|free| *free), &|| {
                    format!("{} is not free", name())
                })?;
                holds(!covered[clusters.clone()].contains(&true), &|| {
                    format!("{} overlaps another", name())
                })?;
                let merged = order == self.top || !self.has(order, index ^ 1);
                holds(merged, &|| format!("{} and its buddy are not joined", name()))?;
                covered[clusters].fill(true);
                counters[usize_of(order)] += 1;
            }
        }
        let alone = |at: usize| free.get(at) == Some(&true) && !covered[at];
        for at in 0..free.len() {
            holds(!(alone(at) && alone(at ^ 1)), &|| format!("cluster {at} and its buddy are not joined"))?;
            counters[0] += u32::from(alone(at));
        }
        let same = |what: &str, is: u32, should: u32| {
            holds(is == should, &|| format!("{what} is {is} and should be {should}"))
        };
        for (order, (is, should)) in self.counters.iter().zip(counters).enumerate() {
            same(&format!("the number of chunks of order {order}"), *is, should)?;
            same(&format!("the mark of order {order}"), self.present >> order & 1, u32::from(should > 0))?;
        }
        let count = |marks: &mut dyn Iterator<Item = bool>| low32(u64_of(marks.filter(|mark| *mark).count()));
        same("the number of free clusters", self.free, count(&mut free.iter().copied()))?;
        let chunked: u32 = counters.iter().zip(0..).map(|(count, order)| count << order).sum();
        same("the number of clusters in chunks", chunked, self.free)?;
        let starts = count(&mut (0..free.len()).map(|at| free[at] && (at == 0 || !free[at - 1])));
        same("the number of free runs", self.fragments, starts)?;
        let first = free.iter().position(|free| *free).unwrap_or(free.len());
        same("the first free cluster", self.first_free, low32(u64_of(first)))
    }
}

/// Splits what is free in an order into what has no free buddy and, by the first of the two, the pairs.
const fn pair_up(free: u64) -> (u64, u64) {
    let pairs = free & free >> 1 & EVEN;
    (free & !(pairs | pairs << 1), pairs)
}

/// Puts the pairs of word `at` of an order into their half of a word of the order above.
fn put_half(above: &mut [u64], at: usize, pairs: u64) {
    // Each step closes half of the gaps: bits 1, 2, 4, 8 and 16 apart become neighbours.
    let mut half = pairs;
    half = (half | half >> 1) & 0x3333_3333_3333_3333;
    half = (half | half >> 2) & 0x0f0f_0f0f_0f0f_0f0f;
    half = (half | half >> 4) & 0x00ff_00ff_00ff_00ff;
    half = (half | half >> 8) & 0x0000_ffff_0000_ffff;
    half = (half | half >> 16) & 0x0000_0000_ffff_ffff;
    above[at / 2] |= half << (at % 2 * 32);
}

/// The numbers of the set bits, from the lowest.
fn ones(mut bits: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (bits != 0).then(|| bits.trailing_zeros())?;
        bits &= bits - 1;
        Some(bit)
    })
}

#[cfg(test)]
mod tests;
