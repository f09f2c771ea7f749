//! Images on NBD servers: `hectare serve`, the addresses of exports, and volumes that are used over a
//! connection that breaks.

use crate::support::{hectare, hectare_within};
use hectare_oracle::tool::need;
use hectare_oracle::{Scale, Tree, assert_clean, assert_same, skip, source, walk};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// `hectare serve`, ended by its number.
pub(crate) struct Served {
    child: Child,
    /// What it says first.
    said: String,
}

impl Served {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hectare"));
        let mut child = command.arg("serve").args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        Self { child, said }
    }

    /// Asks it to end, and waits until it did.
    pub(crate) fn end(mut self) -> Option<i32> {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An image of that many MiB, and the path of a socket beside it.
pub(crate) fn image(folder: &Path, mib: u64) -> (String, PathBuf) {
    let path = folder.join("image");
    File::create(&path).unwrap().set_len(mib << 20).unwrap();
    (path.to_str().unwrap().to_owned(), folder.join("s"))
}

pub(crate) fn address(socket: &Path, export: &str) -> String {
    format!("nbd+unix:///{export}?socket={}", socket.display())
}

#[test]
fn every_kind_of_command_works_on_an_export() {
    let folder = tempfile::tempdir().unwrap();
    let (path, socket) = image(folder.path(), 64);
    let served = Served::start(&[&path, "--export", "vol", "--nbd", &format!("unix:{}", socket.display())]);
    let there = address(&socket, "vol");
    assert!(
        served.said.starts_with(&format!("serving {path} at nbd+unix:///vol?socket=")),
        "{}",
        served.said
    );
    assert!(hectare(&["ls", &path]).refused().contains("is using it"), "it is locked while it is served");

    let tree = match source(Tree::Links, &Scale::SMALL) {
        Ok(tree) => tree,
        Err(reason) => skip!("remote::every_kind_of_command_works_on_an_export", reason),
    };
    hectare(&["mkfs", "-q", &there]).ok();
    hectare(&["cp", "-a", tree.to_str().unwrap(), &format!("{there}:/tree")]).ok();
    hectare(&["check", &there]).ok();
    assert!(hectare(&["ls", &format!("{there}:")]).ok().text().contains("tree"));
    assert!(hectare(&["identify", &there]).ok().text().contains("ext4"));
    hectare(&["tune", "-L", "remote", &there]).ok();
    assert!(hectare(&["info", &there]).ok().text().contains("remote"));
    let back = folder.path().join("back");
    hectare(&["cp", "-a", &format!("{there}:/tree"), back.to_str().unwrap()]).ok();
    assert_same(&walk(&back), &walk(&tree), hectare_oracle::What::all());
    hectare(&["rm", "-r", &format!("{there}:/tree")]).ok();
    assert!(hectare(&["mkfs", "-q", &there]).refused().contains("--force"));
    hectare(&["build", "--force", "--from", tree.to_str().unwrap(), &there]).ok();
    hectare(&["check", &there]).ok();
    assert!(hectare(&["ls", &address(&socket, "other")]).refused().contains("no export of that name"));
    assert!(hectare(&["mount", &there, "/mnt"]).refused().contains("attach it as a block device"));
    let served_all = hectare(&["diff", &there, &there]);
    assert_eq!(served_all.code, Some(0), "{}", served_all.err);
    assert_eq!(served.end(), Some(0));
    assert!(!socket.exists());
    assert_clean(Path::new(&path)).unwrap();
    assert!(hectare(&["ls", &format!("{path}:")]).ok().text().lines().count() > 1);
}

#[test]
fn a_partition_is_served_alone_and_read_only_means_it() {
    let folder = tempfile::tempdir().unwrap();
    let (path, socket) = image(folder.path(), 32);
    hectare(&["mkfs", "-q", "--offset", "1M", &path, "16M"]).ok();
    let place = format!("unix:{}", socket.display());
    let served = Served::start(&[&path, "--offset", "1M", "--read-only", "--nbd", &place]);
    let there = address(&socket, "");
    hectare(&["check", &there]).ok();
    assert!(hectare(&["mkdir", &format!("{there}:/x")]).refused().contains("exports it for reading only"));
    let taken = hectare(&["serve", &path, "--read-only", "--nbd", &place]);
    assert!(taken.refused().contains("Address already in use"), "{}", taken.err);
    let everywhere = hectare(&["serve", &path, "--read-only", "--nbd", "0.0.0.0:0"]);
    assert!(everywhere.refused().contains("--public"));
    assert_eq!(served.end(), Some(0));
}

#[test]
fn addresses_that_are_wrong_are_refused_and_secrets_not_shown() {
    let secret = hectare(&["ls", "nbd://me:hunter2@host/x:"]);
    assert!(secret.refused().contains("names a user") && !secret.err.contains("hunter2"), "{}", secret.err);
    assert!(hectare(&["check", "nbds://host/x"]).refused().contains("TLS"));
    assert!(hectare(&["check", "nbd+unix:///x"]).refused().contains("socket=PATH"));
    let nobody = address(Path::new("/nonexistent/s"), "");
    assert!(hectare(&["check", &nobody]).refused().contains("cannot open: No such file or directory"));
}

#[test]
fn a_server_that_stays_away_ends_a_command_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let (path, socket) = image(folder.path(), 64);
    hectare(&["mkfs", "-q", "--force", &path]).ok();
    let mut command = match need("nbdkit") {
        Ok(command) => command,
        Err(reason) => skip!("remote::a_server_that_stays_away_ends_a_command_in_time", reason),
    };
    // It ends in the middle of what is written.
    command
        .args(["--foreground", "--filter=delay", "-U"])
        .arg(&socket)
        .arg("file")
        .arg(&path)
        .arg("wdelay=300ms");
    let mut server = command.spawn().unwrap();
    hectare_oracle::until(|| socket.exists());
    let there = address(&socket, "");
    let data = folder.path().join("data");
    fs::write(&data, vec![7; 20 << 20]).unwrap();
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(600));
        server.kill().unwrap();
        server.wait().unwrap();
    });
    let began = Instant::now();
    let place = format!("{there}:/data");
    let copied = hectare_within(
        &["cp", "--reconnect-timeout", "2", data.to_str().unwrap(), &place],
        Duration::from_secs(60),
    );
    killer.join().unwrap();
    assert!(copied.refused().contains("could not be made again within 2 s"), "{}", copied.err);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    // The journal brings it to a sound state.
    hectare(&["rm", "-f", &format!("{path}:/data")]).ok();
    assert_clean(Path::new(&path)).unwrap();
}
