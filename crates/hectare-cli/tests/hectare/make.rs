//! mkfs: what it prints, creates and refuses. (The formatter's own tests compare every field.)

use crate::support::{Bench, digest, hectare};
use hectare_device::{Device, FileOptions};
use hectare_ext4::superblock::UNFINISHED;
use hectare_oracle::tool::{need, run};
use hectare_oracle::{Skip, assert_clean, dumpe2fs, is_root, scratch, skip, skip_part, until};
use hectare_units::Bytes;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_volume_is_made_and_described() {
    let bench = Bench::empty();
    let ran =
        hectare(&["mkfs", "-b", "4096", "-L", "pear", "-m", "1", "-J", "size=4", bench.image(), "64M"]).ok();
    assert!(ran.text().starts_with("Creating filesystem with 16384 4k blocks and "), "{}", ran.text());
    if let Err(reason) = assert_clean(&bench.image) {
        skip!("cli make::a_volume_is_made", reason);
    }
    let dump = dumpe2fs(&bench.image).unwrap();
    assert_eq!(dump.field("Filesystem volume name"), "pear");
    assert_eq!(dump.number("Block count"), 16384);
    assert_eq!(dump.number("Reserved block count"), 163);
    assert_eq!(dump.number("Total journal blocks"), 1024);
    assert!(ran.text().contains(dump.field("Filesystem UUID")));
}

#[test]
fn sizes_are_blocks_or_kib_or_have_a_suffix() {
    for (arguments, bytes) in [
        (&["8192"][..], 8 << 20),
        (&["8M"], 8 << 20),
        (&["16384s"], 8 << 20),
        (&["8MiB"], 8 << 20),
        (&["8.192MB"], 8_192_000),
        (&["0.5G"], 512 << 20),
        (&["-b", "4096", "2048"], 8 << 20),
    ] {
        let bench = Bench::empty();
        let (flags, size) = arguments.split_at(arguments.len() - 1);
        hectare(&[&["mkfs", "-q"], flags, &[bench.image()], size].concat()).ok();
        assert_eq!(std::fs::metadata(&bench.image).unwrap().len(), bytes, "{arguments:?}");
    }
}

#[test]
fn a_link_named_mkfs_xfs_takes_its_command_line() {
    let bench = Bench::empty();
    let link = bench.local("mkfs.xfs");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_hectare"), &link).unwrap();
    let by_link = |words: &[&str]| {
        let mut command = Command::new(&link);
        run(command.args(words).arg(bench.image()).arg("400m"))
    };
    for (words, reason) in [
        (&["-r", "rtdev=/dev/x"][..], "-r: realtime sections"),
        (&["-p", "proto"], "-p: "),
        (&["-c", "options=x"], "-c: "),
        (&["-m", "crc=0"], "-m crc=0"),
        (&["-l", "logdev=/dev/x"], "-l logdev=/dev/x"),
        (&["-Z"], "'-Z'"),
    ] {
        let said = by_link(words);
        assert!(said.exit == Some(1) && said.stderr.contains(reason), "{}", said.report());
        assert!(!bench.image.exists());
    }
    let said = by_link(&["-f", "-q", "-K", "-L", "data", "-m", "rmapbt=1", "-i", "size=1024"]);
    assert_eq!(said.expect_success().stdout, "");
}

#[test]
fn block_maps_are_built_on_request() {
    let bench = Bench::empty();
    let from = bench.local("from");
    std::fs::create_dir(&from).unwrap();
    std::fs::write(from.join("file"), vec![7; 3 << 20]).unwrap();
    for kind in ["ext2", "ext3"] {
        let words =
            ["build", "-F", "-t", kind, "-b", "1024", "--from", from.to_str().unwrap(), bench.image()];
        hectare(&words).ok();
        if let Err(reason) = assert_clean(&bench.image) {
            skip!("cli make::block_maps_are_built_on_request", reason);
        }
        let dump = dumpe2fs(&bench.image).unwrap();
        assert!(!dump.has("extent") && dump.has("has_journal") == (kind == "ext3"));
        assert_eq!(hectare(&["cat", &bench.at("/file")]).ok().out, vec![7; 3 << 20]);
    }
}

#[test]
fn what_a_volume_leaves_of_its_size_is_said() {
    let bench = Bench::empty();
    let said = hectare(&["mkfs", "-q", "-b", "4096", bench.image(), "10241K"]).ok();
    assert!(said.err.contains("note: 10486784 bytes are not whole blocks of 4096"), "{}", said.err);
    let from = bench.local("from");
    std::fs::create_dir(&from).unwrap();
    let image = bench.local("built.img");
    let words = ["build", "--from", from.to_str().unwrap(), "--size", "10.001MB", image.to_str().unwrap()];
    let said = hectare(&words).ok();
    assert!(said.err.contains("note: 10001000 bytes are not whole blocks"), "{}", said.err);
    assert_eq!(std::fs::metadata(image).unwrap().len() % 4096, 0);
}

#[test]
fn a_name_of_a_container_and_a_device_that_is_not_there_are_refused() {
    let bench = Bench::empty();
    std::fs::create_dir(bench.local("from")).unwrap();
    let (image, from) = (bench.local("disk.vmdk"), bench.local("from"));
    let (image, from) = (image.to_str().unwrap(), from.to_str().unwrap());
    for words in [
        &["mkfs", "-q", image, "8M"][..],
        &["mkfs", "-qt", "xfs", image, "400M"],
        &["mke2fs", "-q", image, "8M"],
        &["build", "--from", from, image],
    ] {
        let refused = hectare(words);
        assert!(refused.refused().contains("qemu-img convert -O vmdk"), "{}", refused.err);
        assert!(!bench.local("disk.vmdk").exists());
    }
    for words in [
        &["mkfs", "-q", "/dev/hectare-none", "8M"][..],
        &["mkfs.xfs", "-q", "/dev/hectare-none", "400M"],
        &["mke2fs", "-q", "/dev/hectare-none", "8M"],
        &["build", "--from", from, "/dev/hectare-none"],
    ] {
        let refused = hectare(words);
        assert!(refused.refused().contains("no file is made among devices"), "{}", refused.err);
    }
}

/// Without a SIZE ext4 uses whole pages of a file, and XFS whole sectors, as with the original formatters.
#[test]
fn a_file_of_odd_length_is_used_as_far_as_it_goes() {
    let made = |kind: &str, only_say: &str, length: u64, size: &[&str]| {
        let bench = Bench::empty();
        std::fs::File::create(&bench.image).unwrap().set_len(length).unwrap();
        let line = [&["mkfs", "-t", kind, "--json", bench.image()], size].concat();
        let said = hectare(&[&line[..], &[only_say]].concat()).ok().json();
        let made = hectare(&line).ok().json();
        assert_eq!(
            (&said["blocks"], std::fs::metadata(&bench.image).unwrap().len()),
            (&made["blocks"], length)
        );
        made["blocks"].as_u64()
    };
    let length = (12_291 << 10) + 7;
    assert_eq!(made("ext4", "-n", length, &[]), Some(12_288));
    assert_eq!(made("ext4", "-n", length, &["12291"]), Some(12_291));
    assert_eq!(made("xfs", "-N", (1 << 30) + 700, &[]), Some(1 << 18));
    let tiny = Bench::empty();
    std::fs::write(&tiny.image, [0; 4095]).unwrap();
    assert!(hectare(&["mkfs", tiny.image()]).refused().contains("4095 bytes"));
}

#[test]
fn what_is_there_is_kept_without_force() {
    let bench = Bench::empty();
    hectare(&["mkfs", bench.image(), "16M"]).ok();
    let before = digest(&bench.image);
    let ran = hectare(&["mkfs", bench.image(), "8M"]);
    assert!(ran.refused().contains("an ext4 file system") && ran.err.contains("--force"), "{}", ran.err);
    assert_eq!(digest(&bench.image), before);
    let dry = hectare(&["mkfs", "-n", bench.image()]).ok();
    assert!(dry.text().contains("16384 1k blocks"), "{}", dry.text());
    assert_eq!(digest(&bench.image), before);
    let json = hectare(&["mkfs", "--force", "--json", "-t", "ext2", bench.image()]).ok().json();
    assert_eq!(json["block_size"], 1024);
    assert!(json["features"].as_array().unwrap().iter().all(|feature| feature != "has_journal"));
    if let Err(reason) = assert_clean(&bench.image) {
        skip!("cli make::what_is_there_is_kept", reason);
    }
}

#[test]
fn failures_leave_nothing_behind() {
    let bench = Bench::empty();
    assert!(hectare(&["mkfs", bench.image()]).refused().contains("give a SIZE"));
    assert!(hectare(&["mkfs", bench.image(), "16K"]).refused().contains("too small"));
    assert_eq!(std::fs::read_dir(bench.folder.path()).unwrap().count(), 0);
}

#[test]
fn an_xfs_volume_is_made_with_the_words_of_mkfs_xfs() {
    let bench = Bench::empty();
    let image = bench.image();
    let words = ["-m", "rmapbt=1", "-d", "su=64k,sw=4", "-L", "data", "-n", "size=8192"];
    let with = |before: &[&str], after: &[&str]| {
        hectare(&[&["mkfs", "-t", "xfs"], before, &words[..], &[image], after].concat())
    };
    let planned = with(&["-N"], &["1g"]).ok();
    assert!(!Path::new(image).exists(), "nothing is made");
    let made = with(&[], &["1g"]).ok();
    assert_eq!(made.text(), planned.text());
    let json = with(&["-N", "--json"], &[]).ok().json();
    assert_eq!((json["groups"].as_u64(), json["group_blocks"].as_u64()), (Some(8), Some(32_752)));
    let judged = || {
        let said = run(need("mkfs.xfs")?.arg("-N").arg("-f").args(words).arg(image)).expect_success();
        // The first line has the image's name, which may or may not fit its column.
        let told = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
        let tail = |text: &str| {
            told(text).into_iter().filter(|line| !line.starts_with("note: ")).collect::<Vec<_>>()
        };
        assert_eq!(tail(made.text()), tail(&said.stdout));
        let _ = run(need("xfs_repair")?.arg("-n").arg(image)).expect_success();
        Ok::<(), Skip>(())
    };
    if let Err(reason) = judged() {
        skip_part!("an_xfs_volume_is_made_with_the_words_of_mkfs_xfs, judged", reason);
    }
    let before = digest(&bench.image);
    assert!(with(&[], &[]).refused().contains("holds an XFS file system (label data); use --force"));
    assert_eq!(digest(&bench.image), before);
    with(&["-f", "-K", "-q"], &[]).ok();
    assert_ne!(digest(&bench.image), before);
}

#[test]
fn an_impossible_xfs_volume_is_refused_and_nothing_is_made() {
    let bench = Bench::empty();
    for (words, size, said) in [
        (&[][..], "100m", "too small: XFS needs 300 MiB"),
        (&[], "1073741925", "not a multiple of the sector"),
        (&["-m", "crc=0"], "1g", "-m crc=0: "),
        (&["-d", "bogus=1"], "1g", "-d bogus=1: no such word"),
        (&["-L", "thirteenbytes"], "1g", "-L thirteenbytes: a label has up to 12 bytes"),
    ] {
        let line = hectare(&[&["mkfs", "-t", "xfs"], words, &[bench.image(), size]].concat());
        assert!(line.refused().contains(said), "{}", line.err);
    }
    assert!(hectare(&["mkfs", "-t", "xfs", bench.image()]).refused().contains("give a SIZE"));
    assert_eq!(std::fs::read_dir(bench.folder.path()).unwrap().count(), 0);
}

/// Every automatic choice for a large volume is printed on standard output, and none with `-q`.
#[test]
fn what_is_chosen_for_a_large_volume_is_explained() {
    let bench = Bench::empty();
    let ran = hectare(&["mkfs", "-n", bench.image(), "200T"]).ok();
    let notes: Vec<&str> = ran.text().lines().filter_map(|line| line.strip_prefix("note: ")).collect();
    assert!(notes[0].starts_with("meta_bg is on") && notes[0].contains("-O ^meta_bg"), "{notes:?}");
    assert!(notes[1].starts_with("bigalloc is on, with clusters of 8192 bytes"), "{notes:?}");
    assert!(notes[2].starts_with("flex groups have 64 groups") && notes[2].contains("-G"), "{notes:?}");
    assert!(notes.len() == 3 && ran.err.is_empty(), "{notes:?} {}", ran.err);
    let json = hectare(&["mkfs", "-n", "--json", bench.image(), "200T"]).ok().json();
    assert_eq!((json["notes"].as_array().unwrap().len(), json["cluster_size"].as_u64()), (3, Some(8192)));
    assert!(hectare(&["mkfs", "-q", "-n", bench.image(), "200T"]).ok().out.is_empty());
    let told = hectare(&["mkfs", "-n", "-O", "^bigalloc", bench.image(), "2E"]);
    assert!(told.refused().contains("use larger clusters (-O bigalloc -C)"), "{}", told.err);
}

#[test]
fn what_can_t_be_made_is_one_line_and_nothing_is_touched() {
    let bench = Bench::empty();
    let image = bench.image();
    for (words, said) in [
        (&["-b", "777", image, "1M"][..], "-b 777"),
        (&["-b", "65536", "-I", "65536", image, "64M"], "-I 65536: an inode size is"),
        (&["-O", "bogus", image, "1M"], "-O bogus: no such feature"),
        (&["-E", "bogus=1", image, "1M"], "-E bogus=1: no such extended option"),
        (&["-t", "ext5", image, "1M"], "-t ext5: no such type"),
        (&["-T", "bogus", image, "1M"], "-T bogus: no such usage"),
        (&["-J", "size=x", image, "1M"], "-J size=x"),
        (&["-U", "1234", image, "1M"], "-U 1234"),
        (&["-C", "65536", image, "64M"], "-C 65536: it needs bigalloc"),
        (&["-b", "4096", image, "2E"], "2^48 - 1"),
        (&[image, "12Q"], "12Q is no size"),
        (&[image, "16K"], "too small"),
        (&["-t", "xfs", image, "299m"], "too small: XFS needs 300 MiB"),
        (&["-t", "xfs", "-s", "size=4096", image, "1073742336"], "not a multiple of the sector, 4096 bytes"),
        (&["-t", "xfs", "-m", "bogus=1", image, "1g"], "-m bogus=1: no such word"),
    ] {
        let ran = hectare(&[&["mkfs"], words].concat());
        assert!(ran.refused().contains(said), "{}: {}", ran.line, ran.err);
        assert_eq!(std::fs::read_dir(bench.folder.path()).unwrap().count(), 0, "{}", ran.line);
    }
    // The same for an existing image, which stays as it is even if it may be overwritten.
    hectare(&["mkfs", "-q", image, "16M"]).ok();
    let before = digest(&bench.image);
    for words in [&["-F", "-O", "^bigalloc", image, "2E"][..], &["-t", "xfs", "-f", image]] {
        let ran = hectare(&[&["mkfs"], words].concat());
        ran.refused();
        assert_eq!(digest(&bench.image), before, "{}", ran.line);
    }
}

/// A small file system in memory, unmounted with this value.
pub(crate) struct Small(PathBuf);

impl Small {
    pub(crate) fn mount(folder: PathBuf, size: &str) -> Result<Self, Skip> {
        if !is_root() {
            return Err(Skip::new("it needs root"));
        }
        std::fs::create_dir(&folder).unwrap();
        let mut mount = need("mount")?;
        let _ = run(mount.args(["-t", "tmpfs", "-o", size, "tmpfs"]).arg(&folder)).expect_success();
        Ok(Self(folder))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        until(|| run(need("umount").unwrap().arg(&self.0)).succeeded());
    }
}

/// A full file system is like a device that fails half way: one line, no volume, and the next opening reports
/// the reason.
#[test]
fn a_device_that_fails_half_way_is_left_marked() {
    let bench = Bench::empty();
    let small = match Small::mount(bench.local("small"), "size=100k") {
        Ok(small) => small,
        Err(reason) => skip!("cli make::a_device_that_fails_half_way", reason),
    };
    let image = small.0.join("image");
    for words in [&["mkfs", "-b", "1024"][..], &["mkfs", "-t", "xfs"]] {
        std::fs::File::create(&image).unwrap().set_len(1 << 30).unwrap();
        let text = image.to_str().unwrap();
        let made = hectare(&[words, &[text]].concat());
        let opened = hectare(&["ls", &format!("{text}:/")]);
        assert!(made.refused().contains("No space left on device"), "{}", made.err);
        assert!(opened.refused().contains("a format was interrupted here"), "{}", opened.err);
        assert!(opened.refused().contains("run mkfs again"), "{}", opened.err);
    }
}

/// A process that is ended with this value.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}

/// Formatting over a volume of the other kind, interrupted: nothing is recognized as a volume, least of all
/// the old one, and formatting again makes one.
#[test]
fn a_format_that_is_killed_leaves_no_volume() {
    use std::os::unix::fs::MetadataExt;
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        skip!("cli make::a_format_that_is_killed", "files of petabytes need a file system in memory");
    };
    let image = memory.path().join("image");
    let text = image.to_str().unwrap();
    let taken = || std::fs::metadata(&image).unwrap().blocks() * 512;
    let (ext4, xfs) = (["-t", "ext4"], ["-t", "xfs"]);
    for (old, new) in [(xfs, ext4), (ext4, xfs)] {
        hectare(&[&["mkfs", "-q"][..], &old, &[text, "1g"]].concat()).ok();
        // Large enough to take a while, and its allocated size shows the progress.
        std::fs::File::options().write(true).open(&image).unwrap().set_len(10 << 50).unwrap();
        let mut mkfs = Command::new(env!("CARGO_BIN_EXE_hectare"));
        let mut running = Killed(mkfs.args(["mkfs", "-q", "--force"]).args(new).arg(&image).spawn().unwrap());
        let before = taken();
        until(|| taken() > before + (4 << 20));
        assert!(running.0.try_wait().unwrap().is_none(), "it was too quick");
        drop(running);
        let opened = hectare(&["ls", &format!("{text}:/")]);
        assert!(opened.refused().contains("a format was interrupted here"), "{}", opened.err);
        // Once more, and smaller.
        std::fs::File::options().write(true).open(&image).unwrap().set_len(1 << 30).unwrap();
        hectare(&[&["mkfs", "-q"][..], &new, &[text]].concat()).ok();
        let judged = || {
            if new == xfs {
                let _ = run(need("xfs_repair")?.arg("-n").arg(&image)).expect_success();
                return Ok(());
            }
            assert_clean(&image)
        };
        if let Err(reason) = judged() {
            skip_part!(format!("cli make::a_format_that_is_killed, {new:?}"), reason);
        }
        std::fs::remove_file(&image).unwrap();
    }
}

/// Space behind the last whole block is not used.
#[test]
fn a_size_that_is_no_multiple_of_the_sector_is_made_of_whole_blocks() {
    const ODD: u64 = (16 << 20) + 777;
    let bench = Bench::empty();
    for fill in [0, 0xa5] {
        std::fs::write(&bench.image, vec![fill; usize::try_from(ODD).unwrap()]).unwrap();
        hectare(&["mkfs", "-q", bench.image()]).ok();
        assert_eq!(std::fs::metadata(&bench.image).unwrap().len(), ODD);
        if let Err(reason) = assert_clean(&bench.image) {
            skip!("cli make::a_size_that_is_no_multiple", reason);
        }
        assert_eq!(dumpe2fs(&bench.image).unwrap().number("Block count"), 16 << 10);
    }
}

/// On a terminal the progress of a format is shown, once it has taken a second.
#[test]
fn progress_is_shown_on_a_terminal() {
    const NAME: &str = "cli make::progress_is_shown_on_a_terminal";
    let Some(memory) = scratch::memory(3 << 30) else {
        skip!(NAME, "a file of petabytes needs 3 GiB of a file system in memory");
    };
    let memory = tempfile::tempdir_in(memory).unwrap();
    let image = memory.path().join("image");
    let mut script = match need("script") {
        Ok(script) => script,
        Err(reason) => skip!(NAME, reason),
    };
    let command = format!("'{}' mkfs -q -t xfs '{}' 100p", env!("CARGO_BIN_EXE_hectare"), image.display());
    let began = Instant::now();
    let said = run(script.args(["-qec", &command, "/dev/null"]).stdin(Stdio::null())).expect_success();
    if began.elapsed() < Duration::from_secs(1) {
        skip!(NAME, "this host formats 100 PB in less than a second");
    }
    assert!(said.stdout.contains("writing") && said.stdout.contains("% "), "{:?}", said.stdout);
    assert!(said.stdout.contains(" left"), "{:?}", said.stdout);
}

/// Writes the mark of an interrupted format to the place where it stays for the kind.
fn interrupt(image: &Path, at: u64) {
    let device = FileOptions::new().write(true).open(image).unwrap();
    device.write_at(Bytes::new(at), UNFINISHED).unwrap();
}

#[test]
fn an_interrupted_format_is_said_and_may_be_run_again() {
    let bench = Bench::empty();
    for at in [0, 1024] {
        std::fs::File::create(&bench.image).unwrap().set_len(16 << 20).unwrap();
        interrupt(&bench.image, at);
        for words in [["ls", &bench.at("/")], ["info", bench.image()]] {
            let ran = hectare(&words);
            assert!(ran.refused().contains("a format was interrupted here"), "{}: {}", ran.line, ran.err);
        }
        hectare(&["mkfs", "-q", bench.image()]).ok();
        if let Err(reason) = assert_clean(&bench.image) {
            skip!("cli make::an_interrupted_format", reason);
        }
    }
}

/// Old content is discarded unless it is to be kept: a file frees its space, and is as if it were new.
#[test]
fn old_content_is_discarded_unless_it_is_to_be_kept() {
    use std::os::unix::fs::MetadataExt;
    let bench = Bench::empty();
    let taken = || std::fs::metadata(&bench.image).unwrap().blocks() * 512;
    let fill = || std::fs::write(&bench.image, vec![0xa5; 320 << 20]).unwrap();
    let lazy = ["mkfs", "-q", "-F", "-t", "ext4", "-E"];
    for (words, keeps) in [
        ([&lazy[..], &["discard"]].concat(), false),
        ([&lazy[..], &["nodiscard"]].concat(), true),
        (vec!["mkfs", "-t", "xfs", "-q", "-f"], false),
        (vec!["mkfs", "-t", "xfs", "-q", "-f", "-K"], true),
    ] {
        fill();
        hectare(&[&words[..], &[bench.image()]].concat()).ok();
        let most = 320 << 20;
        assert!(if keeps { taken() > most / 2 } else { taken() < most / 8 }, "{words:?}: {} bytes", taken());
        let judged = || {
            if words.contains(&"xfs") {
                let said = run(need("xfs_repair")?.arg("-n").arg(&bench.image));
                assert!(said.succeeded(), "{words:?}: {}", said.report());
                return Ok(());
            }
            assert_clean(&bench.image)
        };
        if let Err(reason) = judged() {
            skip_part!(format!("cli make::old_content_is_discarded, {words:?}"), reason);
        }
    }
}

/// Regression: the last MiB of the file was wiped, and what lies behind the volume is the caller's.
#[test]
fn regression_nothing_is_written_behind_a_volume_of_a_given_size() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    let path = image.to_str().unwrap();
    for words in [&["mkfs", "-F"][..], &["mke2fs", "-F", "-q"], &["mkfs", "-F", "--offset", "1M"]] {
        std::fs::write(&image, vec![0xa5; 40 << 20]).unwrap();
        hectare(&[words, &[path, "16M"]].concat()).ok();
        let after = std::fs::read(&image).unwrap();
        assert_eq!(after.len(), 40 << 20, "{words:?}");
        assert!(after[17 << 20..].iter().all(|byte| *byte == 0xa5), "{words:?}");
    }
}
