//! Standard output: buffered, silent about a closed reader, and safe for names on a terminal.
//!
//! There are two kinds. A *listing* is the command's work, which ends where it can't be printed. A *report* is
//! about work that is done, or goes on: what standard output does not take of it is dropped and noted, so that
//! no write, close or verdict depends on whether somebody reads.

pub use crate::failure::reason;
use crate::failure::{Failure, Outcome, note_unprinted};
use crate::name::{inert, shown};
use crate::os::{is_open, is_stream, same_file};
use hectare_device::os::OsStrExt;
use hectare_device::{Device, FileOptions, Overwrite};
use hectare_units::Bytes;
use serde::Serialize;
use std::fmt;
use std::io::{BufWriter, IsTerminal, StdoutLock, Write};
use std::path::Path;

/// Standard output. To be finished with [`Output::finish`], or buffered output may be lost unnoticed.
pub struct Output {
    writer: BufWriter<StdoutLock<'static>>,
    terminal: bool,
    /// Whether the command goes on where standard output takes no more.
    goes_on: bool,
}

impl Output {
    /// Standard output of a command whose work is to print, and that ends where it can't.
    #[must_use]
    pub fn listing() -> Self {
        Self::of(false)
    }

    /// Standard output of a command that changes or judges something: what it says is dropped where it can't be
    /// printed.
    #[must_use]
    pub fn report() -> Self {
        Self::of(true)
    }

    fn of(goes_on: bool) -> Self {
        let stdout = std::io::stdout();
        let terminal = stdout.is_terminal();
        Self { writer: BufWriter::with_capacity(1 << 16, stdout.lock()), terminal, goes_on }
    }

    /// Writes raw bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> Outcome {
        let written = self.writer.write_all(bytes);
        self.taken(written)
    }

    /// Writes a file name: quoted where it could disturb a terminal, else raw.
    pub fn name(&mut self, name: &[u8]) -> Outcome {
        if self.terminal { self.bytes(shown(name).as_bytes()) } else { self.bytes(name) }
    }

    /// Formats into the output; `write!` and `writeln!` come here.
    pub fn write_fmt(&mut self, arguments: fmt::Arguments<'_>) -> Outcome {
        let written = self.writer.write_fmt(arguments);
        self.taken(written)
    }

    /// Writes a value as JSON in which no character is hidden, and ends the output.
    pub fn json(mut self, value: &impl Serialize) -> Outcome {
        let text = serde_json::to_string_pretty(value).map_err(|error| Failure::of("JSON", error))?;
        self.bytes(inert(&text).as_bytes())?;
        self.bytes(b"\n")?;
        self.finish()
    }

    /// Likewise, but writes while it goes through the value, which may be larger than memory. If that fails
    /// on the way, the output is no JSON.
    pub fn long_json(mut self, value: &impl Serialize) -> Outcome {
        let mut pieces = InertPieces { out: &mut self, failure: None };
        if let Err(error) = serde_json::to_writer_pretty(&mut pieces, value) {
            return Err(pieces.failure.unwrap_or_else(|| Failure::of("JSON", error)));
        }
        self.bytes(b"\n")?;
        self.finish()
    }

    /// Flushes the output.
    pub fn finish(mut self) -> Outcome {
        let flushed = self.writer.flush();
        self.taken(flushed)
    }

    /// What becomes of the command after a write.
    fn taken(&self, written: std::io::Result<()>) -> Outcome {
        match written.map_err(|error| Failure::of_output(&error)) {
            Err(Failure::Output(reason)) if self.goes_on => {
                note_unprinted(reason);
                Ok(())
            }
            other => other,
        }
    }
}

/// Writes pieces of JSON, none of which ends inside a character.
struct InertPieces<'a> {
    out: &'a mut Output,
    failure: Option<Failure>,
}

impl Write for InertPieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.out.bytes(inert(&text).as_bytes()).map_err(|failure| {
            self.failure = Some(failure);
            std::io::ErrorKind::Other
        })?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// An array in JSON that is written entry by entry, as [`Output::json`] would write it as a whole.
#[derive(Default)]
pub(crate) struct JsonArray {
    begun: bool,
}

impl JsonArray {
    /// Writes one entry.
    pub(crate) fn push(&mut self, out: &mut Output, value: &impl Serialize) -> Outcome {
        let text = serde_json::to_string_pretty(value).map_err(|error| Failure::of("JSON", error))?;
        out.bytes(if self.begun { b",\n  " } else { b"[\n  " })?;
        self.begun = true;
        // No string of JSON contains a line feed, so all of them are between its parts.
        out.bytes(inert(&text).replace('\n', "\n  ").as_bytes())
    }

    /// Ends the array, and flushes the output. If something went `wrong` before its first entry, there is no
    /// array.
    pub(crate) fn finish(self, mut out: Output, wrong: bool) -> Outcome {
        match (self.begun, wrong) {
            (true, _) => out.bytes(b"\n]\n")?,
            (false, false) => out.bytes(b"[]\n")?,
            (false, true) => {}
        }
        out.finish()
    }
}

/// Refuses a file to be written that is one of those that are read: they would be lost.
pub(crate) fn refuse_input(path: &Path, inputs: &[&Path]) -> Outcome {
    match inputs.iter().any(|input| same_file(path, input)) {
        true => Err(Failure::of(
            shown(path.as_os_str().as_bytes()),
            "it is the image that is read, and stays as it is",
        )),
        false => Ok(()),
    }
}

/// Writes a file that was asked for beside what a command prints: all of it appears at once, in place of a regular
/// file that is there. A file that the command has open is not replaced. Terminals and pipes are written to.
pub fn write_file(path: &Path, content: &[u8], overwrite: Overwrite) -> Outcome {
    let fail = |reason: &str| Failure::of(shown(path.as_os_str().as_bytes()), reason);
    if is_stream(path) {
        return std::fs::write(path, content).map_err(|error| fail(&reason(&error)));
    }
    if is_open(path) {
        return Err(fail("that file is in use by this command, and stays as it is"));
    }
    let written = FileOptions::new().write(true).create_pending(path, Bytes::of(content.len()), overwrite);
    let written = written.and_then(|file| {
        file.device().write_at(Bytes::ZERO, content)?;
        file.publish()?.flush()
    });
    written.map_err(|error| Failure::Line(error.to_string()))
}
