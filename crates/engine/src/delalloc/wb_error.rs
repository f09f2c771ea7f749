//! Failures of which somebody is yet to be told: each of those who have a file open hears of one once.
//!
//! Failures are numbered. Who opens a file remembers the number of the last one that somebody has heard of,
//! and is told when he asks and the number is another; so nobody hears of a failure twice, nobody of one that
//! was dealt with before he came, and one that nobody has heard of yet waits for the next who comes. Failures
//! between two that are told are one, the first of them. (The kernel's `errseq_t` works like this.)

use crate::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};

/// What went wrong with a file, and whether that was told.
#[derive(Default)]
pub(crate) struct Untold {
    error: Option<Error>,
    /// Failures so far, those that are one counted as one.
    number: u64,
    /// Somebody has heard of the last one.
    told: bool,
}

impl Untold {
    /// Something went wrong.
    pub(crate) fn note(&mut self, error: &Error) {
        if self.error.is_none() || self.told {
            self.error = Some(error.clone());
            self.number += 1;
            self.told = false;
        }
    }

    /// What somebody who comes now is to remember.
    pub(crate) fn heard(&self) -> u64 {
        if self.told || self.number == 0 { self.number } else { self.number - 1 }
    }

    /// What went wrong since somebody, who remembers `heard`, was told last. Calls for the same `heard` must
    /// not overlap, which a lock around `self` sees to.
    pub(crate) fn tell(&mut self, heard: &AtomicU64) -> Option<Error> {
        if heard.swap(self.number, Ordering::Relaxed) == self.number {
            return None;
        }
        self.told = true;
        self.error.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(untold: &mut Untold, heard: &AtomicU64) -> Option<i32> {
        untold.tell(heard).map(|error| error.errno())
    }

    #[test]
    fn each_hears_of_a_failure_once() {
        let mut untold = Untold::default();
        let (a, b) = (AtomicU64::new(untold.heard()), AtomicU64::new(untold.heard()));
        assert_eq!(told(&mut untold, &a), None);
        untold.note(&Error::NoSpace);
        untold.note(&Error::FileTooLarge);
        assert_eq!((told(&mut untold, &a), told(&mut untold, &a)), (Some(28), None));
        // Another one, before the other has heard of the first: what is new is told.
        untold.note(&Error::FileTooLarge);
        assert_eq!((told(&mut untold, &b), told(&mut untold, &b)), (Some(27), None));
        assert_eq!((told(&mut untold, &a), told(&mut untold, &a)), (Some(27), None));
    }

    #[test]
    fn who_comes_later_hears_of_what_nobody_heard_of() {
        let mut untold = Untold::default();
        untold.note(&Error::NoSpace);
        let (a, b) = (AtomicU64::new(untold.heard()), AtomicU64::new(untold.heard()));
        assert_eq!((told(&mut untold, &a), told(&mut untold, &b)), (Some(28), Some(28)));
        let late = AtomicU64::new(untold.heard());
        assert_eq!(told(&mut untold, &late), None);
        untold.note(&Error::NoSpace);
        assert_eq!(told(&mut untold, &late), Some(28));
    }
}
