//! `hectare sh`.

use super::Command;
use crate::batch;
use crate::failure::{Failure, LeftOut, Outcome, tell};
use crate::image::Image;
use crate::reporter::Reporter;
use crate::write_args::Writing;
use clap::parser::ValueSource;
use clap::{ArgMatches, FromArgMatches, Subcommand};
use std::ffi::OsString;
use std::io::Read;
use std::path::PathBuf;

/// Run many commands on an image that is opened once
///
/// Standard input has a command on each line: ls, tree, find, du, stat, cat, cp, mv, rm, mkdir, ln, touch,
/// chmod, chown, chattr or xattr, with its own arguments, quoted as in a shell. Paths are in the image; those of
/// cp are on the host unless they begin with a colon. Empty lines, and those that begin with #, count for
/// nothing. Nothing is done unless all lines can be parsed. A command that fails ends the batch; what those
/// before it have done stays.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  hectare sh disk.img <<END\n  mkdir -p /srv/www\n  \
    cp -a site/. :/srv/www\n  chown -R 33:33 /srv/www\n  END")]
pub(crate) struct Arguments {
    /// Continue after a command that failed
    #[arg(short, long)]
    keep_going: bool,
    /// The image
    image: PathBuf,
    #[command(flatten)]
    writing: Writing,
}

/// Options about how the image is opened, by the names that the parser and users have for them.
const OPENING: [(&str, &str); 16] = [
    ("superblock", "--superblock"),
    ("ignore_checksums", "--ignore-checksums"),
    ("no_journal", "--no-journal"),
    ("allow_truncated", "--allow-truncated"),
    ("partition", "--partition"),
    ("offset", "--offset"),
    ("from_partition", "--from-partition"),
    ("from_offset", "--from-offset"),
    ("journal", "--journal"),
    ("no_lock", "--no-lock"),
    ("policy", "--policy"),
    ("given", "--tunable"),
    ("classes", "--classes"),
    ("data", "--data"),
    ("errors", "--errors"),
    ("last", "--explain"),
];

/// A command with the number of its line.
type Line = (usize, Command);

pub(crate) fn run(arguments: &Arguments, program: fn() -> clap::Command) -> Outcome {
    let mut script = String::new();
    std::io::stdin()
        .read_to_string(&mut script)
        .map_err(|error| Failure::of("standard input", crate::output::reason(&error)))?;
    batch::begin(arguments.image.clone());
    let commands = parse_all(&script)?;
    Image::change(&arguments.image, &arguments.writing, |image| {
        let _held = image.hold_for_batch();
        run_all(commands, arguments.keep_going, program)
    })
}

fn parse_all(script: &str) -> Outcome<Vec<Line>> {
    let mut commands = Vec::new();
    for (at, line) in script.lines().enumerate() {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            let command = parse(line).map_err(|reason| Failure::of(format!("line {}", at + 1), reason))?;
            commands.push((at + 1, command));
        }
    }
    Ok(commands)
}

fn parse(line: &str) -> Result<Command, String> {
    let words = shlex::split(line).ok_or("a quote is not closed, or a backslash ends the line")?;
    let words: Vec<OsString> =
        std::iter::once(OsString::from("hectare")).chain(words.into_iter().map(OsString::from)).collect();
    let words = super::find::spelt(words, 1);
    let parser = Command::augment_subcommands(clap::Command::new("hectare"));
    let is_command = |name: &str| parser.find_subcommand(name).is_some();
    let reporter = Reporter::of(&words, is_command);
    let matches = parser.clone().try_get_matches_from(&words).map_err(|error| reporter.explained(&error))?;
    if let Some(option) = option_of_opening(&matches) {
        return Err(format!("{option} says how the image is opened: give it to sh itself"));
    }
    let command = Command::from_arg_matches(&matches).map_err(|error| reporter.explained(&error))?;
    if command.is_for_batches() { Ok(command) } else { Err("this command is not one for batches".to_owned()) }
}

/// The first option about how the image is opened.
fn option_of_opening(matches: &ArgMatches) -> Option<&'static str> {
    let (_, below) = matches.subcommand()?;
    let is_given = |id: &str| {
        below.try_contains_id(id).is_ok() && below.value_source(id) == Some(ValueSource::CommandLine)
    };
    let given = OPENING.into_iter().find(|(id, _)| is_given(id)).map(|(_, option)| option);
    given.or_else(|| option_of_opening(below))
}

fn run_all(commands: Vec<Line>, keep_going: bool, program: fn() -> clap::Command) -> Outcome {
    let failed = LeftOut::default();
    for (number, command) in commands {
        let line = match command.run(program) {
            Ok(()) => continue,
            // The reader has what it wanted of a listing; the batch goes on.
            Err(Failure::Output(None)) => continue,
            // A copy or a listing that was lost is a failed command: the next one may remove what it was of.
            Err(Failure::Output(Some(reason))) => format!("standard output: {reason}"),
            Err(Failure::Line(line) | Failure::Usage(line)) => line,
            Err(Failure::Ended { line, code }) => line.unwrap_or_else(|| format!("it ended with {code}")),
            Err(Failure::Told | Failure::Different) => "not all of it was done".to_owned(),
        };
        if !keep_going {
            return Err(Failure::of(format!("line {number}"), line));
        }
        failed.tell(format!("line {number}"), line);
    }
    if failed.count() > 0 {
        tell(format_args!("{} of the commands failed", failed.count()));
    }
    failed.outcome()
}
