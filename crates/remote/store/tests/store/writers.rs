//! One writer at a time: leases, takeovers, and writers that wake up late. The first test has the real clock.

use crate::fault_store::{Fate, FaultStore};
use crate::setup::{impatient, made, opened, options, stored};
use hectare_device::{Clock, Device};
use hectare_store::Options;
use hectare_units::Bytes;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use std::sync::Arc;
use std::time::Duration;

/// A lease that ends at once where nothing renews it.
const SHORT: Duration = Duration::from_millis(300);

/// The clock of the other tests.
const FAST: Clock = Clock::fast(10);

/// A volume whose writer stops renewing its lease: its requests are stuck.
fn paused(clock: Clock) -> (Arc<FaultStore>, Arc<dyn ObjectStore>, tempfile::TempDir, Options) {
    let honest: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let logs = tempfile::tempdir().unwrap();
    let options = Options { lease: SHORT, clock, ..impatient(logs.path()) };
    (FaultStore::new(Arc::clone(&honest)), honest, logs, options)
}

#[test]
fn a_writer_that_wakes_up_behind_its_lease_changes_nothing() {
    let (faults, honest, logs, options) = paused(Clock::REAL);
    let through_faults: Arc<dyn ObjectStore> = faults.clone();
    let first = made(&through_faults, Bytes::mib(1), &options);
    first.write_at(Bytes::ZERO, b"first").unwrap();
    first.flush().unwrap();
    first.write_at(Bytes::ZERO, b"FIRST").unwrap();
    // It sleeps: no renewal comes through.
    faults.rule(|request| if request.name.ends_with("lock") { Fate::Refused } else { Fate::Done });
    std::thread::sleep(SHORT * 2);
    let elsewhere = tempfile::tempdir().unwrap();
    let other = Options { log: Some(elsewhere.path().to_owned()), ..options.clone() };
    let error = opened(&honest, &other).err().unwrap().to_string();
    assert!(error.contains("process") && error.contains("--takeover"), "{error}");
    let second = opened(&honest, &Options { takeover: true, ..other.clone() }).unwrap();
    second.write_at(Bytes::new(5), b" second").unwrap();
    second.flush().unwrap();
    faults.rule(|_| Fate::Done);
    let error = first.flush().unwrap_err().to_string();
    assert!(error.contains("taken over"), "{error}");
    first.flush().unwrap_err();
    drop(first);
    assert_eq!(&stored(&honest)[..12], b"first second");
    // What the first had put for its last flush is garbage; the second can still write.
    second.write_at(Bytes::ZERO, b"F").unwrap();
    second.flush().unwrap();
    drop(second);
    let swept = hectare_store::sweep(&crate::setup::bucket(&honest, &other), &other, false).unwrap();
    assert_eq!((swept.used, swept.left), (3, 0), "{swept:?}");
    assert_eq!(&stored(&honest)[..12], b"First second");
    // Its log lies on a content that is gone.
    let third = opened(&honest, &Options { log: Some(logs.path().to_owned()), ..options }).unwrap();
    assert!(third.notes()[0].contains("dropped"), "{:?}", third.notes());
    assert_eq!(&stored(&honest)[..12], b"First second");
}

#[test]
fn a_takeover_alone_stops_a_writer_that_has_everything_up_but_the_swap() {
    let (faults, honest, _logs, options) = paused(FAST);
    let through_faults: Arc<dyn ObjectStore> = faults.clone();
    let first = made(&through_faults, Bytes::mib(1), &options);
    first.write_at(Bytes::ZERO, b"late").unwrap();
    // Between its last object and its swap it is paused; meanwhile it is taken over by one that writes
    // nothing.
    let (honest_store, other) = (Arc::clone(&honest), options);
    let elsewhere = tempfile::tempdir().unwrap();
    let other = Options { takeover: true, log: Some(elsewhere.path().to_owned()), ..other };
    faults.rule(move |request| {
        if request.kind == "swap" && request.name.ends_with("manifest") {
            let (store, other) = (Arc::clone(&honest_store), other.clone());
            let opening = std::thread::spawn(move || {
                FAST.sleep(SHORT * 2);
                opened(&store, &other).map(drop)
            });
            opening.join().unwrap().unwrap();
        }
        if request.name.ends_with("lock") { Fate::Refused } else { Fate::Done }
    });
    let error = first.flush().unwrap_err().to_string();
    assert!(error.contains("it was taken over by"), "{error}");
    assert!(stored(&honest).iter().all(|byte| *byte == 0));
}

#[test]
fn a_lease_is_renewed_while_its_writer_lives_and_released_when_it_ends() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let logs = tempfile::tempdir().unwrap();
    let options =
        Options { lease: Duration::from_secs(4), takeover: true, clock: FAST, ..options(logs.path()) };
    let first = made(&store, Bytes::mib(1), &options);
    FAST.sleep(Duration::from_secs(6));
    let error = opened(&store, &options).err().unwrap().to_string();
    assert!(error.contains("whose lease lasts for another"), "{error}");
    drop(first);
    opened(&store, &Options { takeover: false, ..options }).unwrap();
}
