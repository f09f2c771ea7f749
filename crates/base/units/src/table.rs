//! A table whose entries are made on first touch.
//!
//! A volume may have hundreds of millions of groups, of which one use touches a few. Per-group state lives in
//! a table of this kind: two levels, the lower one in chunks that exist from the first entry made in them on.
//! An entry is made once, stays where it is, and is read without a lock.
//!
//! Memory: 24 bytes for each [`CHUNK`] entries the table has room for, and a chunk's worth of empty entries
//! for each chunk that is touched.
//!
//! What it is not: a cache. Nothing is ever taken out.

use crate::usize_of;
use std::sync::OnceLock;

/// Entries of a chunk; a power of two.
const CHUNK: u32 = 256;

type Chunk<T> = Box<[OnceLock<T>]>;

/// Room for entries numbered from 0 on, each empty until it is made.
#[derive(Debug)]
pub struct OnceTable<T> {
    len: u32,
    chunks: Box<[OnceLock<Chunk<T>>]>,
}

impl<T> OnceTable<T> {
    /// A table with room for `len` entries.
    #[must_use]
    pub fn new(len: u32) -> Self {
        let chunks = usize_of(len.div_ceil(CHUNK));
        Self { len, chunks: std::iter::repeat_with(OnceLock::new).take(chunks).collect() }
    }

    /// The entry with that number; `None` if it was not made yet, or lies beyond the end.
    #[inline]
    #[must_use]
    pub fn get(&self, nr: u32) -> Option<&T> {
        let chunk = self.chunks.get(usize_of(nr / CHUNK))?.get()?;
        chunk.get(usize_of(nr % CHUNK))?.get()
    }

    /// The entry with that number, made now if it does not exist yet. Of several threads that want it at
    /// once one makes it, and the others wait.
    ///
    /// # Panics
    /// If it lies beyond the end.
    pub fn get_or_init(&self, nr: u32, make: impl FnOnce() -> T) -> &T {
        assert!(nr < self.len, "entry {nr} of a table of {}", self.len);
        let first = nr / CHUNK * CHUNK;
        let chunk = self.chunks[usize_of(nr / CHUNK)].get_or_init(|| {
            let entries = usize_of(CHUNK.min(self.len - first));
            std::iter::repeat_with(OnceLock::new).take(entries).collect()
        });
        chunk[usize_of(nr - first)].get_or_init(make)
    }

    /// The entries that were made, from one on, in ascending order.
    pub fn made_from(&self, start: u32) -> impl Iterator<Item = (u32, &T)> {
        let chunks = (0..self.len).step_by(usize_of(CHUNK)).zip(&self.chunks);
        let made = chunks
            .skip(usize_of(start / CHUNK))
            .filter_map(|(first, chunk)| Some((first, chunk.get()?)))
            .flat_map(|(first, chunk)| chunk.iter().zip(first..));
        made.filter_map(|(entry, nr)| Some((nr, entry.get()?))).filter(move |(nr, _)| *nr >= start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_made_once_and_found_in_order() {
        let table = OnceTable::new(3 * CHUNK + 7);
        for nr in [3 * CHUNK + 6, 5, CHUNK, 4] {
            assert_eq!(table.get(nr), None);
            assert_eq!(*table.get_or_init(nr, || nr * 10), nr * 10);
            assert_eq!(*table.get_or_init(nr, || unreachable!("it is made")), nr * 10);
        }
        let made = |start| table.made_from(start).map(|(nr, value)| (nr, *value)).collect::<Vec<_>>();
        let all = [4, 5, CHUNK, 3 * CHUNK + 6].map(|nr| (nr, nr * 10));
        assert_eq!((made(0), made(5), made(CHUNK + 1)), (all.to_vec(), all[1..].to_vec(), all[3..].to_vec()));
        assert_eq!((made(u32::MAX), table.get(u32::MAX)), (Vec::new(), None));
    }

    #[test]
    fn chunks_nobody_touched_do_not_exist() {
        let table = OnceTable::new(100_000_000);
        table.get_or_init(99_999_999, || 1);
        assert_eq!(table.chunks.iter().filter(|chunk| chunk.get().is_some()).count(), 1);
        assert_eq!(OnceTable::<u8>::new(0).made_from(0).count(), 0);
    }

    #[test]
    fn of_several_threads_one_makes_an_entry() {
        let table = OnceTable::new(1000);
        let made = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for nr in 0..1000 {
                        table.get_or_init(nr, || made.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
                    }
                });
            }
        });
        assert_eq!(made.into_inner(), 1000);
    }
}
