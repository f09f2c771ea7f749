//! `hectare mke2fs`, also called as mke2fs or mkfs.ext4: an understudy of the mke2fs of e2fsprogs.
//!
//! It takes the command line of mke2fs 1.47, its environment and its configuration file, prints its lines and
//! exits with its codes, so that programs that call mke2fs need not be changed. The volume is that of
//! `hectare mkfs`, and with `-d` that of `hectare build`; here is only what differs: where defaults come
//! from, and what the root directory and the times of a copied tree are.
//!
//! Invariant: no option is accepted and ignored that would change the result; what can't be done is refused
//! by name, before anything is touched. What differs from mke2fs nevertheless is in docs/formatting.md.

mod configuration;
mod defaults;
mod extended;
mod target;
mod tree;

use super::format_options::FormatArguments;
use super::mkfs::{lines, watched};
use crate::disk_format::refuse_disk_format_name;
use crate::failure::{Failure, Outcome, tell};
use crate::name::shown;
use crate::output::Output;
use configuration::Configuration;
use defaults::{Request, Types};
use extended::Words;
use hectare_device::os::OsStrExt;
use hectare_ext4::feature::{Compat, Feature};
use hectare_ext4::time::Timestamp;
use hectare_mkfs::{FeatureEdit, FormatOptions, Note, Plan, execute};
use hectare_units::Bytes;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use target::Target;

/// Make a volume as mke2fs does: its options, environment, mke2fs.conf, output and exit codes
///
/// With -d the volume holds a copy of a directory or tar archive. SIZE is in KiB, or in blocks if -b is
/// given, or has a suffix: s (512 bytes), K, M, G, T. A missing image file is created, and needs SIZE; it
/// appears only when it is complete. What is there is not overwritten without -F.
///
/// As mkfs.ext2, mkfs.ext3 or mkfs.ext4 (links to this program) it makes that type. docs/formatting.md says
/// what differs from mke2fs.
#[derive(clap::Args)]
#[command(args_override_self = true)]
#[command(after_help = "Examples:\n  hectare mke2fs -t ext4 -d rootfs -L root disk.img 60M\n  \
    hectare mke2fs -qF -t ext4 -O ^metadata_csum,^64bit -T small disk.img")]
#[allow(clippy::struct_excessive_bools)] // one for each flag of mke2fs
pub(crate) struct Arguments {
    /// The type in the program's name
    #[arg(long, hide = true, value_name = "TYPE")]
    named: Option<String>,
    /// Type: ext2, ext3, ext4 or another that mke2fs.conf defines
    #[arg(short = 't', value_name = "TYPE")]
    fs_type: Option<String>,
    /// Usage types, as in mke2fs.conf
    #[arg(short = 'T', value_name = "USAGE,...")]
    usage: Option<String>,
    #[command(flatten)]
    format: FormatArguments,
    /// The same as -E
    #[arg(short = 'R', value_name = "OPTION=VALUE,...")]
    raid: Vec<String>,
    /// Copy this directory or tar archive (- for standard input) into the volume
    #[arg(short = 'd', value_name = "SOURCE")]
    from: Option<OsString>,
    /// With a journal
    #[arg(short = 'j')]
    with_journal: bool,
    /// Overwrite what the target holds
    #[arg(short = 'F')]
    force: bool,
    /// Only print what would be made
    #[arg(short = 'n')]
    dry_run: bool,
    /// Print nothing but errors
    #[arg(short = 'q')]
    quiet: bool,
    /// Without effect
    #[arg(short = 'v')]
    verbose: bool,
    /// Without effect
    #[arg(short = 'D')]
    direct: bool,
    /// Keep the target's old content in free blocks
    #[arg(short = 'K')]
    keep: bool,
    /// The revision: 1
    #[arg(short = 'r', value_name = "REVISION")]
    revision: Option<String>,
    /// The creator's system: linux
    #[arg(short = 'o', value_name = "SYSTEM")]
    creator: Option<String>,
    /// Print the version
    #[arg(short = 'V')]
    version: bool,
    /// Refused: look for bad blocks
    #[arg(short = 'c')]
    bad_blocks: bool,
    /// Refused: a list of bad blocks
    #[arg(short = 'l', value_name = "FILE")]
    bad_list: Option<OsString>,
    /// Refused: write superblocks and descriptors only
    #[arg(short = 'S')]
    super_only: bool,
    /// Refused: keep what is overwritten
    #[arg(short = 'z', value_name = "FILE")]
    undo: Option<OsString>,
    /// The image file or block device
    image: Option<PathBuf>,
    /// The size; that of the file or device if not given
    size: Option<String>,
}

impl Arguments {
    /// Refuses what can't be done.
    fn refuse(&self) -> Outcome {
        let is_linux = |name: &str| name == "0" || name.eq_ignore_ascii_case("linux");
        let refused = [
            (self.bad_blocks, "-c", "this program does not look for bad blocks; run badblocks(8)"),
            (self.bad_list.is_some(), "-l", "bad blocks can't be left out"),
            (self.super_only, "-S", "superblocks can't be written alone; use mke2fs itself"),
            (self.undo.is_some(), "-z", "what is overwritten is not kept; make a copy before"),
            (self.revision.as_deref().is_some_and(|text| text != "1"), "-r", "only revision 1 can be made"),
            (
                self.creator.as_deref().is_some_and(|name| !is_linux(name)),
                "-o",
                "the creator is always linux",
            ),
        ];
        if std::env::var_os("MKE2FS_FIRST_META_BG").is_some_and(|value| value != "0" && !value.is_empty()) {
            return Err(Failure::of(
                "MKE2FS_FIRST_META_BG",
                "meta groups begin with the first group; unset it",
            ));
        }
        let found = refused.into_iter().find(|(is_given, ..)| *is_given);
        found.map_or(Ok(()), |(_, option, reason)| {
            Err(Failure::of("mke2fs", format_args!("{option}: {reason}")))
        })
    }

    fn fs_type(&self) -> Option<&str> {
        self.fs_type.as_deref().or(self.named.as_deref())
    }
}

/// `E2FSPROGS_FAKE_TIME`: what programs of e2fsprogs take for the current time.
fn fake_time() -> Outcome<Option<Timestamp>> {
    let Some(text) = std::env::var_os("E2FSPROGS_FAKE_TIME") else { return Ok(None) };
    let seconds = text.to_str().and_then(|text| text.parse().ok());
    let wrong = || Failure::of("E2FSPROGS_FAKE_TIME", "it is not a number of seconds since 1970");
    seconds.map(Timestamp::from_seconds).map(Some).ok_or_else(wrong)
}

/// The options of the command line, completed by mke2fs.conf.
fn options(arguments: &Arguments, target: &Target<'_>, words: &Words) -> Outcome<FormatOptions> {
    let configuration = Configuration::load()?;
    let request = Request {
        fs_type: arguments.fs_type(),
        usage: arguments.usage.as_deref(),
        journal: arguments.with_journal || arguments.format.asks_for_journal(),
        device: &target.path.to_string_lossy(),
        size: target.size,
    };
    let (types, unknown) = Types::of(&configuration, &request)?;
    for usage in unknown {
        tell(format_args!("warning: mke2fs.conf does not define the usage type {usage}"));
    }
    let mut format = arguments.format.clone();
    format.extended = [types.extended()?, words.rest.clone()].concat();
    format.refuse_external_journal("this mke2fs")?;
    let mut options = format.options().map_err(|failure| match failure {
        Failure::Usage(line) => Failure::of("mke2fs", line),
        other => other,
    })?;
    options.device = target.topology;
    options.now = fake_time()?.unwrap_or(options.now);
    options.root_owner = words.root_owner.or(options.root_owner);
    options.discard &= !arguments.keep;
    let given = (arguments.format.asks_for_reserve(), arguments.format.asks_for_behaviour());
    types.complete(&mut options, target.size, given)?;
    if arguments.with_journal {
        options.features.push(FeatureEdit::On(Feature::Compat(Compat::HAS_JOURNAL)));
    }
    Ok(options)
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let version = concat!("mke2fs 1.47.0 (hectare ", env!("CARGO_PKG_VERSION"), ")");
    if arguments.version || !arguments.quiet {
        let _ = writeln!(std::io::stderr(), "{version}"); // nothing can be done where it is closed
    }
    if arguments.version {
        return Ok(());
    }
    arguments.refuse()?;
    let path =
        arguments.image.as_ref().ok_or_else(|| Failure::Usage("name the device or file".to_owned()))?;
    refuse_disk_format_name(path, false)?;
    let words = Words::of(arguments.format.extended.iter().chain(&arguments.raid))?;
    let target = Target::of(path, words.part, arguments)?;
    let options = options(arguments, &target, &words)?;
    match &arguments.from {
        Some(from) => tree::make(arguments, &target, &options, &tree::Copied { from, words: &words }),
        None => make(arguments, &target, &options),
    }
}

/// Makes an empty volume.
fn make(arguments: &Arguments, target: &Target<'_>, options: &FormatOptions) -> Outcome {
    // An impossible request is refused before anything is modified.
    let plan = Plan::new(options, target.size, true).map_err(|error| target.failed(&error))?;
    if arguments.dry_run {
        return announce(arguments, target, &plan);
    }
    let goal = target.open(arguments.force)?;
    let plan =
        Plan::new(options, target.size, goal.device().is_zeroed()).map_err(|error| target.failed(&error))?;
    announce(arguments, target, &plan)?;
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    watched(threads, |run| execute(&plan, goal.device(), &plan.empty(), run))
        .map_err(|error| target.failed(&error))?;
    goal.finish()?;
    conclude(arguments, &plan, false)
}

/// Prints what will be made, as mke2fs does before it begins.
fn announce(arguments: &Arguments, target: &Target<'_>, plan: &Plan) -> Outcome {
    if arguments.quiet {
        return Ok(());
    }
    let mut out = Output::report();
    if !target.exists && !arguments.dry_run {
        writeln!(out, "Creating regular file {}", target.shown())?;
    }
    if plan.notes().contains(&Note::NoJournal) {
        writeln!(out, "\nFilesystem too small for a journal")?;
    }
    for note in plan.notes().iter().filter(|note| **note != Note::NoJournal) {
        writeln!(out, "note: {note}")?;
    }
    for line in lines(plan) {
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    out.finish()
}

/// Prints what was done, as mke2fs does.
fn conclude(arguments: &Arguments, plan: &Plan, copied: bool) -> Outcome {
    if arguments.quiet {
        return Ok(());
    }
    let mut out = Output::report();
    writeln!(out, "Allocating group tables: done")?;
    writeln!(out, "Writing inode tables: done")?;
    if let Some(blocks) = plan.journal_blocks() {
        writeln!(out, "Creating journal ({blocks} blocks): done")?;
    }
    if copied {
        writeln!(out, "Copying files into the device: done")?;
    }
    writeln!(out, "Writing superblocks and filesystem accounting information: done\n")?;
    out.finish()
}

/// The given size in bytes. A leading 0 makes a number octal for mke2fs, which is never meant.
fn given_size(arguments: &Arguments) -> Outcome<Option<Bytes>> {
    let Some(text) = arguments.size.as_deref() else { return Ok(None) };
    let wrong = |reason: &dyn std::fmt::Display| Failure::of("mke2fs", format_args!("the size: {reason}"));
    let text = text.strip_prefix('+').unwrap_or(text);
    let is_octal = text.len() > 1 && text.starts_with('0') && !text.starts_with("0.");
    if is_octal {
        return Err(wrong(&format_args!("{text} begins with 0, which mke2fs takes for octal; leave it out")));
    }
    let plain = arguments.format.block_bytes().unwrap_or(1024);
    let size = crate::size_arg::with_suffix(text, plain).map_err(|reason| wrong(&reason))?;
    if size == 0 {
        return Err(wrong(&"nothing fits 0 bytes"));
    }
    Ok(Some(Bytes::new(size)))
}

/// The name of a path, safe to print.
fn name_of(path: &std::path::Path) -> String {
    shown(path.as_os_str().as_bytes())
}
