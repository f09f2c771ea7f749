//! Operating a mount: metrics over HTTP and from the control socket, the live page in a browser, the log.

use crate::mount::{Bench, bench, durable, signal};
use crate::support::hectare;
use hectare_oracle::{Metrics, browser, debugfs_write, skip, until};
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

impl Bench {
    fn mount(&self, options: &[&str]) {
        hectare(&[&["mount"], options, &self.words(&[])].concat()).ok();
    }

    fn stats(&self) -> Value {
        hectare(&["stats", "--json", self.dir.to_str().unwrap()]).ok().json()
    }

    fn url(&self) -> String {
        self.stats()["metrics"].as_str().unwrap().to_owned()
    }

    fn scrape(&self) -> Metrics {
        let url = self.url();
        let address = url.trim_start_matches("http://").trim_end_matches('/');
        let mut client = TcpStream::connect(address).unwrap();
        write!(client, "GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        Metrics::parse(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }
}

/// Reads past the kernel's cache.
fn read_direct(path: &Path, len: usize) -> usize {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECT, Mode::empty()).unwrap();
    rustix::io::read(file, &mut vec![0; len][..]).unwrap()
}

#[test]
fn figures_count_what_was_done() {
    let bench = bench!("monitor::figures_count_what_was_done");
    bench.mount(&["--metrics", "0"]);
    let before = bench.scrape();
    for nr in 0..7 {
        fs::create_dir(bench.dir.join(format!("d{nr}"))).unwrap();
    }
    for nr in 0..5 {
        durable(&bench.dir.join(format!("d0/f{nr}")), &"x".repeat(100_000));
    }
    assert_eq!(read_direct(&bench.dir.join("d0/f1"), 65_536), 65_536);
    assert!(fs::remove_dir(bench.dir.join("d0")).is_err());
    let after = bench.scrape();
    after.not_below(&before).unwrap();
    let grown = |name: &str, labels: &[(&str, &str)]| {
        let was = before.of(name).iter().find(|(found, _)| {
            labels.iter().all(|(label, text)| found.get(*label).is_some_and(|found| found == text))
        });
        after.get(name, labels) - was.map_or(0.0, |(_, value)| *value)
    };
    let done = |kind| grown("hectare_operation_duration_seconds_count", &[("operation", kind)]);
    for (kind, times) in [("mkdir", 7.0), ("create", 5.0), ("fsync", 5.0), ("rmdir", 1.0), ("read", 1.0)] {
        assert!((done(kind) - times).abs() < 1e-9, "{kind}: {} and not {times}", done(kind));
    }
    for (name, labels, value) in [
        ("hectare_written_bytes_total", &[][..], 500_000.0),
        ("hectare_read_bytes_total", &[], 65_536.0),
        ("hectare_operation_errors_total", &[("operation", "rmdir"), ("errno", "ENOTEMPTY")], 1.0),
    ] {
        assert!((grown(name, labels) - value).abs() < 1e-9, "{name}: {}", grown(name, labels));
    }
    assert!(grown("hectare_journal_commits_total", &[]) >= 1.0);
    assert!(grown("hectare_device_bytes_total", &[("operation", "write")]) >= 500_000.0);
    let told = bench.stats();
    assert_eq!(told["operations"]["bytes_written"], 500_000);
    let kinds = told["operations"]["kinds"].as_array().unwrap();
    let rmdir = kinds.iter().find(|kind| kind["name"] == "rmdir").unwrap();
    assert_eq!(rmdir["errors"]["ENOTEMPTY"], 1);
    bench.unmount();
}

#[test]
fn stats_says_what_a_mount_does_and_when_there_is_none() {
    let bench = bench!("monitor::stats_says_what_a_mount_does_and_when_there_is_none");
    let dir = bench.dir.to_str().unwrap();
    let none = hectare(&["stats", dir]);
    assert!(none.refused().ends_with("no image is mounted there by hectare"), "{}", none.err);
    bench.mount(&["-o", "ro,policy=best-fit"]);
    let said = hectare(&["stats", dir]).ok();
    let image = bench.image.canonicalize().unwrap();
    for text in [&format!("{} on {dir}", image.display()), "read-only", "best-fit", "not served", "mballoc:"]
    {
        assert!(said.text().contains(text), "{text}\n{}", said.text());
    }
    bench.unmount();
    bench.mount(&[]);
    fs::create_dir(bench.dir.join("below")).unwrap();
    hectare(&["stats", bench.dir.join("below").to_str().unwrap()]).ok();
    bench.unmount();
    // A killed server leaves a socket at which nothing answers.
    let mut server = bench.in_foreground();
    signal(&server, Signal::KILL);
    server.wait().unwrap();
    let gone = hectare(&["stats", dir]);
    assert!(gone.refused().contains("its server"), "{}", gone.err);
    bench.unmount();
}

#[test]
fn tunables_are_set_while_mounted() {
    let bench = bench!("monitor::tunables_are_set_while_mounted");
    let dir = bench.dir.to_str().unwrap();
    bench.mount(&["-o", "policy=mballoc,tunable=mb_max_to_scan=50"]);
    assert_eq!(bench.stats()["search"]["tunables"]["mb_max_to_scan"], 50);
    assert_eq!(bench.stats()["search"]["tunables"]["mb_group_prealloc"], 512);
    let set_aside = |name: &str| {
        let count = || bench.stats()["allocator"]["preallocated"].as_u64().unwrap();
        let before = count();
        durable(&bench.dir.join(name), "a small file");
        count() - before
    };
    // Each thread of the server has shared space; it is made for its first file and serves the later ones.
    assert!(set_aside("first") > 400);
    let later: Vec<_> = (0..64).map(|number| set_aside(&format!("later-{number}"))).collect();
    assert!(later.iter().all(|&blocks| blocks == 0 || blocks > 400), "{later:?}");
    assert!(later.contains(&0), "{later:?}");
    let set = ["stats", dir, "--set", "mb_group_prealloc=0", "--set", "mb_min_to_scan=7"];
    let said = hectare(&set).ok();
    assert!(said.text().contains("\tmb_group_prealloc=0\n\t"), "{}", said.text());
    assert!(said.text().contains("\tmb_min_to_scan=7\n"), "{}", said.text());
    let own = set_aside("third");
    assert!((1..16).contains(&own), "a window of its own: {own}");
    for (given, part) in [
        ("mb_grp_prealloc=1", "there is no tunable 'mb_grp_prealloc' ('mb_group_prealloc' is the nearest)"),
        ("mb_order2_req=65", "mb_order2_req=65: a number from 0 to 64 is meant"),
        ("mb_min_to_scan", "'mb_min_to_scan': a tunable is given as NAME=VALUE"),
    ] {
        // All or none.
        let refused = hectare(&["stats", dir, "--set", "mb_max_to_scan=9", "--set", given]);
        assert!(refused.refused().ends_with(part), "{}", refused.err);
    }
    assert_eq!(bench.stats()["search"]["tunables"]["mb_max_to_scan"], 50);
    bench.unmount();
}

#[test]
fn stats_shows_the_units_of_each_size_class() {
    let bench = bench!("monitor::stats_shows_the_units_of_each_size_class");
    bench.mount(&["-o", "classes=4K:64K:1M"]);
    durable(&bench.dir.join("small"), "a small file");
    let stats = bench.stats();
    let classes = stats["search"]["classes"].as_array().unwrap();
    let names: Vec<_> = classes.iter().map(|class| class["class"].as_str().unwrap()).collect();
    assert_eq!(names, ["unset", "up to 4K", "up to 64K", "up to 1M", "more"]);
    assert!(classes[1]["units"].as_u64().unwrap() >= 1, "{stats}");
    let said = hectare(&["stats", bench.dir.to_str().unwrap()]).ok();
    assert!(said.text().contains("class_units:\n\tunset: "), "{}", said.text());
    bench.unmount();
    bench.mount(&["-o", "policy=mballoc"]);
    assert_eq!(bench.stats()["search"]["classes"], Value::Array(Vec::new()));
    bench.unmount();
    for (list, part) in [
        ("classes=1M:4K", "the bounds of size classes 1M and 4K do not rise"),
        ("classes=5000", "5000 is not a multiple of the volume's clusters of 1K"),
    ] {
        let refused = hectare(&[&["mount", "-o", list], &bench.words(&[])[..]].concat());
        assert!(refused.err.contains(part), "{}", refused.err);
        assert!(!bench.is_mounted());
    }
}

/// A report in which every text is hostile and every number as large as it may be.
fn hostile(report: &mut Value) {
    const NARROW: [&str; 3] = ["pid", "broken_places", "groups"];
    match report {
        Value::String(text) => text.push_str(HOSTILE),
        Value::Number(number) => *number = if number.is_u64() { u64::MAX.into() } else { number.clone() },
        Value::Array(items) => items.iter_mut().for_each(hostile),
        Value::Object(fields) => {
            fields.iter_mut().for_each(|(_, value)| hostile(value));
            let narrow = fields.iter_mut().filter(|(name, _)| NARROW.contains(&name.as_str()));
            narrow.for_each(|(_, value)| *value = u32::MAX.into());
            if let Some(Value::Object(errors)) = fields.get_mut("errors") {
                errors.insert(format!("E{HOSTILE}"), 1.into());
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

const HOSTILE: &str = "\u{1b}]0;x\u{7}\u{9b}2J\u{202e}\u{61c}\u{200b}\r\n";

#[test]
fn regression_the_answer_of_a_foreign_server_is_shown_and_not_obeyed() {
    let bench = bench!("monitor::regression_the_answer_of_a_foreign_server_is_shown_and_not_obeyed");
    bench.mount(&["--metrics", "0"]);
    let mut report = bench.stats();
    hostile(&mut report);
    let device = fs::metadata(&bench.dir).unwrap().dev();
    let name = format!("{}-{}.sock", rustix::fs::major(device), rustix::fs::minor(device));
    let socket = hectare_monitor::own_folder().unwrap().join(name);
    fs::remove_file(&socket).unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    let answers = [report.to_string(), report.to_string(), HOSTILE.to_owned(), format!("\"{HOSTILE}\"")];
    let server = std::thread::spawn(move || {
        for answer in answers {
            let (mut client, _) = listener.accept().unwrap();
            client.read_to_end(&mut Vec::new()).unwrap();
            client.write_all(answer.as_bytes()).unwrap();
        }
    });
    let dir = bench.dir.to_str().unwrap();
    let is_hidden = |c: char| HOSTILE.contains(c) && !c.is_ascii_graphic() && c != '\n';
    let is_harmless = |text: &str| !text.contains(is_hidden);
    let said = hectare(&["stats", dir]).ok();
    assert!(is_harmless(said.text()) && said.text().contains("mballoc:"), "{:?}", said.text());
    let json = hectare(&["stats", "--json", dir]).ok();
    assert!(is_harmless(json.text()), "{:?}", json.text());
    assert_eq!(json.json()["image"], report["image"]);
    let refusal = hectare(&["sync", dir]);
    assert!(is_harmless(refusal.refused()), "{:?}", refusal.err);
    let odd = hectare(&["stats", dir]);
    assert!(odd.refused().contains("another version") && is_harmless(&odd.err), "{:?}", odd.err);
    server.join().unwrap();
    fs::remove_file(&socket).unwrap();
    bench.unmount();
}

#[test]
fn others_can_not_reach_the_figures_unless_that_is_said() {
    let bench = bench!("monitor::others_can_not_reach_the_figures_unless_that_is_said");
    let public = ["mount", "--metrics", "0.0.0.0:0"];
    let refused = hectare(&[&public[..], &bench.words(&[])].concat());
    assert!(refused.refused().contains("-o metrics_public"), "{}", refused.err);
    assert!(!bench.is_mounted());
    bench.mount(&["-o", "metrics=0.0.0.0:0,metrics_public"]);
    assert!(bench.url().starts_with("http://0.0.0.0:"));
    bench.unmount();
}

/// The text of the element with an id.
fn text_of<'a>(document: &'a str, id: &str) -> &'a str {
    let at = document.find(&format!("id=\"{id}\"")).unwrap_or_else(|| panic!("no {id}"));
    let rest = &document[at..];
    let rest = &rest[rest.find('>').unwrap() + 1..];
    &rest[..rest.find('<').unwrap()]
}

/// The number that is the text of an element.
fn number_of(document: &str, id: &str) -> u64 {
    let digits: String = text_of(document, id).chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

#[test]
fn the_live_page_shows_figures_that_move() {
    const NAME: &str = "monitor::the_live_page_shows_figures_that_move";
    let bench = bench!("monitor::the_live_page_shows_figures_that_move");
    hectare(&["mkfs", "--force", "-L", "<i>name</i>", bench.image.to_str().unwrap(), "32M"]).ok();
    bench.mount(&["--metrics", "0"]);
    let url = bench.url();
    let first = match browser::document(&url) {
        Ok(document) => document,
        Err(reason) => {
            bench.unmount();
            skip!(NAME, reason)
        }
    };
    for nr in 0..20 {
        durable(&bench.dir.join(format!("f{nr}")), &"x".repeat(100_000));
    }
    let second = browser::document(&url).expect("it was there a moment ago");
    assert_eq!(text_of(&second, "state"), "working");
    assert_eq!(text_of(&second, "dir"), bench.dir.to_str().unwrap());
    assert!(text_of(&second, "label").contains("&lt;i&gt;name"), "a label is text");
    assert_eq!((text_of(&first, "write-total"), text_of(&second, "write-total")), ("0 B", "2 MB"));
    let (before, after) = (number_of(&first, "operations-total"), number_of(&second, "operations-total"));
    assert!(after >= before + 60, "create, write and fsync of 20 files: {before}, {after}");
    assert!(number_of(&second, "commits") > number_of(&first, "commits"));
    let polls = second.split("data-polls=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    assert!(polls.parse::<u32>().unwrap() >= 3, "it asks again and again");
    assert!(second.matches("<rect class=\"f").count() >= 1000, "the map is drawn");
    assert!(second.contains("class=\"column\"") && second.contains("<td>create</td>"));
    bench.unmount();
}

fn lines(log: &Path) -> String {
    fs::read_to_string(log).unwrap_or_default()
}

#[test]
fn what_happens_is_logged() {
    const CLOSED: &str = "msg=\"the volume is closed\"";
    let bench = bench!("monitor::what_happens_is_logged");
    let log = bench.image.with_extension("log");
    let to_log = ["--log", log.to_str().unwrap()];
    bench.mount(&to_log);
    bench.unmount();
    until(|| lines(&log).contains(CLOSED));
    let quiet = lines(&log);
    for text in ["msg=\"the volume is open\"", "msg=mounted", "level=info", CLOSED] {
        assert!(quiet.contains(text), "{text}\n{quiet}");
    }
    assert!(!quiet.contains("level=error") && quiet.lines().all(|line| line.starts_with("time=2")));
    // A crash, and its consequences.
    let mut server = bench.in_foreground();
    durable(&bench.dir.join("kept"), "kept");
    signal(&server, Signal::KILL);
    server.wait().unwrap();
    assert!(Command::new("umount").arg("-l").arg(&bench.dir).status().unwrap().success());
    bench.mount(&[&to_log[..], &["-o", "log=info"]].concat());
    until(|| lines(&log).contains("msg=\"what the journal holds is replayed\""));
    bench.unmount();
    until(|| lines(&log).matches(CLOSED).count() == 2);
    let before = lines(&log).len();
    bench.mount(&[&to_log[..], &["--log-level", "error"]].concat());
    bench.unmount();
    assert_eq!(lines(&log).len(), before, "nothing was wrong");
    let odd = hectare(&[&["mount", "--log-level", "loud"][..], &bench.words(&[])].concat());
    assert_eq!(odd.code, Some(2));
}

#[test]
fn broken_metadata_is_logged_and_shown() {
    const NAME: &str = "monitor::broken_metadata_is_logged_and_shown";
    let bench = bench!("monitor::broken_metadata_is_logged_and_shown");
    bench.mount(&[]);
    fs::create_dir(bench.dir.join("d")).unwrap();
    bench.unmount();
    // The block of the directory becomes one of zeros.
    if let Err(reason) = debugfs_write(&bench.image, &["zap_block -f /d 0"]) {
        skip!(NAME, reason);
    }
    let log = bench.image.with_extension("log");
    bench.mount(&["--log", log.to_str().unwrap(), "--metrics", "0", "-o", "errors=remount-ro"]);
    assert!(fs::read_dir(bench.dir.join("d")).is_ok_and(|mut names| names.any(|name| name.is_err())));
    assert!(fs::write(bench.dir.join("new"), "x").is_err(), "no change is taken");
    until(|| lines(&log).contains("msg=\"the volume takes no change any more\""));
    assert!(lines(&log).contains("level=error from=hectare_engine msg=\"something is broken\""));
    let metrics = bench.scrape();
    for name in ["hectare_stopped", "hectare_broken_places_total"] {
        assert!((metrics.get(name, &[]) - 1.0).abs() < 1e-9, "{name}");
    }
    let said = hectare(&["stats", bench.dir.to_str().unwrap()]).ok();
    assert!(said.text().contains("state:    stopped") && said.text().contains("e2fsck -fy"));
    bench.detach();
    // The image is marked as having errors, which is as it should be.
    until(|| hectare(&["ls", &format!("{}:/", bench.image.display())]).code == Some(0));
}
