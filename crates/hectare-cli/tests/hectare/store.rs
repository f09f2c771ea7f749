//! Volumes and images in object stores: a directory as a store, and a web server of the test's own.

#[allow(dead_code)] // what the tests of the crate need besides
#[path = "../../../remote/store/tests/store/web.rs"]
mod web;

use crate::support::{hectare, hectare_in};
use hectare_oracle::{Scale, Tree, assert_clean, assert_same, skip, source, walk};
use std::fs;
use std::path::Path;
use web::{Manners, Web};

/// A store in a directory, and where logs go; each command names both.
struct Store {
    folder: tempfile::TempDir,
}

impl Store {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn volume(&self) -> String {
        format!("file+store://{}/vol", self.folder.path().display())
    }

    fn at(&self, path: &str) -> String {
        format!("{}:{path}", self.volume())
    }

    /// Runs a command whose local log lies beside the store.
    #[track_caller]
    fn run(&self, arguments: &[&str]) -> String {
        let cache = self.folder.path().join("cache");
        let ran = hectare_in(arguments, &[("XDG_CACHE_HOME", cache.to_str().unwrap())]);
        ran.ok().text().to_owned()
    }

    fn local(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }
}

#[test]
fn every_kind_of_command_works_on_a_volume_in_a_store() {
    let tree = match source(Tree::Links, &Scale::SMALL) {
        Ok(tree) => tree,
        Err(reason) => skip!("store::every_kind_of_command_works_on_a_volume_in_a_store", reason),
    };
    let store = Store::new();
    let volume = store.volume();
    let refused = hectare(&["mkfs", &volume]);
    assert!(refused.refused().contains("give a SIZE"), "{}", refused.refused());
    store.run(&["--chunk-size", "64K", "mkfs", &volume, "64M"]);
    let refused = hectare(&["--store-log", &store.local("l"), "mkfs", &volume, "64M"]);
    assert!(refused.refused().contains("--force"), "{}", refused.refused());
    store.run(&["cp", "-a", &format!("{}/.", tree.display()), &store.at("/")]);
    assert!(store.run(&["ls", &store.at("/")]).lines().count() > 1);
    store.run(&["mkdir", &store.at("/new")]);
    store.run(&["tune", "-L", "remote", &volume]);
    store.run(&["resize", &volume, "48M"]);
    store.run(&["check", &volume]);
    let info = store.run(&["store", "info", &volume]);
    assert!(info.contains("67108864 bytes") && info.contains("64.00 KiB"), "{info}");
    let gc = store.run(&["store", "gc", &volume]);
    assert!(gc.contains(" 0 not in use"), "{gc}");
    let out = store.local("downloaded.img");
    store.run(&["convert", &volume, &out]);
    store.run(&["rm", "-r", &store.at("/new")]);
    if let Err(reason) = assert_clean(Path::new(&out)) {
        skip!("store::every_kind_of_command_works_on_a_volume_in_a_store", reason);
    }
    let copy = store.local("copy");
    store.run(&["cp", "-a", &store.at("/"), &copy]);
    // The root has other times once it is gone.
    let _ = fs::remove_dir(Path::new(&copy).join("lost+found"));
    let below = |folder: &Path| {
        let mut entries = walk(folder);
        entries.retain(|entry| !entry.path.is_empty());
        entries
    };
    let same = hectare_oracle::What { holes: None, ..hectare_oracle::What::all() };
    assert_same(&below(Path::new(&copy)), &below(&tree), same);
    assert!(!Path::new(&store.local("cache/hectare/store")).read_dir().unwrap().any(|entry| {
        entry
            .unwrap()
            .path()
            .read_dir()
            .unwrap()
            .any(|entry| entry.unwrap().path().extension().is_some_and(|name| name == "log"))
    }));
}

#[test]
fn an_image_on_a_web_server_is_read_by_every_command() {
    let store = Store::new();
    let image = store.local("disk.img");
    store.run(&["mkfs", "-q", &image, "16M"]);
    fs::write(store.local("hello"), vec![b'x'; 700_000]).unwrap();
    store.run(&["cp", &store.local("hello"), &format!("{image}:/hello")]);
    let web = Web::start(fs::read(&image).unwrap(), Manners::default());
    assert!(store.run(&["ls", &format!("{}:/", web.address)]).contains("hello"));
    assert!(store.run(&["cat", &format!("{}:/hello", web.address)]).len() == 700_000);
    store.run(&["check", &web.address]);
    let refused = hectare(&["mkdir", &format!("{}:/new", web.address)]);
    assert!(refused.refused().contains("for reading only"), "{}", refused.refused());
    let web = Web::start(fs::read(&image).unwrap(), Manners { no_ranges: true, ..Manners::default() });
    let refused = hectare(&["check", &web.address]);
    assert!(refused.refused().contains("sends no ranges"), "{}", refused.refused());
}

#[test]
fn addresses_with_secrets_are_refused_and_not_shown() {
    for secret in ["https://me:hunter2@h/x.img", "s3://me:hunter2@b/x", "https://h/x.img?sig=hunter2"] {
        let refused = hectare(&["ls", &format!("{secret}:/")]);
        assert!(!refused.refused().contains("hunter2"), "{}", refused.refused());
    }
    let store = Store::new();
    let refused = hectare(&["ls", &store.at("/")]);
    assert!(refused.refused().contains("no such directory"), "{}", refused.refused());
    let refused = hectare(&["mount", &store.volume(), "/mnt"]);
    assert!(refused.refused().contains("hectare serve"), "{}", refused.refused());
}

/// Commands with a cache file are killed at any moment, and the volume changes in between: what others read
/// is right.
#[test]
fn a_cache_file_survives_kills_and_is_never_out_of_date() {
    let store = Store::new();
    let cache = store.local("kept");
    store.run(&["--chunk-size", "64K", "mkfs", "-q", &store.volume(), "64M"]);
    let file = store.local("file");
    for turn in 0..8_u8 {
        fs::write(&file, vec![b'a' + turn; 3_000_000 + usize::from(turn)]).unwrap();
        store.run(&["cp", &file, &store.at("/file")]);
        for pause in [3, 10, 25, 60, 120] {
            let mut child = std::process::Command::new(crate::BINARY)
                .args(["--cache-file", &cache, "cat", &store.at("/file")])
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(std::time::Duration::from_millis(pause + u64::from(turn)));
            let _ = child.kill();
            child.wait().unwrap();
        }
        let found = hectare(&["--cache-file", &cache, "cat", &store.at("/file")]).ok();
        assert!(found.out == fs::read(&file).unwrap(), "turn {turn}");
    }
    let again = hectare(&["--store-stats", "--cache-file", &cache, "cat", &store.at("/file")]).ok();
    assert!(again.err.contains("from the cache file"), "{}", again.err);
    // What is none is left alone; what can't be kept is said.
    let letter = store.local("letter");
    fs::write(&letter, b"a letter").unwrap();
    let refused = hectare(&["--cache-file", &letter, "ls", &store.at("/")]);
    assert!(refused.refused().contains("holds something else"), "{}", refused.err);
    assert_eq!(fs::read(&letter).unwrap(), b"a letter");
    let small = hectare(&["--cache-file", &format!("{},10K", store.local("x")), "ls", &store.at("/")]);
    assert!(small.refused().contains("at least"), "{}", small.err);
    let nbd = hectare(&["--cache-file", &cache, "ls", "nbd://localhost:1/:/"]);
    assert!(nbd.misused().contains("--cache-file is for object stores"), "{}", nbd.err);
    let web = Web::start(vec![0; 1 << 20], Manners::default());
    let refused = hectare(&["--cache-file", &cache, "check", &web.address]);
    assert!(refused.refused().contains("a cache file is for object stores"), "{}", refused.err);
}

#[test]
fn what_a_command_costs_is_printed_on_demand() {
    let store = Store::new();
    store.run(&["mkfs", "-q", &store.volume(), "64M"]);
    // -t xfs hands over to another command, also behind an option with a value.
    hectare(&[
        "--store-log",
        &store.local("l"),
        "mkfs",
        "-t",
        "xfs",
        "-f",
        &format!("{}x", store.volume()),
        "400M",
    ])
    .ok();
    let ran = hectare(&["--store-stats", "--store-log", &store.local("l"), "mkdir", &store.at("/d")]).ok();
    let line = ran.err.lines().find(|line| line.contains("flushes")).unwrap_or_default();
    assert!(line.contains("puts with") && line.contains("gets with"), "{}", ran.err);
}

/// Counting what nothing uses made the directory that was named.
#[test]
fn regression_a_store_that_is_not_there_was_made() {
    let store = Store::new();
    let (volume, place) = (store.volume(), store.at("/a"));
    for arguments in [&["store", "gc", "-n", &volume][..], &["store", "gc", &volume], &["touch", &place]] {
        let cache = store.local("cache");
        let ran = hectare_in(arguments, &[("XDG_CACHE_HOME", &cache)]);
        assert!(ran.refused().contains("there is no such directory"), "{}", ran.err);
        assert!(!Path::new(&store.local("vol")).exists(), "{arguments:?}");
    }
    store.run(&["mkfs", "-q", &volume, "8M"]);
    store.run(&["store", "gc", &volume]);
}

#[test]
fn regression_the_cache_file_before_a_command_was_taken_for_the_command() {
    let store = Store::new();
    let (image, other, cache) = (store.local("v.img"), store.local("x.img"), store.local("c"));
    store.run(&["mkfs", "-q", &image, "8M"]);
    let found = store.run(&["--cache-file", &cache, "find", &format!("{image}:"), "-name", "lost+found"]);
    assert_eq!(found, "/lost+found\n");
    store.run(&["--cache-file", &cache, "mkfs", "-q", "-t", "xfs", &other, "300M"]);
}
