//! The end of a command: its exit code, and the one line that says what went wrong.
//!
//! Failures exit with 1, a wrong command line with 2. Where 1 is a verdict, a failure exits otherwise: with 2
//! from a comparison, as with diff and cmp, and with 8 from a repair, as with e2fsck. With `--json` the last
//! line on standard error is an object with the members `error` and `exit`, so that a program that reads the
//! output can read the failure, too. Lines about parts that were left out
//! ([`LeftOut`](crate::failure::LeftOut)), and notes, come before it, as text.

use crate::failure::{Failure, Outcome, speak_as, tell, unprinted};
use crate::mount_helper::called;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

const FAILED: u8 = 1;
const MISUSED: u8 = 2;
const DIFFERENT: u8 = 1;
/// Where [`DIFFERENT`] is a verdict.
const UNDECIDED: u8 = 2;
/// As e2fsck ends, where 1 means that something was mended.
const REPAIR_FAILED: u8 = 8;
const REPAIR_MISUSED: u8 = 16;
/// For a program: the lines that people read as the error have been printed already.
const INCOMPLETE: &str = "the output is incomplete: the lines before this one name what was left out";

/// How a command reports its end.
pub struct Reporter {
    json: bool,
    /// The exit code of a failure.
    failed: u8,
    /// The exit code of a wrong command line.
    misused: u8,
    /// The command whose help explains the command line.
    help: String,
}

/// Whether an error of the parser is one: it also has the help and the version that were asked for.
pub fn is_misuse(error: &clap::Error) -> bool {
    error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

impl Reporter {
    /// The reporter for a command line of `hectare`.
    pub(crate) fn of(arguments: &[OsString], is_command: impl Fn(&str) -> bool) -> Self {
        let mut reporter = Self::new("hectare", arguments, is_command);
        // What stands in for another formatter exits as that does.
        let stands_in = reporter.is_for("mke2fs") || called(arguments).as_deref() == Some("mkfs.xfs");
        if stands_in {
            reporter.misused = FAILED;
        } else if reporter.is_for("repair") {
            (reporter.failed, reporter.misused) = (REPAIR_FAILED, REPAIR_MISUSED);
        } else if reporter.is_for("diff") {
            reporter.failed = UNDECIDED;
        }
        reporter
    }

    /// The reporter for a command line of a program, by whose name all lines begin from now on.
    #[must_use]
    pub fn new(program: &'static str, arguments: &[OsString], is_command: impl Fn(&str) -> bool) -> Self {
        speak_as(program);
        let options = || arguments.iter().skip(1).take_while(|argument| *argument != "--");
        let command = options().filter_map(|argument| argument.to_str()).find(|name| is_command(name));
        let help =
            [Some(program), command, Some("--help")].into_iter().flatten().collect::<Vec<_>>().join(" ");
        Self { json: options().any(|argument| argument == "--json"), failed: FAILED, misused: MISUSED, help }
    }

    /// Whether the command line is of this command.
    fn is_for(&self, command: &str) -> bool {
        self.help.split(' ').nth(1) == Some(command)
    }

    /// Reports a command line that can't be parsed: the first paragraph of the parser's message, and what to
    /// do.
    pub fn misuse(&self, error: &clap::Error) -> ExitCode {
        self.line(&self.explained(error), self.misused)
    }

    /// Prints the help or the version that the parser was asked for.
    pub fn help(&self, asked: &clap::Error) -> ExitCode {
        match asked.use_stderr() {
            true => asked.exit(),
            false => self.end(asked.print().map_err(|error| Failure::of_output(&error))),
        }
    }

    /// The line that says what is wrong with a command line.
    pub(crate) fn explained(&self, error: &clap::Error) -> String {
        let text = error.to_string();
        let lines: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
        let wrong = lines.join(" ");
        let kinds =
            [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
        let suggested = kinds.into_iter().find_map(|kind| match error.get(kind)? {
            ContextValue::String(one) => Some(one.clone()),
            ContextValue::Strings(several) => several.first().cloned(),
            _ => None,
        });
        let hint = suggested.map_or_else(|| self.see(), |meant| format!("did you mean {meant}?"));
        format!("{}; {hint}", wrong.strip_prefix("error: ").unwrap_or(&wrong))
    }

    fn see(&self) -> String {
        format!("see `{}`", self.help)
    }

    /// Reports how a command ended. Its exit code is that of its work; if that succeeded, and standard output
    /// did not take all that was said about it, that is the failure.
    pub fn end(&self, done: Outcome) -> ExitCode {
        let lost = |reason: String| format!("standard output: {reason}");
        let failure = match (done, unprinted().map(lost)) {
            (Ok(()), None) => return ExitCode::SUCCESS,
            (Ok(()), Some(line)) => Failure::Line(line),
            (Err(failure), unprinted) => {
                unprinted.iter().for_each(tell);
                failure
            }
        };
        match failure {
            Failure::Output(None) => ExitCode::SUCCESS,
            Failure::Output(Some(reason)) => self.line(&lost(reason), self.failed),
            Failure::Told if self.json => self.line(INCOMPLETE, self.failed),
            Failure::Told => ExitCode::from(self.failed),
            Failure::Different => ExitCode::from(DIFFERENT),
            Failure::Line(line) => self.line(&line, self.failed),
            Failure::Ended { line: Some(line), code } => self.line(&line, code),
            Failure::Ended { line: None, code } => ExitCode::from(code),
            Failure::Usage(message) => self.line(&format!("{message}; {}", self.see()), self.misused),
        }
    }

    fn line(&self, line: &str, exit: u8) -> ExitCode {
        if self.json {
            let object = serde_json::json!({ "error": one_line(line), "exit": exit });
            let _ = writeln!(std::io::stderr(), "{object}"); // nothing can be done where it is closed
        } else {
            tell(one_line(line));
        }
        ExitCode::from(exit)
    }
}

/// Messages can carry text from an image, which must not look like a second line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn what_is_wrong_with_a_command_line_is_one_line_with_what_to_do() {
        for (words, expected) in [
            (
                "hectare mkfs",
                "the following required arguments were not provided: <IMAGE>; see `hectare mkfs --help`",
            ),
            ("hectare mkfs --forc a 1G", "unexpected argument '--forc' found; did you mean --force?"),
            ("hectare chmdo a", "unrecognized subcommand 'chmdo'; did you mean chmod?"),
        ] {
            let arguments: Vec<OsString> = words.split(' ').map(OsString::from).collect();
            let reporter = Reporter::of(&arguments, |name| name == "mkfs");
            let error = crate::Cli::try_parse_from(arguments).err().unwrap();
            assert!(is_misuse(&error));
            assert_eq!(reporter.explained(&error), expected);
        }
    }

    #[test]
    fn json_is_seen_among_the_options_only() {
        let of = |words: &str| {
            let arguments: Vec<OsString> = words.split(' ').map(OsString::from).collect();
            Reporter::of(&arguments, |name| name == "ls").json
        };
        assert!(of("hectare ls --json a") && !of("hectare ls -- --json") && !of("hectare ls a"));
    }
}
