//! Files that several processes use at once, or that have no name: locks, shared mappings, `O_TMPFILE`.

use crate::support::{MIB, mounted, needed};
use hectare_device::FileOptions;
use hectare_engine::{OpenOptions, Volume};
use hectare_oracle::tool;
use hectare_oracle::tool::{run, run_with_input};
use hectare_oracle::{fsck::assert_clean, skip_part, until};
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Stdio;
use std::sync::Arc;

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
    input.write_all(b"BEGIN EXCLUSIVE;\n.print held\n").unwrap();
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
    for options in ["", "writeback", "data=journal"] {
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

#[test]
fn files_without_a_name_get_one_or_are_gone_when_they_are_closed() {
    const NAME: &str = "sharing::files_without_a_name_get_one_or_are_gone_when_they_are_closed";
    let mount = mounted!(NAME, 64 * MIB, "");
    fs::create_dir(mount.path("d")).unwrap();
    let dir = mount.path("d");
    let open = |flags: OFlags| -> fs::File {
        let flags = flags | OFlags::TMPFILE | OFlags::RDWR;
        rustix::fs::open(&dir, flags, Mode::from_raw_mode(0o640)).unwrap().into()
    };
    let name = |file: &fs::File, name: &str| {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(CWD, path, CWD, mount.path(name), AtFlags::SYMLINK_FOLLOW)
    };
    let free = || rustix::fs::statvfs(&mount.dir).unwrap().f_ffree;
    let before = free();
    let (mut lost, kept, never) = (open(OFlags::empty()), open(OFlags::empty()), open(OFlags::EXCL));
    lost.write_all(&vec![7; 300_000]).unwrap();
    kept.write_all_at(b"kept", 0).unwrap();
    let found = lost.metadata().unwrap();
    assert_eq!((found.nlink(), found.len(), found.mode()), (0, 300_000, 0o100_640));
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    assert_eq!(name(&never, "d/never"), Err(Errno::NOENT), "that is what O_EXCL is for");
    name(&kept, "d/kept").unwrap();
    name(&kept, "again").unwrap();
    assert_eq!(kept.metadata().unwrap().nlink(), 2);
    drop((lost, kept, never));
    assert_eq!(fs::read(mount.path("d/kept")).unwrap(), b"kept");
    until(|| free() == before - 1);
    mount.judge(NAME);
}

/// As a power cut leaves them: orphans, which the next open of the volume frees.
#[test]
fn files_without_a_name_are_gone_after_a_crash() {
    const NAME: &str = "sharing::files_without_a_name_are_gone_after_a_crash";
    let mount = mounted!(NAME, 64 * MIB, "");
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let file: fs::File = rustix::fs::open(&mount.dir, flags, Mode::RUSR | Mode::WUSR).unwrap().into();
    file.write_all_at(&vec![7; 300_000], 0).unwrap();
    file.sync_all().unwrap();
    let copy = mount.outside("copy");
    fs::copy(&mount.image, &copy).unwrap();
    drop(file);
    let device = Arc::new(FileOptions::new().write(true).open(&copy).unwrap());
    let volume = Volume::open(device, OpenOptions::default()).unwrap();
    let left = volume.statfs().unwrap();
    volume.close().unwrap();
    if let Err(reason) = assert_clean(&copy) {
        skip_part!(NAME, reason);
    }
    assert_eq!(left.free_inodes, left.inodes - 11, "those of a fresh volume");
    mount.judge(NAME);
}
