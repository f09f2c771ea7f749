//! The allocator under the journal: reserve -> publish and free inside handles, rendered by the commit.

use hectare_alloc::{AllocError, Allocator, Config, GroupSource, Layout, Request, Run};
use hectare_journal::{Commit, Credits, Journal};
use hectare_units::{ClusterNr, Clusters, GroupNr, TxnId, u64_of};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::thread;

const PER_GROUP: u32 = 256;
const GROUPS: u32 = 6;

/// Bitmaps as they are on the device.
#[derive(Clone)]
struct Bitmaps(Arc<Mutex<Vec<Vec<u64>>>>);

impl GroupSource for Bitmaps {
    type Error = Infallible;

    fn load(&self, group: GroupNr) -> Result<Vec<u64>, Infallible> {
        Ok(self.0.lock().unwrap()[group.index()].clone())
    }

    fn free_hint(&self, _: GroupNr) -> u32 {
        PER_GROUP
    }
}

/// A volume of nothing but bitmaps. Per transaction each handle uses or frees whole pairs of clusters, so a
/// frozen bitmap with an odd number of free clusters has caught a handle halfway.
struct Volume {
    allocator: Allocator<Bitmaps>,
    bitmaps: Bitmaps,
}

impl Commit for Volume {
    type Frozen = Vec<(GroupNr, Vec<u64>)>;
    type Error = String;

    fn freeze(&self, txn: TxnId) -> Result<Self::Frozen, String> {
        let mut frozen = Vec::new();
        self.allocator.render_dirty(txn, |group, words, free| {
            frozen.push((group, words.to_vec()));
            if free.is_multiple_of(2) { Ok(()) } else { Err(format!("group {group} is frozen half done")) }
        })?;
        if self.allocator.durable_free().get().is_multiple_of(2) {
            Ok(frozen)
        } else {
            Err("half done".into())
        }
    }

    fn write(&self, frozen: Self::Frozen, _: TxnId) -> Result<(), String> {
        for (group, words) in frozen {
            self.bitmaps.0.lock().unwrap()[group.index()] = words;
        }
        Ok(())
    }

    fn committed(&self, txn: TxnId) {
        self.allocator.committed(txn);
        self.allocator.evict(1);
    }
}

fn volume() -> Volume {
    let total = Clusters::new(u64::from(PER_GROUP * GROUPS));
    let empty = (0..GROUPS).map(|_| vec![0; 4]).collect();
    let bitmaps = Bitmaps(Arc::new(Mutex::new(empty)));
    let layout = Layout::new(PER_GROUP, total).unwrap();
    Volume { allocator: Allocator::new(bitmaps.clone(), layout, Config::default()), bitmaps }
}

/// Takes and frees pairs; on a full volume forces a commit so that freed pairs come back.
fn churn(journal: &Journal<Arc<Volume>>, seed: u64) -> Vec<Run> {
    let allocator = &journal.volume().allocator;
    let mut mine: Vec<Run> = Vec::new();
    let pair = Request::new(ClusterNr::new(seed * 200), Clusters::new(2)).at_least(Clusters::new(2));
    for round in 0..3000_u64 {
        match allocator.reserve(&pair) {
            Ok(mut first) => {
                let second = first.split_off(Clusters::ONE);
                let mut handle = journal.start(Credits::new(2)).unwrap();
                let run = first.publish(&mut handle);
                thread::yield_now();
                second.publish(&mut handle);
                handle.stop();
                mine.push(Run::new(run.start, Clusters::new(2)));
            }
            Err(AllocError::NoSpace) => drop(journal.commit().unwrap()),
            Err(error) => panic!("{error}"),
        }
        if mine.len() > 100 || (round % 3 == 0 && !mine.is_empty()) {
            let run = mine.swap_remove(usize::try_from(round).unwrap() % mine.len());
            let mut handle = journal.start(Credits::new(1)).unwrap();
            allocator.free(Run::new(run.start, Clusters::ONE), &mut handle).unwrap();
            thread::yield_now();
            allocator.free(Run::new(run.start + Clusters::ONE, Clusters::ONE), &mut handle).unwrap();
        }
    }
    mine
}

#[test]
fn commits_catch_operations_whole() {
    let journal = Journal::new(Arc::new(volume()), TxnId::new(0));
    let kept: usize = thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|seed| {
                let journal = &journal;
                scope.spawn(move || churn(journal, seed).len())
            })
            .collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            journal.commit().unwrap();
        }
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    journal.commit().unwrap();
    let volume = journal.volume();
    let bitmaps = volume.bitmaps.0.lock().unwrap();
    let on_disk: u64 = bitmaps.iter().flatten().map(|word| u64::from(word.count_ones())).sum();
    assert_eq!(on_disk, 2 * u64_of(kept));
    let counts = volume.allocator.counts();
    assert_eq!(counts.available, counts.durable_free(), "nothing is reserved, claimed or pending");
    assert_eq!(counts.available.get(), u64::from(PER_GROUP * GROUPS) - on_disk);
}
