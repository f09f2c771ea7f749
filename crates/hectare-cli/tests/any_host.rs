//! The binary on any host: what it does without the tools, the mounts and the system calls of Linux.
//!
//! `make test` runs it on Linux as it is, `cargo hunt portable` with the implementation for other hosts.
//! Volumes are made and checked by the binary itself; what other programs think of them is tested by
//! `hectare`, which needs Linux. Paths are absolute, so on Windows every image has a drive letter before
//! its colon.

#![allow(clippy::unwrap_used)] // a test that cannot continue fails

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Whether all of Linux is used.
const IS_LINUX: bool = cfg!(all(target_os = "linux", not(hectare_portable)));
/// Commands that need it.
#[cfg(not(all(target_os = "linux", not(hectare_portable))))]
const FOR_LINUX: [&str; 5] = ["mount", "umount", "shutdown", "stats", "sync"];

/// What a run of the binary said.
struct Ran {
    code: Option<i32>,
    out: Vec<u8>,
    err: String,
}

impl Ran {
    #[track_caller]
    fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self
    }

    #[track_caller]
    fn text(self) -> String {
        String::from_utf8(self.ok().out).unwrap()
    }

    /// What it said when it failed.
    #[track_caller]
    fn failed(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}", self.err);
        self.err
    }
}

fn hectare<S: AsRef<OsStr>>(arguments: &[S]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hectare"));
    command.args(arguments).stdin(Stdio::null()).env("TZ", "UTC").env_remove("SOURCE_DATE_EPOCH");
    let output = command.output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    Ran { code: output.status.code(), out: output.stdout, err }
}

/// A directory that is removed when the test ends, and an image in it.
struct Bench {
    folder: TempDir,
    image: String,
}

impl Bench {
    fn empty() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("disk.img").to_str().unwrap().to_owned();
        Self { folder, image }
    }

    /// With a volume.
    fn made() -> Self {
        let bench = Self::empty();
        hectare(&["mkfs", "-q", &bench.image, "32M"]).ok();
        bench
    }

    /// With a volume that has what is in [`Bench::tree`].
    fn filled() -> Self {
        let bench = Self::made();
        let tree = bench.tree();
        hectare(&["cp", "-a", &tree, &bench.at("/tree")]).ok();
        bench
    }

    fn at(&self, path: &str) -> String {
        format!("{}:{path}", self.image)
    }

    fn local(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.local(name).to_str().unwrap().to_owned()
    }

    /// A directory of the host: two files, one with a hole and one in a directory of its own.
    fn tree(&self) -> String {
        let tree = self.local("tree");
        fs::create_dir_all(tree.join("sub")).unwrap();
        fs::write(tree.join("plain"), "some text\n").unwrap();
        fs::write(tree.join("sub").join("holed"), holed()).unwrap();
        tree.to_str().unwrap().to_owned()
    }

    #[track_caller]
    fn is_sound(&self) {
        hectare(&["check", &self.image]).ok();
    }
}

fn holed() -> Vec<u8> {
    let mut content = vec![0; 300_000];
    content[200_000..200_003].copy_from_slice(b"end");
    content
}

#[test]
fn volumes_are_made_and_looked_at() {
    let bench = Bench::filled();
    assert_eq!(hectare(&["ls", &bench.at("/tree")]).text(), "plain\nsub\n");
    assert_eq!(hectare(&["cat", &bench.at("/tree/plain")]).text(), "some text\n");
    assert!(hectare(&["cat", &bench.at("/tree/sub/holed")]).ok().out == holed());
    for command in ["info", "df", "freefrag", "identify", "map"] {
        assert!(!hectare(&[command, &bench.image]).text().is_empty(), "{command}");
    }
    for command in ["stat", "tree", "du", "find", "ls"] {
        assert!(!hectare(&[command, &bench.at("/tree")]).text().is_empty(), "{command}");
    }
    assert!(hectare(&["find", "--name", "h?l*", &bench.at("/")]).text().contains("/tree/sub/holed"));
    assert!(hectare(&["stat", "--json", &bench.at("/tree/plain")]).text().contains("\"size\": 10"));
    bench.is_sound();
}

#[test]
fn files_are_changed_in_place() {
    let bench = Bench::made();
    let at = |path: &str| bench.at(path);
    hectare(&["mkdir", "-p", &at("/a/b")]).ok();
    hectare(&["touch", "-d", "@1000", &at("/a/f")]).ok();
    hectare(&["ln", &at("/a/f"), &at("/a/g")]).ok();
    hectare(&["ln", "-s", "g", &at("/a/l")]).ok();
    hectare(&["mv", &at("/a/g"), &at("/a/b")]).ok();
    hectare(&["chmod", "600", &at("/a/f")]).ok();
    hectare(&["chown", "7:8", &at("/a/f")]).ok();
    hectare(&["chattr", "+A", &at("/a/f")]).ok();
    hectare(&["xattr", "set", "user.x", "value", &at("/a/f")]).ok();
    assert_eq!(hectare(&["xattr", "get", "user.x", &at("/a/b/g")]).text(), "value");
    hectare(&["rm", &at("/a/l")]).ok();
    let listed = hectare(&["ls", "-l", &at("/a")]).text();
    assert!(listed.contains("-rw-------") && listed.contains("1970-01-01 00:16"), "{listed}");
    bench.is_sound();
}

#[test]
fn what_is_copied_out_is_what_was_copied_in() {
    let bench = Bench::filled();
    hectare(&["cp", "-a", &bench.at("/tree"), &bench.text("out")]).ok();
    assert_eq!(fs::read_to_string(bench.local("out").join("plain")).unwrap(), "some text\n");
    assert!(fs::read(bench.local("out").join("sub").join("holed")).unwrap() == holed());
    let time = |name: &str| fs::metadata(bench.local(name).join("plain")).unwrap().modified().unwrap();
    assert_eq!(time("out"), time("tree"));
    // Again, over what is there; a file that is in the way of a directory stays.
    fs::write(bench.local("out").join("plain"), "longer than what it replaces\n").unwrap();
    hectare(&["cp", "-r", &bench.at("/tree/."), &bench.text("out")]).ok();
    assert_eq!(fs::read_to_string(bench.local("out").join("plain")).unwrap(), "some text\n");
    fs::remove_dir_all(bench.local("out").join("sub")).unwrap();
    fs::write(bench.local("out").join("sub"), "x").unwrap();
    let said = hectare(&["cp", "-r", &bench.at("/tree/."), &bench.text("out")]).failed(1);
    assert!(said.contains("/sub") && said.contains("in the way"), "{said}");
    assert_eq!(fs::read_to_string(bench.local("out").join("sub")).unwrap(), "x");
}

#[test]
fn what_a_host_cannot_keep_is_counted() {
    let bench = Bench::filled();
    hectare(&["xattr", "set", "user.x", "1", &bench.at("/tree/plain")]).ok();
    hectare(&["xattr", "set", "user.y", "2", &bench.at("/tree/plain")]).ok();
    hectare(&["chmod", "4711", &bench.at("/tree/plain")]).ok();
    let said = hectare(&["cp", "-p", &bench.at("/tree/plain"), &bench.text("out")]).ok().err;
    assert!(said.contains("note: 1 files are without their set-ID bits"), "{said}");
    assert!(IS_LINUX || said.contains("note: 2 extended attributes can't be kept there"), "{said}");
    for note in ["note: 1 owners", "note: 1 modes"] {
        assert_eq!(cfg!(windows), said.contains(note), "{said}");
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(bench.local("out")).unwrap().permissions().mode() & 0o7777, 0o711);
    }
    let said = hectare(&["cp", "-p", &bench.text("out"), &bench.at("/back")]).ok().err;
    assert_eq!(!IS_LINUX, said.contains("extended attributes and"), "{said}");
}

#[test]
fn links_are_copied_or_left_out_by_name() {
    let bench = Bench::filled();
    hectare(&["ln", "-s", "plain", &bench.at("/tree/link")]).ok();
    hectare(&["ln", &bench.at("/tree/plain"), &bench.at("/tree/second")]).ok();
    let ran = hectare(&["cp", "-a", &bench.at("/tree"), &bench.text("out")]);
    if cfg!(windows) {
        assert!(ran.failed(1).contains("tree/link: it is a symbolic link"));
    } else {
        let said = ran.ok().err;
        assert_eq!(fs::read_link(bench.local("out").join("link")).unwrap(), PathBuf::from("plain"));
        assert_eq!(!IS_LINUX, said.contains("note: 1 times can't be kept"), "{said}");
    }
    fs::OpenOptions::new().append(true).open(bench.local("out").join("plain")).unwrap().set_len(4).unwrap();
    assert_eq!(fs::read_to_string(bench.local("out").join("second")).unwrap(), "some");
}

#[cfg(unix)]
#[test]
fn nothing_is_written_through_a_link() {
    let bench = Bench::filled();
    fs::create_dir_all(bench.local("out").join("tree")).unwrap();
    fs::create_dir(bench.local("away")).unwrap();
    std::os::unix::fs::symlink("../../away", bench.local("out").join("tree").join("sub")).unwrap();
    let said = hectare(&["cp", "-r", &bench.at("/tree"), &bench.text("out")]).failed(1);
    assert!(said.contains("/tree/sub: something else is in the way"), "{said}");
    assert_eq!(fs::read_dir(bench.local("away")).unwrap().count(), 0);
}

#[test]
fn images_are_built_and_exported() {
    let bench = Bench::empty();
    let tree = bench.tree();
    hectare(&["build", "--from", &tree, &bench.image]).ok();
    assert_eq!(hectare(&["cat", &bench.at("/plain")]).text(), "some text\n");
    bench.is_sound();
    hectare(&["export", &bench.image, "-o", &format!("tar:{}", bench.text("disk.tar"))]).ok();
    let again = bench.text("again.img");
    hectare(&["build", "--from", &bench.text("disk.tar"), &again]).ok();
    assert!(hectare(&["cat", &format!("{again}:/sub/holed")]).ok().out == holed());
    hectare(&["convert", &bench.image, &bench.text("disk.qcow2")]).ok();
    assert_eq!(hectare(&["cat", &format!("{}:/plain", bench.text("disk.qcow2"))]).text(), "some text\n");
    hectare(&["mkfs.xfs", "-q", &bench.text("xfs.img"), "512M"]).ok();
    hectare(&["mke2fs", "-q", "-t", "ext2", &bench.text("two.img"), "8M"]).ok();
    let two = Bench { image: bench.text("two.img"), ..bench };
    two.is_sound();
}

#[test]
fn volumes_are_administered() {
    let bench = Bench::filled();
    let image = &*bench.image;
    hectare(&["resize", image, "64M"]).ok();
    hectare(&["tune", "-L", "label", "-U", "random", image]).ok();
    hectare(&["defrag", image]).ok();
    hectare(&["trim", image]).ok();
    assert!(hectare(&["info", image]).text().contains("label"));
    hectare(&["repair", "-n", image]).ok();
    hectare(&["salvage", image, "-o", &bench.text("saved")]).ok();
    assert_eq!(fs::read_to_string(bench.local("saved").join("tree").join("plain")).unwrap(), "some text\n");
    fs::remove_file(bench.local("saved").join("tree").join("plain")).unwrap();
    hectare(&["salvage", image, "-o", &bench.text("saved"), "--resume"]).ok();
    assert_eq!(fs::read_to_string(bench.local("saved").join("tree").join("plain")).unwrap(), "some text\n");
    bench.is_sound();
}

#[test]
fn disks_are_made_of_descriptions() {
    let bench = Bench::empty();
    bench.tree();
    let text = "[[partition]]\ntype = \"linux\"\nformat = \"ext4\"\nsize = \"16M\"\nfrom = [\"tree\"]\n";
    fs::write(bench.local("disk.toml"), text).unwrap();
    hectare(&["disk", "build", "-q", &bench.text("disk.toml"), "-o", &bench.image]).ok();
    assert_eq!(hectare(&["cat", "--partition", "1", &bench.at("/plain")]).text(), "some text\n");
}

#[cfg(not(all(target_os = "linux", not(hectare_portable))))]
#[test]
fn what_needs_linux_says_so() {
    let help = hectare(&["--help"]).text();
    for command in FOR_LINUX {
        let said = hectare(&[command, "-o", "rw", "--all", "x"]).failed(1);
        assert_eq!(said.trim_end(), format!("hectare: {command}: not on this host: the command needs Linux"));
        assert!(!help.contains(&format!("\n  {command} ")), "{command}");
    }
    let bench = Bench::made();
    let said = hectare(&["--max-memory", "1G", "ls", &bench.image]).failed(1);
    assert!(said.contains("--max-memory: memory limits are not supported"), "{said}");
    let said = hectare(&["explain", &bench.text("")]).failed(1);
    assert!(said.contains("mounts are not supported"), "{said}");
}

#[test]
fn completions_and_manuals_are_written() {
    let bench = Bench::empty();
    assert!(hectare(&["completions", "bash"]).text().contains("hectare"));
    hectare(&["manual", &bench.text("")]).ok();
    assert!(bench.local("hectare-cp.1").exists());
    assert_eq!(bench.local("hectare-mount.1").exists(), IS_LINUX);
}
