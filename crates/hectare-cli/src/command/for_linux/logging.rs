//! The server's log: its records, and its destination: standard error, a file, or the system's log.
//!
//! A line has a time, a level, its origin, a message, and fields (`logfmt`):
//!
//! ```text
//! time=2026-11-20T15:16:28.123456Z level=info from=hectare_engine msg="the volume is open" ...
//! ```
//!
//! The system's log (the socket that syslog daemons and journald listen on) gets the last part; it has its
//! own times and levels.
//!
//! Hazard: a record may be logged under any lock of the engine. So no caller waits for a line to be written:
//! lines go through a queue to a thread of their own, and if that can't follow, lines are lost, and their
//! number is logged instead. [`flush`] waits, for a moment.

use crate::failure::{Failure, Outcome};
use crate::name::shown;
use jiff::Timestamp;
use log::kv::{Error, Key, Value, VisitSource};
use log::{Level, LevelFilter, Log, Metadata, Record};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;
use std::panic::PanicHookInfo;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

/// The environment variable that sets the level by default.
const VARIABLE: &str = "HECTARE_LOG";
/// Other crates log errors only.
const OWN: &str = "hectare";
/// Lines that wait to be written.
const QUEUE: usize = 4096;
/// How long [`flush`] waits.
const PATIENCE: Duration = Duration::from_secs(2);
const SYSTEM_LOG: &str = "/dev/log";
/// `LOG_DAEMON` of syslog(3), as a part of a priority.
const DAEMON: u8 = 3 << 3;

static LOGGER: OnceLock<Logger> = OnceLock::new();

/// The destination of lines.
pub(crate) enum LogTarget {
    /// Standard error.
    StandardError,
    /// The end of a file.
    File(File),
    /// The system's log.
    System(UnixDatagram),
}

impl LogTarget {
    /// A file, created if it does not exist.
    pub(crate) fn file(path: &Path) -> Outcome<Self> {
        hectare_device::check_output_place(path).map_err(|error| Failure::Line(error.to_string()))?;
        let file = File::options().append(true).create(true).open(path);
        file.map(Self::File).map_err(|error| {
            let name = shown(path.as_os_str().as_bytes());
            Failure::of(name, format_args!("the log can't be written: {}", crate::output::reason(&error)))
        })
    }

    /// The system's log, if there is one.
    pub(crate) fn system() -> Option<Self> {
        let socket = UnixDatagram::unbound().ok()?;
        socket.connect(SYSTEM_LOG).ok()?;
        Some(Self::System(socket))
    }

    /// Writes a line. Nothing can be done if that fails.
    fn write(&mut self, line: &Line) {
        let Line { level, time, text } = line;
        let name = level.as_str().to_ascii_lowercase();
        let stamped = || format!("time={time:.6} level={name} {text}\n");
        let _ = match self {
            Self::StandardError => io::stderr().write_all(stamped().as_bytes()),
            Self::File(file) => file.write_all(stamped().as_bytes()),
            Self::System(socket) => {
                let priority = DAEMON | severity(*level);
                let message = format!("<{priority}>hectare[{}]: {text}", std::process::id());
                socket.send(message.as_bytes()).map(drop)
            }
        };
    }
}

/// The severity of syslog(3).
const fn severity(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

/// The level: as requested, or from the environment, or `info`.
pub(crate) fn level(asked: Option<LevelFilter>) -> Outcome<LevelFilter> {
    match (asked, std::env::var(VARIABLE)) {
        (Some(level), _) => Ok(level),
        (None, Ok(text)) if !text.is_empty() => text.parse().map_err(|_| {
            let levels = "there are off, error, warn, info, debug and trace";
            Failure::of(format_args!("{VARIABLE}={text}"), levels)
        }),
        (None, _) => Ok(LevelFilter::Info),
    }
}

/// Starts logging. To be called once; a process that logs already continues as it is.
pub(crate) fn start(level: LevelFilter, place: LogTarget) {
    let (lines, queue) = sync_channel(QUEUE);
    let lost = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&lost);
    let writer = thread::Builder::new().name("hectare-log".into()).spawn(move || write(place, &queue, &told));
    if writer.is_ok() && log::set_logger(LOGGER.get_or_init(|| Logger { lines, lost })).is_ok() {
        log::set_max_level(level);
        log_panics();
    }
}

/// Logs panics, with the place of each, before the default hook prints them.
fn log_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        log::error!("{}", panicked(panic));
        before(panic);
    }));
}

/// The message of a panic, and its place.
fn panicked(panic: &PanicHookInfo<'_>) -> String {
    let text = panic.payload().downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.payload().downcast_ref().copied()).unwrap_or("no reason is given");
    let place = panic.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    format!("a panic at {place}: {text}")
}

/// Waits until everything logged so far is written, for two seconds at most.
pub(crate) fn flush() {
    log::logger().flush();
}

struct Line {
    level: Level,
    time: Timestamp,
    text: String,
}

enum Message {
    Line(Line),
    /// Answered once everything before it is written.
    Flush(SyncSender<()>),
}

struct Logger {
    lines: SyncSender<Message>,
    /// Lines that found the queue full.
    lost: Arc<AtomicU64>,
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with(OWN) || metadata.level() <= Level::Warn
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let line = Line { level: record.level(), time: Timestamp::now(), text: text(record) };
        if let Err(TrySendError::Full(_)) = self.lines.try_send(Message::Line(line)) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self) {
        let (answer, done) = sync_channel(1);
        if self.lines.send(Message::Flush(answer)).is_ok() {
            let _ = done.recv_timeout(PATIENCE);
        }
    }
}

fn write(mut place: LogTarget, queue: &Receiver<Message>, lost: &AtomicU64) {
    while let Ok(message) = queue.recv() {
        match message {
            Message::Line(line) => place.write(&line),
            // The requester may be gone.
            Message::Flush(answer) => drop(answer.send(())),
        }
        let lines = lost.swap(0, Ordering::Relaxed);
        if lines > 0 {
            let text = format!("from=hectare msg=\"lines of this log are lost\" lines={lines}");
            place.write(&Line { level: Level::Warn, time: Timestamp::now(), text });
        }
    }
}

/// Where a record comes from, what it says, and its fields.
fn text(record: &Record<'_>) -> String {
    let from = record.target().split("::").next().unwrap_or_default();
    let mut text = format!("from={from} msg={}", quoted(&record.args().to_string()));
    // Our visitor does not fail.
    let _ = record.key_values().visit(&mut Fields(&mut text));
    text
}

struct Fields<'a>(&'a mut String);

impl<'kvs> VisitSource<'kvs> for Fields<'_> {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), Error> {
        let _ = write!(self.0, " {key}={}", quoted(&value.to_string())); // into a string
        Ok(())
    }
}

/// A value as one word: quoted where it has to be, so that nothing in it looks like another field or line.
fn quoted(text: &str) -> String {
    let plain = |c: char| !c.is_control() && !matches!(c, ' ' | '"' | '=' | '\\');
    if !text.is_empty() && text.chars().all(plain) { text.to_owned() } else { format!("{text:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_field_looks_like_another() {
        for (text, shown) in [
            ("data", "data"),
            ("", "\"\""),
            ("a b", "\"a b\""),
            ("x\nlevel=error", "\"x\\nlevel=error\""),
            ("say \"so\"", "\"say \\\"so\\\"\""),
        ] {
            assert_eq!(quoted(text), shown);
        }
    }

    #[test]
    fn a_record_is_one_line_with_its_fields() {
        let fields = [("error", "it is broken"), ("block", "7")];
        let record = Record::builder()
            .target("hectare_engine::findings")
            .args(format_args!("something is broken"))
            .key_values(&fields)
            .build();
        let expected = "from=hectare_engine msg=\"something is broken\" error=\"it is broken\" block=7";
        assert_eq!(text(&record), expected);
    }

    #[test]
    fn lines_go_to_the_place_they_are_meant_for() {
        let folder = tempfile::tempdir().unwrap();
        let (log, socket) = (folder.path().join("log"), folder.path().join("socket"));
        let line = |text: &str| Line { level: Level::Warn, time: Timestamp::UNIX_EPOCH, text: text.into() };
        for text in ["msg=a", "msg=b"] {
            LogTarget::file(&log).unwrap().write(&line(text));
        }
        let stamp = "time=1970-01-01T00:00:00.000000Z level=warn";
        assert_eq!(std::fs::read_to_string(&log).unwrap(), format!("{stamp} msg=a\n{stamp} msg=b\n"));
        let daemon = UnixDatagram::bind(&socket).unwrap();
        let client = UnixDatagram::unbound().unwrap();
        client.connect(&socket).unwrap();
        LogTarget::System(client).write(&line("msg=a"));
        let mut message = [0; 100];
        let len = daemon.recv(&mut message).unwrap();
        let expected = format!("<28>hectare[{}]: msg=a", std::process::id());
        assert_eq!(std::str::from_utf8(&message[..len]), Ok(expected.as_str()));
        assert!(LogTarget::file(folder.path()).is_err());
    }

    #[test]
    fn a_panic_is_told_with_its_place() {
        let (told, heard) = std::sync::mpsc::channel();
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| drop(told.send(panicked(panic)))));
        let number = 7;
        let _ = thread::spawn(move || assert!(number > 7, "number {number}")).join();
        let _ = thread::spawn(|| panic!("plain")).join();
        std::panic::set_hook(before);
        let told: Vec<String> = heard.try_iter().collect();
        for text in ["number 7", "plain"] {
            let has = |line: &String| line.contains("logging.rs:") && line.ends_with(&format!(": {text}"));
            assert!(told.iter().any(has), "{told:?}");
        }
    }

    #[test]
    fn a_full_queue_loses_lines_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (lines, queue) = sync_channel(2);
        let logger = Logger { lines, lost: Arc::default() };
        for nr in 0..5 {
            let text = format_args!("{nr}").to_string();
            logger.log(&Record::builder().target("hectare").args(format_args!("{text}")).build());
        }
        let lost = Arc::clone(&logger.lost);
        drop(logger);
        write(LogTarget::file(&path).unwrap(), &queue, &lost);
        let written = std::fs::read_to_string(&path).unwrap();
        assert!(written.contains("msg=0\n") && written.contains("msg=1\n") && !written.contains("msg=2\n"));
        assert!(written.contains("lines=3"), "{written}");
    }
}
