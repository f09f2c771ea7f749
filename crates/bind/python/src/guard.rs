//! Handles that can be closed while others use them, and that a fork makes useless.
//!
//! Who uses a handle holds its lock for reading; who closes it, for writing: closing waits for what runs, and
//! what comes later finds it closed. The lock is only ever taken without the interpreter's.
//!
//! Hazard: a forked child has the parent's caches, file descriptors and locks of files, and its destructors
//! would write the image. So a handle remembers its process. In another one every use is refused before the
//! lock is touched (a thread that is not in the child may hold it), and dropping does nothing.

use crate::failure::{Failure, Outcome};
use parking_lot::RwLock;
use pyo3::Python;

/// A thing that is open, or was.
pub(crate) struct Held<T> {
    what: &'static str,
    process: u32,
    inner: RwLock<Option<T>>,
}

impl<T: Send + Sync> Held<T> {
    /// Holds an open thing; `what` it is, for errors.
    pub(crate) fn new(what: &'static str, inner: T) -> Self {
        Self { what, process: std::process::id(), inner: RwLock::new(Some(inner)) }
    }

    /// Runs an operation without the interpreter's lock.
    pub(crate) fn run<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&T) -> Outcome<R> + Send,
    ) -> Outcome<R> {
        self.own()?;
        py.detach(|| match &*self.inner.read() {
            Some(inner) => work(inner),
            None => Err(Failure::Closed(self.what)),
        })
    }

    /// Takes it out, waits for those that use it, and ends it without the interpreter's lock. Does nothing if
    /// that was done before, or if it is another process's.
    pub(crate) fn close(&self, py: Python<'_>, end: impl FnOnce(T) -> Outcome<()> + Send) -> Outcome<()> {
        if self.own().is_err() {
            return Ok(());
        }
        py.detach(|| {
            let taken = self.inner.write().take();
            taken.map_or(Ok(()), end)
        })
    }

    /// Whether it is closed, or useless after a fork.
    pub(crate) fn is_closed(&self, py: Python<'_>) -> bool {
        self.own().is_err() || py.detach(|| self.inner.read().is_none())
    }

    fn own(&self) -> Outcome<()> {
        if std::process::id() == self.process { Ok(()) } else { Err(Failure::Forked(self.what)) }
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            // Leaked on purpose: the destructor would write the parent's image.
            std::mem::forget(self.inner.get_mut().take());
        }
    }
}
