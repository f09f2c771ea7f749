//! Bad input: one line, exit code 1, nothing lost; wrong usage: one line, exit code 2.

use crate::support::{Bench, digest, hectare};
use hectare_oracle::mount::Access;
use hectare_oracle::{KernelMount, Tree, skip};

/// A command of each kind on an image.
fn commands(bench: &Bench) -> Vec<Vec<String>> {
    let (image, at) = (bench.image().to_owned(), |path: &str| bench.at(path));
    let file = bench.local("file");
    std::fs::write(&file, "x").unwrap();
    let file = file.to_str().unwrap().to_owned();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
    vec![
        words(&["ls", &at("/")]),
        words(&["tree", &at("/")]),
        words(&["stat", &at("/")]),
        words(&["cat", &at("/a")]),
        words(&["cp", &file, &at("/")]),
        words(&["cp", "-r", &at("/"), bench.local("out").to_str().unwrap()]),
        words(&["mv", &at("/a"), &at("/b")]),
        words(&["rm", &at("/a")]),
        words(&["mkdir", &at("/d")]),
        words(&["ln", "-s", "x", &at("/l")]),
        words(&["chmod", "644", &at("/")]),
        words(&["chown", "0", &at("/")]),
        words(&["xattr", "list", &at("/")]),
        words(&["xattr", "set", "user.a", "b", &at("/")]),
        words(&["info", &image]),
        words(&["freefrag", &image]),
        words(&["export", &image, "-o", bench.local("a.tar").to_str().unwrap()]),
        words(&["map", &image]),
    ]
}

#[test]
fn what_is_no_volume_is_refused_by_every_command() {
    type Spoil = fn(&Bench);
    let spoils: [(&str, Spoil, &str); 6] = [
        ("missing", |_| (), "No such file or directory"),
        ("empty", |bench| std::fs::write(&bench.image, "").unwrap(), "too few for a superblock"),
        ("short", |bench| std::fs::write(&bench.image, [0; 1500]).unwrap(), "too few for a superblock"),
        ("zeroed", |bench| std::fs::write(&bench.image, vec![0; 1 << 20]).unwrap(), "ext4 volume"),
        ("random", |bench| std::fs::write(&bench.image, noise(1 << 20)).unwrap(), "ext4 volume"),
        ("folder", |bench| std::fs::create_dir(&bench.image).unwrap(), "directory"),
    ];
    for (name, spoil, reason) in spoils {
        let bench = Bench::empty();
        spoil(&bench);
        for command in commands(&bench) {
            let ran = hectare(&command);
            assert!(ran.refused().contains(reason), "{name}: {command:?}: {}", ran.err);
            assert!(ran.refused().contains("disk.img"), "{name}: {}", ran.err);
        }
    }
}

/// Bytes that are no volume, the same each time.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[1]
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn a_volume_cut_short_is_refused() {
    let bench = match Bench::filled("ext4", Tree::Ordinary) {
        Ok(bench) => bench,
        Err(reason) => skip!("cli errors::a_volume_cut_short", reason),
    };
    std::fs::File::options().write(true).open(&bench.image).unwrap().set_len(40 << 20).unwrap();
    for command in commands(&bench) {
        let ran = hectare(&command);
        assert!(ran.refused().contains("is the image truncated?"), "{command:?}: {}", ran.err);
    }
}

#[test]
fn missing_paths_are_named() {
    let bench = match Bench::fresh("ext4") {
        Ok(bench) => bench,
        Err(reason) => skip!("cli errors::missing_paths", reason),
    };
    let missing = bench.at("/no/such");
    let words: [&[&str]; 9] = [
        &["ls", &missing],
        &["tree", &missing],
        &["stat", &missing],
        &["cat", &missing],
        &["rm", &missing],
        &["rm", "-r", &missing],
        &["chmod", "644", &missing],
        &["mkdir", &missing],
        &["xattr", "list", &missing],
    ];
    for command in words {
        let ran = hectare(command);
        let expected = format!("{missing}: no such file or directory");
        assert_eq!(ran.refused(), expected, "{command:?}");
    }
    let cases: [(&[&str], &str); 6] = [
        (&["cat", &bench.at("/")], "it is a directory"),
        (&["rm", &bench.at("/lost+found")], "rm -r"),
        (&["rm", "-r", &bench.at("/")], "can't be removed"),
        (&["mkdir", &bench.at("/lost+found")], "exists already"),
        (&["xattr", "get", "user.none", &bench.at("/")], "no such attribute"),
        (&["ls", &bench.at("/lost+found/\u{1b}[2J\nx")], "$'/lost+found/\\033[2J\\nx'"),
    ];
    for (command, reason) in cases {
        let ran = hectare(command);
        assert!(ran.refused().contains(reason), "{command:?}: {}", ran.err);
    }
}

/// Scripts that format volumes expect it of a formatter.
#[test]
fn wrong_usage_is_one_line_with_what_to_do_and_ends_with_2() {
    let cases: [(&[&str], &str); 20] = [
        (&["mkfs"], "required arguments were not provided: <IMAGE>; see `hectare mkfs --help`"),
        (&["mkfs", "--nonsense", "a.img"], "'--nonsense'"),
        (&["mkfs", "-y", "a.img", "1G"], "'-y'"),
        (&["mkfs", "-b", "a.img"], "a.img is no size"),
        (&["mkfs", "-t", "xfs", "-y", "a.img"], "'-y'"),
        (&["mkfs.xfs", "a.img", "1G", "more"], "'more'"),
        (&["frobnicate"], "'frobnicate'; see `hectare --help`"),
        (&["chmdo", "a:b"], "did you mean chmod?"),
        (&["ls"], "see `hectare ls --help`"),
        (&["ls", "--frob", "a"], "'--frob'"),
        (&["cp", "a"], "see `hectare cp --help`"),
        (&["cp", "a", "b"], "neither side is in an image"),
        (&["cp", "--from-partition", "1", "a", "a.img:/"], "there are none"),
        (
            &["cp", "--from-offset", "1M", "--partition", "2", "a.img:/f", "b"],
            "the destination is in no image",
        ),
        (&["chmod", "u?x", "a:b"], "u?x"),
        (&["chown", ":", "a:b"], ":"),
        (&["tree", "-L", "0", "a:"], "0"),
        (&["mv", "a.img:x", "b.img:y"], "see `hectare mv --help`"),
        (&["map", "a.img", "-o", "a.gif"], "ends in .svg or .png"),
        (&["completions", "nosuchshell"], "nosuchshell"),
    ];
    for (arguments, reason) in cases {
        let ran = hectare(arguments);
        assert!(ran.misused().contains(reason), "{arguments:?}: {}", ran.err);
        assert!(ran.out.is_empty(), "{arguments:?}");
    }
    assert_eq!(hectare::<&str>(&[]).code, Some(2));
    assert!(!std::path::Path::new("a.img").exists());
    assert!(hectare(&["mkfs", "--help"]).ok().text().contains("Usage: hectare mkfs"));
}

#[test]
fn with_json_the_error_is_an_object() {
    for (arguments, exit, reason) in [
        (&["info", "--json", "no-such.img"][..], 1, "no-such.img"),
        (&["ls", "--json"], 2, "required arguments"),
        (&["cp", "a", "b", "--", "--json"], 2, "neither side"),
    ] {
        let ran = hectare(arguments);
        assert_eq!(ran.code, Some(exit), "{arguments:?}: {}", ran.err);
        match serde_json::from_str::<serde_json::Value>(&ran.err) {
            Ok(error) => {
                assert!(arguments.contains(&"--json") && error["exit"] == exit, "{arguments:?}: {error}");
                assert!(error["error"].as_str().unwrap().contains(reason), "{error}");
            }
            Err(_) => assert!(ran.err.contains(reason) && arguments.contains(&"--"), "{}", ran.err),
        }
    }
}

#[test]
fn with_json_an_incomplete_output_ends_with_an_object() {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    hectare(&["mkfs", "-q", "-b", "4096", image.to_str().unwrap(), "256M"]).ok();
    // The place of the second group's bitmap, in its descriptor.
    let file = std::fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[0xff, 0xff, 0xff, 0x7f], 4096 + 64).unwrap();
    let ran = hectare(&["freefrag", "--json", image.to_str().unwrap()]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let lines: Vec<&str> = ran.err.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("group 1"), "{}", ran.err);
    let error: serde_json::Value = serde_json::from_str(lines[1]).unwrap();
    assert!(error["exit"] == 1 && error["error"].as_str().unwrap().contains("incomplete"), "{error}");
    assert!(ran.json()["free_blocks"].as_u64().unwrap() > 0);
}

#[test]
fn options_for_a_part_of_the_image_are_shown_where_they_are_taken() {
    for (command, takes) in
        [("ls", true), ("mkfs", true), ("mount", true), ("cp", true), ("build", true), ("stats", false)]
    {
        let help = hectare(&[command, "--help"]).ok();
        assert_eq!(help.text().contains("--partition"), takes, "{command}");
    }
}

#[test]
fn help_and_completions_are_there() {
    assert!(hectare(&["--help"]).ok().text().contains("Examples:"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(hectare(&["completions", shell]).ok().text().contains("freefrag"));
    }
    for command in ["mkfs", "build", "ls", "cp", "info", "freefrag", "map", "explain", "xattr"] {
        assert!(hectare(&[command, "--help"]).ok().text().contains("Example"), "{command}");
    }
    let mount = hectare(&["mount", "--help"]).ok();
    for (option, is_shown) in [("  noatime ", true), ("  noflush ", false), ("  noopendir ", false)] {
        assert_eq!(mount.text().contains(option), is_shown, "{option}");
    }
}

#[test]
fn reading_changes_nothing_and_a_read_only_file_is_not_written() {
    use std::os::unix::fs::PermissionsExt;
    let bench = match Bench::filled("ext4", Tree::Ordinary) {
        Ok(bench) => bench,
        Err(reason) => skip!("cli errors::reading_changes_nothing", reason),
    };
    let before = digest(&bench.image);
    for command in commands(&bench)
        .iter()
        .filter(|c| ["ls", "tree", "stat", "info", "freefrag", "map"].contains(&&*c[0]))
    {
        hectare(command).ok();
    }
    assert_eq!(digest(&bench.image), before);
    std::fs::set_permissions(&bench.image, std::fs::Permissions::from_mode(0o444)).unwrap();
    if hectare_oracle::is_root() {
        hectare_oracle::skip_part!("cli errors, a read-only file", "root may write any file");
    } else {
        let ran = hectare(&["mkdir", &bench.at("/x")]);
        assert!(ran.refused().contains("Permission denied"), "{}", ran.err);
    }
}

#[test]
fn an_image_in_use_is_refused() {
    let bench = match Bench::filled("ext4", Tree::Ordinary) {
        Ok(bench) => bench,
        Err(reason) => skip!("cli errors::an_image_in_use", reason),
    };
    // Every process that can read it can take this lock.
    let reader = std::fs::File::open(&bench.image).unwrap();
    reader.lock().unwrap();
    hectare(&["ls", &bench.at("/")]).ok();
    hectare(&["mkdir", &bench.at("/made")]).ok();
    let writer = hectare_device::FileOptions::new().write(true).open(&bench.image).unwrap();
    let named = format!("process {} (", std::process::id());
    for words in [&["ls"][..], &["mkdir"]] {
        // A program that another test starts has a copy of every descriptor for a moment, and may be named.
        hectare_oracle::until(|| {
            let ran = hectare(&[words, &[&bench.at("/x")]].concat());
            assert!(ran.refused().contains("is using it"), "{}", ran.err);
            ran.err.contains(&named)
        });
    }
    hectare(&["ls", "--no-lock", &bench.at("/")]).ok();
    hectare(&["check", "--no-lock", bench.image.to_str().unwrap()]).ok();
    assert_eq!(hectare(&["mkdir", "--no-lock", &bench.at("/x")]).code, Some(2));
    drop(writer);
    let mount = match KernelMount::attempt(&bench.image, Access::ReadWrite, "") {
        Ok(mount) => mount,
        Err(reason) => skip!("cli errors::an_image_in_use, mounted", reason),
    };
    let ran = hectare(&["mkdir", &bench.at("/x")]);
    assert!(ran.refused().contains("the kernel uses it"), "{}", ran.err);
    let device = mount.device().to_str().unwrap().to_owned();
    let ran = hectare(&["mkdir", &format!("{device}:/x")]);
    assert!(ran.refused().contains("unmount it first"), "{}", ran.err);
    mount.unmount();
}

/// A qemu program that has an image open until its standard input ends.
struct Qemu(std::process::Child);

impl Qemu {
    fn open(image: &std::path::Path, how: &[&str]) -> Result<Qemu, hectare_oracle::Skip> {
        let mut program = hectare_oracle::tool::need("qemu-io")?;
        program.args(["-f", "raw"]).args(how).arg(image);
        let piped = std::process::Stdio::piped;
        let mut child = program.stdin(piped()).stdout(piped()).spawn().unwrap();
        // It prompts once it has the image open.
        let mut prompt = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut prompt).unwrap();
        Ok(Qemu(child))
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn regression_an_image_that_qemu_uses_is_refused_and_ours_to_qemu() {
    let bench = match Bench::fresh("ext4") {
        Ok(bench) => bench,
        Err(reason) => skip!("cli errors::an_image_that_qemu_uses", reason),
    };
    let writer = match Qemu::open(&bench.image, &[]) {
        Ok(writer) => writer,
        Err(reason) => skip!("cli errors::an_image_that_qemu_uses", reason),
    };
    let named = format!("process {} (qemu-io) is using it", writer.0.id());
    for words in ["ls", "mkdir"] {
        let ran = hectare(&[words, &bench.at("/x")]);
        assert!(ran.refused().contains(&named), "{}", ran.err);
    }
    hectare(&["ls", "--no-lock", &bench.at("/")]).ok();
    drop(writer);
    let reader = Qemu::open(&bench.image, &["-r"]).unwrap();
    hectare(&["ls", &bench.at("/")]).ok();
    assert!(hectare(&["mkdir", &bench.at("/x")]).refused().contains("is using it"));
    drop(reader);
    for write in [true, false] {
        let _ours = hectare_device::FileOptions::new().write(write).open(&bench.image).unwrap();
        let mut qemu = hectare_oracle::tool("qemu-io").unwrap();
        let ran = qemu.args(["-f", "raw", "-c", "write 0 512"]).arg(&bench.image).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(!ran.status.success() && said.contains("another process"), "{said}");
    }
    hectare(&["mkdir", &bench.at("/x")]).ok();
}

#[test]
fn what_is_found_broken_is_recorded_and_shown() {
    use std::os::unix::fs::FileExt;
    let bench = match Bench::fresh("ext4") {
        Ok(bench) => bench,
        Err(reason) => skip!("cli errors::what_is_found_broken", reason),
    };
    let dump = hectare_oracle::dumpe2fs(&bench.image).unwrap();
    let bitmap = dump.groups[0].lines.iter().find_map(|line| line.strip_prefix("Inode bitmap at "));
    let block: u64 = bitmap.unwrap().split(' ').next().unwrap().parse().unwrap();
    let file = std::fs::File::options().write(true).open(&bench.image).unwrap();
    file.write_all_at(&[0x55; 16], block * dump.number("Block size")).unwrap();
    drop(file);
    let whole = std::fs::read(&bench.image).unwrap();
    for behavior in ["continue", "remount-ro", "panic"] {
        std::fs::write(&bench.image, &whole).unwrap();
        let ran = hectare(&["mkdir", "--errors", behavior, &bench.at("/x")]);
        assert!(ran.refused().contains("inode bitmap"), "{behavior}: {}", ran.err);
        let info = hectare(&["info", bench.image()]).ok();
        let shows = |field: &str, value: &str| {
            info.text().lines().any(|line| {
                line.split_once(':').is_some_and(|(name, text)| name == field && text.trim() == value)
            })
        };
        assert!(shows("FS Error count", "1"), "{behavior}: {}", info.text());
        assert!(shows("First error function", "inode bitmap"), "{behavior}: {}", info.text());
        assert!(shows("Last error err", "EFSBADCRC"), "{behavior}: {}", info.text());
    }
    let ran = hectare(&["mkdir", "--errors", "ignore", &bench.at("/y")]);
    assert!(ran.code == Some(2) && ran.err.contains("remount-ro"), "{}", ran.err);
}

/// Every command that opens a volume reports what it was given instead of one.
#[test]
fn regression_what_is_no_volume_is_named_by_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("given");
    let given = image.to_str().unwrap();
    let inside = format!("{given}:/x");
    let commands = [
        vec!["ls", given],
        vec!["tree", given],
        vec!["stat", &inside],
        vec!["cat", &inside],
        vec!["info", given],
        vec!["check", given],
        vec!["freefrag", given],
        vec!["map", given],
        vec!["explain", given, "--want", "1M"],
        vec!["mkdir", &inside],
        vec!["rm", &inside],
        vec!["mount", given, folder.path().to_str().unwrap()],
        vec!["cp", &inside, folder.path().to_str().unwrap()],
    ];
    for (at, magic, words) in [
        (0_usize, b"QFI\xfb\0\0\0\x03".as_slice(), ["the qcow2 image", "can't be"]),
        (0, b"\x1f\x8b\x08\0", ["gzip data", "gunzip"]),
        (0, b"XFSB", ["an XFS file system", "tools of its own kind"]),
    ] {
        let mut bytes = vec![0; 1 << 20];
        bytes[at..at + magic.len()].copy_from_slice(magic);
        std::fs::write(&image, bytes).unwrap();
        for command in &commands {
            let ran = hectare(command);
            let line = ran.refused();
            assert!(words.iter().all(|word| line.contains(word)), "{command:?}: {line}");
        }
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    hectare(&["manual", folder.path().to_str().unwrap()]).ok();
    let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(page("hectare.1").contains("hectare\\-build(1)"));
    assert!(page("hectare-build.1").contains("\\-\\-explain\\-size"));
    let help = hectare(&["help"]).ok();
    let commands = help.text().lines().skip_while(|line| *line != "Commands:").skip(1);
    // Lines of a text that goes on are further to the right.
    let commands = commands.take_while(|line| !line.is_empty()).filter_map(|line| line.strip_prefix("  "));
    let names = commands.filter(|line| !line.starts_with(' ')).filter_map(|line| line.split(' ').next());
    let missing: Vec<_> = names
        .filter(|name| *name != "help" && !folder.path().join(format!("hectare-{name}.1")).exists())
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    let nowhere = hectare(&["manual", "/nowhere/at/all"]);
    assert!(nowhere.refused().contains("/nowhere/at/all"), "the directory is named");
}
