//! The run of a plan: its number of threads, and the callback for its progress.
//!
//! What this is not: the work itself, which is the same with any callback.

/// How a plan is executed. A number of threads alone is a run without progress reports.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// Threads at most; at least one is used.
    pub threads: usize,
    /// Called for every piece of work that is done, from any thread.
    pub watch: Option<&'a Watch<'a>>,
}

/// The callback: what is being done, how much of it is done, and how much there is.
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
