//! How an unsuccessful command ends.
//!
//! A failure is one line that names the object and the reason; `main` prints it after `hectare: ` and exits
//! with 1. Commands that walk a tree print a line for each file they had to leave out, continue, and end with
//! [`Failure::Told`].
//!
//! Standard output can fail, too: its reader goes (`hectare ls ... | head`), or a disk is full. That ends a
//! listing, whose work is to print, and is no failure if its reader has gone. What a command says about other
//! work is no reason to leave that work undone: it goes on and ends with its own exit code, and what was not
//! printed is [noted](note_unprinted).

use std::fmt;
use std::sync::OnceLock;

/// Why a command did not finish its work.
#[derive(Debug)]
pub enum Failure {
    /// One line to print.
    Line(String),
    /// Everything was reported already.
    Told,
    /// The arguments contradict each other; printed with a pointer to the help, exit code 2.
    Usage(String),
    /// What was compared differs; nothing to print, exit code 1.
    Different,
    /// A line to print, if there is one, and an exit code of its own.
    Ended {
        /// The line.
        line: Option<String>,
        /// The exit code.
        code: u8,
    },
    /// Standard output takes no more: the reason, or none if its reader has gone.
    Output(Option<String>),
}

/// What a command ends with.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// Of an error of standard output.
    pub(crate) fn of_output(error: &std::io::Error) -> Self {
        Self::Output((error.kind() != std::io::ErrorKind::BrokenPipe).then(|| reason(error)))
    }

    /// `what: reason`. Errors of devices begin with the name of the image already.
    pub fn of(what: impl fmt::Display, reason: impl fmt::Display) -> Self {
        let (what, reason) = (format!("{what}: "), reason.to_string());
        Self::Line(if reason.starts_with(&what) { reason } else { what + &reason })
    }
}

/// The system's message, without the error number.
pub fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// The name that lines on standard error begin with.
static PROGRAM: OnceLock<&'static str> = OnceLock::new();

/// Sets the name that lines on standard error begin with: `hectare` unless it is called.
pub(crate) fn speak_as(program: &'static str) {
    let _ = PROGRAM.set(program); // the first name stays
}

/// Why standard output did not take what was said about work that went on.
static UNPRINTED: OnceLock<String> = OnceLock::new();

/// Notes that standard output did not take what was said about work that goes on, and why. A reader that has
/// gone gives no reason: it has read what it wanted.
pub(crate) fn note_unprinted(reason: Option<String>) {
    if let Some(reason) = reason {
        let _ = UNPRINTED.set(reason); // the first reason stays
    }
}

/// Why standard output did not take all that was said about work that went on, if so.
pub(crate) fn unprinted() -> Option<String> {
    UNPRINTED.get().cloned()
}

/// Prints one line on standard error. Nothing can be done if that fails.
pub fn tell(line: impl fmt::Display) {
    use std::io::Write;
    let program = PROGRAM.get().unwrap_or(&"hectare");
    let _ = writeln!(std::io::stderr(), "{program}: {line}");
}

/// Counts what was left out, so that the command can end with the right code.
#[derive(Debug, Default)]
pub(crate) struct LeftOut(std::sync::atomic::AtomicUsize);

impl LeftOut {
    /// Reports what was left out and why.
    pub(crate) fn tell(&self, what: impl fmt::Display, reason: impl fmt::Display) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        tell(format_args!("{what}: {reason}"));
    }

    /// How much was left out.
    pub(crate) fn count(&self) -> usize {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Success if nothing was left out.
    pub(crate) fn outcome(&self) -> Outcome {
        if self.count() == 0 { Ok(()) } else { Err(Failure::Told) }
    }
}
