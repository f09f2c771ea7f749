//! Finds and runs the host's tools, the same way everywhere.
//!
//! A user without root often lacks the `sbin` directories in `PATH`, though the tools there work on image
//! files; so they are always searched. Tools run with the C locale and UTC so that their output can be
//! parsed, and without the machine's cache of what block devices hold: it remembers for minutes what was on a loop
//! device when any process looked.

use crate::Skip;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const MORE_FOLDERS: [&str; 6] =
    ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin"];

/// The path of a host tool, if it is installed.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(MORE_FOLDERS.iter().map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
}

/// A command for a tool of the host, with the C locale and UTC; `None` if the host lacks it.
#[must_use]
pub fn tool(name: &str) -> Option<Command> {
    let mut command = Command::new(find(name)?);
    command.env("LC_ALL", "C").env("TZ", "UTC").env("BLKID_FILE", "/dev/null").stdin(Stdio::null());
    Some(command)
}

/// Like [`tool`], but a missing tool is a [`Skip`] that names it.
///
/// # Errors
/// If the host lacks the tool.
pub fn need(name: &str) -> Result<Command, Skip> {
    tool(name).ok_or_else(|| Skip::new(format!("the tool {name} is not installed")))
}

/// Whether this process runs as root.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The output and status of a finished tool.
#[derive(Clone, Debug)]
pub struct Said {
    /// The command line, for reports.
    pub line: String,
    /// The exit status, or `None` if a signal ended it.
    pub exit: Option<i32>,
    /// Standard output, with bytes that are not UTF-8 replaced.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
}

impl Said {
    /// Whether it exited with 0.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.exit == Some(0)
    }

    /// Everything in one text: the command line, both outputs, the status.
    #[must_use]
    pub fn report(&self) -> String {
        let exit = self.exit.map_or_else(|| "ended by a signal".into(), |code| format!("exit {code}"));
        format!("$ {}\n{}{}({exit})", self.line, self.stdout, self.stderr)
    }

    /// Itself, if it succeeded.
    ///
    /// # Panics
    /// If it did not, with all its output.
    #[must_use]
    #[track_caller]
    pub fn expect_success(self) -> Self {
        assert!(self.succeeded(), "{}", self.report());
        self
    }
}

/// Runs a command to its end.
///
/// # Panics
/// If it can't be started.
#[track_caller]
pub fn run(command: &mut Command) -> Said {
    let line = line_of(command);
    match command.output() {
        Ok(output) => said(line, &output),
        Err(error) => panic!("can't run {line}: {error}"),
    }
}

/// Runs a command to its end, with `input` as its standard input.
///
/// # Panics
/// If it can't be started.
#[track_caller]
pub fn run_with_input(command: &mut Command, input: &str) -> Said {
    let file = tempfile::tempfile().and_then(|mut file| {
        use std::io::{Seek, Write};
        file.write_all(input.as_bytes())?;
        file.rewind()?;
        Ok(file)
    });
    match file {
        Ok(file) => run(command.stdin(file)),
        Err(error) => panic!("can't hold the input of {}: {error}", line_of(command)),
    }
}

fn said(line: String, output: &Output) -> Said {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Said { line, exit: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

/// A command as one would type it.
#[must_use]
pub fn line_of(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().map(OsString::from).unwrap_or_default();
    let words = std::iter::once(program.as_os_str()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_every_host_has_and_nothing_else() {
        assert!(tool("sh").is_some());
        assert!(tool("hectare-no-such-tool").is_none());
        assert!(need("hectare-no-such-tool").unwrap_err().0.contains("hectare-no-such-tool"));
    }

    #[test]
    fn output_status_and_input_are_kept() {
        let said = run(need("sh").unwrap().args(["-c", "echo out; echo err >&2; exit 3"]));
        assert_eq!((said.stdout.as_str(), said.stderr.as_str(), said.exit), ("out\n", "err\n", Some(3)));
        assert!(said.report().starts_with("$ sh -c"));
        assert_eq!(run_with_input(&mut need("cat").unwrap(), "hello").expect_success().stdout, "hello");
    }
}
