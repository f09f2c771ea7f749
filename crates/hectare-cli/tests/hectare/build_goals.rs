//! Where `hectare build` writes: standard output, partitions and parts of disks.

use crate::support::{Bench, hectare};
use hectare_oracle::{Skip, assert_clean, skip, tool::need};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const BINARY: &str = env!("CARGO_BIN_EXE_hectare");
const LEN: usize = 64 << 20;

/// A bench with a tree `src` of 3 MiB.
fn tree() -> (Bench, PathBuf) {
    let bench = Bench::empty();
    let src = bench.local("src");
    fs::create_dir_all(src.join("dir")).unwrap();
    fs::write(src.join("dir/large"), vec![5; 3 << 20]).unwrap();
    fs::write(src.join("small"), "small").unwrap();
    (bench, src)
}

/// `hectare build --from SRC WORDS`, made the same every time, with this standard output.
fn build(src: &Path, words: &[&str], stdout: impl Into<Stdio>) -> Output {
    let mut command = Command::new(BINARY);
    command.args(["build", "--from"]).arg(src).args(words).env("SOURCE_DATE_EPOCH", "1700000000");
    command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped()).output().unwrap()
}

/// The one line of an error.
#[track_caller]
fn refused(output: &Output, code: i32) -> String {
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn regression_the_configuration_does_not_go_where_the_image_goes() {
    let (bench, src) = tree();
    let image = bench.image();
    for words in [["-F", "--config", image, image], ["--config", image, "-o", image]] {
        assert!(refused(&build(&src, &words, Stdio::null()), 2).contains("--config"));
        assert!(!bench.image.exists());
    }
}

#[test]
fn standard_output_gets_the_bytes_that_a_file_gets_and_nothing_else() {
    let (bench, src) = tree();
    let said = build(&src, &["--size", "20M", bench.image()], Stdio::null());
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    assert_clean(&bench.image).unwrap();
    let expected = fs::read(&bench.image).unwrap();
    for words in [&["--size", "20M", "-"][..], &["--size", "20M", "-o", "-"], &["--size=20M", "--output=-"]] {
        let piped = build(&src, words, Stdio::piped());
        assert!(piped.status.success() && piped.stdout == expected, "{words:?}");
        assert!(piped.stderr.is_empty(), "{}", String::from_utf8_lossy(&piped.stderr));
    }
    // A file that is written from where it stands, and one that is appended to.
    let mut file = File::create(bench.local("standing")).unwrap();
    file.write_all(b"before").unwrap();
    assert!(build(&src, &["--size", "20M", "-"], file).status.success());
    assert!(fs::read(bench.local("standing")).unwrap() == [b"before", &*expected].concat());
    fs::write(bench.local("appended"), "before").unwrap();
    let file = File::options().append(true).open(bench.local("appended")).unwrap();
    assert!(build(&src, &["--size", "20M", "-"], file).status.success());
    assert!(fs::read(bench.local("appended")).unwrap() == [b"before", &*expected].concat());
    // A name for it that is a file's.
    let said = build(&src, &["--size", "20M", "-o", bench.local("named").to_str().unwrap()], Stdio::null());
    assert!(said.status.success() && fs::read(bench.local("named")).unwrap() == expected);
}

#[test]
fn a_line_about_the_image_does_not_go_where_the_image_goes() {
    let (bench, src) = tree();
    assert!(build(&src, &[bench.image()], Stdio::null()).status.success());
    let piped = build(&src, &["--like", bench.image(), "-"], Stdio::piped());
    let said = String::from_utf8(piped.stderr).unwrap();
    assert!(said.contains("0 of ") && said.contains("blocks differ"), "{said}");
    assert!(piped.stdout == fs::read(&bench.image).unwrap());
}

#[test]
fn standard_output_is_refused_where_it_can_not_be_the_image() {
    let (bench, src) = tree();
    for words in [&["--json", "-"][..], &["--explain-size", "-"], &["--partition", "1", "-"]] {
        let said = build(&src, words, Stdio::piped());
        assert!(said.stdout.is_empty());
        refused(&said, 2);
    }
    refused(&build(&src, &["-o", "a", "b"], Stdio::null()), 2);
    assert!(!Path::new("a").exists() && !Path::new("b").exists());
    // A full device, and a directory for temporary files that is none.
    let full = File::options().write(true).open("/dev/full").unwrap();
    let said = refused(&build(&src, &["-"], full), 1);
    assert!(said.contains("standard output: No space left on device"), "{said}");
    let mut command = Command::new(BINARY);
    command.args(["build", "-o", "-", "--from"]).arg(&src).env("TMPDIR", bench.local("none"));
    let said = refused(&command.output().unwrap(), 1);
    assert!(said.contains("none (TMPDIR): No such file or directory"), "{said}");
    // A terminal.
    let line = format!("{BINARY} build --from {} -", src.display());
    let said = match need("script") {
        Ok(mut script) => script.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).output().unwrap(),
        Err(reason) => skip!("build_goals::standard_output_is_refused", reason),
    };
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(text.contains("standard output is a terminal") && text.len() < 1000, "{text}");
}

#[test]
fn a_reader_that_goes_away_is_an_error() {
    let (_bench, src) = tree();
    let mut command = Command::new(BINARY);
    command.args(["build", "-o", "-", "--from"]).arg(&src).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut start = [0; 4096];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut start).unwrap();
    drop(stdout);
    let said = refused(&child.wait_with_output().unwrap(), 1);
    assert!(said.contains("standard output: Broken pipe"), "{said}");
}

/// A disk of [`LEN`] bytes that all are 0xa5 but those of its table.
fn disk(bench: &Bench, script: &str) -> Result<PathBuf, Skip> {
    let path = bench.local("sdcard.img");
    fs::write(&path, vec![0xa5; LEN]).unwrap();
    let mut sfdisk = need("sfdisk")?;
    let mut child = sfdisk
        .args(["--quiet", "--no-reread", "--no-tell-kernel"])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    Ok(path)
}

const GPT: &str = "label: gpt\nstart=2048, size=20479\nsize=16MiB\nsize=1MiB\n";
const DOS: &str = "label: dos\nd1 : start=2048, size=20479, type=83\nd2 : size=16MiB, type=83\n\
                   d3 : size=1MiB, type=83\n";
/// The first partition: an odd number of sectors.
const FIRST: std::ops::Range<usize> = 2048 * 512..(2048 + 20479) * 512;

/// The first partition alone, checked.
#[track_caller]
fn checked(bench: &Bench, disk: &[u8]) -> PathBuf {
    let alone = bench.local("alone.img");
    fs::write(&alone, &disk[FIRST]).unwrap();
    assert_clean(&alone).unwrap();
    alone
}

#[test]
fn a_partition_is_filled_and_no_byte_outside_of_it_changes() {
    for script in [GPT, DOS] {
        let (bench, src) = tree();
        let path = match disk(&bench, script) {
            Ok(path) => path,
            Err(reason) => skip!("build_goals::a_partition_is_filled", reason),
        };
        let (image, before) = (path.to_str().unwrap(), fs::read(&path).unwrap());
        let start = FIRST.start.to_string();
        // All of it, less, and by place.
        let cases: [(&[&str], u64); 4] = [
            (&["--partition", "1"], 20479 * 512 / 4096 * 4096),
            (&["--partition", "1", "--size", "min", "-F"], 0),
            (&["--partition=1", "--size=8M", "-F"], 8 << 20),
            (&["--offset", &start, "--size", "min", "-F"], 0),
        ];
        for (words, len) in cases {
            let said = build(&src, &[words, &[image]].concat(), Stdio::null());
            assert!(said.status.success(), "{words:?}: {}", String::from_utf8_lossy(&said.stderr));
            let after = fs::read(&path).unwrap();
            assert!(before[..FIRST.start] == after[..FIRST.start], "{words:?}: before");
            assert!(before[FIRST.end..] == after[FIRST.end..], "{words:?}: behind");
            checked(&bench, &after);
            let info = hectare(&["info", "--json", "--partition", "1", image]).ok().json();
            let number = |field: &str| info["superblock"][field].as_str().unwrap().parse::<u64>().unwrap();
            let (blocks, size) = (number("Block count"), number("Block size"));
            assert!(len == 0 || blocks * size == len, "{words:?}: {blocks} blocks");
            let read = hectare(&["cat", "--partition", "1", &format!("{image}:/dir/large")]).ok();
            assert!(read.out == vec![5; 3 << 20]);
        }
    }
}

#[test]
fn a_partition_with_content_or_without_room_is_left_alone() {
    let (bench, src) = tree();
    let path = match disk(&bench, GPT) {
        Ok(path) => path,
        Err(reason) => skip!("build_goals::a_partition_with_content", reason),
    };
    let image = path.to_str().unwrap();
    hectare(&["mkfs", "-q", "--partition", "2", image]).ok();
    let before = fs::read(&path).unwrap();
    let room = 20479 * 512;
    let cases: [(&[&str], &[&str]); 8] = [
        (&["--partition", "2"], &["holds an ext4 file system", "--force"]),
        (&["--partition", "3"], &["sdcard.img: partition 3: it has 1048576 bytes, and the image needs "]),
        (&["--partition", "3", "-F"], &["it has 1048576 bytes, and the image needs "]),
        (&["--partition", "3", "--size", "min", "-F"], &["it has 1048576 bytes, and the image needs "]),
        (&["--partition", "1", "--size", "11M", "-F"], &[&format!("it has {room} bytes"), " needs 11534336"]),
        (&["--partition", "1", "--free", "9M", "-F"], &[&format!("it has {room} bytes"), "needs 1"]),
        (
            &["--partition", "1", "--size", "2M", "-F"],
            &["partition 1: 2097152 bytes are too small", "--size"],
        ),
        (&["--partition", "7", "-F"], &["has no partition 7: there are 1, 2, 3"]),
    ];
    for (words, parts) in cases {
        let said = refused(&build(&src, &[words, &[image]].concat(), Stdio::null()), 1);
        assert!(parts.iter().all(|part| said.contains(part)), "{words:?}: {said}");
        assert!(fs::read(&path).unwrap() == before, "{words:?}");
    }
    let none = bench.local("none.img");
    let said = refused(&build(&src, &["--offset", "1M", none.to_str().unwrap()], Stdio::null()), 1);
    assert!(said.contains("none.img from byte 1048576: No such file") && !none.exists(), "{said}");
    let said = refused(&build(&src, &["--offset", "1G", "-F", image], Stdio::null()), 1);
    assert!(fs::read(&path).unwrap() == before, "{said}");
}
