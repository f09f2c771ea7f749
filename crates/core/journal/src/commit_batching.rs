//! Commit batching: whether a commit waits a moment for other callers that are about to ask for it.
//!
//! Threads that write and sync in turn ask for a commit each, and one commit serves all that asked before it
//! froze. When a commit ends, all its callers continue together. The first to return would start the next
//! commit for itself alone, and the others would have to wait for it before theirs; or two halves would
//! alternate for ever. So the first caller waits for all participants of the last two commits, but no longer
//! than half the duration of a commit: that is the most that is lost if they don't come.
//!
//! Commits that take next to nothing, as in memory, don't wait: waking up would take longer.

use std::time::Duration;

/// Commits that are faster than this don't wait.
const WORTH_WAITING: Duration = Duration::from_micros(100);
/// The longest wait.
const WAIT_MAX: Duration = Duration::from_millis(15);

/// The callers that ask for commits, as numbers of threads.
#[derive(Default)]
pub(crate) struct Company {
    /// The callers that asked for the running transaction.
    arrived: Vec<usize>,
    /// The callers that asked for the one before.
    last: Vec<usize>,
    /// How many different ones asked for the two before.
    expected: usize,
    /// What a commit took, the newest counting a quarter.
    average: Duration,
}

impl Company {
    /// A thread asks for the running transaction.
    pub(crate) fn arrive(&mut self, thread: usize) {
        self.arrived.push(thread);
    }

    /// How long to wait for more; `None` if all are here, or it is not worth it.
    pub(crate) fn wait(&self) -> Option<Duration> {
        let worth = self.arrived.len() < self.expected && self.average >= WORTH_WAITING;
        worth.then(|| (self.average / 2).min(WAIT_MAX))
    }

    /// The running transaction is taken to be committed.
    pub(crate) fn depart(&mut self) {
        let mut both = std::mem::take(&mut self.last);
        both.extend_from_slice(&self.arrived);
        both.sort_unstable();
        both.dedup();
        self.expected = both.len();
        self.last = std::mem::take(&mut self.arrived);
    }

    /// A commit has ended, after so long.
    pub(crate) fn ended(&mut self, took: Duration) {
        self.average = if self.average.is_zero() { took } else { (self.average * 3 + took) / 4 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first of a group asks, and then the others; what the first one waits.
    fn group(company: &mut Company, threads: &[usize]) -> Option<Duration> {
        company.arrive(threads[0]);
        let wait = company.wait();
        threads[1..].iter().for_each(|thread| company.arrive(*thread));
        company.depart();
        wait
    }

    #[test]
    fn who_comes_first_waits_for_those_of_the_last_two_commits() {
        let mut company = Company::default();
        company.ended(Duration::from_millis(1));
        let half = Some(Duration::from_micros(500));
        assert_eq!(group(&mut company, &[1, 2]), None, "nobody ever came");
        assert_eq!(group(&mut company, &[3]), half, "for the second");
        assert_eq!(group(&mut company, &[1, 2, 3]), half, "for the other half");
        (1..=3).for_each(|thread| company.arrive(thread));
        assert_eq!(company.wait(), None, "all are here");
        company.depart();
        company.ended(Duration::from_secs(1));
        assert_eq!(group(&mut company, &[1]), Some(WAIT_MAX));
        assert_eq!(group(&mut company, &[1]), Some(WAIT_MAX), "the others may be slow");
        assert_eq!(group(&mut company, &[1]), None, "it was alone twice");
    }

    #[test]
    fn fast_commits_wait_for_nobody() {
        let mut company = Company::default();
        company.ended(Duration::from_micros(20));
        assert_eq!(group(&mut company, &[1, 2, 3, 4, 5]), None);
        assert_eq!(group(&mut company, &[1, 2, 3, 4, 5]), None);
    }
}
