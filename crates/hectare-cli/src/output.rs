//! Standard output: buffered, silent about a closed reader, and safe for names on a terminal.

use crate::failure::{Failure, Outcome};
use crate::name::{inert, shown};
use hectare_device::check_output_place;
use hectare_device::os::OsStrExt;
use serde::Serialize;
use std::fmt;
use std::io::{BufWriter, IsTerminal, StdoutLock, Write};
use std::path::Path;

/// Standard output. To be finished with [`Output::finish`], or buffered output may be lost unnoticed.
pub struct Output {
    writer: BufWriter<StdoutLock<'static>>,
    terminal: bool,
}

impl Output {
    /// Standard output.
    #[allow(clippy::new_without_default)] // locking standard output is no default
    pub fn new() -> Self {
        let stdout = std::io::stdout();
        let terminal = stdout.is_terminal();
        Self { writer: BufWriter::with_capacity(1 << 16, stdout.lock()), terminal }
    }

    /// Writes raw bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> Outcome {
        self.writer.write_all(bytes).map_err(failed)
    }

    /// Writes a file name: quoted where it could disturb a terminal, else raw.
    pub fn name(&mut self, name: &[u8]) -> Outcome {
        if self.terminal { self.bytes(shown(name).as_bytes()) } else { self.bytes(name) }
    }

    /// Formats into the output; `write!` and `writeln!` come here.
    pub fn write_fmt(&mut self, arguments: fmt::Arguments<'_>) -> Outcome {
        self.writer.write_fmt(arguments).map_err(failed)
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
        self.writer.flush().map_err(failed)
    }
}

#[allow(clippy::needless_pass_by_value)] // shaped for map_err
fn failed(error: std::io::Error) -> Failure {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        return Failure::ReaderGone;
    }
    Failure::of("standard output", reason(&error))
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

/// Writes an output file named on the command line.
pub fn write_file(path: &Path, content: &[u8]) -> Outcome {
    check_output_place(path).map_err(|error| Failure::Line(error.to_string()))?;
    std::fs::write(path, content)
        .map_err(|error| Failure::of(shown(path.as_os_str().as_bytes()), reason(&error)))
}

/// The system's message, without the error number.
pub fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
