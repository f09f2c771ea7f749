//! Formats a report in the text format of Prometheus, version 0.0.4.
//!
//! Names follow its conventions: base units (seconds, bytes), `_total` for counters, one family of metrics
//! together, each with its help and type. Histograms have every second bucket of ours, so that each ends at
//! four times the one before; ours have exact ends, and so have these. Kinds of requests that never came are
//! there, too, at 0, so that their rate is defined.
//!
//! The allocator's counters are taken as they are: each field of its statistics is a metric of that name.

use crate::report::Report;
use hectare_fuse::Histogram;
use serde_json::Value;
use std::fmt::{Display, Write};

/// The type of the document.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Our buckets per bucket here.
const BUCKETS_JOINED: usize = 2;

/// The document under construction. Writing to a `String` does not fail.
struct Document(String);

impl Document {
    /// Begins a family: all its lines follow.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP hectare_{name} {help}.\n# TYPE hectare_{name} {kind}\n");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.0, "hectare_{name}");
        for (at, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"{}\"", if at == 0 { '{' } else { ',' }, escaped(text));
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.line(name, &[], value);
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "counter", help);
        self.line(name, &[], value);
    }

    /// A family of lines that differ in one label.
    fn by<'a, N: Display>(
        &mut self,
        (name, kind, help): (&str, &str, &str),
        label: &str,
        values: impl IntoIterator<Item = (&'a str, N)>,
    ) {
        self.family(name, kind, help);
        for (text, value) in values {
            self.line(name, &[(label, text)], value);
        }
    }

    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], times: &Histogram) {
        let bucket = format!("{name}_bucket");
        let mut sum = 0;
        for (at, count) in times.counts().iter().enumerate() {
            sum += count;
            let end = Histogram::end(at).filter(|_| at % BUCKETS_JOINED == 0);
            if let Some(end) = end {
                let end = end.as_secs_f64().to_string();
                self.line(&bucket, &[labels, &[("le", &end)]].concat(), sum);
            }
        }
        self.line(&bucket, &[labels, &[("le", "+Inf")]].concat(), sum);
        self.line(&format!("{name}_sum"), labels, times.total().as_secs_f64());
        self.line(&format!("{name}_count"), labels, sum);
    }
}

/// A label's text: characters that would end it are escaped.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The report as a document.
pub(crate) fn text(report: &Report) -> String {
    let mut out = Document(String::with_capacity(64 << 10));
    state(&mut out, report);
    operations(&mut out, report);
    device(&mut out, report);
    server(&mut out, report);
    space(&mut out, report);
    journal(&mut out, report);
    caches(&mut out, report);
    allocator(&mut out, report);
    out.0
}

fn state(out: &mut Document, report: &Report) {
    out.family("info", "gauge", "What is mounted, and where");
    let labels = [
        ("version", report.version.as_str()),
        ("image", &report.image),
        ("dir", &report.dir),
        ("label", &report.label),
        ("uuid", &report.uuid),
        ("policy", &report.policy),
    ];
    out.line("info", &labels, 1);
    out.gauge("uptime_seconds", "How long it is mounted", report.uptime_seconds);
    out.gauge("read_only", "Whether it is mounted for reading only", u8::from(report.read_only));
    let stopped = u8::from(report.stopped.is_some());
    out.gauge("stopped", "Whether something has failed, so that no change is taken any more", stopped);
    let help = "Places of the volume that were found to be broken";
    out.counter("broken_places_total", help, report.broken_places);
}

fn operations(out: &mut Document, report: &Report) {
    let counted = &report.operations;
    let name = "operation_duration_seconds";
    out.family(name, "histogram", "How long requests took, from being read to being answered");
    for kind in &counted.kinds {
        out.histogram(name, &[("operation", &kind.name)], &kind.times);
    }
    out.family("operation_errors_total", "counter", "Requests that were answered with an error");
    for kind in &counted.kinds {
        for (errno, count) in &kind.errors {
            out.line("operation_errors_total", &[("operation", &kind.name), ("errno", errno)], count);
        }
    }
    out.counter("read_bytes_total", "Bytes of files that were read", counted.bytes_read);
    out.counter("written_bytes_total", "Bytes of files that were written", counted.bytes_written);
}

fn device(out: &mut Document, report: &Report) {
    let kind = "counter";
    let of = |value: fn(&crate::report::Moved) -> u64| {
        report.device.iter().map(move |moved| (moved.name.as_str(), value(moved)))
    };
    let done = ("device_operations_total", kind, "Operations on the image that succeeded");
    out.by(done, "operation", of(|moved| moved.done));
    let bytes = ("device_bytes_total", kind, "Bytes of the image that they read, wrote, zeroed or gave up");
    out.by(bytes, "operation", of(|moved| moved.bytes));
    let failed = ("device_failures_total", kind, "Operations on the image that failed");
    out.by(failed, "operation", of(|moved| moved.failed));
}

/// Only for an image on a server, so that a file's has no such families.
fn server(out: &mut Document, report: &Report) {
    let Some(server) = &report.server else { return };
    let help = "Requests to the server that has the image, repeated ones included";
    out.counter("server_requests_total", help, server.requests);
    let help = "Lost connections to the server that has the image that were made again";
    out.counter("server_reconnects_total", help, server.reconnects);
}

fn space(out: &mut Document, report: &Report) {
    if let Some(space) = &report.space {
        out.gauge("size_bytes", "Bytes for files", space.size);
        out.gauge("free_bytes", "Bytes that are free", space.free);
        out.gauge("available_bytes", "Free bytes that everybody may use", space.available);
        out.gauge("inodes", "Inodes", space.inodes);
        out.gauge("free_inodes", "Free inodes", space.free_inodes);
    }
    let caches = &report.caches;
    out.gauge("pending_bytes", "Bytes that become free with the next commit", caches.pending_bytes);
    out.gauge("reserved_bytes", "Bytes kept for what is written next", caches.reserved_bytes);
    let help = "Bytes that were appended to files and have no place yet";
    out.gauge("delayed_bytes", help, caches.delayed_bytes);
    out.gauge("groups", "Block groups", report.groups);
}

#[allow(clippy::cast_precision_loss)] // a time needs no more than 52 bits of nanoseconds
fn journal(out: &mut Document, report: &Report) {
    let journal = &report.journal;
    out.counter("journal_commits_total", "Commits", journal.commits);
    out.counter("journal_handles_total", "Changes that were begun", journal.handles);
    let name = "journal_pause_seconds";
    out.family(name, "histogram", "How long each commit kept changes out");
    out.histogram(name, &[], &journal.pauses);
    let longest = journal.longest_pause_nanoseconds as f64 / 1e9;
    out.gauge("journal_longest_pause_seconds", "The longest of these pauses", longest);
    let help = "Blocks that the journal holds and that are not at their places yet";
    out.gauge("journal_blocks", help, report.caches.journal_blocks);
}

fn caches(out: &mut Document, report: &Report) {
    let caches = &report.caches;
    let entries =
        [("blocks", caches.blocks), ("inodes", caches.inodes), ("group_bitmaps", caches.loaded_groups)];
    out.by(("cache_entries", "gauge", "What is held in memory"), "cache", entries);
    let dirty = [("blocks", caches.dirty_blocks), ("inodes", caches.dirty_inodes)];
    out.by(("cache_dirty_entries", "gauge", "What of it the next commit writes"), "cache", dirty);
}

fn allocator(out: &mut Document, report: &Report) {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(&report.allocator) else { return };
    let passes = fields.remove("passes");
    for (name, value) in &fields {
        let help = format!("What the allocator counts as {name}, as the kernel's mb_stats does");
        // The only one that is not a count.
        match (name.strip_suffix("_time_used"), value.as_f64()) {
            (Some(what), Some(nanoseconds)) => {
                out.counter(&format!("allocator_{what}_seconds_total"), &help, nanoseconds / 1e9);
            }
            _ => out.counter(&format!("allocator_{name}_total"), &help, value),
        }
    }
    let Some(Value::Object(passes)) = passes else { return };
    for counter in ["hits", "groups_considered", "extents_scanned", "useless_loops"] {
        let name = format!("allocator_pass_{counter}_total");
        let help = format!("What each pass of the search counts as {counter}");
        let values = passes.iter().map(|(pass, counts)| (pass.as_str(), &counts[counter]));
        out.by((&name, "counter", &help), "pass", values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn labels_can_hold_anything() {
        let mut out = Document(String::new());
        out.line("info", &[("image", "a\"b\\c\nd"), ("x", "")], 1);
        assert_eq!(out.0, "hectare_info{image=\"a\\\"b\\\\c\\nd\",x=\"\"} 1\n");
    }

    #[test]
    fn a_histogram_adds_up_and_ends_with_all() {
        let mut times = Histogram::default();
        times.add(Duration::from_nanos(1024), 3, Duration::from_nanos(3072));
        times.add(Duration::from_nanos(1025), 2, Duration::from_nanos(2050));
        times.add(Duration::from_secs(100), 1, Duration::from_secs(100));
        let mut out = Document(String::new());
        out.histogram("t_seconds", &[("k", "v")], &times);
        let lines: Vec<&str> = out.0.lines().collect();
        assert_eq!(lines[0], "hectare_t_seconds_bucket{k=\"v\",le=\"0.000001024\"} 3");
        assert_eq!(lines[1], "hectare_t_seconds_bucket{k=\"v\",le=\"0.000004096\"} 5");
        assert_eq!(lines[12], "hectare_t_seconds_bucket{k=\"v\",le=\"17.179869184\"} 5");
        assert_eq!(lines[13], "hectare_t_seconds_bucket{k=\"v\",le=\"+Inf\"} 6");
        assert_eq!(lines[14], "hectare_t_seconds_sum{k=\"v\"} 100.000005122");
        assert_eq!(lines[15], "hectare_t_seconds_count{k=\"v\"} 6");
    }
}
