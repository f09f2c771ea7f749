//! Long calls, which Ctrl-C ends and whose progress Python sees.
//!
//! The work runs on a thread of its own, without the interpreter's lock. The thread that called waits for it,
//! asks every few milliseconds whether a signal came (only Python's main thread gets any) and calls `progress`.
//! So a signal's exception, and one of `progress`, is raised where the call was made. It cancels the work,
//! which ends at its next checkpoint and leaves no file; only where it comes after the last one the file is whole.

use crate::failure::Outcome;
use hectare::{Progress, Watch};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How often signals are looked for.
const SIGNALS: Duration = Duration::from_millis(20);
/// How often `progress` is called.
const REPORTS: Duration = Duration::from_millis(100);

/// Runs work that can be cancelled; `progress` may be `None`.
///
/// # Errors
/// What a signal or `progress` raised, whatever the work gave; it has ended then.
pub(crate) fn watched<T: Send>(
    py: Python<'_>,
    progress: Option<&Py<PyAny>>,
    work: impl FnOnce(&Watch) -> Outcome<T> + Send,
) -> PyResult<Outcome<T>> {
    let watch = Watch::default();
    // What it raises now ends the call before anything was done.
    report(py, progress, watch.progress())?;
    let (outcome, raised) = py.detach(|| {
        std::thread::scope(|scope| {
            let (ended, end) = channel::<()>();
            let worker = scope.spawn(|| {
                let _ends = ended; // dropped at the end, also by a panic
                work(&watch)
            });
            let mut raised = None;
            let mut reported = Instant::now();
            while end.recv_timeout(SIGNALS) == Err(RecvTimeoutError::Timeout) {
                if raised.is_some() {
                    continue;
                }
                let due = reported.elapsed() >= REPORTS;
                let asked = Python::try_attach(|py| {
                    py.check_signals()?;
                    if due { report(py, progress, watch.progress()) } else { Ok(()) }
                });
                if due {
                    reported = Instant::now();
                }
                match asked {
                    Some(Ok(())) => {}
                    Some(Err(error)) => {
                        watch.cancel();
                        raised = Some(error);
                    }
                    // The interpreter ends.
                    None => watch.cancel(),
                }
            }
            (worker.join(), raised)
        })
    });
    if let Some(error) = raised {
        return Err(error);
    }
    outcome.map_err(|_| PyRuntimeError::new_err("hectare has a bug: the call ended half-way"))
}

/// Calls `progress` with the name of the step, what is done of it, and all there is, if that is known.
fn report(py: Python<'_>, progress: Option<&Py<PyAny>>, now: Progress) -> PyResult<()> {
    let Some(progress) = progress else { return Ok(()) };
    progress.call1(py, (now.step.to_string(), now.done, now.total)).map(drop)
}
