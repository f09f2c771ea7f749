//! Space: `fallocate` against a model, holes, copies inside the volume, discard, reserved blocks.

use crate::support::{MIB, Mount, mounted, needed};
use hectare_device::Operation;
use hectare_fuse::Operation as Request;
use hectare_mkfs::FormatOptions;
use hectare_oracle::tool::run;
use hectare_oracle::{skip, tool, until};
use rustix::fs::{FallocateFlags, copy_file_range, fallocate};
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};

fn made(mount: &Mount, name: &str) -> fs::File {
    fs::File::options().read(true).write(true).create_new(true).open(mount.path(name)).unwrap()
}

/// Bytes that the image takes on the host.
fn taken(mount: &Mount) -> u64 {
    fs::metadata(&mount.image).unwrap().blocks() * 512
}

#[test]
fn fallocate_does_what_a_model_does() {
    const NAME: &str = "space::fallocate_does_what_a_model_does";
    const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
    const ZERO: FallocateFlags = FallocateFlags::ZERO_RANGE;
    const ZERO_KEEP: FallocateFlags = FallocateFlags::ZERO_RANGE.union(FallocateFlags::KEEP_SIZE);
    for options in ["", "writeback", "data=journal", "nodelalloc"] {
        let mount = mounted!(NAME, 64 * MIB, options);
        let file = made(&mount, "f");
        let mut model: Vec<u8> = (0..300_000_u32).map(|n| n.to_le_bytes()[0] | 1).collect();
        file.write_all_at(&model, 0).unwrap();
        let steps = [
            (PUNCH, 5_000, 20_000),
            (ZERO, 100_001, 9_999),
            (PUNCH, 290_000, 50_000),
            (FallocateFlags::empty(), 310_000, 10_000),
            (FallocateFlags::KEEP_SIZE, 400_000, 100_000),
            (ZERO_KEEP, 315_000, 100_000),
            (ZERO, 330_000, 20_000),
            (PUNCH, 0, 4096),
            (PUNCH, 8192, 1),
        ];
        for (mode, at, len) in steps {
            fallocate(&file, mode, at, len).unwrap();
            let (at, end) = (usize::try_from(at).unwrap(), usize::try_from(at + len).unwrap());
            if !mode.contains(FallocateFlags::KEEP_SIZE) {
                model.resize(model.len().max(end), 0);
            }
            if mode.intersects(PUNCH.difference(FallocateFlags::KEEP_SIZE).union(ZERO)) && at < model.len() {
                let end = end.min(model.len());
                model[at..end].fill(0);
            }
            assert_eq!(file.metadata().unwrap().len(), model.len() as u64, "{mode:?} {at}");
            assert!(fs::read(mount.path("f")).unwrap() == model, "{mode:?} {at} {options}");
        }
        // Between two punches, over what the kernel may have cached of either.
        file.write_all_at(&[9; 10_000], 3_000).unwrap();
        model[3_000..13_000].fill(9);
        fallocate(&file, PUNCH, 4_000, 100).unwrap();
        model[4_000..4_100].fill(0);
        assert!(fs::read(mount.path("f")).unwrap() == model);
        // These the kernel's FUSE refuses by itself; the engine supports them.
        for mode in
            [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE, FallocateFlags::UNSHARE_RANGE]
        {
            assert_eq!(fallocate(&file, mode, 4096, 4096), Err(Errno::OPNOTSUPP), "{mode:?}");
        }
        drop(file);
        mount.judge_scattered(NAME);
    }
}

/// It had the length of what it got, which the kernel did not learn.
#[test]
fn regression_a_file_that_gets_no_space_keeps_its_size() {
    const NAME: &str = "space::regression_a_file_that_gets_no_space_keeps_its_size";
    let mut mount = mounted!(NAME, 32 * MIB, "");
    let (file, content) = (made(&mount, "f"), vec![1; 4_000_000]);
    let size = content.len() as u64;
    file.write_all_at(&content, 0).unwrap();
    for mode in [FallocateFlags::empty(), FallocateFlags::ZERO_RANGE] {
        assert_eq!(fallocate(&file, mode, size, 1 << 40), Err(Errno::NOSPC), "{mode:?}");
    }
    assert_eq!(fallocate(&file, FallocateFlags::empty(), size, 1 << 50), Err(Errno::FBIG));
    // Buffered data has found space although a request asked for everything.
    file.sync_all().unwrap();
    let free = rustix::fs::statvfs(&mount.dir).unwrap();
    for mode in [FallocateFlags::empty(), FallocateFlags::ZERO_RANGE] {
        // As much as there would be if the range had what the file has elsewhere.
        let refused = fallocate(&file, mode, size, free.f_bavail * free.f_frsize + 2 * MIB);
        assert_eq!(refused, Err(Errno::NOSPC), "{mode:?}");
        assert_eq!(file.metadata().unwrap().len(), size);
    }
    drop(file);
    mount.detach();
    mount.attach("");
    assert!(fs::read(mount.path("f")).unwrap() == content);
    mount.judge_scattered(NAME);
}

/// Data that the kernel buffers has no reserved space: a sync reports that there was none.
#[test]
fn gathered_writes_that_find_no_space_are_told_by_fsync() {
    const NAME: &str = "space::gathered_writes_that_find_no_space_are_told_by_fsync";
    const SIZE: u64 = 16 * MIB;
    for options in ["writeback", "writeback,nodelalloc", "writeback,data=journal"] {
        let mut mount = mounted!(NAME, SIZE, options);
        let kept = made(&mount, "kept");
        kept.write_all_at(&[1; 1 << 20], 0).unwrap();
        kept.sync_all().unwrap();
        let large = made(&mount, "large");
        // One write, since the next would be refused.
        large.write_at(&vec![2; 32 << 20], 0).expect("the kernel buffers it");
        let told = large.sync_all().unwrap_err();
        assert_eq!(told.raw_os_error(), Some(Errno::NOSPC.raw_os_error()), "{options}");
        drop(large);
        fs::remove_file(mount.path("large")).unwrap();
        until(|| rustix::fs::statvfs(&mount.dir).unwrap().f_bfree * 1024 >= SIZE / 2);
        let again = made(&mount, "again");
        again.write_all_at(&[3; 1 << 20], 0).unwrap();
        again.sync_all().unwrap();
        drop((kept, again));
        mount.detach();
        mount.attach(options);
        assert!(fs::read(mount.path("kept")).unwrap() == [1; 1 << 20], "{options}");
        assert!(fs::read(mount.path("again")).unwrap() == [3; 1 << 20], "{options}");
        mount.judge(NAME);
    }
}

/// Each waits until the kernel has written back what it buffers, and one thread must be free to receive that.
#[test]
fn many_look_for_holes_in_what_they_write() {
    const NAME: &str = "space::many_look_for_holes_in_what_they_write";
    use rustix::fs::{SeekFrom, seek};
    let mount = mounted!(NAME, 256 * MIB, "threads=1,writeback");
    std::thread::scope(|scope| {
        for number in 0..16_u8 {
            let file = made(&mount, &format!("f{number}"));
            scope.spawn(move || {
                for piece in (0..20).map(|n| n * 2 * MIB / 10 / 4096 * 4096) {
                    file.write_all_at(&[number; 4096], piece).unwrap();
                    assert_eq!(seek(&file, SeekFrom::Data(piece)), Ok(piece));
                    assert_eq!(seek(&file, SeekFrom::Hole(piece)), Ok(piece + 4096));
                }
            });
        }
    });
    mount.judge(NAME);
}

/// The kernel buffers nothing of a file that is not open for writing, and keeps what it has read.
#[test]
fn looking_for_holes_in_what_is_closed_drops_nothing() {
    const NAME: &str = "space::looking_for_holes_in_what_is_closed_drops_nothing";
    use rustix::fs::{SeekFrom, seek};
    let mount = mounted!(NAME, 64 * MIB, "");
    made(&mount, "f").write_all_at(&[1; 100_000], MIB).unwrap();
    // The kernel reports that a file was closed some time after it was.
    until(|| mount.requests(Request::Release) > 0);
    let read = || fs::read(mount.path("f")).unwrap();
    let before = (read(), mount.requests(Request::Read));
    let file = fs::File::open(mount.path("f")).unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(MIB));
    assert_eq!((read(), mount.requests(Request::Read)), before);
    drop(file);
    mount.judge(NAME);
}

#[test]
fn holes_are_found() {
    for options in ["", "writeback", "threads=1", "data=journal", "nodelalloc"] {
        find_holes(options);
    }
}

fn find_holes(options: &str) {
    const NAME: &str = "space::holes_are_found";
    use rustix::fs::{SeekFrom, seek};
    let mount = mounted!(NAME, 64 * MIB, options);
    let file = made(&mount, "f");
    file.write_all_at(&[1; 8192], MIB).unwrap();
    file.write_all_at(&[1; 100], 5 * MIB).unwrap();
    file.set_len(9 * MIB).unwrap();
    fallocate(&file, FallocateFlags::empty(), 7 * MIB, MIB).unwrap();
    for (from, found) in [
        (SeekFrom::Data(0), Ok(MIB)),
        (SeekFrom::Hole(0), Ok(0)),
        (SeekFrom::Hole(MIB), Ok(MIB + 8192)),
        (SeekFrom::Data(MIB + 5), Ok(MIB + 5)),
        (SeekFrom::Data(MIB + 8192), Ok(5 * MIB)),
        (SeekFrom::Hole(8 * MIB), Ok(8 * MIB)),
        (SeekFrom::Data(6 * MIB), Err(Errno::NXIO)),
        (SeekFrom::Hole(9 * MIB), Err(Errno::NXIO)),
    ] {
        assert_eq!(seek(&file, from), found, "{options} {from:?}");
        // Data written meanwhile is no hole, whether it has left the kernel or not.
        file.write_all_at(&[2; 8192], MIB).unwrap();
    }
    drop(file);
    mount.judge(NAME);
}

#[test]
fn copies_inside_the_volume_pass_no_program_and_no_cache() {
    const NAME: &str = "space::copies_inside_the_volume_pass_no_program_and_no_cache";
    const SIZE: u64 = 24 * MIB;
    let mut xfs_io = needed!(NAME, "xfs_io");
    let mut mount = mounted!(NAME, 128 * MIB, "");
    let file = made(&mount, "from");
    for at in 0..SIZE / MIB {
        file.write_all_at(&vec![1 + at.to_le_bytes()[0]; 1 << 20], at * MIB).unwrap();
    }
    file.set_len(1 << 30).unwrap();
    drop(file);
    mount.detach();
    mount.attach(""); // nothing of it is in the kernel's cache
    let (from, to) = (fs::File::open(mount.path("from")).unwrap(), made(&mount, "to"));
    let before = mount.device().snapshot();
    let (mut at, mut to_at) = (0, 0);
    while at < 1 << 30 {
        let left = usize::try_from((1 << 30) - at).unwrap();
        assert_ne!(copy_file_range(&from, Some(&mut at), &to, Some(&mut to_at), left).unwrap(), 0);
    }
    to.sync_all().unwrap();
    let done = mount.device().snapshot().since(&before);
    let (read, written) = (done.of(Operation::Read).bytes.get(), done.of(Operation::Write).bytes.get());
    // A GiB of which 24 MiB are data: moved once, and a little metadata.
    assert!((SIZE..SIZE + 4 * MIB).contains(&read), "{read} bytes read");
    assert!((SIZE..SIZE + 4 * MIB).contains(&written), "{written} bytes written");
    assert!(to.metadata().unwrap().blocks() * 512 < SIZE + MIB, "holes stay holes");
    // Had the data passed through the kernel, its cache would have it now.
    let seen = run(xfs_io.args(["-r", "-c", "mmap -r 0 24m", "-c", "mincore"]).arg(mount.path("from")))
        .expect_success();
    assert!(
        !seen.stdout.lines().any(|line| line.starts_with("0x") && !line.contains(" 0x0 ")),
        "{}",
        seen.report()
    );
    drop((from, to));
    let same = run(tool("cmp").unwrap().arg(mount.path("from")).arg(mount.path("to")));
    assert!(same.succeeded(), "{}", same.report());
    mount.judge(NAME);
}

#[test]
fn a_copy_sees_what_was_written_a_moment_ago() {
    const NAME: &str = "space::a_copy_sees_what_was_written_a_moment_ago";
    for options in ["", "data=journal"] {
        let mount = mounted!(NAME, 64 * MIB, options);
        let (from, to) = (made(&mount, "from"), made(&mount, "to"));
        to.write_all_at(&[3; 300_000], 0).unwrap();
        from.write_all_at(&[7; 100_000], 50_000).unwrap();
        let (mut at, mut to_at) = (40_000, 20_001);
        let copied = copy_file_range(&from, Some(&mut at), &to, Some(&mut to_at), 90_000).unwrap();
        assert_eq!((copied, at, to_at), (90_000, 130_000, 110_001));
        let mut expected = vec![3; 300_000];
        expected[20_001..30_001].fill(0);
        expected[30_001..110_001].fill(7);
        assert!(fs::read(mount.path("to")).unwrap() == expected, "{options}");
        let overlaps = copy_file_range(&from, Some(&mut 60_000), &from, Some(&mut 60_100), 1000);
        assert_eq!(overlaps, Err(Errno::INVAL));
        drop((from, to));
        mount.judge(NAME);
    }
}

#[test]
fn free_space_is_discarded_when_asked_or_at_once() {
    const NAME: &str = "space::free_space_is_discarded_when_asked_or_at_once";
    const SIZE: u64 = 32 * MIB;
    let mut fstrim = needed!(NAME, "fstrim");
    let write_and_remove = |mount: &Mount| {
        let before = taken(mount);
        let file = made(mount, "f");
        file.write_all_at(&vec![1; usize::try_from(SIZE).unwrap()], 0).unwrap();
        file.sync_all().unwrap();
        drop(file);
        assert!(taken(mount) >= before + SIZE);
        fs::remove_file(mount.path("f")).unwrap();
        before
    };
    // The kernel sends `FORGET` at a time of its own, and only then the space of the file is free.
    let until_free = |mount: &Mount, before: u64, mut act: Box<dyn FnMut() + '_>| {
        until(|| {
            fs::File::open(&mount.dir).unwrap().sync_all().unwrap();
            act();
            taken(mount) < before + 4 * MIB
        });
    };
    let mount = mounted!(NAME, 96 * MIB, "");
    let before = write_and_remove(&mount);
    fs::File::open(&mount.dir).unwrap().sync_all().unwrap();
    assert!(taken(&mount) >= before + SIZE, "nobody has asked for it");
    fstrim.arg("-v").arg(&mount.dir);
    until_free(&mount, before, Box::new(|| drop(run(&mut fstrim).expect_success())));
    mount.judge(NAME);

    let mount = mounted!(NAME, 96 * MIB, "discard");
    let before = write_and_remove(&mount);
    // Freed space is discarded once its commit is durable, in the background.
    until_free(&mount, before, Box::new(|| ()));
    mount.judge(NAME);
}

#[test]
fn nobody_takes_what_is_reserved_where_others_come() {
    const NAME: &str = "space::nobody_takes_what_is_reserved_where_others_come";
    let mut setpriv = needed!(NAME, "setpriv");
    let format = FormatOptions { reserved_percent: 20.0, ..FormatOptions::default() };
    let mount = match Mount::formatted(64 * MIB, &format, "allow_other") {
        Ok(mount) => mount,
        Err(reason) => skip!(NAME, reason),
    };
    let found = rustix::fs::statvfs(&mount.dir).unwrap();
    let reserved = (found.f_bfree - found.f_bavail) * found.f_frsize;
    // A fifth for root, and a fiftieth for extent trees.
    assert!((13 * MIB..15 * MIB).contains(&reserved), "{reserved}");
    assert!(found.f_blocks >= found.f_bfree && found.f_ffree > 0 && found.f_namemax == 255);
    fs::create_dir(mount.path("theirs")).unwrap();
    std::os::unix::fs::chown(mount.path("theirs"), Some(1000), Some(1000)).unwrap();
    fs::set_permissions(mount.outside(""), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let user = run(setpriv
        .args(["--reuid", "1000", "--regid", "1000", "--clear-groups", "dd", "if=/dev/zero", "bs=64k"])
        .arg(format!("of={}", mount.path("theirs/f").display())));
    assert!(user.stderr.contains("No space left"), "{}", user.report());
    let left = rustix::fs::statvfs(&mount.dir).unwrap();
    assert!(left.f_bavail * left.f_frsize < MIB, "they could take what is theirs");
    assert!(left.f_bfree * left.f_frsize >= reserved - MIB, "and nothing else");
    // Nor can root in this way: data that the kernel buffers comes without its writer's identity.
    let root = fs::write(mount.path("roots"), vec![1; 8 << 20]);
    assert_eq!(root.err().and_then(|error| error.raw_os_error()), Some(Errno::NOSPC.raw_os_error()));
    mount.judge(NAME);
}

#[test]
fn where_extents_lie_is_not_let_through() {
    const NAME: &str = "space::where_extents_lie_is_not_let_through";
    let mut xfs_io = needed!(NAME, "xfs_io");
    let mount = mounted!(NAME, 64 * MIB, "");
    fs::write(mount.path("f"), "text").unwrap();
    // The kernel answers FIEMAP itself for every file system, and FUSE has no request for it.
    let said = run(xfs_io.args(["-r", "-c", "fiemap"]).arg(mount.path("f")));
    assert!(said.report().contains("Operation not supported"), "{}", said.report());
    mount.judge(NAME);
}

/// Every caller on a mount of root's alone is root.
#[test]
fn what_is_reserved_for_root_is_there_where_only_root_comes() {
    const NAME: &str = "space::what_is_reserved_for_root_is_there_where_only_root_comes";
    let mount = mounted!(NAME, 64 * MIB, "");
    let free = || {
        let found = rustix::fs::statvfs(&mount.dir).unwrap();
        (found.f_bfree * found.f_frsize, found.f_bavail * found.f_frsize)
    };
    let reserved = free().0 - free().1;
    assert!(reserved > 2 * MIB, "{reserved}");
    let file = made(&mount, "f");
    let end = || file.metadata().unwrap().len();
    let fill = |step| while fallocate(&file, FallocateFlags::empty(), end(), step).is_ok() {};
    [MIB, 4096].into_iter().for_each(fill);
    // Except for what a longer extent tree might take, for which a fiftieth is kept.
    assert!(free().0 < 64 * MIB / 50 + 65_536, "{:?} of {reserved} are left", free());
    drop(file);
    mount.judge(NAME);
}
