//! The table of mount options: what each is called, how it is given, what it sets and what it means.

use super::{Atime, DEFAULT_COMMIT, MountOptions};
use crate::adapter::TRANSFER_MAX;
use hectare_engine::{DataMode, OnError};
use log::LevelFilter;
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// The longest that a change may wait: an hour is more than anybody wants to lose.
const COMMIT_SECONDS_MAX: u64 = 3600;
/// The longest that the kernel may keep what it knows: a year.
const KEPT_SECONDS_MAX: u64 = 365 * 24 * 3600;
/// The smallest limit of reads and writes: a page.
const TRANSFER_MIN: u32 = 4096;
/// The most that is read ahead: what one file should not take of the host's memory unasked.
const READ_AHEAD_MAX: u32 = 64 << 20;
/// The most threads that make sense.
const THREADS_MAX: usize = 256;

/// How an option is given.
pub(super) enum Form {
    /// By name.
    Flag(fn(&mut MountOptions)),
    /// As `name=value`; the function says what is wrong with a value.
    Value(&'static str, fn(&mut MountOptions, &str) -> Result<(), String>),
    /// By name, for others.
    Ignored,
    /// By name or `name=value`: it would change nothing here, and this says why.
    Accepted(&'static str),
    /// By name or `name=value`: it can't be done, and to go on without it would be wrong.
    Refused(&'static str),
}

/// An option, how it is given and what it means.
pub struct OptionRow {
    pub(super) name: &'static str,
    pub(super) form: Form,
    help: &'static str,
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

pub(super) const fn accepted(name: &'static str, why: &'static str) -> OptionRow {
    OptionRow { name, form: Form::Accepted(why), help: "" }
}

pub(super) const fn refused(name: &'static str, why: &'static str) -> OptionRow {
    OptionRow { name, form: Form::Refused(why), help: "" }
}

/// All options that mean something here, or to those who mount.
pub static OPTIONS: [OptionRow; 98] = [
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
    flag("norelatime", "as strictatime", |o| o.atime = Atime::Always),
    flag("nostrictatime", "as relatime", |o| o.atime = Atime::Relative),
    flag("nodiratime", "never set times of access of directories", |o| o.directory_atime = false),
    flag("diratime", "set them as those of files (the default)", |o| o.directory_atime = true),
    flag("norecovery", "don't replay the journal (needs ro); may be inconsistent", |o| o.no_replay = true),
    flag("noload", "as norecovery", |o| o.no_replay = true),
    flag("acl", "access ACLs are enforced (the default)", |o| o.acl = true),
    flag("noacl", "access ACLs are not enforced", |o| o.acl = false),
    flag("grpid", "new files get the group of their directory", |o| o.directory_groups = true),
    flag("bsdgroups", "as grpid", |o| o.directory_groups = true),
    flag(
        "nogrpid",
        "as in System V: group of the creator, or of a set-group-ID directory (the default)",
        |o| {
            o.directory_groups = false;
        },
    ),
    flag("sysvgroups", "as nogrpid", |o| o.directory_groups = false),
    flag("minixdf", "the size that df shows includes metadata", |o| o.counts_overhead = true),
    flag("bsddf", "it does not (the default)", |o| o.counts_overhead = false),
    flag("debug", "log more: as log=debug", |o| o.log = Some(LevelFilter::Debug)),
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
    value(
        "policy",
        "NAME",
        "how space is chosen; NAME:+MECHANISM:-MECHANISM puts in and leaves out",
        set_policy,
    ),
    value(
        "mb_optimize_scan",
        "0|1",
        "whether space is found by the group index (from 16 groups on)",
        |o, value| set_tunable(o, &format!("mb_optimize_scan={value}")),
    ),
    value(
        "stripe",
        "BLOCKS",
        "align large files to stripes of so many blocks (as the volume says)",
        |o, value| set_tunable(o, &format!("stripe={value}")),
    ),
    value("tunable", "NAME=VALUE", "a number of the search for space, as in /sys/fs/ext4", set_tunable),
    value("classes", "SIZE:...", "bounds of the size classes (128K:8M)", set_classes),
    flag("explain", "keep what requests for space went through, for `hectare explain DIR`", |o| {
        o.explain = true;
    }),
    flag("noexplain", "do not (the default)", |o| o.explain = false),
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
    flag(
        "writeback",
        "let the kernel buffer writes: small ones are faster; ENOSPC may come one write late",
        |o| o.writeback = true,
    ),
    flag("nowriteback", "pass every write on at once (the default)", |o| o.writeback = false),
    flag("noopen", "open files without a request; implies nowriteback", |o| o.no_open = true),
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
        o.ask_opendir = true;
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
    flag("dev", "device nodes can be used (root only; through mount.fuse say allow_dev)", |o| o.dev = true),
    flag("allow_dev", "the same, by a name that no program adds by itself", |o| {
        (o.dev, o.allow_dev) = (true, true);
    }),
    flag("nodev", "they can't (the default)", |o| (o.dev, o.allow_dev) = (false, false)),
    flag("suid", "set-ID bits count (root only; through mount.fuse say allow_suid)", |o| o.suid = true),
    flag("allow_suid", "the same, by a name that no program adds by itself", |o| {
        (o.suid, o.allow_suid) = (true, true);
    }),
    flag("nosuid", "they don't (the default)", |o| (o.suid, o.allow_suid) = (false, false)),
    flag("fuseblk", "as fuseblk, if root and with loop devices (the default)", |o| o.block = true),
    flag("nofuseblk", "plain fuse: sync(1) and umount(8) do not wait for the server", |o| o.block = false),
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
    ignored("silent"),
    ignored("loud"),
    ignored("noiversion"),
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

fn set_tunable(options: &mut MountOptions, given: &str) -> Result<(), String> {
    options.tunables.set(given).map_err(|error| error.to_string())
}

fn set_classes(options: &mut MountOptions, list: &str) -> Result<(), String> {
    options.tunables.classes = list.parse().map_err(|error: hectare_engine::BadClasses| error.to_string())?;
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
