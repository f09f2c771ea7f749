//! What was fetched, kept up to a number of bytes; the least recently used goes first.
//!
//! Several threads that want the same thing wait for one request. Keys name immutable things (an object that
//! is never changed, a block of an image whose version is fixed), so nothing here is ever out of date.

use crate::Result;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use tokio::sync::OnceCell;

struct Entry<V> {
    cell: Arc<OnceCell<Arc<V>>>,
    used: u64,
    weight: usize,
}

struct Entries<K, V> {
    map: HashMap<K, Entry<V>>,
    tick: u64,
    weight: usize,
}

/// A cache of `V` by `K`, of bounded weight.
pub(crate) struct Cache<K, V> {
    entries: Mutex<Entries<K, V>>,
    max: usize,
}

impl<K: Copy + Eq + Hash, V> Cache<K, V> {
    /// Keeps values of `max` bytes in all. What is in use, or being fetched, is not counted.
    pub(crate) fn new(max: usize) -> Self {
        Self { entries: Mutex::new(Entries { map: HashMap::new(), tick: 0, weight: 0 }), max }
    }

    /// The value of a key, fetched by `load` (with its weight) if it is not there.
    pub(crate) async fn get(&self, key: K, load: impl Future<Output = Result<(V, usize)>>) -> Result<Arc<V>> {
        let cell = self.cell(key);
        let mut loaded = None;
        let value = cell
            .get_or_try_init(|| async {
                let (value, weight) = load.await?;
                loaded = Some(weight);
                Ok(Arc::new(value))
            })
            .await;
        match (&value, loaded) {
            (Ok(_), Some(weight)) => self.weigh(key, weight),
            (Err(_), _) => self.forget_empty(key),
            _ => {}
        }
        value.cloned()
    }

    /// Whether a key is there, or being fetched.
    pub(crate) fn has(&self, key: K) -> bool {
        self.entries.lock().map.contains_key(&key)
    }

    /// Adds what is known without fetching it.
    pub(crate) fn add(&self, key: K, value: V, weight: usize) {
        let cell = self.cell(key);
        if cell.set(Arc::new(value)).is_ok() {
            self.weigh(key, weight);
        }
    }

    fn cell(&self, key: K) -> Arc<OnceCell<Arc<V>>> {
        let mut entries = self.entries.lock();
        entries.tick += 1;
        let tick = entries.tick;
        let new = || Entry { cell: Arc::default(), used: tick, weight: 0 };
        let entry = entries.map.entry(key).or_insert_with(new);
        entry.used = tick;
        Arc::clone(&entry.cell)
    }

    fn weigh(&self, key: K, weight: usize) {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.map.get_mut(&key) else { return };
        entry.weight = weight.max(1);
        entries.weight += weight.max(1);
        while entries.weight > self.max {
            let known = entries.map.iter().filter(|(other, entry)| entry.weight > 0 && **other != key);
            let Some(oldest) = known.min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key) else { break };
            entries.weight -= entries.map.remove(&oldest).map_or(0, |entry| entry.weight);
        }
    }

    fn forget_empty(&self, key: K) {
        let mut entries = self.entries.lock();
        if entries.map.get(&key).is_some_and(|entry| !entry.cell.initialized()) {
            entries.map.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, runtime};

    #[test]
    fn what_was_used_least_recently_goes_first_and_failures_are_not_kept() {
        let cache = Cache::<u32, u32>::new(20);
        let get =
            |key, value: Result<u32>| runtime::wait(cache.get(key, async { value.map(|value| (value, 10)) }));
        let failed = || Err(Error::Remote("no".to_owned()));
        get(1, failed()).unwrap_err();
        assert!(!cache.has(1));
        assert_eq!(*get(1, Ok(5)).unwrap(), 5);
        assert_eq!(*get(2, Ok(6)).unwrap(), 6);
        assert_eq!(*get(1, failed()).unwrap(), 5);
        cache.add(3, 7, 10);
        assert!(cache.has(1) && !cache.has(2) && cache.has(3));
    }
}
