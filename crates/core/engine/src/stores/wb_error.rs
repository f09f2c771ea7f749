//! Writeback errors of a file, each reported once per open file (like the kernel's `errseq_t`).
//!
//! Errors are numbered. An open file records the number of the last error that was reported to any; fsync and
//! close return the current error if its number differs. So no open file gets an error twice, or one that was
//! reported before it was opened; an error not yet reported is returned to the next open file. Errors between
//! two reports count as one, the first of them.

use crate::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file's writeback error, and whether it was reported.
#[derive(Default)]
pub(crate) struct Untold {
    error: Option<Error>,
    /// The number of errors, those between two reports counted as one.
    number: u64,
    /// Whether the last one was reported to any open file.
    told: bool,
}

impl Untold {
    /// Records an error.
    pub(crate) fn note(&mut self, error: &Error) {
        if self.error.is_none() || self.told {
            self.error = Some(error.clone());
            self.number += 1;
            self.told = false;
        }
    }

    /// The number that a new open file records.
    pub(crate) fn heard(&self) -> u64 {
        if self.told || self.number == 0 { self.number } else { self.number - 1 }
    }

    /// The error since the last report to the open file that keeps `heard`. Calls for the same `heard` must
    /// not overlap, which a lock around `self` ensures.
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
        // Another one, before `b` got the first: the new one is reported.
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
