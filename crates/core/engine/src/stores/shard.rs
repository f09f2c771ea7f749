//! One shard of a cache: a map that evicts unused entries once it is full.
//!
//! An entry can be evicted if only the shard holds it and it has nothing to be written. How many there are
//! shows only when all entries are inspected; while a transaction grows it may be next to none. So a sweep is
//! not followed by another until the shard has grown by a part of its size: its cost is spread over that many
//! insertions, whatever it finds.
//!
//! Invariant: nothing that is in use, or waits to be written, is evicted; so the size is a goal and no bound.

use hashbrown::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// An entry of a cache.
pub(crate) trait Cached {
    /// Whether it waits to be written.
    fn is_dirty(&self) -> bool;
    /// Whether it was used since the last call.
    fn take_recent(&self) -> bool;
}

/// A part of a cache.
pub(crate) struct Shard<K, V> {
    map: HashMap<K, Arc<V>>,
    /// The size to keep to.
    max: usize,
    /// The size at which to sweep.
    sweep_at: usize,
}

impl<K: Eq + Hash, V: Cached> Shard<K, V> {
    /// An empty shard that tries to hold no more than `max`.
    pub(crate) fn new(max: usize) -> Self {
        Self { map: HashMap::new(), max, sweep_at: max }
    }

    /// The entry of that key.
    pub(crate) fn get(&self, key: &K) -> Option<&Arc<V>> {
        self.map.get(key)
    }

    /// The entry of that key; if there is none, the one that `make` makes, kept from now on.
    pub(crate) fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> Arc<V>) -> &Arc<V> {
        self.make_room();
        self.map.entry(key).or_insert_with(make)
    }

    /// Keeps `value` in place of the entry of that key.
    pub(crate) fn replace(&mut self, key: K, value: Arc<V>) {
        self.make_room();
        self.map.insert(key, value);
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// Removes the entry of that key and returns it.
    pub(crate) fn remove(&mut self, key: &K) -> Option<Arc<V>> {
        self.map.remove(key)
    }

    /// Evicts a quarter if the shard is full: first what was not used since the last sweep.
    fn make_room(&mut self) {
        if self.map.len() < self.sweep_at {
            return;
        }
        let share = (self.max / 4).max(1);
        let target = self.max.saturating_sub(share);
        for spare_recent in [true, false] {
            let mut excess = self.map.len().saturating_sub(target);
            if excess == 0 {
                break;
            }
            self.map.retain(|_, value| {
                let idle = Arc::strong_count(value) == 1 && !value.is_dirty();
                let spared = value.take_recent() && spare_recent;
                let shed = excess > 0 && idle && !spared;
                excess -= usize::from(shed);
                !shed
            });
        }
        self.sweep_at = self.max.max(self.map.len() + share);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    #[derive(Default)]
    struct Item {
        dirty: AtomicBool,
        recent: AtomicBool,
        asked: AtomicUsize,
    }

    impl Cached for Item {
        fn is_dirty(&self) -> bool {
            self.dirty.load(Ordering::Relaxed)
        }
        fn take_recent(&self) -> bool {
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.recent.swap(false, Ordering::Relaxed)
        }
    }

    fn filled(count: usize, max: usize) -> Shard<usize, Item> {
        let mut shard = Shard::new(max);
        for key in 0..count {
            shard.replace(key, Arc::default());
        }
        shard
    }

    #[test]
    fn the_size_is_kept_to() {
        let mut shard = filled(0, 100);
        for key in 0..10_000 {
            shard.replace(key, Arc::default());
            assert!(shard.map.len() <= 100);
        }
    }

    #[test]
    fn what_is_used_or_dirty_stays_and_what_was_used_lately_goes_last() {
        let mut shard = filled(100, 100);
        let held: Vec<Arc<Item>> = (0..10).map(|key| Arc::clone(&shard.map[&key])).collect();
        (10..20).for_each(|key| shard.map[&key].dirty.store(true, Ordering::Relaxed));
        (20..60).for_each(|key| shard.map[&key].recent.store(true, Ordering::Relaxed));
        shard.replace(100, Arc::default());
        assert_eq!(shard.map.len(), 76);
        assert!((0..60).all(|key| shard.get(&key).is_some()));
        drop(held);
    }

    #[test]
    fn looking_in_vain_is_rare() {
        let mut shard = filled(0, 100);
        let mut items = Vec::new();
        for key in 0..2000 {
            let item = Arc::<Item>::default();
            items.push(Arc::clone(&item));
            shard.replace(key, item);
        }
        let asked: usize = items.iter().map(|item| item.asked.load(Ordering::Relaxed)).sum();
        // Two rounds over all of them each time the shard has grown by 25: 76 times, 1100 on average.
        assert!(asked < 200_000, "{asked}");
        drop(items);
        shard.replace(2000, Arc::default());
        for key in 2001..2030 {
            shard.replace(key, Arc::default());
        }
        assert!(shard.map.len() <= 105, "{} are left once they can go", shard.map.len());
    }
}
