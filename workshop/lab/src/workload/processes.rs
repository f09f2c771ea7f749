//! Processes that work together: children that start together, stop together, and report their counts.
//!
//! Processes don't share what threads of one process share (its descriptors, its memory map, its locks);
//! containers are processes. Each child is the program that [`Worker`] names, started with its work as
//! arguments. It prints `ready`, waits for a byte on standard input, works until that ends, and prints its
//! counts, or why it failed, in one line. So a parent that dies ends its children, too.

use crate::workload::worker_threads::{Count, Stop, Worked};
use hectare_tools::error::{Error, Result};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A child's line when it is ready.
const READY: &str = "ready";

/// How a child is started; its work is put behind these arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Worker {
    /// The program.
    pub program: PathBuf,
    /// What makes it a worker.
    pub arguments: Vec<OsString>,
}

/// A child that has not begun yet.
struct Waiting {
    child: Child,
    orders: Option<ChildStdin>,
    says: BufReader<ChildStdout>,
}

impl Drop for Waiting {
    /// The end of its orders ends a child that works; it is waited for.
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.child.wait(); // it is over, or was never there
    }
}

/// Runs a child for each list of arguments, all at once, for this long; returns the counts of each.
///
/// # Errors
/// If one can't be started, or reports a failure, or ends without a line. All have ended then.
pub(crate) fn apart(
    worker: &Worker,
    work: impl Iterator<Item = Vec<OsString>>,
    limit: Duration,
) -> Result<Vec<Worked<Count>>> {
    let waiting: Result<Vec<Waiting>> = work.map(|arguments| start(worker, &arguments)).collect();
    let mut waiting = waiting?;
    for one in &mut waiting {
        let said = one.says()?;
        if said != READY {
            return Err(Error::Invalid(said));
        }
    }
    let mut begun = Vec::new();
    for one in &mut waiting {
        let orders = one.orders.as_mut().ok_or_else(gone)?;
        orders.write_all(b"!").map_err(|_| gone())?;
        begun.push(Instant::now());
    }
    thread::sleep(limit);
    for one in &mut waiting {
        drop(one.orders.take());
    }
    waiting.iter_mut().zip(begun).map(|(one, started)| one.result(started)).collect()
}

fn start(worker: &Worker, arguments: &[OsString]) -> Result<Waiting> {
    let mut command = Command::new(&worker.program);
    command.args(&worker.arguments).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let fail = |reason: &dyn ToString| Error::at(worker.program.display().to_string(), reason.to_string());
    let mut child = command.spawn().map_err(|error| fail(&error))?;
    let (orders, says) = (child.stdin.take(), child.stdout.take().ok_or_else(gone)?);
    Ok(Waiting { child, orders, says: BufReader::new(says) })
}

fn gone() -> Error {
    Error::Invalid("a process ended before it was to".to_owned())
}

impl Waiting {
    /// Its next line.
    fn says(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.says.read_line(&mut line) {
            Ok(len) if len > 0 => Ok(line.trim_end().to_owned()),
            _ => Err(gone()),
        }
    }

    /// What it did: `done OPERATIONS BYTES NANOSECONDS`, or why it did not.
    fn result(&mut self, started: Instant) -> Result<Worked<Count>> {
        let said = self.says()?;
        let figures = said.strip_prefix("done ").map(|rest| rest.split(' ').map(str::parse::<u64>));
        let figures: Option<Vec<u64>> =
            figures.and_then(|figures| figures.collect::<std::result::Result<_, _>>().ok());
        match figures.as_deref() {
            Some([operations, bytes, ns]) => Ok(Worked {
                started,
                ended: started + Duration::from_nanos(*ns),
                work: Count { operations: *operations, bytes: *bytes },
            }),
            _ => Err(Error::Invalid(said)),
        }
    }
}

/// The child's side: prepares, and works from the first byte of standard input to its end. An error is
/// printed in a line, for the parent to report.
pub(crate) fn child<T>(prepare: impl FnOnce() -> Result<T>, work: impl FnOnce(T, &Stop) -> Result<Count>) {
    let counted = prepare().and_then(|prepared| {
        say(READY);
        let mut first = [0];
        let begun = std::io::stdin().read(&mut first).unwrap_or(0) > 0;
        let stop = Stop::default();
        let started = Instant::now();
        if !begun {
            return Ok((Count::default(), started.elapsed())); // nobody is there to work for
        }
        thread::scope(|scope| {
            scope.spawn(|| {
                let _ = std::io::stdin().read(&mut [0]); // only the end comes, or an error, which is one
                stop.now();
            });
            // The thread above ends with standard input, which the parent closes in any case.
            work(prepared, &stop).map(|count| (count, started.elapsed()))
        })
    });
    match counted {
        Ok((count, took)) => say(&format!("done {} {} {}", count.operations, count.bytes, took.as_nanos())),
        Err(error) => say(&error.to_string()),
    }
}

/// A line to the parent; one that is gone needs none.
fn say(line: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
