//! Images on NBD servers: `hectare serve`, the addresses of exports, and volumes that are used over a
//! connection that breaks.

use crate::mount::bench;
use crate::support::{hectare, hectare_within};
use hectare_oracle::tool::need;
use hectare_oracle::{Scale, Tree, assert_clean, assert_same, skip, source, walk};
use hectare_units::random::SplitMix64;
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
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
    for address in
        ["nbds://me:hunter2@host/x", "nbd+unix://me:hunter2@/x?socket=/s", "nbd://me:hunter2@host/x.qcow2"]
    {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().to_str().unwrap();
        for words in [
            &["check", address][..],
            &["check", "--json", address],
            &["mkfs", address],
            &["mkfs", address, "16M"],
            &["mke2fs", address],
            &["build", "--from", dir, address],
            &["convert", address, "/nonexistent/out"],
            &["serve", address],
            &["mount", address, dir],
            &["mount", "--foreground", address, dir],
            &["identify", address],
            &["cp", dir, &format!("{address}:/x")],
            &["ls", "--pv", address, "--lv", "a/b", "/dev/null"],
            &["resize", address, "1G"],
            &["diff", address, address],
        ] {
            let ran = hectare(words);
            let said = ran.err.clone() + &String::from_utf8_lossy(&ran.out);
            assert_ne!(ran.code, Some(0), "{words:?}");
            assert!(!said.contains("hunter2"), "{words:?}: {said}");
        }
    }
    assert!(hectare(&["check", "nbds://host/x?tls-type=psk"]).refused().contains("PSK"));
    let mixed = hectare(&["check", "--tls-ca", "/none", "nbd://host/x"]);
    assert!(mixed.refused().contains("write nbds://"), "{}", mixed.err);
    assert!(
        hectare(&["check", "--tls-cert", "/none", "nbds://host/x"]).misused().contains("belong together")
    );
    assert!(
        hectare(&["check", "--tls-ca", "/none", "nbds://host/x"]).refused().contains("/none: No such file")
    );
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

/// Random changes of a file beside a model.
fn works(file: &Path, seed: u64, steps: u32) {
    let mut random = SplitMix64::new(seed);
    let mut model: Vec<u8> = Vec::new();
    let mut open = File::options().read(true).write(true).create(true).truncate(true).open(file).unwrap();
    for step in 0..steps {
        let at = random.below(3 << 20);
        let len = 1 + random.below(100_000);
        let (from, to) = (usize::try_from(at).unwrap(), usize::try_from(at + len).unwrap());
        match random.below(8) {
            0..=3 => {
                let data = vec![u8::try_from(1 + step % 250).unwrap(); to - from];
                open.write_all_at(&data, at).unwrap();
                model.resize(model.len().max(to), 0);
                model[from..to].copy_from_slice(&data);
            }
            4 => {
                open.set_len(at).unwrap();
                model.resize(from, 0);
            }
            5 => open.sync_all().unwrap(),
            6 => {
                drop(open);
                open = File::options().read(true).write(true).open(file).unwrap();
            }
            _ => {
                let mut found = vec![0; model.len()];
                open.read_exact_at(&mut found, 0).unwrap();
                assert!(found == model, "{}: seed {seed}, step {step}", file.display());
            }
        }
    }
    open.sync_all().unwrap();
    assert!(fs::read(file).unwrap() == model, "{}: seed {seed}", file.display());
}

/// A port that is free now.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn an_export_is_mounted_and_outlives_its_server() {
    const NAME: &str = "remote::an_export_is_mounted_and_outlives_its_server";
    let bench = bench!(NAME);
    let folder = tempfile::tempdir().unwrap();
    let image = bench.image.to_str().unwrap();
    let dir = bench.dir.to_str().unwrap();
    let (unix, port) = (format!("unix:{}", folder.path().join("s").display()), free_port());
    let tcp = format!("127.0.0.1:{port}");
    let places =
        [(unix.as_str(), address(&folder.path().join("s"), "")), (&tcp, format!("nbd://localhost:{port}/"))];
    for (number, (place, there)) in (1..).zip(places) {
        let start = || Served::start(&[image, "--nbd", place]);
        let mut served = start();
        hectare(&["mount", &there, dir]).ok();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(mounts.lines().any(|line| line.contains(dir) && line.contains(&there)), "{mounts}");
        let file = bench.dir.join("f");
        let working = std::thread::spawn(move || works(&file, number, 400));
        let mut killed = 0;
        while !working.is_finished() {
            std::thread::sleep(Duration::from_millis(300));
            // As if the machine were switched off, but for what it has in its cache.
            drop(served);
            served = start();
            killed += 1;
        }
        working.join().unwrap();
        assert!(killed > 0);
        let stats = hectare(&["stats", dir]).ok();
        let server = stats.text().lines().find(|line| line.starts_with("server:")).unwrap_or_default();
        assert!(server.ends_with("connections made again"), "{}", stats.text());
        let report = hectare(&["stats", "--json", dir]).ok().json();
        let counted = |name: &str| report["server"][name].as_u64().unwrap();
        assert!(counted("requests") > 10 && counted("reconnects") < 1000, "{}", report["server"]);
        hectare(&["umount", dir]).ok();
        // The mount's server closes the volume a moment after that.
        hectare_oracle::until(|| hectare(&["check", &there]).code == Some(0));
        assert_eq!(served.end(), Some(0));
        assert_clean(&bench.image).unwrap();
    }
    let gone = hectare(&["mount", "--reconnect-timeout", "1", &format!("nbd://127.0.0.1:{port}/"), dir]);
    assert!(gone.err.contains("Connection refused"), "{}", gone.err);
}

#[test]
fn exports_with_tls_are_served_used_and_mounted() {
    const NAME: &str = "remote::exports_with_tls_are_served_used_and_mounted";
    let bench = bench!(NAME);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (key, certificate) = (path("key.pem"), path("cert.pem"));
    let words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-batch"];
    let more = ["-days", "2", "-subj", "/CN=a test of hectare", "-addext", "subjectAltName=DNS:localhost"];
    let leaf = ["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", &key, "-out", &certificate];
    match need("openssl") {
        Ok(mut openssl) => {
            let made = openssl.args(words).args(more).args(leaf).output().unwrap();
            assert!(made.status.success(), "{made:?}");
        }
        Err(reason) => skip!(NAME, reason),
    }
    let port = free_port();
    let (image, dir, place) =
        (bench.image.to_str().unwrap(), bench.dir.to_str().unwrap(), format!("127.0.0.1:{port}"));
    let identity = ["--tls-cert", certificate.as_str(), "--tls-key", &key];
    let trusted = ["--tls-ca", certificate.as_str()];
    let start = || Served::start(&[&[image, "--nbd", &place][..], &identity, &trusted].concat());
    let served = start();
    assert!(served.said.contains(&format!("nbds://{place}/")), "{}", served.said);
    let there = format!("nbds://localhost:{port}/");
    let with = |words: &[&str]| hectare(&[words, &trusted, &identity].concat());
    with(&["check", &there]).ok();
    assert!(hectare(&["check", &there]).refused().contains("--tls-ca names who is trusted"));
    assert!(hectare(&["check", &format!("nbd://localhost:{port}/")]).refused().contains("write nbds://"));
    let by_number = with(&["check", &format!("nbds://127.0.0.1:{port}/")]);
    assert!(by_number.refused().contains("tls-hostname="), "{}", by_number.err);
    with(&["check", &format!("nbds://127.0.0.1:{port}/?tls-hostname=localhost")]).ok();
    with(&["mount", &there, dir]).ok();
    works(&bench.dir.join("f"), 7, 100);
    // The files with certificates are not needed any more.
    fs::rename(&certificate, path("elsewhere")).unwrap();
    drop(served);
    fs::rename(path("elsewhere"), &certificate).unwrap();
    let served = start();
    fs::rename(&certificate, path("elsewhere")).unwrap();
    works(&bench.dir.join("g"), 8, 100);
    hectare(&["umount", dir]).ok();
    fs::rename(path("elsewhere"), &certificate).unwrap();
    hectare_oracle::until(|| with(&["check", &there]).code == Some(0));
    assert_eq!(served.end(), Some(0));
    assert_clean(&bench.image).unwrap();
}

/// nohup(1) ignores the signal, which a server caught again.
#[test]
fn regression_a_server_ended_by_a_signal_that_was_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let (path, socket) = image(folder.path(), 8);
    let place = format!("unix:{}", socket.display());
    hectare(&["mkfs", "-q", &path]).ok();
    for (trap, ends) in [("trap '' HUP", false), (":", true)] {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{trap}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_hectare")]);
        command.args(["serve", "-r", &path, "--nbd", &place]).stdout(Stdio::piped());
        let mut served = Served { child: command.spawn().unwrap(), said: String::new() };
        BufReader::new(served.child.stdout.take().unwrap()).read_line(&mut served.said).unwrap();
        let pid = rustix::process::Pid::from_child(&served.child);
        rustix::process::kill_process(pid, Signal::HUP).unwrap();
        if ends {
            assert_eq!(served.child.wait().unwrap().code(), Some(0));
        } else {
            std::thread::sleep(Duration::from_millis(200));
            hectare(&["info", &address(&socket, "")]).ok();
            assert_eq!(served.child.try_wait().unwrap(), None);
            assert_eq!(served.end(), Some(0));
        }
    }
}
