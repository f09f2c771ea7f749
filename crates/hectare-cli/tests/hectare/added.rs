//! `hectare build --add`: single files beside the sources.

use crate::support::{Bench, Ran, hectare};
use hectare_oracle::{KernelMount, assert_clean, skip};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A bench with a tree `src`, and a file `own` beside it.
fn tree() -> (Bench, PathBuf) {
    let bench = Bench::empty();
    let src = bench.local("src");
    fs::create_dir_all(src.join("etc")).unwrap();
    fs::create_dir_all(src.join("usr/lib")).unwrap();
    fs::write(src.join("etc/motd"), "of the tree").unwrap();
    symlink("usr/lib", src.join("lib")).unwrap();
    symlink("/etc/motd", src.join("usr/link")).unwrap();
    fs::write(bench.local("own"), "of the host").unwrap();
    fs::set_permissions(bench.local("own"), fs::Permissions::from_mode(0o640)).unwrap();
    (bench, src)
}

fn build(bench: &Bench, src: &Path, more: &[&str]) -> Ran {
    hectare(&[&["build", "-F", "--from", src.to_str().unwrap()], more, &[bench.image()]].concat())
}

#[test]
fn added_files_have_the_content_place_mode_and_owner_that_were_asked_for() {
    let (bench, src) = tree();
    let own = bench.local("own");
    symlink("own", bench.local("by link")).unwrap();
    let odd = bench.local("a:b,c");
    fs::write(&odd, vec![7; 300_000]).unwrap();
    let add = |host: &Path, rest: &str| format!("{}{rest}", host.display());
    let arguments = [
        add(&own, ":/etc/motd"),
        add(&bench.local("by link"), ":/lib/new/deep/x,mode=4711,uid=5,gid=4294967294"),
        add(&odd, ":/usr/link,gid=9"),
        add(&odd, ":/twice"),
        add(&own, ":/twice,uid=1"),
    ];
    let more: Vec<&str> = arguments.iter().flat_map(|argument| ["--add", argument]).collect();
    build(&bench, &src, &[&more[..], &["--owner", "3:4"]].concat()).ok();
    assert_clean(&bench.image).unwrap();
    let mount = match KernelMount::read_only(&bench.image, "") {
        Ok(mount) => mount,
        Err(reason) => skip!("added::added_files_have_the_content", reason),
    };
    let seen = |path: &str| {
        let data = fs::symlink_metadata(mount.path().join(path)).unwrap();
        (data.mode(), data.uid(), data.gid())
    };
    let content = |path: &str| fs::read(mount.path().join(path)).unwrap();
    assert_eq!(seen("etc/motd"), (0o10_0640, 3, 4), "--owner is for everything");
    assert_eq!(content("etc/motd"), b"of the host");
    assert_eq!(seen("usr/lib/new/deep/x"), (0o10_4711, 5, 4_294_967_294));
    assert_eq!(seen("usr/lib/new/deep"), (0o4_0755, 3, 4));
    assert_eq!(fs::read_link(mount.path().join("lib")).unwrap(), Path::new("usr/lib"));
    assert_eq!(seen("usr/link"), (0o10_0644, 3, 9), "a link of that name is replaced");
    assert_eq!(content("usr/link"), vec![7; 300_000]);
    assert_eq!((seen("twice"), content("twice")), ((0o10_0640, 1, 4), b"of the host".to_vec()));
    let times = |data: fs::Metadata| (data.mtime(), data.mtime_nsec());
    assert_eq!(
        times(fs::metadata(mount.path().join("etc/motd")).unwrap()),
        times(fs::metadata(&own).unwrap())
    );
}

#[test]
fn without_an_owner_added_files_are_roots_and_a_specification_has_the_last_word() {
    let (bench, src) = tree();
    std::os::unix::fs::chown(bench.local("own"), Some(1000), Some(1000)).unwrap();
    fs::write(bench.local("spec"), "#mtree\n./b type=file uid=7 mode=0600\n").unwrap();
    let own = bench.local("own");
    let (a, b) = (format!("{}:/a", own.display()), format!("{}:/b", own.display()));
    let spec = bench.local("spec");
    build(&bench, &src, &["--add", &a, "--add", &b, "--spec", spec.to_str().unwrap()]).ok();
    let seen = |path: &str| {
        let said = hectare(&["stat", "--json", &bench.at(path)]).ok().json();
        let one = &said[0];
        (one["mode"].clone(), one["uid"].clone(), one["gid"].clone())
    };
    let (of_a, of_b) = (seen("/a"), seen("/b"));
    assert_eq!((of_a.1, of_a.2), (0.into(), 0.into()));
    assert_eq!((of_b.1, of_b.2), (7.into(), 0.into()));
    assert_ne!(of_a.0, of_b.0);
}

#[test]
fn what_can_not_be_added_is_refused_with_the_argument_and_the_reason() {
    let (bench, src) = tree();
    let own = bench.local("own");
    assert!(Command::new("mkfifo").arg(bench.local("pipe")).status().unwrap().success());
    let cases = [
        ("own:/etc", "the image has a directory of that name"),
        ("own:/lib/../lib", "the image has a directory of that name"),
        ("own:/etc/motd/x", "one of the directories in its path is something else in the image"),
        ("own:/usr/link/x", "one of the directories in its path is something else in the image"),
        ("none:/a", "none: can't open: No such file or directory"),
        ("src:/a", "src: it is not a regular file"),
        ("pipe:/a", "pipe: it is not a regular file"),
    ];
    for (rest, reason) in cases {
        let argument = format!("{}/{rest}", own.parent().unwrap().display());
        let ran = build(&bench, &src, &["--add", &argument]);
        let said = ran.refused();
        assert!(said.starts_with(&format!("--add {argument}: ")) && said.contains(reason), "{said}");
        assert!(!bench.image.exists(), "{rest}");
    }
    let ran = build(&bench, &src, &["--add", "own:/etc/.."]);
    assert!(ran.misused().contains("give the file's own path"), "{}", ran.err);
    let ran = build(&bench, &src, &["--add", "a:/b,size=3"]);
    assert!(ran.misused().starts_with("--add a:/b,size=3: 'size=3' is none of"), "{}", ran.err);
}

#[test]
fn regression_a_file_that_hides_its_size_is_not_added_empty() {
    let (bench, src) = tree();
    let ran = build(&bench, &src, &["--add", "/proc/version:/etc/version"]);
    assert!(ran.refused().contains("/proc/version: the system says that it has 0 bytes"), "{}", ran.err);
    let empty = bench.local("empty");
    fs::write(&empty, "").unwrap();
    build(&bench, &src, &["--add", &format!("{}:/empty", empty.display())]).ok();
    assert_eq!(hectare(&["cat", &bench.at("/empty")]).ok().out, b"");
}

#[test]
fn regression_a_device_table_puts_no_directory_in_the_place_of_a_file() {
    let (bench, src) = tree();
    fs::write(bench.local("table"), "/etc/motd/x d 755 0 0 - - - - -\n").unwrap();
    let table = bench.local("table");
    let ran = build(&bench, &src, &["--spec", table.to_str().unwrap()]);
    assert!(ran.refused().contains("is something else in the tree"), "{}", ran.err);
}
