//! A cache in shards, and the list of its entries that wait to be written.
//!
//! Threads that use different entries mostly use different shards, and so different locks. An entry is read
//! from the device under its shard's *loading* lock, which is not the lock of the map: others find what is
//! in memory meanwhile, and no entry is ever read twice at a time.
//!
//! Lock order: loading -> map. Nothing else is locked under the map's lock.

use crate::stores::shard::{Cached, Shard};
use hectare_units::{BlockNr, InodeNr, index_of, u64_of};
use parking_lot::Mutex;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const SHARDS: usize = 64;
/// The least size of a shard.
const SHARD_MIN: usize = 16;

/// The key of an entry; neighbouring keys go to different shards.
pub(crate) trait Key: Copy + Eq + Hash {
    /// The key as a number.
    fn number(self) -> u64;
}

impl Key for BlockNr {
    fn number(self) -> u64 {
        self.get()
    }
}

impl Key for InodeNr {
    fn number(self) -> u64 {
        self.get().into()
    }
}

/// Entries by key.
pub(crate) struct Sharded<K, V> {
    maps: Vec<Mutex<Shard<K, V>>>,
    /// Held, one per shard, while an entry is read.
    loading: Vec<Mutex<()>>,
}

fn shard_of(key: impl Key) -> usize {
    index_of(key.number() % u64_of(SHARDS))
}

impl<K: Key, V: Cached> Sharded<K, V> {
    /// An empty cache that tries to hold no more than `max` entries.
    pub(crate) fn new(max: usize) -> Self {
        let shard_max = (max / SHARDS).max(SHARD_MIN);
        Self {
            maps: (0..SHARDS).map(|_| Mutex::new(Shard::new(shard_max))).collect(),
            loading: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }

    /// Entries in memory; the shards are counted one after the other.
    pub(crate) fn len(&self) -> usize {
        self.maps.iter().map(|map| map.lock().len()).sum()
    }

    fn map(&self, key: K) -> &Mutex<Shard<K, V>> {
        &self.maps[shard_of(key)]
    }

    /// The entry of that key, if it is in memory.
    #[inline]
    pub(crate) fn find(&self, key: K) -> Option<Arc<V>> {
        self.map(key).lock().get(&key).cloned()
    }

    /// The entry of that key, which `read` makes if it is not in memory.
    pub(crate) fn load<E>(&self, key: K, read: impl FnOnce() -> Result<Arc<V>, E>) -> Result<Arc<V>, E> {
        if let Some(entry) = self.find(key) {
            return Ok(entry);
        }
        let _loading = self.loading[shard_of(key)].lock();
        if let Some(entry) = self.find(key) {
            return Ok(entry);
        }
        let entry = read()?;
        Ok(self.get_or_insert_with(key, || entry))
    }

    /// The entry of that key; if there is none, the one that `make` makes, kept from now on.
    pub(crate) fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> Arc<V>) -> Arc<V> {
        Arc::clone(self.map(key).lock().get_or_insert_with(key, make))
    }

    /// Keeps `value` in place of the entry of that key.
    pub(crate) fn replace(&self, key: K, value: Arc<V>) {
        self.map(key).lock().replace(key, value);
    }

    /// Removes the entry of that key and returns it.
    pub(crate) fn remove(&self, key: K) -> Option<Arc<V>> {
        self.map(key).lock().remove(&key)
    }
}

/// The entries that wait for the next commit, in the order in which they became dirty. Each is on the list
/// once: whether it is, it says itself.
pub(crate) struct DirtyList<V> {
    entries: Mutex<Vec<Arc<V>>>,
    /// How many wait; entries that are being rendered may count as well.
    count: AtomicUsize,
}

impl<V> Default for DirtyList<V> {
    fn default() -> Self {
        Self { entries: Mutex::default(), count: AtomicUsize::new(0) }
    }
}

impl<V> DirtyList<V> {
    /// Adds an entry that is not on the list.
    pub(crate) fn push(&self, entry: &Arc<V>) {
        // Counted before it is there to be taken.
        self.count.fetch_add(1, Ordering::Relaxed);
        self.entries.lock().push(Arc::clone(entry));
    }

    /// Takes all entries; they stay counted.
    pub(crate) fn take(&self) -> Vec<Arc<V>> {
        std::mem::take(&mut *self.entries.lock())
    }

    /// Returns entries that were taken to the front of the list.
    pub(crate) fn put_back(&self, entries: Vec<Arc<V>>) {
        self.entries.lock().splice(..0, entries);
    }

    /// Counts an entry that was taken no more.
    pub(crate) fn uncount(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts none of the entries that were taken any more. No entry is added meanwhile.
    pub(crate) fn uncount_all(&self) {
        self.count.store(0, Ordering::Relaxed);
    }

    /// How many entries wait.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    struct Item(u64);

    impl Cached for Item {
        fn is_dirty(&self) -> bool {
            false
        }
        fn take_recent(&self) -> bool {
            false
        }
    }

    fn load(cache: &Sharded<BlockNr, Item>, nr: u64) -> Arc<Item> {
        cache.load(BlockNr::new(nr), || Ok::<_, ()>(Arc::new(Item(nr)))).expect("it can't fail")
    }

    #[test]
    fn neighbours_are_spread_over_all_shards_and_the_size_is_kept_to() {
        let cache: Sharded<BlockNr, Item> = Sharded::new(1024);
        for nr in 0..100_000 {
            assert_eq!(load(&cache, nr).0, nr);
        }
        assert!(cache.len() <= 1024, "{}", cache.len());
        assert!(cache.maps.iter().all(|map| map.lock().len() > 0));
    }

    #[test]
    fn an_entry_is_read_once_by_many_threads_and_again_after_a_failure() {
        let cache: Sharded<InodeNr, Item> = Sharded::new(1024);
        let nr = InodeNr::new(12);
        assert_eq!(cache.load(nr, || Err("no device")).err(), Some("no device"));
        assert!(cache.find(nr).is_none());
        let (reads, start) = (AtomicUsize::new(0), Barrier::new(4));
        let read = || {
            reads.fetch_add(1, Ordering::Relaxed);
            std::thread::yield_now();
            Ok::<_, ()>(Arc::new(Item(7)))
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    cache.load(nr, read).expect("it can't fail");
                });
            }
        });
        assert_eq!(reads.into_inner(), 1);
        assert_eq!(cache.remove(nr).map(|item| item.0), Some(7));
        assert_eq!(cache.len(), 0);
    }

    #[test]
    fn entries_put_back_come_before_those_added_meanwhile() {
        let list = DirtyList::default();
        let items: Vec<_> = (0..4).map(|nr| Arc::new(Item(nr))).collect();
        items[..2].iter().for_each(|item| list.push(item));
        let taken = list.take();
        list.push(&items[2]);
        list.put_back(taken);
        assert_eq!(list.count(), 3);
        assert_eq!(list.take().iter().map(|item| item.0).collect::<Vec<_>>(), [0, 1, 2]);
        list.uncount();
        assert_eq!(list.count(), 2);
        list.uncount_all();
        assert_eq!(list.count(), 0);
    }
}
