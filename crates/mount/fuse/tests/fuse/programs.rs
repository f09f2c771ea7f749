//! Real programs on a mounted volume: each does its work, checks it where it can, and then the volume is
//! judged. A program that is not installed is a skip that names it.

use crate::support::{MIB, Mount, mounted, needed};
use hectare_oracle::tool::{Said, run, run_with_input};
use hectare_oracle::{Entry, Scale, Tree, What, assert_same, skip, source, tool, walk};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// A copy of a tree, compared with it except for holes, which not every program keeps.
const COPY: What = What { holes: None, ..What::all() };

/// Runs a command that must succeed.
#[track_caller]
fn ok(command: &mut Command) -> Said {
    run(command).expect_success()
}

/// A source of files, including programs: this project's own crates.
fn project() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Git without any user's configuration.
fn git(folder: &Path, arguments: &[&str]) -> Said {
    let mut git = tool("git").expect("it was there a moment ago");
    for (name, value) in [
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_AUTHOR_NAME", "A"),
        ("GIT_AUTHOR_EMAIL", "a@example.org"),
        ("GIT_COMMITTER_NAME", "A"),
        ("GIT_COMMITTER_EMAIL", "a@example.org"),
    ] {
        git.env(name, value);
    }
    ok(git.arg("-C").arg(folder).args(arguments))
}

/// The entries below a work tree, without git's own directory.
fn work_tree(folder: &Path) -> Vec<Entry> {
    let is_own = |path: &[u8]| path.is_empty() || path == b".git" || path.starts_with(b".git/");
    walk(folder).into_iter().filter(|entry| !is_own(&entry.path)).collect()
}

#[test]
fn git_clones_works_and_finds_its_objects_sound() {
    const NAME: &str = "programs::git_clones_works_and_finds_its_objects_sound";
    drop(needed!(NAME, "git"));
    let mount = mounted!(NAME, 256 * MIB, "");
    let origin = mount.outside("origin");
    fs::create_dir(&origin).unwrap();
    ok(Command::new("cp").args(["-r", "--"]).arg(project()).arg(origin.join("crates")));
    git(&origin, &["init", "-q", "-b", "main"]);
    for n in 0..4 {
        fs::write(origin.join("changing"), format!("line {n}\n").repeat(1000 * (n + 1))).unwrap();
        git(&origin, &["add", "-A"]);
        git(&origin, &["commit", "-q", "-m", "more"]);
    }
    git(&mount.dir, &["clone", "-q", origin.to_str().unwrap(), "clone"]);
    let clone = mount.path("clone");
    git(&clone, &["fsck", "--full", "--strict"]);
    assert_same(&work_tree(&clone), &work_tree(&origin), What::content());

    git(&clone, &["checkout", "-q", "-b", "side", "HEAD~2"]);
    fs::rename(clone.join("crates/mount/fuse"), clone.join("crates/moved")).unwrap();
    fs::write(clone.join("new"), "new\n").unwrap();
    git(&clone, &["add", "-A"]);
    git(&clone, &["commit", "-q", "-m", "side"]);
    git(&clone, &["merge", "-q", "-m", "merge", "main"]);
    git(&clone, &["gc", "-q", "--prune=now"]);
    git(&clone, &["fsck", "--full", "--strict"]);
    assert_eq!(git(&clone, &["status", "--porcelain"]).stdout, "");
    mount.judge(NAME);
}

#[test]
fn tar_brings_trees_in_and_out() {
    const NAME: &str = "programs::tar_brings_trees_in_and_out";
    drop(needed!(NAME, "tar"));
    let mount = mounted!(NAME, 256 * MIB, "dev,suid");
    let (archive, back) = (mount.outside("archive.tar"), mount.outside("back"));
    let kept = ["--acls", "--xattrs", "--xattrs-include=*", "--sparse", "-p", "--numeric-owner"];
    let tar = || tool("tar").expect("it was there a moment ago");
    // tar can't pack a socket, and other trees are as good as this one.
    for tree in Tree::ALL.into_iter().filter(|tree| *tree != Tree::Pipes) {
        let from = match source(tree, &Scale::SMALL) {
            Ok(from) => from,
            Err(reason) => skip!(NAME, reason),
        };
        let to = mount.path(tree.name());
        for folder in [&to, &back] {
            fs::create_dir(folder).unwrap();
        }
        ok(tar().args(kept).arg("--format=posix").arg("-cf").arg(&archive).arg("-C").arg(&from).arg("."));
        ok(tar().args(kept).arg("-xf").arg(&archive).arg("-C").arg(&to));
        assert_same(&walk(&to), &walk(&from), COPY);
        ok(tar().args(kept).arg("--format=posix").arg("-cf").arg(&archive).arg("-C").arg(&to).arg("."));
        ok(tar().args(kept).arg("-xf").arg(&archive).arg("-C").arg(&back));
        assert_same(&walk(&back), &walk(&from), COPY);
        fs::remove_dir_all(&back).unwrap();
    }
    mount.judge_scattered(NAME);
}

#[test]
fn rsync_finds_nothing_left_to_do_the_second_time() {
    const NAME: &str = "programs::rsync_finds_nothing_left_to_do_the_second_time";
    drop(needed!(NAME, "rsync"));
    let mount = mounted!(NAME, 256 * MIB, "dev,suid");
    for tree in Tree::ALL {
        let from = match source(tree, &Scale::SMALL) {
            Ok(from) => from,
            Err(reason) => skip!(NAME, reason),
        };
        let to = mount.path(tree.name());
        let rsync = |more: &str| {
            let mut rsync = tool("rsync").expect("it was there a moment ago");
            let slash = |folder: &Path| format!("{}/", folder.display());
            ok(rsync
                .args(["-aHAX", "--numeric-ids", "--itemize-changes", more])
                .arg(slash(&from))
                .arg(slash(&to)))
        };
        rsync("--sparse");
        assert_eq!(rsync("--sparse").stdout, "", "{tree:?}");
        // Nor if it reads every byte of both.
        assert_eq!(rsync("--checksum").stdout, "", "{tree:?}");
        assert_same(&walk(&to), &walk(&from), COPY);
    }
    mount.judge_scattered(NAME);
}

/// Writers and readers of one database, each a process of its own.
fn use_database(mount: &Mount, journal: &str) {
    const WRITERS: u32 = 4;
    const TRANSACTIONS: u32 = 25;
    let database = mount.path(&format!("{journal}.db"));
    let sqlite = || {
        let mut sqlite = tool("sqlite3").expect("it was there a moment ago");
        sqlite.arg("-bail").arg("-batch").arg(&database);
        sqlite
    };
    let schema = format!(
        "PRAGMA journal_mode={journal}; CREATE TABLE t (writer INT, n INT, payload BLOB, UNIQUE (writer, n));"
    );
    let run_script = |script: &str| run_with_input(&mut sqlite(), script).expect_success().stdout;
    assert_eq!(run_script(&schema), format!("{journal}\n"));
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let mut script = String::from(".timeout 60000\nPRAGMA synchronous=NORMAL;\n");
            for n in 0..TRANSACTIONS {
                script += &format!(
                    "BEGIN IMMEDIATE; INSERT INTO t VALUES ({writer}, {n}, randomblob({}));\n\
                     UPDATE t SET payload = randomblob(5000) WHERE writer = {writer} AND n = {};\n\
                     DELETE FROM t WHERE writer = {writer} AND n = {} AND n % 5 = 0; COMMIT;\n",
                    500 + 700 * n,
                    n / 2,
                    n.saturating_sub(3),
                );
            }
            scope.spawn(move || run_script(&script));
        }
        scope.spawn(|| {
            run_script(&".timeout 60000\nSELECT sum(length(payload)) FROM t;\n".repeat(20));
        });
    });
    let left = (0..TRANSACTIONS).filter(|n| n % 5 != 0 || n + 3 >= TRANSACTIONS).count();
    let expected = format!("ok\n{}\n", left * usize::try_from(WRITERS).unwrap());
    let said = run_script("PRAGMA integrity_check; SELECT count(*) FROM t; VACUUM;");
    assert_eq!(said, expected, "{journal}");
    assert_eq!(run_script("PRAGMA integrity_check;"), "ok\n", "{journal}");
}

#[test]
fn sqlite_keeps_a_database_that_many_use() {
    const NAME: &str = "programs::sqlite_keeps_a_database_that_many_use";
    drop(needed!(NAME, "sqlite3"));
    let mount = mounted!(NAME, 128 * MIB, "");
    for journal in ["wal", "delete", "truncate", "persist"] {
        use_database(&mount, journal);
    }
    mount.judge(NAME);
}

#[test]
fn cargo_builds_and_the_result_runs() {
    const NAME: &str = "programs::cargo_builds_and_the_result_runs";
    let mount = mounted!(NAME, 512 * MIB, "");
    let package = mount.path("package");
    fs::create_dir_all(package.join("src")).unwrap();
    let manifest = "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
    fs::write(package.join("Cargo.toml"), manifest).unwrap();
    fs::write(package.join("src/lib.rs"), "pub fn number() -> u32 { 41 }\n").unwrap();
    fs::write(package.join("src/main.rs"), "fn main() { println!(\"{}\", small::number() + 1); }\n").unwrap();
    let cargo = |arguments: &[&str]| {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let inherited = std::env::vars_os().map(|(name, _)| name);
        for name in inherited.filter(|name| name.to_string_lossy().starts_with("CARGO_")) {
            if name != "CARGO_HOME" {
                cargo.env_remove(name);
            }
        }
        cargo.env_remove("RUSTFLAGS").env("CARGO_NET_OFFLINE", "true").current_dir(&package);
        ok(cargo.args(arguments).stdin(Stdio::null())).stdout
    };
    assert_eq!(cargo(&["run", "-q"]), "42\n");
    fs::write(package.join("src/lib.rs"), "pub fn number() -> u32 { 99 }\n").unwrap();
    assert_eq!(cargo(&["run", "-q"]), "100\n", "it saw that a file has changed");
    cargo(&["test", "-q", "--release"]);
    mount.judge(NAME);
}

/// Runs fio, which fails if anything reads back wrong.
fn fio(mount: &Mount, name: &str, arguments: &str) {
    let mut fio = tool("fio").expect("it was there a moment ago");
    fio.arg(format!("--name={name}")).arg(format!("--directory={}", mount.dir.display()));
    fio.args(["--output-format=terse", "--verify=crc32c", "--verify_fatal=1", "--do_verify=1"]);
    fio.args(["--thread", "--group_reporting", "--randseed=7", "--verify_state_save=0"]);
    // It leaves a file with its verification state in its working directory.
    ok(fio.args(arguments.split_whitespace()).current_dir(mount.outside("")));
}

#[test]
fn fio_reads_back_what_it_wrote() {
    const NAME: &str = "programs::fio_reads_back_what_it_wrote";
    drop(needed!(NAME, "fio"));
    for options in ["", "writeback,nodelalloc"] {
        let mount = mounted!(NAME, 512 * MIB, options);
        fio(&mount, "sequential", "--rw=write --bs=1M --size=64M --ioengine=psync --end_fsync=1");
        fio(&mount, "mixed", "--rw=randrw --bsrange=512-64k --bs_unaligned=1 --size=8M --numjobs=4");
        fio(&mount, "direct", "--rw=randwrite --bs=16k --size=32M --direct=1 --ioengine=libaio --iodepth=16");
        fio(&mount, "mapped", "--rw=randwrite --bs=4k --size=16M --ioengine=mmap --numjobs=2");
        fio(
            &mount,
            "synced",
            "--rw=randwrite --bs=4k --size=4M --ioengine=psync --fsync=16 --fallocate=none",
        );
        mount.judge_scattered(NAME);
    }
}

/// Another server of such volumes leaves images corrupt after this.
#[test]
fn fio_writes_all_over_a_file_that_was_allocated_before() {
    const NAME: &str = "programs::fio_writes_all_over_a_file_that_was_allocated_before";
    drop(needed!(NAME, "fio"));
    let mount = mounted!(NAME, 512 * MIB, "");
    let file = fs::File::create(mount.path("file")).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 256 * MIB).unwrap();
    drop(file);
    // Less than the length of the file: what is not written must stay zeros.
    fio(&mount, "over", "--filename=file --filesize=256M --rw=randwrite --bs=4k --io_size=64M --numjobs=1");
    mount.judge_scattered(NAME);
}

#[test]
fn stress_ng_finds_nothing_wrong() {
    const NAME: &str = "programs::stress_ng_finds_nothing_wrong";
    let mut stress = needed!(NAME, "stress-ng");
    let mount = mounted!(NAME, 256 * MIB, "");
    let work = "--hdd 2 --hdd-bytes 16M --dir 2 --dir-dirs 512 --rename 2 --link 2 --timeout 4s --verify";
    let said = ok(stress.args(work.split_whitespace()).arg("--temp-path").arg(&mount.dir));
    assert!(!said.report().contains("fail:"), "{}", said.report());
    mount.judge(NAME);
}
