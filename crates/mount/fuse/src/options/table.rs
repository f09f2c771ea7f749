//! The table of mount options: the name, syntax, setter and help text of each.

use super::{Atime, DEFAULT_COMMIT, MountOptions, TRANSFER_MAX};
use hectare_engine::{DataMode, OnError, QuotaKind};
use log::LevelFilter;
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// The longest commit interval: an hour is more than any user wants to lose.
const COMMIT_SECONDS_MAX: u64 = 3600;
/// The longest time that the kernel may cache names and attributes: a year.
const KEPT_SECONDS_MAX: u64 = 365 * 24 * 3600;
/// The smallest limit of reads and writes: a page.
const TRANSFER_MIN: u32 = 4096;
/// The largest readahead: more of the host's memory than one file should take by default.
const READ_AHEAD_MAX: u32 = 64 << 20;
/// The largest useful number of threads.
const THREADS_MAX: usize = 256;

/// The syntax of an option.
pub(super) enum Form {
    /// `name`.
    Flag(fn(&mut MountOptions)),
    /// `name=value`; the function returns what is wrong with a value.
    Value(&'static str, fn(&mut MountOptions, &str) -> Result<(), String>),
    /// `name`, meant for other programs.
    Ignored,
    /// `name` or `name=value`: no effect here, for this reason.
    Accepted(&'static str),
    /// `name` or `name=value`: not supported, and ignoring it would be wrong, for this reason.
    Refused(&'static str),
}

/// An option, its syntax and its help text.
pub struct OptionRow {
    pub(super) name: &'static str,
    pub(super) form: Form,
    help: &'static str,
    is_for_benchmarks: bool,
}

impl OptionRow {
    /// How the option is written: `name`, or `name=VALUE`.
    #[must_use]
    pub fn usage(&self) -> String {
        match self.form {
            Form::Value(value, _) => format!("{}={value}", self.name),
            Form::Flag(_) | Form::Ignored | Form::Accepted(_) | Form::Refused(_) => self.name.to_owned(),
        }
    }

    /// The help text, one line; empty for options without effect here.
    #[must_use]
    pub fn help(&self) -> &'static str {
        self.help
    }

    /// Whether it only serves to compare, and is not to be listed in a help.
    #[must_use]
    pub fn is_for_benchmarks(&self) -> bool {
        self.is_for_benchmarks
    }
}

const fn flag(name: &'static str, help: &'static str, set: fn(&mut MountOptions)) -> OptionRow {
    OptionRow { name, form: Form::Flag(set), help, is_for_benchmarks: false }
}

/// A flag that only serves to compare.
const fn benchmark(name: &'static str, help: &'static str, set: fn(&mut MountOptions)) -> OptionRow {
    OptionRow { is_for_benchmarks: true, ..flag(name, help, set) }
}

const fn value(
    name: &'static str,
    shown: &'static str,
    help: &'static str,
    set: fn(&mut MountOptions, &str) -> Result<(), String>,
) -> OptionRow {
    OptionRow { name, form: Form::Value(shown, set), help, is_for_benchmarks: false }
}

const fn ignored(name: &'static str) -> OptionRow {
    OptionRow { name, form: Form::Ignored, help: "", is_for_benchmarks: false }
}

pub(super) const fn accepted(name: &'static str, why: &'static str) -> OptionRow {
    OptionRow { name, form: Form::Accepted(why), help: "", is_for_benchmarks: false }
}

pub(super) const fn refused(name: &'static str, why: &'static str) -> OptionRow {
    OptionRow { name, form: Form::Refused(why), help: "", is_for_benchmarks: false }
}

/// All options with an effect here, and those meant for the programs that mount.
pub static OPTIONS: [OptionRow; 104] = [
    flag("ro", "mount read-only; nothing is written to the image", |o| o.read_only = true),
    flag("rw", "mount read-write (the default)", |o| o.read_only = false),
    flag("allow_other", "let other users access the mount, if permissions allow", |o| o.allow_other = true),
    flag("default_permissions", "have the kernel check permissions (always so for root)", |o| {
        o.default_permissions = true;
    }),
    flag("noatime", "never update access times", |o| o.atime = Atime::Never),
    flag("relatime", "update access times after changes, else daily (default)", |o| {
        o.atime = Atime::Relative;
    }),
    flag("strictatime", "update access times on every read that is not cached", |o| {
        o.atime = Atime::Always;
    }),
    flag("atime", "as relatime", |o| o.atime = Atime::Relative),
    flag("norelatime", "as strictatime", |o| o.atime = Atime::Always),
    flag("nostrictatime", "as relatime", |o| o.atime = Atime::Relative),
    flag("nodiratime", "never update access times of directories", |o| o.directory_atime = false),
    flag("diratime", "update access times of directories as of files (default)", |o| {
        o.directory_atime = true;
    }),
    flag("norecovery", "don't replay the journal (needs ro); may be inconsistent", |o| o.no_replay = true),
    flag("noload", "as norecovery", |o| o.no_replay = true),
    flag("acl", "enforce access ACLs (the default)", |o| o.acl = true),
    flag("noacl", "do not enforce access ACLs", |o| o.acl = false),
    flag("grpid", "new files get the group of their directory", |o| o.directory_groups = true),
    flag("bsdgroups", "as grpid", |o| o.directory_groups = true),
    flag("nogrpid", "new files get the group of their creator (the default)", |o| {
        o.directory_groups = false;
    }),
    flag("sysvgroups", "as nogrpid", |o| o.directory_groups = false),
    flag("minixdf", "df counts metadata as part of the size", |o| o.counts_overhead = true),
    flag("bsddf", "df leaves metadata out of the size (the default)", |o| o.counts_overhead = false),
    flag("debug", "verbose logging: as log=debug", |o| o.log = Some(LevelFilter::Debug)),
    flag("lazytime", "write times with the next commit (always so here)", |_| {}),
    flag("nolazytime", "no effect: as lazytime", |_| {}),
    flag("delalloc", "buffer small appends and allocate them later (default)", |o| {
        o.delayed_allocation = true;
    }),
    flag("nodelalloc", "allocate at every write", |o| o.delayed_allocation = false),
    value("data", "MODE", "journaling mode of file data: journal, ordered, writeback", set_data),
    value("errors", "BEHAVIOR", "on corruption: continue or remount-ro (also for panic)", set_errors),
    value("data_err", "BEHAVIOR", "when file data can't be written: abort or ignore", set_data_errors),
    value("commit", "SECONDS", "commit changes older than this (5; 0 means the default)", set_commit),
    flag("discard", "discard freed space on the device", |o| o.discard = true),
    flag("nodiscard", "do not discard freed space (the default)", |o| o.discard = false),
    value("policy", "NAME", "allocation policy; NAME:+MECHANISM:-MECHANISM adapts it", set_policy),
    value("mb_optimize_scan", "0|1", "search by the group index (from 16 groups on)", |o, value| {
        set_tunable(o, &format!("mb_optimize_scan={value}"))
    }),
    value("stripe", "BLOCKS", "align large files to this stripe (default: superblock's)", |o, value| {
        set_tunable(o, &format!("stripe={value}"))
    }),
    value("tunable", "NAME=VALUE", "set an allocator tunable, as in /sys/fs/ext4", set_tunable),
    value("classes", "SIZE:...", "bounds of the size classes (128K:8M)", set_classes),
    flag("explain", "record allocation requests, for `hectare explain DIR`", |o| o.explain = true),
    flag("noexplain", "do not record allocation requests (the default)", |o| o.explain = false),
    flag("usrquota", "enforce limits of users (all quotas' are unless one is named)", |o| {
        enforce(o, QuotaKind::User);
    }),
    flag("grpquota", "enforce limits of groups", |o| enforce(o, QuotaKind::Group)),
    flag("prjquota", "enforce limits of projects", |o| enforce(o, QuotaKind::Project)),
    flag("quota", "as usrquota", |o| enforce(o, QuotaKind::User)),
    flag("noquota", "enforce no limits; what is used is counted", |o| o.quota_limits = Some(Vec::new())),
    value("offset", "BYTES", "byte offset of the volume in the image", set_offset),
    value("journal_path", "FILE", "device or file with the volume's external journal", set_journal),
    value("threads", "N", "threads that answer requests; more while all are held up", set_threads),
    flag("idle_poll", "keep guest CPUs out of halt in bursts (default; root)", |o| o.idle_poll = true),
    flag("noidle_poll", "disable idle_poll", |o| o.idle_poll = false),
    flag("busy_poll", "busy-poll /dev/fuse in bursts without idle_poll (default)", |o| o.busy_poll = true),
    flag("nobusy_poll", "disable busy_poll", |o| o.busy_poll = false),
    flag("foreground", "stay in the foreground", |o| o.foreground = true),
    flag("writeback", "kernel buffers writes: faster; ENOSPC may be 1 write late", |o| o.writeback = true),
    flag("nowriteback", "send every write at once (default; implied by noopen)", |o| o.writeback = false),
    flag("noopen", "zero-message open; immutable files fail only at write(2)", |o| o.no_open = true),
    flag("btime", "report creation times (one extra request per file)", |o| o.creation_times = true),
    flag("nobtime", "do not report creation times (the default)", |o| o.creation_times = false),
    flag("readdirplus", "list directories with attributes if useful (the default)", |o| {
        o.list_attributes = true;
    }),
    flag("noreaddirplus", "list names only", |o| o.list_attributes = false),
    value("actimeo", "SECONDS", "how long the kernel caches names and attributes (86400)", set_kept),
    value("negative_timeout", "SECONDS", "how long the kernel caches missing names (as actimeo)", set_absent),
    benchmark("flush", "send FLUSH on every close (no effect)", |o| o.ask_flush = true),
    benchmark("noflush", "do not send FLUSH (the default)", |o| o.ask_flush = false),
    benchmark("opendir", "send OPENDIR before listing (no effect)", |o| o.ask_opendir = true),
    benchmark("noopendir", "do not send OPENDIR (the default)", |o| o.ask_opendir = false),
    benchmark("parallel_dirops", "parallel lookups in one directory (the default)", |o| {
        o.parallel_directories = true;
    }),
    benchmark("noparallel_dirops", "one lookup at a time in a directory", |o| o.parallel_directories = false),
    value("max_write", "BYTES", "largest read and write (1048576)", set_transfer_max),
    value("max_read", "BYTES", "largest read (524288)", set_read_max),
    value("max_readahead", "BYTES", "limit of the kernel's readahead (1048576; root only)", set_read_ahead),
    flag("dev", "allow device nodes (root; through mount.fuse: allow_dev)", |o| o.dev = true),
    flag("allow_dev", "as dev, by a name that no program adds by itself", |o| {
        (o.dev, o.allow_dev) = (true, true);
    }),
    flag("nodev", "do not allow device nodes (the default)", |o| (o.dev, o.allow_dev) = (false, false)),
    flag("suid", "honour set-ID bits (root; through mount.fuse: allow_suid)", |o| o.suid = true),
    flag("allow_suid", "as suid, by a name that no program adds by itself", |o| {
        (o.suid, o.allow_suid) = (true, true);
    }),
    flag("nosuid", "ignore set-ID bits (the default)", |o| (o.suid, o.allow_suid) = (false, false)),
    flag("fuseblk", "mount as fuseblk if root, with loop devices (the default)", |o| o.block = true),
    flag("nofuseblk", "plain fuse: sync(1), umount(8) don't wait for the server", |o| o.block = false),
    flag("exec", "allow running programs (the default)", |o| o.exec = true),
    flag("noexec", "do not allow running programs", |o| o.exec = false),
    flag("sync", "write every change through at once", |o| o.sync = true),
    flag("async", "do not write through (the default)", |o| o.sync = false),
    flag("dirsync", "write directory changes through at once", |o| o.dirsync = true),
    value("log", "LEVEL", "log level: off, error, warn, info (default), debug, trace", set_log),
    value("logfile", "FILE", "append the log to a file", set_log_file),
    value("metrics", "ADDRESS", "serve metrics over HTTP at [HOST:]PORT, local only", set_metrics),
    flag("metrics_public", "allow a metrics address that other hosts can reach", |o| o.metrics_public = true),
    flag("defaults", "no effect: the defaults", |_| {}),
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
    ignored("silent"),
    ignored("loud"),
    ignored("noiversion"),
];

fn enforce(options: &mut MountOptions, kind: QuotaKind) {
    let kinds = options.quota_limits.get_or_insert_default();
    if !kinds.contains(&kind) {
        kinds.push(kind);
    }
}

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

/// Parses a number inside a range; `what` is its unit, for the error message.
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

fn set_tunable(options: &mut MountOptions, given: &str) -> Result<(), String> {
    options.tunables.set(given).map_err(|error| error.to_string())
}

fn set_classes(options: &mut MountOptions, list: &str) -> Result<(), String> {
    options.tunables.classes = list.parse().map_err(|error: hectare_engine::BadClasses| error.to_string())?;
    Ok(())
}

fn set_offset(options: &mut MountOptions, bytes: &str) -> Result<(), String> {
    options.offset = bytes.parse().map_err(|_| "it takes a number of bytes".to_owned())?;
    Ok(())
}

fn set_journal(options: &mut MountOptions, file: &str) -> Result<(), String> {
    options.journal = Some(file.into());
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

/// Parses `PORT`, `localhost:PORT`, `1.2.3.4:PORT` or `[::1]:PORT`; the host defaults to this machine.
///
/// # Errors
/// If the text has none of these forms; the error gives the syntax.
pub fn metrics_address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost:").or_else(|| text.strip_prefix(':')).unwrap_or(text);
    let here = port.parse().map(|port: u16| SocketAddr::from(([127, 0, 0, 1], port)));
    here.ok()
        .or_else(|| text.parse().ok())
        .ok_or_else(|| "it takes a port, or an IP address and a port: 9100 or 127.0.0.1:9100".into())
}
