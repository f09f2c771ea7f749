//! `SOURCE_DATE_EPOCH`: the same commands give the same bytes, at another time and with other threads.

use crate::support::{Bench, Ran, digest, hectare_in};
use hectare_oracle::{assert_clean, skip};
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

const EPOCH: &str = "1700000000";

/// A tree of the host with old files, new ones, links and a hole.
fn tree(folder: &Path) {
    fs::create_dir_all(folder.join("many/deeper")).unwrap();
    for number in 0..200_u64 {
        let path = folder.join(format!("many/{number:03}"));
        fs::write(&path, vec![b'x'; usize::try_from(number * 321).unwrap()]).unwrap();
        let old = SystemTime::UNIX_EPOCH + Duration::new(1_600_000_000 + number, 7);
        File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
    }
    fs::write(folder.join("many/deeper/new"), "made now").unwrap();
    fs::write(folder.join("large"), vec![7; 3 << 20]).unwrap();
    File::create(folder.join("hole")).unwrap().set_len(1 << 20).unwrap();
    fs::hard_link(folder.join("large"), folder.join("many/second")).unwrap();
    symlink("large", folder.join("link")).unwrap();
}

/// Commands that write everything that a command can write: `$` is the image, `@` the source tree.
const COMMANDS: &[&str] = &[
    "mkdir -p $:/a/b/c",
    "mkdir -m 700 $:/a/secret",
    "cp -a @/. $:/copy",
    "cp -r @/many $:/a",
    "cp @/large @/link $:/a/b",
    "ln $:/a/b/large $:/a/again",
    "ln -s ../large $:/a/b/symbolic",
    "xattr set user.color red $:/a/b/large",
    "xattr set user.long 0123456789012345678901234567890123456789012345678901234567890123456789 $:/a/again",
    "chmod -R go-w $:/copy",
    "chown -R 12:70000 $:/a",
    "mv $:/a/many $:/moved",
    "mv --exchange $:/copy/large $:/copy/hole",
    "rm -r $:/moved/deeper",
    "rm $:/a/again $:/a/b/large",
    "cp @/many/deeper/new $:/a/b/large",
    "cp @/many/deeper/new $:/a/b/large",
    "mkdir $:/a/many",
    "cp -a $:/copy $:/within",
    "rm -r $:/copy",
    "cp -a @/many $:/copy",
    "xattr set user.more yes $:/copy/100",
    "xattr rm user.more $:/copy/100",
    "ln $:/copy/100 $:/copy/other",
    "mv $:/copy/other $:/copy/101",
    "rm -r $:/within",
    "chmod 640 $:/copy/102",
];

/// Threads, for what copies with several.
#[derive(Clone, Copy)]
struct Run {
    threads: &'static str,
    epoch: Option<&'static str>,
    pause: Duration,
}

impl Run {
    fn command(self, words: &[&str]) -> Ran {
        let epoch = self.epoch.map(|epoch| ("SOURCE_DATE_EPOCH", epoch));
        hectare_in(words, epoch.as_slice()).ok()
    }

    /// The image that the commands make after `mkfs`.
    fn image(self, mkfs: &[&str], commands: &[&str], source: &Path) -> Bench {
        let bench = Bench::empty();
        self.command(&[&["mkfs", "-q"], mkfs, &[bench.image(), "64M"]].concat());
        for (at, command) in commands.iter().enumerate() {
            let text = command.replace('$', bench.image()).replace('@', source.to_str().unwrap());
            let mut words: Vec<&str> = text.split(' ').collect();
            if words[0] == "cp" {
                words.splice(1..1, ["--threads", self.threads]);
            }
            self.command(&words);
            if at == commands.len() / 2 {
                std::thread::sleep(self.pause);
            }
        }
        bench
    }
}

const FIRST: Run = Run { threads: "1", epoch: Some(EPOCH), pause: Duration::ZERO };
const SECOND: Run = Run { threads: "7", epoch: Some(EPOCH), pause: Duration::from_millis(1100) };

#[test]
fn the_same_commands_give_the_same_bytes() {
    let source = tempfile::tempdir().unwrap();
    tree(source.path());
    let formats: &[&[&str]] = &[
        &["-t", "ext2", "-O", "extents"],
        &["-t", "ext3", "-O", "extents", "-b", "1024"],
        &["-t", "ext4"],
        &["-t", "ext4", "-O", "orphan_file,metadata_csum_seed,mmp", "-J", "size=4"],
        &["-t", "ext4", "-O", "bigalloc", "-I", "128"],
    ];
    for format in formats {
        let first = FIRST.image(format, COMMANDS, source.path());
        let second = SECOND.image(format, COMMANDS, source.path());
        assert!(assert_clean(&first.image).is_ok(), "{format:?}");
        assert_eq!(digest(&first.image), digest(&second.image), "{format:?}");
        let without = Run { epoch: None, ..SECOND }.image(format, COMMANDS, source.path());
        assert_ne!(digest(&first.image), digest(&without.image), "{format:?}: nothing was fixed");
    }
}

#[test]
fn every_command_alone_depends_on_the_clock_without_the_variable() {
    let source = tempfile::tempdir().unwrap();
    tree(source.path());
    let given = [
        "-U",
        "6b2f5e5e-7a1c-4b5d-9d0e-1f2a3b4c5d6e",
        "-E",
        "hash_seed=6b2f5e5e-7a1c-4b5d-9d0e-1f2a3b4c5d6e",
    ];
    let begun = FIRST.image(&given, &COMMANDS[..12], source.path());
    for command in
        ["mkdir $:/n", "rm -r $:/moved", "chmod 600 $:/a/b", "xattr set user.a b $:/a", "ln $:/a/again $:/n"]
    {
        let after = |run: Run, name: &str| {
            let image = begun.local(name);
            fs::copy(&begun.image, &image).unwrap();
            run.command(&command.replace('$', image.to_str().unwrap()).split(' ').collect::<Vec<_>>());
            digest(&image)
        };
        let fixed = after(FIRST, "one");
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(fixed, after(SECOND, "two"), "{command}");
        assert_ne!(fixed, after(Run { epoch: None, ..FIRST }, "three"), "{command}");
    }
}

#[test]
fn empty_volumes_are_the_same_and_differ_by_what_they_are() {
    for kind in ["ext2", "ext3", "ext4", "xfs"] {
        let made = |run: Run, more: &[&str], size: &str| {
            let bench = Bench::empty();
            std::thread::sleep(run.pause);
            run.command(&[&["mkfs", "-q", "-t", kind], more, &[bench.image(), size]].concat());
            digest(&bench.image)
        };
        let one = made(FIRST, &[], "512M");
        assert_eq!(one, made(SECOND, &[], "512M"), "{kind}");
        assert_ne!(one, made(FIRST, &["-L", "other"], "512M"), "{kind}");
        assert_ne!(
            made(Run { epoch: None, ..FIRST }, &[], "512M"),
            made(Run { epoch: None, ..FIRST }, &[], "512M")
        );
    }
    let uuid = |size: &str| {
        let bench = Bench::empty();
        FIRST.command(&["mkfs", "--json", bench.image(), size]).json()["uuid_hex"].clone()
    };
    assert_eq!(uuid("512M"), uuid("512M"));
    assert_ne!(uuid("512M"), uuid("513M"), "two volumes of one build can be mounted side by side");
}

#[test]
fn times_are_the_epoch_or_older_and_inodes_get_other_generations() {
    let source = tempfile::tempdir().unwrap();
    tree(source.path());
    let bench = FIRST.image(&[], &["cp -a @/. $:/copy"], source.path());
    assert!(fs::metadata(source.path().join("large")).unwrap().mtime() > EPOCH.parse().unwrap());
    let stat = |path: &str| FIRST.command(&["stat", "--json", &bench.at(path)]).json()[0].clone();
    let new = stat("/copy/large");
    let epoch = "2023-11-14T22:13:20Z";
    for time in ["atime", "mtime", "ctime", "crtime"] {
        assert_eq!(new[time], epoch, "{new}");
    }
    let old = stat("/copy/many/003");
    assert_eq!((&old["mtime"], &old["atime"]), (&old["atime"], &"2020-09-13T12:26:43.000000007Z".into()));
    let generation = || match hectare_oracle::debugfs(&bench.image, &["stat /file"]) {
        Ok(text) => text.split("Generation: ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned(),
        Err(reason) => panic!("{reason:?}"),
    };
    let file = source.path().join("large");
    let mut found = Vec::new();
    for _ in 0..3 {
        FIRST.command(&["cp", file.to_str().unwrap(), &bench.at("/file")]);
        found.push(generation());
        FIRST.command(&["rm", &bench.at("/file")]);
    }
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 3, "an inode that is used again has another generation");
}

#[test]
fn a_malformed_epoch_is_refused_by_name_before_anything_is_written() {
    let bench = match Bench::fresh("ext4") {
        Ok(bench) => bench,
        Err(reason) => skip!("cli reproducible::a_malformed_epoch", reason),
    };
    let (before, new) = (digest(&bench.image), bench.local("new.img"));
    let new = new.to_str().unwrap();
    let (at, file) = (bench.at("/x"), bench.image());
    let commands: &[&[&str]] = &[
        &["mkfs", new, "8M"],
        &["mkfs", "-t", "xfs", new, "512M"],
        &["mkdir", &at],
        &["cp", "/proc/self/status", &at],
        &["rm", &at],
        &["chmod", "600", &bench.at("/")],
        &["build", "--from", bench.folder.path().to_str().unwrap(), new],
        &["export", file, "-o", "oci:never:v1"],
    ];
    for command in commands {
        for wrong in ["", "yesterday", "-5", "1.5", "99999999999"] {
            let ran = hectare_in(command, &[("SOURCE_DATE_EPOCH", wrong)]);
            assert!(matches!(ran.code, Some(1 | 2)), "{}: {}", ran.line, ran.err);
            assert!(ran.err.contains("SOURCE_DATE_EPOCH: "), "{}: {}", ran.line, ran.err);
            assert_eq!(
                ran.err.lines().next().unwrap().matches("SOURCE_DATE_EPOCH").count(),
                1,
                "{}",
                ran.err
            );
        }
    }
    assert_eq!(before, digest(&bench.image));
    assert!(!Path::new(new).exists());
}
