//! What was ever lost on the way to durable storage, remembered for all who ask.
//!
//! Storage reports a failed write-back once: Linux to the next `fsync`, or the next write with `RWF_DSYNC`, of an
//! open file description; an NBD server to the next flush or FUA write of a client. Where several threads make such
//! calls on one device, one thread can get the error of another's bytes, and the call of that other thread succeeds:
//! after the failed one, or at the same time.
//!
//! Invariants:
//! - Once an operation that promises durability has failed, each later one fails with the same error.
//! - Such an operation succeeds only after those that overlap it have ended, and if none of them failed.
//!
//! Hazard: an operation that never ends keeps those that overlap it from ending.

use crate::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;

/// The operations of a device that promise durability, and the first failure of one.
#[derive(Debug, Default)]
pub struct Durability {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The first failure.
    failed: Option<Error>,
    /// The operations under way, by their numbers, which ascend.
    running: BTreeSet<u64>,
    next: u64,
}

impl State {
    fn result(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }
}

/// An operation under way.
struct Running<'a> {
    durability: &'a Durability,
    number: u64,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.durability.state.lock().running.remove(&self.number);
        self.durability.ended.notify_all();
    }
}

impl Durability {
    /// Does what makes bytes durable.
    ///
    /// # Errors
    /// The first failure of all that were done here, before this or while it was done.
    pub fn attempt(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        self.attempt_unwaiting(work)?;
        let mut state = self.state.lock();
        let began_later = state.next;
        while state.running.first().is_some_and(|number| *number < began_later) {
            self.ended.wait(&mut state);
        }
        state.result()
    }

    /// The same without the wait for those that overlap: one of them may fail for these bytes, too. For what must be
    /// done in time and needs no more than that a failure is remembered, such as the renewal of a mark.
    ///
    /// # Errors
    /// The first failure of all that ended before this.
    pub fn attempt_unwaiting(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let _running = self.begin()?;
        let done = work();
        let mut state = self.state.lock();
        if let Err(error) = &done {
            state.failed.get_or_insert_with(|| error.clone());
        }
        state.result()
    }

    fn begin(&self) -> Result<Running<'_>> {
        let mut state = self.state.lock();
        state.result()?;
        let number = state.next;
        state.next += 1;
        state.running.insert(number);
        drop(state);
        Ok(Running { durability: self, number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Operation, Reason};
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    fn error() -> Error {
        Error::new("disk", Operation::Flush, None, Reason::Io(5))
    }

    #[test]
    fn what_failed_once_fails_for_good() {
        let durability = Durability::default();
        durability.attempt(|| Ok(())).unwrap();
        durability.attempt(|| Err(error())).unwrap_err();
        let again = durability.attempt(|| panic!("it is not tried again")).unwrap_err();
        assert_eq!(again.to_string(), error().to_string());
    }

    #[test]
    fn regression_a_success_beside_a_failure_was_believed() {
        let durability = Durability::default();
        let (begun, wait_for_begun) = channel();
        let (go_on, wait_to_go_on) = channel::<()>();
        let durability = &durability;
        thread::scope(|scope| {
            let failing = scope.spawn(move || {
                durability.attempt(|| {
                    begun.send(()).unwrap();
                    wait_to_go_on.recv().unwrap();
                    Err(error())
                })
            });
            wait_for_begun.recv().unwrap();
            let (told, result) = channel();
            scope.spawn(move || told.send(durability.attempt(|| Ok(()))).unwrap());
            let early = result.recv_timeout(Duration::from_millis(50));
            go_on.send(()).unwrap();
            assert!(early.is_err(), "it waits for the other: {early:?}");
            assert!(result.recv().unwrap().is_err());
            assert!(failing.join().unwrap().is_err());
        });
    }

    #[test]
    fn regression_the_renewal_of_a_mark_waited_for_a_long_flush() {
        let durability = Durability::default();
        durability
            .attempt_unwaiting(|| {
                durability.attempt_unwaiting(|| Ok(())).unwrap(); // while the other is under way
                Err(error())
            })
            .unwrap_err();
        durability.attempt_unwaiting(|| Ok(())).unwrap_err();
        durability.attempt(|| Ok(())).unwrap_err();
    }

    #[test]
    fn an_operation_that_panics_is_not_waited_for() {
        let durability = Durability::default();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _ = durability.attempt(|| panic!("no more"));
        }));
        assert!(panicked.is_err());
        durability.attempt(|| Ok(())).unwrap();
    }
}
