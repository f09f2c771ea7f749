//! Volumes on servers that two openers want: one is refused, and one that was stopped writes nothing after the
//! other has taken the volume.

use crate::remote::{Served, address, image};
use crate::support::{FAST, hectare_fast as hectare};
use hectare_oracle::assert_clean;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A batch that has a volume open: it waits for its output to be read in the middle of a file.
struct Waiting {
    child: Child,
}

impl Waiting {
    /// Starts it, and returns when the volume is open.
    fn start(image: &str, script: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_hectare"))
            .args(["sh", image])
            .envs([FAST])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Self { child }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Reads what is left, and returns the exit code and standard error.
    fn end(mut self) -> (Option<i32>, String) {
        let mut left = Vec::new();
        self.child.stdout.take().unwrap().read_to_end(&mut left).unwrap();
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A volume on a server, with a file too large for a pipe.
fn volume(folder: &Path) -> (String, Served, String) {
    let (path, socket) = image(folder, 64);
    let served = Served::start(&[&path, "--export", "vol", "--nbd", &format!("unix:{}", socket.display())]);
    let there = address(&socket, "vol");
    hectare(&["mkfs", "-q", "-E", "mmp_update_interval=1", &there]).ok();
    let data = folder.join("data");
    fs::write(&data, vec![7; 1 << 20]).unwrap();
    hectare(&["cp", data.to_str().unwrap(), &format!("{there}:/big")]).ok();
    (path, served, there)
}

const SCRIPT: &str = "mkdir /before\ncat /big\nmkdir /after\n";

#[test]
fn a_second_opener_is_refused_and_the_first_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (path, served, there) = volume(folder.path());
    let first = Waiting::start(&there, SCRIPT);
    let new = format!("{there}:/second");
    let refused = hectare(&["mkdir", &new]);
    let words = ["in use by host ", "program hectare (process ", "last seen 20", "--takeover"];
    assert!(words.iter().all(|word| refused.refused().contains(word)), "{}", refused.err);
    for change in [&["tune", "-L", "x", &there][..], &["resize", &there, "32M"]] {
        let ran = hectare(change);
        assert!(ran.refused().contains("in use by host"), "{change:?}: {}", ran.err);
    }
    let ran = hectare(&["repair", "-y", &there]);
    assert!(ran.code == Some(8) && ran.err.contains("in use by host"), "{}", ran.err);
    for change in [&["undo", &there, &path][..], &["mkfs", "-q", "--force", &there]] {
        assert!(hectare(change).refused().contains("in use by host"), "{change:?}");
    }
    assert!(hectare(&["ls", &format!("{there}:")]).ok().text().contains("big"), "reading takes no part");
    // It lives, so it keeps the volume.
    let took = hectare(&["mkdir", "--takeover", &new]);
    let said = took.err.lines().last().unwrap_or_default();
    assert!(took.code == Some(1) && said.contains("in use by host"), "{}", took.err);
    let (code, said) = first.end();
    assert_eq!(code, Some(0), "{said}");
    hectare(&["mkdir", &new]).ok();
    assert_eq!(served.end(), Some(0));
    assert_clean(Path::new(&path)).unwrap();
    let names = hectare(&["ls", &format!("{path}:")]).ok();
    assert!(["before", "after", "second"].iter().all(|name| names.text().contains(name)), "{}", names.text());
}

#[test]
fn an_opener_that_was_stopped_writes_nothing_after_another_took_the_volume() {
    let folder = tempfile::tempdir().unwrap();
    let (path, served, there) = volume(folder.path());
    let first = Waiting::start(&there, SCRIPT);
    first.signal(Signal::STOP);
    // Programs that change a volume as a whole don't take it either, unless that is asked for.
    for change in [&["tune", "-L", "x", &there][..], &["resize", &there, "32M"]] {
        let ran = hectare(change);
        assert!(ran.refused().contains("--takeover"), "{change:?}: {}", ran.err);
    }
    let ran = hectare(&["repair", "-y", &there]);
    assert!(ran.code == Some(8) && ran.err.contains("--takeover"), "{}", ran.err);
    let take = |name: &str| {
        let new = format!("{there}:/{name}");
        hectare(&["mkdir", "--takeover", &new]).ok()
    };
    take("second");
    let before = fs::read(&path).unwrap();
    first.signal(Signal::CONT);
    let (code, said) = first.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("MMP"), "{said}");
    assert!(fs::read(&path).unwrap() == before, "the first changed the volume: {said}");
    assert_eq!(served.end(), Some(0));
    assert_clean(Path::new(&path)).unwrap();
    let names = hectare(&["ls", &format!("{path}:")]).ok();
    assert!(names.text().contains("second") && !names.text().contains("after"), "{}", names.text());
}

#[test]
fn volumes_on_servers_are_protected_unless_that_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let (path, socket) = image(folder.path(), 64);
    let served = Served::start(&[&path, "--nbd", &format!("unix:{}", socket.display())]);
    let there = address(&socket, "");
    let has_mmp = || hectare(&["info", &there]).ok().text().contains("mmp");
    hectare(&["mkfs", "-q", &there]).ok();
    assert!(has_mmp());
    assert_eq!(hectare(&["mkdir", &format!("{there}:/a")]).ok().err, "");
    for options in [&["-O", "^mmp"][..], &["-O", "none"], &["-t", "ext2"]] {
        hectare(&[&["mkfs", "-q", "--force"], options, &[&*there]].concat()).ok();
        assert!(!has_mmp(), "{options:?}");
    }
    let warned = hectare(&["mkdir", &format!("{there}:/a")]).ok();
    assert!(warned.err.contains(&*there) && warned.err.contains("lacks the feature mmp"), "{}", warned.err);
    hectare(&["tune", "-O", "mmp", &there]).ok();
    assert_eq!(hectare(&["mkdir", &format!("{there}:/b")]).ok().err, "");
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    hectare(&["build", "--force", "--from", tree.to_str().unwrap(), &there]).ok();
    assert!(has_mmp());
    hectare(&["build", "--force", "-O", "^mmp", "--from", tree.to_str().unwrap(), &there]).ok();
    assert!(!has_mmp());
    assert_eq!(served.end(), Some(0));
    // Files have locks.
    hectare(&["mkfs", "-q", "--force", &path]).ok();
    assert!(!hectare(&["info", &path]).ok().text().contains("mmp"));
    assert_eq!(hectare(&["mkdir", &format!("{path}:/a")]).ok().err, "");
}
