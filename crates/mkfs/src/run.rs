//! How a plan is carried out, beside what it says: with how many threads, and who is told how far it is.
//!
//! What this is not: the work itself, which is the same whoever watches.

/// How a plan is carried out. A number of threads alone is a run that nobody watches.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// Threads at most; at least one is used.
    pub threads: usize,
    /// Told of every piece of work that is done, from any thread.
    pub watch: Option<&'a Watch<'a>>,
}

/// Who is told: what is being done, how much of it is done, and how much there is.
pub type Watch<'a> = dyn Fn(Step, u64, u64) + Sync + 'a;

/// What is being done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Giving up what the device holds; counted in bytes.
    Discard,
    /// Writing the volume; counted in chunks of groups.
    Write,
}

impl Run<'_> {
    pub(crate) fn tell(&self, step: Step, done: u64, all: u64) {
        if let Some(watch) = self.watch {
            watch(step, done, all);
        }
    }
}

impl From<usize> for Run<'_> {
    fn from(threads: usize) -> Self {
        Self { threads, watch: None }
    }
}
