//! Everyday operations: trees, renaming, attributes, holes, listing, full volumes, many processes.

use crate::support::{MIB, Mount, mounted, needed};
use hectare_oracle::tool::run;
use hectare_oracle::{Entry, skip, tool, walk};
use rustix::fs::{AtFlags, CWD, FallocateFlags, RenameFlags, Timespec, Timestamps, XattrFlags, utimensat};
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn a_tree_with_all_kinds_of_things() {
    let mount = mounted!("mount::a_tree_with_all_kinds_of_things", 64 * MIB, "dev,allow_other");
    fs::create_dir(mount.path("d")).unwrap();
    fs::write(mount.path("d/file"), vec![7; 100_000]).unwrap();
    fs::hard_link(mount.path("d/file"), mount.path("second")).unwrap();
    assert_eq!(fs::metadata(mount.path("second")).unwrap().nlink(), 2);
    symlink("d/file", mount.path("short")).unwrap();
    symlink("x/".repeat(300), mount.path("long")).unwrap();
    assert_eq!(fs::read_link(mount.path("long")).unwrap(), PathBuf::from("x/".repeat(300)));
    let made = Command::new("sh")
        .args([
            "-c",
            "mkfifo p && mknod c c 1 3 && mknod b b 259 70000 && chown 1000:70000 p && chmod 4711 c",
        ])
        .current_dir(&mount.dir)
        .status()
        .unwrap();
    assert!(made.success());
    assert_eq!(fs::read(mount.path("c")).unwrap(), b"", "the null device");
    fs::set_permissions(mount.path("second"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(fs::metadata(mount.path("d/file")).unwrap().permissions().mode() & 0o7777, 0o640);
    for (at, seconds) in [("second", -1), ("d", 5_000_000_000), ("p", -2_000_000_000)] {
        let time = Timespec { tv_sec: seconds, tv_nsec: 123_456_789 };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, mount.path(at), &times, AtFlags::empty()).unwrap();
        let found = fs::metadata(mount.path(at)).unwrap();
        assert_eq!((found.mtime(), found.mtime_nsec()), (seconds, 123_456_789));
        assert_eq!((found.atime(), found.atime_nsec()), (seconds, 123_456_789));
    }
    assert_eq!(fs::metadata(&mount.dir).unwrap().ino(), 2);
    mount.judge("mount::a_tree_with_all_kinds_of_things");
}

/// A session library could not count them, and lost a thread with each.
#[test]
fn regression_times_at_the_ends_of_the_kernels_clock_end_no_thread() {
    const NAME: &str = "everyday::regression_times_at_the_ends_of_the_kernels_clock_end_no_thread";
    // A kernel that buffers writes shows the time it was given until it has forgotten the file.
    let mount = mounted!(NAME, 32 * MIB, "threads=2");
    fs::write(mount.path("f"), "text").unwrap();
    for seconds in [i64::MIN, i64::MIN + 1, i64::MAX].repeat(4) {
        let time = Timespec { tv_sec: seconds, tv_nsec: 999_999_999 };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, mount.path("f"), &times, AtFlags::empty()).unwrap();
        let found = fs::metadata(mount.path("f")).unwrap();
        // As far as the format can represent them.
        let (first, last) = (-0x8000_0000, 0x3_7fff_ffff);
        assert_eq!(found.mtime(), seconds.clamp(first, last));
        assert_eq!(found.atime(), seconds.clamp(first, last));
    }
    mount.judge(NAME);
}

#[test]
fn renaming_with_all_flags() {
    let mount = mounted!("mount::renaming_with_all_flags", 64 * MIB, "");
    let rename = |from: &str, to: &str, flags| {
        rustix::fs::renameat_with(CWD, mount.path(from), CWD, mount.path(to), flags)
    };
    fs::write(mount.path("a"), "a").unwrap();
    fs::write(mount.path("b"), "b").unwrap();
    fs::create_dir_all(mount.path("d/e")).unwrap();
    assert_eq!(rename("a", "b", RenameFlags::NOREPLACE), Err(rustix::io::Errno::EXIST));
    rename("a", "d", RenameFlags::EXCHANGE).unwrap();
    assert!(mount.path("a/e").is_dir());
    assert_eq!(fs::read(mount.path("d")).unwrap(), b"a");
    rename("d", "b", RenameFlags::empty()).unwrap();
    assert_eq!(fs::read(mount.path("b")).unwrap(), b"a");
    assert!(!mount.path("d").exists());
    assert_eq!(rename("a", "a/e/under", RenameFlags::empty()), Err(rustix::io::Errno::INVAL));
    rename("b", "a/e/moved", RenameFlags::WHITEOUT).unwrap();
    assert_eq!(fs::symlink_metadata(mount.path("b")).unwrap().rdev(), 0);
    fs::create_dir(mount.path("empty")).unwrap();
    assert_eq!(rename("empty", "a", RenameFlags::empty()), Err(rustix::io::Errno::NOTEMPTY));
    rename("a/e", "empty", RenameFlags::empty()).unwrap();
    let unless_there = RenameFlags::WHITEOUT | RenameFlags::NOREPLACE;
    fs::write(mount.path("c"), "c").unwrap();
    assert_eq!(rename("c", "b", unless_there), Err(rustix::io::Errno::EXIST));
    rename("c", "free", unless_there).unwrap();
    assert_eq!(fs::symlink_metadata(mount.path("c")).unwrap().rdev(), 0);
    assert_eq!(fs::read(mount.path("empty/moved")).unwrap(), b"a");
    mount.judge("mount::renaming_with_all_flags");
}

#[test]
fn attributes_acls_and_privileges() {
    let mount = mounted!("mount::attributes_acls_and_privileges", 64 * MIB, "allow_other");
    fs::write(mount.path("f"), "x").unwrap();
    for name in ["user.note", "trusted.note", "security.note"] {
        rustix::fs::setxattr(mount.path("f"), name, b"value", XattrFlags::CREATE).unwrap();
        let again = rustix::fs::setxattr(mount.path("f"), name, b"value", XattrFlags::CREATE);
        assert_eq!(again, Err(rustix::io::Errno::EXIST));
    }
    rustix::fs::removexattr(mount.path("f"), "security.note").unwrap();
    let mut names = [0; 200];
    let len = rustix::fs::listxattr(mount.path("f"), &mut names).unwrap();
    assert_eq!(String::from_utf8_lossy(&names[..len]).split_terminator('\0').count(), 2);
    fs::create_dir(mount.path("d")).unwrap();
    // Version 2: the owner rwx, user 1000 r-x, the group r-x, mask rwx, others nothing.
    let acl: Vec<u8> =
        [(1_u16, 7_u16, u32::MAX), (2, 5, 1000), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 0, u32::MAX)]
            .iter()
            .fold(2_u32.to_le_bytes().to_vec(), |mut acl, (tag, perm, id)| {
                acl.extend_from_slice(&tag.to_le_bytes());
                acl.extend_from_slice(&perm.to_le_bytes());
                acl.extend_from_slice(&id.to_le_bytes());
                acl
            });
    rustix::fs::setxattr(mount.path("d"), "system.posix_acl_default", &acl, XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(mount.path("d"), "system.posix_acl_access", &acl, XattrFlags::empty()).unwrap();
    assert_eq!(fs::metadata(mount.path("d")).unwrap().permissions().mode() & 0o777, 0o770);
    fs::write(mount.path("d/inherits"), "secret").unwrap();
    let as_user = |uid: &str, file: &str| {
        let read = Command::new("setpriv")
            .args(["--reuid", uid, "--regid", "1000", "--clear-groups", "cat"])
            .arg(mount.path(file))
            .output()
            .unwrap();
        read.stdout
    };
    fs::set_permissions(mount.dir.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(as_user("1000", "d/inherits"), b"secret", "the ACL lets user 1000 in");
    assert_eq!(as_user("1001", "d/inherits"), b"", "and nobody else");
    // A write by any user but root clears the set-ID bits.
    fs::write(mount.path("suid"), "x").unwrap();
    fs::set_permissions(mount.path("suid"), fs::Permissions::from_mode(0o6777)).unwrap();
    let append = Command::new("setpriv")
        .args(["--reuid", "1000", "--regid", "1000", "--clear-groups", "sh", "-c", "echo y >> \"$0\""])
        .arg(mount.path("suid"))
        .status()
        .unwrap();
    assert!(append.success());
    assert_eq!(fs::metadata(mount.path("suid")).unwrap().permissions().mode() & 0o7777, 0o777);
    fs::set_permissions(mount.path("suid"), fs::Permissions::from_mode(0o4755)).unwrap();
    std::os::unix::fs::chown(mount.path("suid"), Some(1000), None).unwrap();
    assert_eq!(fs::metadata(mount.path("suid")).unwrap().permissions().mode() & 0o7777, 0o755);
    mount.judge("mount::attributes_acls_and_privileges");
}

/// The kernel knows which callers may keep the set-ID bits of a file that they change, and passes that on.
#[test]
fn cutting_and_acls_of_others_take_set_id_bits() {
    const NAME: &str = "everyday::cutting_and_acls_of_others_take_set_id_bits";
    drop((needed!(NAME, "setpriv"), needed!(NAME, "setfacl"), needed!(NAME, "xfs_io")));
    let mount = mounted!(NAME, 64 * MIB, "allow_other");
    fs::set_permissions(mount.dir.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let mode = || fs::metadata(mount.path("f")).unwrap().permissions().mode() & 0o7777;
    fs::write(mount.path("f"), "text").unwrap();
    // The owner is not in the file's group.
    std::os::unix::fs::chown(mount.path("f"), Some(1000), Some(2000)).unwrap();
    fs::write(mount.path("source"), "another").unwrap();
    for (command, keeps) in [
        ("truncate -s 2 f", 0o770),
        ("setfacl -m u:1001:r f", 0o4770),
        (": > f", 0o770),
        ("fallocate -l 65536 f", 0o770),
        ("fallocate -p -l 4096 f", 0o770),
        ("xfs_io -c 'copy_range source' f", 0o770),
    ] {
        for (user, left) in [("1000", keeps), ("0", 0o6770)] {
            rustix::fs::removexattr(mount.path("f"), "system.posix_acl_access").unwrap_or_default();
            fs::set_permissions(mount.path("f"), fs::Permissions::from_mode(0o6770)).unwrap();
            let mut setpriv = tool("setpriv").unwrap();
            let as_user = ["--reuid", user, "--regid", "1000", "--clear-groups", "sh", "-c", command];
            assert!(run(setpriv.args(as_user).current_dir(&mount.dir)).succeeded(), "{command} by {user}");
            assert_eq!(mode(), left, "{command} by {user}: {:o}", mode());
        }
    }
    mount.judge(NAME);
}

/// Root gave a file away, and its set-group-ID bit went, although nobody can execute it as the group.
#[test]
fn regression_root_lost_a_bit_by_giving_a_file_away() {
    const NAME: &str = "everyday::regression_root_lost_a_bit";
    let mount = mounted!(NAME, 64 * MIB, "allow_other");
    for (before, after) in [(0o6763, 0o2763), (0o6775, 0o775)] {
        let file = mount.path(&format!("f{before:o}"));
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(before)).unwrap();
        std::os::unix::fs::chown(&file, Some(1001), Some(1001)).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, after, "{before:o}");
    }
    mount.judge(NAME);
}

/// A caller outside a directory's group cleared its set-group-ID bit by setting a default ACL.
#[test]
fn regression_a_default_acl_leaves_the_set_group_id_bit() {
    const NAME: &str = "everyday::regression_a_default_acl_leaves_the_set_group_id_bit";
    drop((needed!(NAME, "setpriv"), needed!(NAME, "setfacl")));
    let mount = mounted!(NAME, 64 * MIB, "allow_other");
    fs::set_permissions(mount.dir.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(mount.path("d")).unwrap();
    std::os::unix::fs::chown(mount.path("d"), Some(1000), Some(2000)).unwrap();
    fs::set_permissions(mount.path("d"), fs::Permissions::from_mode(0o2775)).unwrap();
    let mut setpriv = tool("setpriv").unwrap();
    let user =
        ["--reuid", "1000", "--regid", "1000", "--clear-groups", "setfacl", "-d", "-m", "u:1001:r", "d"];
    assert!(run(setpriv.args(user).current_dir(&mount.dir)).succeeded());
    assert_eq!(fs::metadata(mount.path("d")).unwrap().permissions().mode() & 0o7777, 0o2775);
    fs::create_dir(mount.path("d/below")).unwrap();
    assert_eq!(MetadataExt::gid(&fs::metadata(mount.path("d/below")).unwrap()), 2000);
    mount.judge(NAME);
}

/// The kernel used its cached mode, and ran as root what another user had changed.
#[test]
fn regression_the_kernel_hears_of_set_id_bits_that_writing_takes() {
    const NAME: &str = "everyday::regression_the_kernel_hears_of_set_id_bits_that_writing_takes";
    drop((needed!(NAME, "setpriv"), needed!(NAME, "xfs_io")));
    let as_user = |dir: &Path, command: &str| {
        let mut setpriv = tool("setpriv").unwrap();
        let user = ["--reuid", "1000", "--regid", "1000", "--clear-groups", "sh", "-c", command];
        run(setpriv.args(user).current_dir(dir)).expect_success().stdout
    };
    for options in ["allow_other,suid", "allow_other,suid,writeback", "allow_other,suid,noopen"] {
        let mount = mounted!(NAME, 64 * MIB, options);
        fs::set_permissions(mount.dir.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(mount.path("source"), "another").unwrap();
        fs::copy(tool::find("id").unwrap(), mount.path("id")).unwrap();
        let set = |mode| fs::set_permissions(mount.path("id"), fs::Permissions::from_mode(mode)).unwrap();
        // Only the mode is requested: other attributes would refresh it.
        let shown = || as_user(&mount.dir, "stat -c %a id");
        set(0o4777);
        assert_eq!(as_user(&mount.dir, "./id -u"), "0\n");
        as_user(&mount.dir, "echo x >> id");
        assert_eq!(as_user(&mount.dir, "./id -u"), "1000\n", "{options}");
        for (mode, left, command) in [
            (0o6777, "777\n", "echo x >> id"),
            (0o6777, "777\n", "fallocate -l 4M id"),
            (0o6777, "777\n", "xfs_io -c 'copy_range source' id"),
            (0o6777, "777\n", "truncate -s 5 id"),
            // Without execution by the group, by a user outside it.
            (0o2666, "666\n", "truncate -s 4 id"),
            (0o2666, "666\n", ": > id"),
            (0o6777, "777\n", ": > id"),
        ] {
            set(mode);
            assert_eq!(shown(), format!("{mode:o}\n"));
            as_user(&mount.dir, command);
            assert_eq!(shown(), left, "{command}, {options}");
        }
        mount.judge(NAME);
    }
}

#[test]
fn regression_giving_away_takes_set_id_bits_of_all_but_directories() {
    const NAME: &str = "everyday::regression_giving_away_takes_set_id_bits_of_all_but_directories";
    let mount = mounted!(NAME, 64 * MIB, "");
    assert!(Command::new("mkfifo").arg(mount.path("pipe")).status().unwrap().success());
    fs::create_dir(mount.path("d")).unwrap();
    for (name, left) in [("pipe", 0o777), ("d", 0o6777)] {
        fs::set_permissions(mount.path(name), fs::Permissions::from_mode(0o6777)).unwrap();
        std::os::unix::fs::chown(mount.path(name), Some(5), Some(5)).unwrap();
        assert_eq!(fs::metadata(mount.path(name)).unwrap().permissions().mode() & 0o7777, left, "{name}");
    }
    mount.judge(NAME);
}

#[test]
fn regression_times_of_small_inodes_are_whole_seconds_at_once() {
    const NAME: &str = "everyday::regression_times_of_small_inodes_are_whole_seconds_at_once";
    let mount = match Mount::by_mke2fs(&["-t", "ext4", "-I", "128"], "32M", "") {
        Ok(mount) => mount,
        Err(reason) => skip!(NAME, reason),
    };
    for round in 0..3 {
        let dir = mount.path(&format!("d{round}"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("f"), "text").unwrap();
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        let found = fs::metadata(&dir).unwrap();
        assert_eq!((found.mtime_nsec(), found.ctime_nsec(), found.atime_nsec()), (0, 0, 0));
    }
    mount.judge(NAME);
}

#[test]
fn free_space_is_discarded_for_root_alone() {
    const NAME: &str = "everyday::free_space_is_discarded_for_root_alone";
    drop((needed!(NAME, "setpriv"), needed!(NAME, "fstrim")));
    let mount = mounted!(NAME, 64 * MIB, "allow_other");
    fs::set_permissions(mount.dir.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    for (user, may) in [("1000", false), ("0", true)] {
        let mut setpriv = tool("setpriv").unwrap();
        setpriv.args(["--reuid", user, "--regid", "1000", "--clear-groups", "fstrim"]).arg(&mount.dir);
        assert_eq!(run(&mut setpriv).succeeded(), may, "by {user}");
    }
    mount.judge(NAME);
}

#[test]
fn the_time_of_creation_is_told_if_that_is_wanted() {
    const NAME: &str = "everyday::the_time_of_creation_is_told_if_that_is_wanted";
    let mut mount = mounted!(NAME, 64 * MIB, "btime");
    fs::write(mount.path("f"), "text").unwrap();
    let born = fs::metadata(mount.path("f")).unwrap().created().expect("it has one");
    let past = Timespec { tv_sec: 1, tv_nsec: 0 };
    let times = Timestamps { last_access: past, last_modification: past };
    utimensat(CWD, mount.path("f"), &times, AtFlags::empty()).unwrap();
    let found = fs::metadata(mount.path("f")).unwrap();
    assert_eq!((found.created().unwrap(), found.mtime()), (born, 1));
    assert!(born.elapsed().unwrap().as_secs() < 600, "it was a moment ago");
    mount.detach();
    mount.attach("");
    assert!(fs::metadata(mount.path("f")).unwrap().created().is_err());
    mount.judge(NAME);
}

/// The kernel's coarse clock stands still for some milliseconds: if a file has the right time already, the
/// kernel sends no new one, and the server's may not have advanced meanwhile.
#[test]
fn regression_files_that_are_emptied_as_they_are_opened_have_the_time_that_the_kernel_shows() {
    let mount = mounted!("mount::emptied_files", 64 * MIB, "");
    for n in 0..500 {
        let path = mount.path(&n.to_string());
        fs::write(&path, "much").unwrap();
        fs::File::options().write(true).truncate(true).open(&path).unwrap();
    }
    mount.judge("mount::emptied_files");
}

#[test]
fn content_holes_and_unlinked_files() {
    let mount = mounted!("mount::content_holes_and_unlinked_files", 128 * MIB, "");
    let open = |name: &str| {
        fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(mount.path(name))
            .unwrap()
    };
    let file = open("sparse");
    file.write_all_at(b"begin", 0).unwrap();
    file.write_all_at(b"far", 10 * MIB).unwrap();
    file.sync_all().unwrap();
    assert!(file.metadata().unwrap().blocks() * 512 < MIB);
    file.set_len(20 * MIB).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 30 * MIB, MIB).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 10 * MIB, 4096).unwrap();
    let mut far = [1; 3];
    file.read_exact_at(&mut far, 10 * MIB).unwrap();
    assert_eq!(far, [0; 3]);

    let mut gone = open("gone");
    gone.write_all(&vec![5; 3_000_000]).unwrap();
    fs::remove_file(mount.path("gone")).unwrap();
    gone.sync_all().unwrap();
    gone.seek(SeekFrom::Start(0)).unwrap();
    let mut back = Vec::new();
    gone.read_to_end(&mut back).unwrap();
    assert!(back.len() == 3_000_000 && back.iter().all(|byte| *byte == 5));
    assert_eq!(gone.metadata().unwrap().nlink(), 0);
    drop(gone);

    let mut appended = fs::File::options().append(true).create(true).open(mount.path("log")).unwrap();
    for n in 0..1000 {
        writeln!(appended, "line {n}").unwrap();
    }
    drop(appended);
    assert_eq!(fs::read_to_string(mount.path("log")).unwrap().lines().count(), 1000);
    fs::write(mount.path("log"), "cut").unwrap();
    assert_eq!(fs::read(mount.path("log")).unwrap(), b"cut");
    drop(file);
    mount.judge("mount::content_holes_and_unlinked_files");
}

/// A copy program that looks for data in a file that was written a moment ago.
#[test]
fn regression_data_that_waits_in_the_kernel_is_no_hole() {
    for options in ["", "writeback"] {
        let mount = mounted!("mount::regression_data_that_waits_in_the_kernel_is_no_hole", 64 * MIB, options);
        let file = fs::File::options().read(true).write(true).create_new(true).open(mount.path("f")).unwrap();
        file.write_all_at(b"data", 0).unwrap();
        assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)), Ok(0), "{options}");
        assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(4)), Err(rustix::io::Errno::NXIO));
        file.write_all_at(b"far", MIB).unwrap();
        assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(8192)), Ok(MIB), "{options}");
        drop(file);
        mount.judge("mount::regression_data_that_waits_in_the_kernel_is_no_hole");
    }
}

#[test]
fn a_full_volume_says_so_and_goes_on() {
    let mount = mounted!("mount::a_full_volume_says_so_and_goes_on", 16 * MIB, "");
    let full = (0..64).find_map(|n| fs::write(mount.path(&format!("f{n}")), vec![1; 1 << 20]).err());
    assert_eq!(full.and_then(|error| error.raw_os_error()), Some(28));
    fs::remove_file(mount.path("f0")).unwrap();
    // The kernel sends `FORGET` at a time of its own.
    hectare_oracle::until(|| {
        let free = rustix::fs::statvfs(&mount.dir).unwrap();
        free.f_bfree * free.f_frsize >= MIB
    });
    fs::write(mount.path("again"), vec![2; 500_000]).unwrap();
    assert_eq!(fs::read(mount.path("again")).unwrap(), vec![2; 500_000]);
    mount.judge("mount::a_full_volume_says_so_and_goes_on");
}

#[test]
fn sixty_four_processes_at_once() {
    let mount = mounted!("mount::sixty_four_processes_at_once", 256 * MIB, "");
    let work = "mkdir p$0 && cd p$0 && for i in 1 2 3 4 5 6 7 8; do \
                head -c $((i * 9000)) /dev/zero | tr '\\0' x > f$i; ln f$i l$i; mv f$i g$i; done; \
                rm g1; cat g* > all && test $(wc -c < all) = 315000";
    let workers: Vec<_> = (0..64)
        .map(|n: u32| {
            Command::new("sh").args(["-ec", work, &n.to_string()]).current_dir(&mount.dir).spawn().unwrap()
        })
        .collect();
    for mut worker in workers {
        assert!(worker.wait().unwrap().success());
    }
    mount.judge("mount::sixty_four_processes_at_once");
}

#[test]
fn nothing_is_written_to_a_volume_mounted_for_reading() {
    let mut mount = mounted!("mount::nothing_is_written_to_a_volume_mounted_for_reading", 32 * MIB, "");
    fs::write(mount.path("f"), "text").unwrap();
    mount.detach();
    let before = fs::read(&mount.image).unwrap();
    mount.attach("ro");
    assert_eq!(fs::read(mount.path("f")).unwrap(), b"text");
    assert_eq!(fs::write(mount.path("g"), "").unwrap_err().raw_os_error(), Some(30));
    let names: Vec<Entry> = walk(&mount.dir);
    assert!(!names.is_empty());
    mount.detach();
    assert!(fs::read(&mount.image).unwrap() == before, "not a byte");
}

#[test]
fn direct_io_and_synchronous_writes() {
    let mount = mounted!("mount::direct_io_and_synchronous_writes", 64 * MIB, "strictatime,threads=2");
    let direct = rustix::fs::OFlags::DIRECT | rustix::fs::OFlags::DSYNC;
    let file = fs::File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .custom_flags(direct.bits().cast_signed())
        .open(mount.path("direct"))
        .unwrap();
    // Direct I/O wants aligned memory, which a page of the heap's large blocks is.
    let block = vec![9_u8; 1 << 21];
    let start = block.as_ptr().align_offset(4096);
    file.write_all_at(&block[start..start + (1 << 20)], 0).unwrap();
    drop(file);
    let read = fs::read(mount.path("direct")).unwrap();
    assert!(read.len() == 1 << 20 && read.iter().all(|byte| *byte == 9));
    mount.judge("mount::direct_io_and_synchronous_writes");
}

/// As in the kernel's own file systems: `trusted.` is for root alone, its names too.
#[test]
fn regression_trusted_attributes_are_not_listed_for_others() {
    const NAME: &str = "everyday::regression_trusted_attributes_are_not_listed_for_others";
    let (mut listed, getfattr) = (needed!(NAME, "setpriv"), needed!(NAME, "getfattr"));
    let mount = mounted!(NAME, 32 * MIB, "allow_other");
    fs::set_permissions(mount.dir.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = mount.path("f");
    fs::write(&path, "text").unwrap();
    for name in ["trusted.hidden", "security.shown"] {
        rustix::fs::setxattr(&path, name, b"1", XattrFlags::empty()).unwrap();
    }
    let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let others = run(listed.args(user).arg(getfattr.get_program()).args(["-m", "-"]).arg(&path))
        .expect_success()
        .stdout;
    assert!(others.contains("security.shown") && !others.contains("trusted."), "{others}");
    let mut all = vec![0; 256];
    let len = rustix::fs::listxattr(&path, &mut all).unwrap();
    assert!(String::from_utf8_lossy(&all[..len]).contains("trusted.hidden"));
    mount.judge(NAME);
}
