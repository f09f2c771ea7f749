//! What `mount -o` knows: one table, read by the parser, the help and the tests.
//!
//! Options that mean nothing to a file system (`noauto`, `_netdev`, `x-...`) are for those who read `fstab`,
//! and let through. Anything else that is not in the table is refused by name.

use crate::adapter::{KEPT, TRANSFER_MAX};
use crate::mount::is_root;
use hectare_engine::{DataMode, OnError, OpenOptions, Policy, Synchronous};
use log::LevelFilter;
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Which reads set the time of last access.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Atime {
    /// None.
    Never,
    /// The first after a change, and one a day.
    #[default]
    Relative,
    /// All that reach us: what the kernel has in its cache is read without asking.
    Always,
}

/// How a volume is mounted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountOptions {
    /// Take no change.
    pub read_only: bool,
    /// Others than who mounts may use it; the kernel checks permissions then.
    pub allow_other: bool,
    /// The kernel checks permissions.
    pub default_permissions: bool,
    /// Which reads set the time of last access.
    pub atime: Atime,
    /// Small appends gather before they get a place.
    pub delayed_allocation: bool,
    /// What the journal promises of file data; what the volume asks for, if not given.
    pub data: Option<DataMode>,
    /// What to do when metadata turns out to be broken; what the volume asks for, if not given.
    pub errors: Option<OnError>,
    /// Whether a failed write of file data ends all changes, if not as the volume says.
    pub data_errors_abort: Option<bool>,
    /// How old a change gets before it is committed.
    pub commit: Duration,
    /// Freed space is discarded on the device.
    pub discard: bool,
    /// How space is chosen.
    pub policy: Policy,
    /// Where the volume begins in the image, in bytes.
    pub offset: u64,
    /// Threads that answer requests; 0: as many as seems right.
    pub threads: usize,
    /// Idle processors wait without halting while many requests come, if this is a virtual machine and it is
    /// allowed.
    pub idle_poll: bool,
    /// Where they don't, a thread asks for requests again and again while many come.
    pub busy_poll: bool,
    /// Stay in the foreground.
    pub foreground: bool,
    /// The kernel gathers writes.
    pub writeback: bool,
    /// Files are opened without a request.
    pub no_open: bool,
    /// Times of creation are told, which the kernel asks for one by one.
    pub creation_times: bool,
    /// Directories are listed with the attributes of what they name, where that seems of use.
    pub list_attributes: bool,
    /// How long the kernel keeps names and attributes.
    pub kept: Duration,
    /// How long it keeps that a name is not there; as long, if not given.
    pub kept_absent: Option<Duration>,
    /// The kernel tells of every `close`, for nothing.
    pub ask_flush: bool,
    /// The kernel asks before it lists a directory, for nothing.
    pub ask_opendir: bool,
    /// Names of one directory are looked up, and it is listed, by several at once.
    pub parallel_directories: bool,
    /// The largest read and write, in bytes.
    pub transfer_max: u32,
    /// The largest read, in bytes, if that is less.
    pub read_max: u32,
    /// Bytes that the kernel reads ahead at most, where this may be set (by root).
    pub read_ahead: u32,
    /// Device nodes can be used (root only).
    pub dev: bool,
    /// Set-ID bits count (root only).
    pub suid: bool,
    /// Programs can be run.
    pub exec: bool,
    /// Every change is written through: names, attributes and content.
    pub sync: bool,
    /// Changes of names are written through.
    pub dirsync: bool,
    /// What is logged; what `HECTARE_LOG` says, if not given.
    pub log: Option<LevelFilter>,
    /// The file to log to.
    pub log_file: Option<PathBuf>,
    /// Where statistics are served over HTTP.
    pub metrics: Option<SocketAddr>,
    /// Others than this machine may reach them.
    pub metrics_public: bool,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            allow_other: false,
            default_permissions: false,
            atime: Atime::default(),
            delayed_allocation: true,
            data: None,
            errors: None,
            data_errors_abort: None,
            commit: DEFAULT_COMMIT,
            discard: false,
            policy: Policy::default(),
            offset: 0,
            threads: 0,
            idle_poll: true,
            busy_poll: true,
            foreground: false,
            writeback: true,
            no_open: false,
            creation_times: false,
            list_attributes: true,
            kept: KEPT,
            kept_absent: None,
            ask_flush: false,
            ask_opendir: false,
            parallel_directories: true,
            transfer_max: TRANSFER_MAX,
            read_max: READ_MAX,
            read_ahead: READ_AHEAD,
            dev: false,
            suid: false,
            exec: true,
            sync: false,
            dirsync: false,
            log: None,
            log_file: None,
            metrics: None,
            metrics_public: false,
        }
    }
}

const DEFAULT_COMMIT: Duration = Duration::from_secs(5);
/// The longest that a change may wait: an hour is more than anybody wants to lose.
const COMMIT_SECONDS_MAX: u64 = 3600;
/// The longest that the kernel may keep what it knows: a year.
const KEPT_SECONDS_MAX: u64 = 365 * 24 * 3600;
/// The smallest limit of reads and writes: a page.
const TRANSFER_MIN: u32 = 4096;
/// The largest read, unless told otherwise: half of what is read ahead, so that one half can be asked for
/// while the other is read.
const READ_MAX: u32 = READ_AHEAD / 2;
/// What the kernel reads ahead, unless told otherwise: the largest request there can be. More is faster for
/// streams, but so much is read around each of the first hundred places, too, that a program touches in a
/// file it has mapped.
const READ_AHEAD: u32 = TRANSFER_MAX;
/// The most that is read ahead: what one file should not take of the host's memory unasked.
const READ_AHEAD_MAX: u32 = 64 << 20;
/// The most threads that make sense.
const THREADS_MAX: usize = 256;

/// An option that can't be used, and why.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("mount option '{option}': {reason}")]
pub struct BadOption {
    /// As it was given.
    pub option: String,
    /// Why not.
    pub reason: String,
}

/// How an option is given.
enum Form {
    /// By name.
    Flag(fn(&mut MountOptions)),
    /// As `name=value`; the function says what is wrong with a value.
    Value(&'static str, fn(&mut MountOptions, &str) -> Result<(), String>),
    /// By name, for others.
    Ignored,
}

/// An option, how it is given and what it means.
pub struct OptionRow {
    name: &'static str,
    form: Form,
    help: &'static str,
}

impl OptionRow {
    /// How the option is written: `name`, or `name=VALUE`.
    #[must_use]
    pub fn usage(&self) -> String {
        match self.form {
            Form::Value(value, _) => format!("{}={value}", self.name),
            Form::Flag(_) | Form::Ignored => self.name.to_owned(),
        }
    }

    /// What it means, in a few words; empty for those that mean nothing here.
    #[must_use]
    pub fn help(&self) -> &'static str {
        self.help
    }
}

const fn flag(name: &'static str, help: &'static str, set: fn(&mut MountOptions)) -> OptionRow {
    OptionRow { name, form: Form::Flag(set), help }
}

const fn value(
    name: &'static str,
    shown: &'static str,
    help: &'static str,
    set: fn(&mut MountOptions, &str) -> Result<(), String>,
) -> OptionRow {
    OptionRow { name, form: Form::Value(shown, set), help }
}

const fn ignored(name: &'static str) -> OptionRow {
    OptionRow { name, form: Form::Ignored, help: "" }
}

/// All options.
pub static OPTIONS: [OptionRow; 71] = [
    flag("ro", "take no change; nothing is written to the image", |o| o.read_only = true),
    flag("rw", "take changes (the default)", |o| o.read_only = false),
    flag("allow_other", "let other users in; the kernel checks permissions", |o| o.allow_other = true),
    flag("default_permissions", "let the kernel check permissions (always so for root)", |o| {
        o.default_permissions = true;
    }),
    flag("noatime", "never set times of access", |o| o.atime = Atime::Never),
    flag("relatime", "set them after a change and once a day (the default)", |o| o.atime = Atime::Relative),
    flag("strictatime", "set them on every read that is not served from memory", |o| o.atime = Atime::Always),
    flag("atime", "as relatime", |o| o.atime = Atime::Relative),
    flag("lazytime", "times wait for the next commit, as they always do here", |_| {}),
    flag("nolazytime", "as lazytime: nothing changes", |_| {}),
    flag("delalloc", "gather small appends before they get a place (the default)", |o| {
        o.delayed_allocation = true;
    }),
    flag("nodelalloc", "give every write its place at once", |o| o.delayed_allocation = false),
    value("data", "MODE", "what is promised of file data: journal, ordered or writeback", set_data),
    value(
        "errors",
        "BEHAVIOR",
        "when metadata is broken: continue or remount-ro (panic is the same)",
        set_errors,
    ),
    value("data_err", "BEHAVIOR", "when file data can't be written: abort or ignore", set_data_errors),
    value("commit", "SECONDS", "commit what is older than this (5; 0 is the default too)", set_commit),
    flag("discard", "discard freed space on the device", |o| o.discard = true),
    flag("nodiscard", "do not (the default)", |o| o.discard = false),
    value("policy", "NAME", "how space is chosen", set_policy),
    value("offset", "BYTES", "where the volume begins in the image", set_offset),
    value("threads", "N", "threads that answer requests", set_threads),
    flag(
        "idle_poll",
        "idle processors don't halt while many requests come (the default; root, in a virtual machine)",
        |o| {
            o.idle_poll = true;
        },
    ),
    flag("noidle_poll", "they do", |o| o.idle_poll = false),
    flag("busy_poll", "else a thread polls then, if there is a processor for it (the default)", |o| {
        o.busy_poll = true;
    }),
    flag("nobusy_poll", "none does", |o| o.busy_poll = false),
    flag("foreground", "stay in the foreground", |o| o.foreground = true),
    flag("writeback", "let the kernel gather writes (the default)", |o| o.writeback = true),
    flag("nowriteback", "send every write on at once", |o| o.writeback = false),
    flag("noopen", "open files without asking: immutable files refuse late", |o| o.no_open = true),
    flag(
        "btime",
        "tell times of creation: programs that ask for them wait for one more request a file",
        |o| {
            o.creation_times = true;
        },
    ),
    flag("nobtime", "do not (the default)", |o| o.creation_times = false),
    flag("readdirplus", "list directories with attributes where that seems of use (the default)", |o| {
        o.list_attributes = true;
    }),
    flag("noreaddirplus", "list names alone", |o| o.list_attributes = false),
    value("actimeo", "SECONDS", "how long the kernel keeps names and attributes (86400)", set_kept),
    value(
        "negative_timeout",
        "SECONDS",
        "how long it keeps that a name is not there (as actimeo)",
        set_absent,
    ),
    flag("flush", "hear of every close, for nothing: to compare", |o| o.ask_flush = true),
    flag("noflush", "do not (the default)", |o| o.ask_flush = false),
    flag("opendir", "be asked before a directory is listed, for nothing: to compare", |o| {
        o.ask_opendir = true
    }),
    flag("noopendir", "do not (the default)", |o| o.ask_opendir = false),
    flag("parallel_dirops", "look up names in one directory side by side (the default)", |o| {
        o.parallel_directories = true;
    }),
    flag("noparallel_dirops", "one after another: to compare", |o| o.parallel_directories = false),
    value("max_write", "BYTES", "the largest read and write (1048576)", set_transfer_max),
    value("max_read", "BYTES", "the largest read (524288)", set_read_max),
    value(
        "max_readahead",
        "BYTES",
        "what the kernel reads ahead at most (1048576; root only)",
        set_read_ahead,
    ),
    flag("dev", "device nodes can be used (root only)", |o| o.dev = true),
    flag("nodev", "they can't (the default)", |o| o.dev = false),
    flag("suid", "set-user-ID and set-group-ID bits count (root only)", |o| o.suid = true),
    flag("nosuid", "they don't (the default)", |o| o.suid = false),
    flag("exec", "programs can be run (the default)", |o| o.exec = true),
    flag("noexec", "they can't", |o| o.exec = false),
    flag("sync", "write through at once", |o| o.sync = true),
    flag("async", "don't (the default)", |o| o.sync = false),
    flag("dirsync", "write changes of directories through at once", |o| o.dirsync = true),
    value("log", "LEVEL", "what is logged: off, error, warn, info (the default), debug or trace", set_log),
    value("logfile", "FILE", "log to the end of a file", set_log_file),
    value(
        "metrics",
        "ADDRESS",
        "serve statistics over HTTP at [HOST:]PORT, on this machine only",
        set_metrics,
    ),
    flag("metrics_public", "serve them where others can reach them, too", |o| o.metrics_public = true),
    flag("defaults", "nothing: the defaults", |_| {}),
    ignored("auto"),
    ignored("noauto"),
    ignored("user"),
    ignored("nouser"),
    ignored("users"),
    ignored("owner"),
    ignored("group"),
    ignored("nofail"),
    ignored("_netdev"),
    ignored("loop"),
    ignored("nonempty"),
    ignored("auto_cache"),
    ignored("acl"),
];

fn set_data(options: &mut MountOptions, name: &str) -> Result<(), String> {
    let found = DataMode::ALL.into_iter().find(|mode| mode.name() == name);
    options.data = Some(found.ok_or("there are journal, ordered and writeback")?);
    Ok(())
}

fn set_errors(options: &mut MountOptions, name: &str) -> Result<(), String> {
    let found = OnError::ALL.into_iter().find(|behaviour| behaviour.name() == name);
    options.errors = Some(found.ok_or("there are continue, remount-ro and panic")?);
    Ok(())
}

fn set_data_errors(options: &mut MountOptions, name: &str) -> Result<(), String> {
    options.data_errors_abort = Some(match name {
        "abort" => true,
        "ignore" => false,
        _ => return Err("there are abort and ignore".to_owned()),
    });
    Ok(())
}

/// A number inside a range; `what` it counts is for who gave another.
fn number<T: FromStr + PartialOrd + Display>(
    text: &str,
    range: RangeInclusive<T>,
    what: &str,
) -> Result<T, String> {
    let found = text.parse().ok().filter(|number| range.contains(number));
    found.ok_or_else(|| format!("it takes {what} from {} to {}", range.start(), range.end()))
}

fn set_commit(options: &mut MountOptions, seconds: &str) -> Result<(), String> {
    let seconds = number(seconds, 0..=COMMIT_SECONDS_MAX, "seconds")?;
    options.commit = if seconds == 0 { DEFAULT_COMMIT } else { Duration::from_secs(seconds) };
    Ok(())
}

fn set_policy(options: &mut MountOptions, name: &str) -> Result<(), String> {
    options.policy = name.parse().map_err(|error: hectare_engine::UnknownPolicy| error.to_string())?;
    Ok(())
}

fn set_offset(options: &mut MountOptions, bytes: &str) -> Result<(), String> {
    options.offset = bytes.parse().map_err(|_| "a number of bytes is meant".to_owned())?;
    Ok(())
}

fn set_threads(options: &mut MountOptions, number: &str) -> Result<(), String> {
    options.threads = self::number(number, 1..=THREADS_MAX, "a number")?;
    Ok(())
}

fn kept(seconds: &str) -> Result<Duration, String> {
    number(seconds, 0..=KEPT_SECONDS_MAX, "seconds").map(Duration::from_secs)
}

fn set_kept(options: &mut MountOptions, seconds: &str) -> Result<(), String> {
    options.kept = kept(seconds)?;
    Ok(())
}

fn set_absent(options: &mut MountOptions, seconds: &str) -> Result<(), String> {
    options.kept_absent = Some(kept(seconds)?);
    Ok(())
}

fn set_transfer_max(options: &mut MountOptions, bytes: &str) -> Result<(), String> {
    options.transfer_max = number(bytes, TRANSFER_MIN..=TRANSFER_MAX, "bytes")?;
    Ok(())
}

fn set_read_max(options: &mut MountOptions, bytes: &str) -> Result<(), String> {
    options.read_max = number(bytes, TRANSFER_MIN..=TRANSFER_MAX, "bytes")?;
    Ok(())
}

fn set_read_ahead(options: &mut MountOptions, bytes: &str) -> Result<(), String> {
    options.read_ahead = number(bytes, 0..=READ_AHEAD_MAX, "bytes")?;
    Ok(())
}

fn set_log(options: &mut MountOptions, level: &str) -> Result<(), String> {
    let level = level.parse().map_err(|_| "there are off, error, warn, info, debug and trace".to_owned())?;
    options.log = Some(level);
    Ok(())
}

fn set_log_file(options: &mut MountOptions, file: &str) -> Result<(), String> {
    options.log_file = Some(file.into());
    Ok(())
}

fn set_metrics(options: &mut MountOptions, address: &str) -> Result<(), String> {
    options.metrics = Some(metrics_address(address)?);
    Ok(())
}

/// An address from `PORT`, `localhost:PORT`, `1.2.3.4:PORT` or `[::1]:PORT`; without a host, this machine.
///
/// # Errors
/// What is meant, if it is none of these.
pub fn metrics_address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost:").or_else(|| text.strip_prefix(':')).unwrap_or(text);
    let here = port.parse().map(|port: u16| SocketAddr::from(([127, 0, 0, 1], port)));
    here.ok()
        .or_else(|| text.parse().ok())
        .ok_or_else(|| "a port, or an IP address and a port, is meant: 9100 or 127.0.0.1:9100".into())
}

/// Options for programs that read `fstab`: `x-systemd...`, `comment=`.
fn is_for_others(option: &str) -> bool {
    option.starts_with("x-") || option.starts_with("X-") || option.starts_with("comment=")
}

impl MountOptions {
    /// Adds a list as `-o` has it, separated by commas; later ones win.
    ///
    /// # Errors
    /// The first option that is not known or can't have its value.
    pub fn add(&mut self, list: &str) -> Result<(), BadOption> {
        list.split(',')
            .filter(|option| !option.is_empty() && !is_for_others(option))
            .try_for_each(|option| self.add_one(option))
    }

    fn add_one(&mut self, option: &str) -> Result<(), BadOption> {
        let bad = |reason: String| BadOption { option: option.to_owned(), reason };
        let (name, given) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let row = OPTIONS
            .iter()
            .find(|row| row.name == name)
            .ok_or_else(|| bad("there is no such option; `hectare mount --help` lists them".into()))?;
        match (&row.form, given) {
            (Form::Flag(set), None) => set(self),
            (Form::Value(_, set), Some(value)) => set(self, value).map_err(bad)?,
            (Form::Ignored, _) => {}
            (Form::Flag(_), Some(_)) => return Err(bad("it takes no value".into())),
            (Form::Value(..), None) => return Err(bad(format!("it is given as {}", row.usage()))),
        }
        Ok(())
    }

    /// What the engine is opened with. Asks whether this process is root, whose mounts may fill the blocks
    /// reserved for root unless others are allowed.
    #[must_use]
    pub fn open_options(&self) -> OpenOptions {
        let defaults = OpenOptions::default();
        OpenOptions {
            read_only: self.read_only,
            policy: self.policy,
            discard: self.discard,
            data_mode: self.data,
            errors: self.errors,
            data_errors_abort: self.data_errors_abort,
            // Only root comes to such a mount; where others do, nobody tells whose bytes are written.
            use_reserved_blocks: is_root() && !self.allow_other,
            synchronous: match (self.sync, self.dirsync) {
                (true, _) => Synchronous::All,
                (false, true) => Synchronous::Names,
                (false, false) => Synchronous::Flagged,
            },
            commit_interval: Some(self.commit),
            delayed_bytes: if self.delayed_allocation { defaults.delayed_bytes } else { 0 },
            ..defaults
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn parse(list: &str) -> Result<MountOptions, BadOption> {
        let mut options = MountOptions::default();
        options.add(list).map(|()| options)
    }

    #[test]
    fn every_option_is_there_once_and_can_be_given() {
        let mut seen = HashSet::new();
        for row in &OPTIONS {
            assert!(seen.insert(row.name), "{}", row.name);
            let given = match row.form {
                Form::Value("MODE", _) => "data=ordered".to_owned(),
                Form::Value("NAME", _) => "policy=best-fit".to_owned(),
                Form::Value("BEHAVIOR", _) if row.name == "data_err" => "data_err=abort".to_owned(),
                Form::Value("BEHAVIOR", _) => "errors=continue".to_owned(),
                Form::Value("LEVEL", _) => "log=info".to_owned(),
                Form::Value("BYTES", _) => format!("{}=4096", row.name),
                Form::Value(..) => format!("{}=1", row.name),
                _ => row.name.to_owned(),
            };
            assert_eq!(parse(&given).err(), None);
            assert!(row.help.is_empty() == matches!(row.form, Form::Ignored));
        }
    }

    #[test]
    fn data_that_can_not_be_written_is_dealt_with_as_asked() {
        for (given, expected) in
            [("", None), ("data_err=abort", Some(true)), ("data_err=ignore", Some(false))]
        {
            assert_eq!(parse(given).unwrap().open_options().data_errors_abort, expected, "{given}");
        }
        assert!(parse("data_err=panic").is_err());
    }

    #[test]
    fn what_is_written_through_is_the_engines_to_do_too() {
        for (given, expected) in [
            ("", Synchronous::Flagged),
            ("dirsync", Synchronous::Names),
            ("sync", Synchronous::All),
            ("sync,dirsync,async", Synchronous::Names),
        ] {
            assert_eq!(parse(given).unwrap().open_options().synchronous, expected, "{given}");
        }
    }

    #[test]
    fn later_ones_win() {
        let options = parse("ro,noatime,commit=30,rw,strictatime,,threads=3,x-systemd.requires=/a").unwrap();
        assert!(!options.read_only);
        assert_eq!(options.atime, Atime::Always);
        assert_eq!((options.commit, options.threads), (Duration::from_secs(30), 3));
        assert_eq!(parse("nodelalloc").unwrap().open_options().delayed_bytes, 0);
        assert_eq!(parse("policy=best-fit,offset=1048576").unwrap().offset, 1 << 20);
        let asked = parse("data=journal,errors=remount-ro,data=writeback").unwrap().open_options();
        assert_eq!(asked.data_mode, Some(DataMode::Writeback));
        assert_eq!(asked.errors, Some(OnError::RemountReadOnly));
    }

    #[test]
    fn statistics_stay_on_this_machine_unless_an_address_is_named() {
        for (given, address) in [
            ("9100", "127.0.0.1:9100"),
            (":0", "127.0.0.1:0"),
            ("localhost:9100", "127.0.0.1:9100"),
            ("[::1]:9100", "[::1]:9100"),
            ("0.0.0.0:80", "0.0.0.0:80"),
        ] {
            assert_eq!(metrics_address(given).unwrap(), address.parse().unwrap());
        }
        for given in ["", "host:9100", "70000", "127.0.0.1", "::1:"] {
            assert!(metrics_address(given).is_err(), "{given}");
        }
        let options = parse("metrics=:9100,log=debug,logfile=/var/log/a").unwrap();
        assert_eq!(options.log, Some(LevelFilter::Debug));
        assert_eq!((options.metrics.unwrap().port(), options.metrics_public), (9100, false));
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        for (given, text) in [
            ("rw,fast", "mount option 'fast': there is no such option; `hectare mount --help` lists them"),
            ("ro=1", "mount option 'ro=1': it takes no value"),
            ("threads", "mount option 'threads': it is given as threads=N"),
            ("threads=0", "mount option 'threads=0': it takes a number from 1 to 256"),
            ("commit=-1", "mount option 'commit=-1': it takes seconds from 0 to 3600"),
            ("data=none", "mount option 'data=none': there are journal, ordered and writeback"),
            ("log=loud", "mount option 'log=loud': there are off, error, warn, info, debug and trace"),
            ("max_write=1", "mount option 'max_write=1': it takes bytes from 4096 to 1048576"),
            ("actimeo=-1", "mount option 'actimeo=-1': it takes seconds from 0 to 31536000"),
            ("errors=stop", "mount option 'errors=stop': there are continue, remount-ro and panic"),
        ] {
            assert_eq!(parse(given).unwrap_err().to_string(), text);
        }
        assert!(parse("policy=worst").is_err() && parse("offset=").is_err());
    }
}
