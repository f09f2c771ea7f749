//! The end of a command: its exit code, and the one line that says what went wrong.
//!
//! Failures exit with 1, a wrong command line with 2. So does a comparison that fails, as with diff and cmp,
//! where 1 means a difference. With `--json` the last line on standard error is an
//! object with the members `error` and `exit`, so that a program that reads the output can read the failure,
//! too. Lines about parts that were left out ([`LeftOut`](crate::failure::LeftOut)), and notes, come before
//! it, as text.

use crate::failure::{Failure, speak_as, tell};
use crate::mount_helper::called;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

const FAILED: u8 = 1;
const MISUSED: u8 = 2;
/// As e2fsck ends.
const REPAIR_MISUSED: u8 = 16;
/// For a program: the lines that people read as the error have been printed already.
const INCOMPLETE: &str = "the output is incomplete: the lines before this one name what was left out";

/// How a command reports its end.
pub struct Reporter {
    json: bool,
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
            reporter.misused = REPAIR_MISUSED;
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
        Self { json: options().any(|argument| argument == "--json"), misused: MISUSED, help }
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

    /// Reports a failure.
    pub fn end(&self, failure: Failure) -> ExitCode {
        match failure {
            Failure::ReaderGone => ExitCode::SUCCESS,
            Failure::Told if self.json => self.line(INCOMPLETE, FAILED),
            Failure::Told | Failure::Different => ExitCode::from(FAILED),
            Failure::Line(line) => self.line(&line, FAILED),
            Failure::Ended { line: Some(line), code } => self.line(&line, code),
            Failure::Ended { line: None, code } => ExitCode::from(code),
            Failure::Undecided(line) => self.line(&line, MISUSED),
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
