//! Commands whose standard output is closed, full, or read no further: what they do and judge stays the same.

use crate::BINARY;
use crate::support::{Bench, hectare};
use hectare_oracle::{Skip, debugfs_write, mke2fs, skip, tool};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// What becomes of standard output.
#[derive(Clone, Copy, Debug)]
enum Stdout {
    /// All of it is kept.
    Kept,
    /// It was closed before the command began.
    Closed,
    /// Its disk is full.
    Full,
    /// Its reader goes after this many bytes.
    Gone(usize),
}

/// Those that lose something.
const LOSING: [Stdout; 5] =
    [Stdout::Closed, Stdout::Full, Stdout::Gone(0), Stdout::Gone(1), Stdout::Gone(50)];

/// A command by its words, and what it reads from standard input.
type Case = (&'static str, &'static str);

/// Commands that change or judge something, on [`prepared`] files.
const WORK: &[Case] = &[
    ("mkfs new.img 8M", ""),
    ("mkfs --json new.img 8M", ""),
    ("mkfs -n new.img 8M", ""),
    ("mkfs.xfs new.xfs 300M", ""),
    ("mke2fs new.img 8M", ""),
    ("mke2fs -d tree new.img 8M", ""),
    ("build --from tree new.img", ""),
    ("build --from tree --explain-size new.img", ""),
    ("build --from tree --dedupe new.img", ""),
    ("build --from tree --json new.img", ""),
    ("build --from tree --verify-only", ""),
    ("disk build disk.toml -o new.disk", ""),
    ("disk build disk.toml --json -o new.disk", ""),
    ("convert sound.img new.qcow2", ""),
    ("export sound.img -o new.tar", ""),
    ("salvage broken.img -o new", ""),
    ("check sound.img", ""),
    ("check --json sound.img", ""),
    ("check broken.img", ""),
    ("check --json broken.img", ""),
    ("repair -n broken.img", ""),
    ("repair -n --json broken.img", ""),
    ("repair -p broken.img", ""),
    ("repair -y broken.img", ""),
    ("repair -y --json broken.img", ""),
    ("repair -y sound.img", ""),
    ("undo mended.img mended.img.undo-1", ""),
    ("diff sound.img sound.img", ""),
    ("diff --json sound.img sound.img", ""),
    ("diff sound.img empty.img", ""),
    ("diff --json sound.img empty.img", ""),
    ("resize sound.img 12M", ""),
    ("resize --json sound.img 12M", ""),
    ("resize --estimate sound.img", ""),
    ("tune -L name sound.img", ""),
    ("tune -L name --json sound.img", ""),
    ("tune -L name --list sound.img", ""),
    ("trim sound.img", ""),
    ("defrag -v sound.img:", ""),
    ("defrag --free -v sound.img:", ""),
    ("quota --recount quota.img", ""),
    ("quota --set user:5 --soft 1M quota.img", ""),
    ("cp --explain 9 tree/file sound.img:/copy", ""),
    ("touch --explain 9 sound.img:/touched", ""),
    ("sh sound.img", "mkdir /a\nls -l /\ncat /file\nmkdir /b\nfind /\nrm /file\n"),
    ("sh -k sound.img", "ls -l /\nrm /none\nmkdir /b\n"),
    ("freefrag sound.img", ""),
    ("info sound.img", ""),
    ("info broken.img", ""),
    ("map sound.img -o new.svg", ""),
];

/// Commands whose work is to print.
const LISTINGS: &[Case] = &[
    ("ls -lR sound.img:", ""),
    ("ls --json sound.img:", ""),
    ("tree sound.img:", ""),
    ("find sound.img:", ""),
    ("find --json sound.img:", ""),
    ("du -a sound.img:", ""),
    ("df sound.img", ""),
    ("stat sound.img:/file", ""),
    ("cat sound.img:/file", ""),
    ("cp sound.img:/file -", ""),
    ("explain sound.img --size 1M", ""),
    ("identify sound.img", ""),
    ("completions bash", ""),
    ("--version", ""),
];

/// Volumes, sound and broken ones, and a tree to copy.
fn prepared(folder: &Path) -> Result<(), Skip> {
    let name = |file: &str| folder.join(file).to_str().unwrap().to_owned();
    fs::create_dir(folder.join("tree")).unwrap();
    fs::write(folder.join("tree/file"), "content\n".repeat(2000)).unwrap();
    fs::write(folder.join("tree/twin"), "content\n".repeat(2000)).unwrap();
    let spec = "table = \"gpt\"\n[[partition]]\ntype = \"linux\"\nformat = \"ext4\"\nfrom = \"tree\"\n";
    fs::write(folder.join("disk.toml"), spec).unwrap();
    for (file, features) in [("sound.img", ""), ("empty.img", ""), ("broken.img", ""), ("quota.img", "quota")]
    {
        mke2fs(&["-t", "ext4", "-O", features], &folder.join(file), "8M")?;
    }
    for file in ["sound.img", "broken.img", "quota.img"] {
        hectare(&["cp", "-r", &name("tree/file"), &format!("{}:/file", name(file))]).ok();
    }
    debugfs_write(&folder.join("broken.img"), &["clri <11>"])?;
    fs::copy(folder.join("broken.img"), folder.join("mended.img")).unwrap();
    assert_eq!(hectare(&["repair", "-y", &name("mended.img")]).code, Some(1));
    Ok(())
}

/// A command in a folder.
fn command((words, _): Case, folder: &Path, stdout: Stdout) -> Command {
    let mut command = match stdout {
        Stdout::Closed => {
            let mut shell = Command::new("sh");
            shell.args(["-c", "exec \"$0\" \"$@\" >&-", BINARY]);
            shell
        }
        _ => Command::new(BINARY),
    };
    command.args(words.split(' ')).current_dir(folder).stderr(Stdio::piped());
    command
}

/// Runs a command with such a standard output.
fn run(case: Case, folder: &Path, stdout: Stdout) -> Output {
    let mut command = command(case, folder, stdout);
    let script = tempfile::NamedTempFile::new().unwrap();
    fs::write(script.path(), case.1).unwrap();
    command.stdin(script.reopen().unwrap());
    let Stdout::Gone(bytes) = stdout else {
        command.stdout(match stdout {
            Stdout::Full => Stdio::from(File::options().write(true).open("/dev/full").unwrap()),
            Stdout::Closed => Stdio::null(),
            _ => Stdio::piped(),
        });
        return command.output().unwrap();
    };
    let (mut reader, writer) = std::io::pipe().unwrap();
    command.stdout(writer);
    if bytes == 0 {
        drop(reader);
        return command.output().unwrap();
    }
    let child = command.spawn().unwrap();
    drop(command);
    let _ = reader.read_exact(&mut vec![0; bytes]); // there may be less
    drop(reader);
    child.wait_with_output().unwrap()
}

/// What a folder holds: the length of each file, and of volumes what e2fsck and a walk find.
fn state(folder: &Path) -> BTreeMap<String, (u64, Option<i32>, String)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let (name, meta) = (path.file_name().unwrap().to_str().unwrap(), path.metadata().unwrap());
        let (mut verdict, mut names) = (None, String::new());
        if meta.is_dir() {
            names = state(&path).keys().map(|name| format!("{name} ")).collect();
        } else if name.ends_with(".img") {
            let mut e2fsck = tool::need("e2fsck").unwrap();
            verdict = e2fsck.args(["-fn"]).arg(&path).output().unwrap().status.code();
            names = hectare(&["find", &format!("{}:", path.display())]).text().to_owned();
        }
        // Bytes differ from run to run: they have times and random numbers.
        found.insert(name.to_owned(), (if meta.is_dir() { 0 } else { meta.len() }, verdict, names));
    }
    found
}

/// A folder with copies of the files that a command names, and of the tree.
fn copied(from: &Path, words: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let named = words.split([' ', ':', '/']).chain(["tree"]).map(|word| from.join(word));
    let named: HashSet<_> = named.filter(|path| path.parent() == Some(from) && path.exists()).collect();
    let mut cp = tool::need("cp").unwrap();
    let _ = tool::run(cp.args(["-a", "--sparse=always"]).args(named).arg(folder.path())).expect_success();
    folder
}

/// The exit code that a command has where what it says is lost.
fn expected(words: &str, kept: &Output, stdout: Stdout) -> i32 {
    let code = kept.status.code().unwrap();
    let command = words.split(' ').next();
    match (stdout, command, code) {
        (Stdout::Full, ..) if kept.stdout.is_empty() => code,
        (Stdout::Full, Some("diff"), _) => 2,
        (Stdout::Full, Some("repair"), 0) => 8,
        (Stdout::Full, _, 0) => 1,
        _ => code,
    }
}

#[test]
fn regression_work_and_verdicts_do_not_depend_on_a_reader() {
    let bench = Bench::empty();
    if let Err(reason) = prepared(bench.folder.path()) {
        skip!("cli unread::regression_work_and_verdicts_do_not_depend_on_a_reader", reason);
    }
    let mut wrong = Vec::new();
    for case in WORK.iter().chain(LISTINGS) {
        let folder = copied(bench.folder.path(), case.0);
        let kept = run(*case, folder.path(), Stdout::Kept);
        assert!(!matches!(kept.status.code(), None | Some(101)), "{}", case.0);
        let all = state(folder.path());
        for stdout in LOSING {
            let folder = copied(bench.folder.path(), case.0);
            let ran = run(*case, folder.path(), stdout);
            let code = expected(case.0, &kept, stdout);
            if ran.status.code() != Some(code) {
                let said = String::from_utf8_lossy(&ran.stderr).into_owned();
                wrong.push(format!("{}, {stdout:?}: {:?}, not {code}: {said}", case.0, ran.status));
            }
            // A batch ends at a line that failed, as one does whose output was lost: a test of its own is below.
            let ends = matches!(stdout, Stdout::Full) && case.0 == "sh sound.img";
            if !ends && state(folder.path()) != all {
                wrong.push(format!("{}, {stdout:?}: another result", case.0));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn regression_a_server_serves_although_nobody_reads_its_address() {
    let bench = Bench::empty();
    hectare(&["mkfs", "-q", bench.image(), "8M"]).ok();
    let socket = bench.local("socket");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut server = Command::new(BINARY);
    server.args(["serve", bench.image(), "--nbd", &format!("unix:{}", socket.display())]);
    let mut server = server.stdin(Stdio::null()).stdout(writer).spawn().unwrap();
    while !socket.exists() && server.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let touched = hectare(&["touch", &format!("nbd+unix:///?socket={}:/a", socket.display())]);
    let _ = kill_process(Pid::from_child(&server), Signal::TERM); // it may have ended
    assert_eq!((touched.code, server.wait().unwrap().code()), (Some(0), Some(0)), "{}", touched.err);
}

/// A file that could not be copied to standard output was removed by the next line of the batch.
#[test]
fn regression_a_batch_went_on_after_a_copy_that_was_lost() {
    let bench = Bench::empty();
    hectare(&["mkfs", "-q", bench.image(), "8M"]).ok();
    fs::write(bench.local("f"), "content").unwrap();
    hectare(&["cp", bench.local("f").to_str().unwrap(), &bench.at("/f")]).ok();
    fs::write(bench.local("batch"), "cat /f\nrm /f\n").unwrap();
    let mut command = Command::new(BINARY);
    command.args(["sh", bench.image()]).stdin(File::open(bench.local("batch")).unwrap());
    let ran = command.stdout(File::options().write(true).open("/dev/full").unwrap()).output().unwrap();
    assert_eq!(ran.status.code(), Some(1), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(hectare(&["cat", &bench.at("/f")]).ok().text(), "content");
}

/// That there is no report was not said where something had been left out, too.
#[test]
fn regression_a_report_that_could_not_be_written_was_not_missed() {
    let bench = Bench::empty();
    fs::create_dir(bench.local("tree")).unwrap();
    drop(std::os::unix::net::UnixListener::bind(bench.local("tree/socket")).unwrap());
    hectare(&["build", "--from", bench.local("tree").to_str().unwrap(), bench.image()]).ok();
    let (output, report) = (bench.local("o.tar"), bench.local("none/report.json"));
    let output = format!("tar:{}", output.display());
    let ran = hectare(&["salvage", bench.image(), "-o", &output, "--report", report.to_str().unwrap()]);
    assert!(ran.code == Some(1) && ran.err.contains("report.json"), "{}", ran.err);
}
