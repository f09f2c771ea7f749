//! Files that several use at once, or that have no name: locks, shared mappings, `O_TMPFILE`.

use crate::support::{MIB, mounted, needed};
use hectare_oracle::tool;
use hectare_oracle::tool::{run, run_with_input};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use std::fs;
use std::process::Stdio;

#[test]
fn whole_files_are_locked_between_openers() {
    const NAME: &str = "sharing::whole_files_are_locked_between_openers";
    let mut other = needed!(NAME, "flock");
    let mount = mounted!(NAME, 64 * MIB, "");
    fs::write(mount.path("f"), "text").unwrap();
    let open = || fs::File::open(mount.path("f")).unwrap();
    let (one, two) = (open(), open());
    flock(&one, FlockOperation::LockShared).unwrap();
    flock(&two, FlockOperation::NonBlockingLockShared).unwrap();
    assert_eq!(flock(&one, FlockOperation::NonBlockingLockExclusive), Err(Errno::WOULDBLOCK));
    flock(&two, FlockOperation::Unlock).unwrap();
    flock(&one, FlockOperation::NonBlockingLockExclusive).unwrap();
    other.args(["-n", "-E", "77"]).arg(mount.path("f")).arg("true");
    assert_eq!(run(&mut other).exit, Some(77), "another process waits as well");
    drop(one);
    assert_eq!(run(&mut other).exit, Some(0), "closing unlocks");
    drop(two);
    mount.judge(NAME);
}

/// SQLite locks ranges of bytes, as `fcntl` does it.
#[test]
fn ranges_are_locked_between_processes() {
    const NAME: &str = "sharing::ranges_are_locked_between_processes";
    drop(needed!(NAME, "sqlite3"));
    let mount = mounted!(NAME, 64 * MIB, "");
    let sqlite = || {
        let mut sqlite = tool("sqlite3").expect("it was there a moment ago");
        sqlite.arg("-batch").arg(mount.path("db"));
        sqlite
    };
    let made = run_with_input(&mut sqlite(), "CREATE TABLE t (n INT); INSERT INTO t VALUES (1);");
    assert!(made.succeeded(), "{}", made.report());
    let mut holder = sqlite().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, mut output) = (holder.stdin.take().unwrap(), holder.stdout.take().unwrap());
    std::io::Write::write_all(&mut input, b"BEGIN EXCLUSIVE;\n.print held\n").unwrap();
    let mut said = [0; 5];
    std::io::Read::read_exact(&mut output, &mut said).unwrap();
    let refused = run_with_input(&mut sqlite(), "SELECT * FROM t;");
    assert!(refused.report().contains("locked"), "{}", refused.report());
    drop(input);
    assert!(holder.wait().unwrap().success());
    assert_eq!(run_with_input(&mut sqlite(), "SELECT * FROM t;").stdout, "1\n");
    mount.judge(NAME);
}

#[test]
fn what_is_written_through_a_shared_mapping_is_in_the_file() {
    const NAME: &str = "sharing::what_is_written_through_a_shared_mapping_is_in_the_file";
    drop(needed!(NAME, "xfs_io"));
    for options in ["", "nowriteback", "data=journal"] {
        let mut mount = mounted!(NAME, 64 * MIB, options);
        let map = |commands: &[&str]| {
            let mut xfs_io = tool("xfs_io").expect("it was there a moment ago");
            for command in commands {
                xfs_io.args(["-c", command]);
            }
            run(xfs_io.arg(mount.path("f"))).expect_success()
        };
        // Over what was written, over a hole, over what was only allocated.
        fs::write(mount.path("f"), vec![1; 1 << 20]).unwrap();
        let _ = map(&["truncate 3m", "falloc -k 2m 1m", "mmap -rw 0 3m"]);
        let _ = map(&["mmap -rw 0 3m", "mwrite -S 0x61 1000 5000", "mwrite -S 0x62 1500000 100", "msync -s"]);
        let _ = map(&["mmap -rw 0 3m", "mwrite -S 0x63 2500000 4096"]);
        let mut expected = vec![1; 1 << 20];
        expected.resize(3 << 20, 0);
        expected[1000..6000].fill(0x61);
        expected[1_500_000..1_500_100].fill(0x62);
        expected[2_500_000..2_504_096].fill(0x63);
        assert!(fs::read(mount.path("f")).unwrap() == expected, "{options}");
        mount.detach();
        mount.attach("");
        assert!(fs::read(mount.path("f")).unwrap() == expected, "{options}: it is on the volume, too");
        mount.judge(NAME);
    }
}

/// The kernel asks with a request that the session library does not know, and gives up.
#[test]
fn files_without_a_name_are_refused_as_not_supported() {
    const NAME: &str = "sharing::files_without_a_name_are_refused_as_not_supported";
    let mount = mounted!(NAME, 64 * MIB, "");
    let opened = rustix::fs::open(&mount.dir, OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR | Mode::WUSR);
    assert_eq!(opened.err(), Some(Errno::OPNOTSUPP));
    mount.judge(NAME);
}
