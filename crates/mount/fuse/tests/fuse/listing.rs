//! Directories that are read while they change: streams that stay open, positions that are returned to.

use crate::support::{MIB, Mount, mounted};
use rustix::fs::{
    CWD, Dir, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_OMIT, futimens, openat, renameat_with,
};
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::thread;

/// A name and the position of the next one.
type Entry = (String, i64);

fn opened(dir: &Path, flags: OFlags) -> OwnedFd {
    let flags = flags | OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, dir, flags, Mode::empty()).unwrap()
}

fn stream(mount: &Mount) -> Dir {
    Dir::new(opened(&mount.path("d"), OFlags::empty())).unwrap()
}

/// The next names of a stream, as many as there are or as are wanted.
fn read(dir: &mut Dir, count: usize) -> Vec<Entry> {
    let name = |entry: rustix::fs::DirEntry| (entry.file_name().to_str().unwrap().to_owned(), entry.offset());
    dir.by_ref()
        .take(count)
        .map(|entry| name(entry.unwrap()))
        .filter(|(name, _)| !name.starts_with('.'))
        .collect()
}

/// An empty directory, and a file that its names will link to: there are more of them than inodes.
fn prepare(mount: &Mount) {
    fs::create_dir(mount.path("d")).unwrap();
    fs::write(mount.path("f"), "").unwrap();
}

fn made(mount: &Mount, prefix: &str, count: usize) {
    let link = |nr| fs::hard_link(mount.path("f"), mount.path("d").join(format!("{prefix}-{nr}"))).unwrap();
    (0..count).for_each(link);
}

/// The kernel kept the list of the directory, with the number of its old parent in it.
#[test]
fn regression_a_moved_directory_lists_its_new_parent() {
    const NAME: &str = "listing::regression_a_moved_directory_lists_its_new_parent";
    let mount = mounted!(NAME, 64 * MIB, "");
    for dir in ["a", "b", "a/x", "b/y"] {
        fs::create_dir(mount.path(dir)).unwrap();
    }
    let parent = |dir: &str| {
        // To the end: a list is kept if it is whole.
        let entries = Dir::new(opened(&mount.path(dir), OFlags::empty())).unwrap();
        let all: Vec<_> = entries.map(Result::unwrap).collect();
        all.iter().find(|entry| entry.file_name() == c"..").unwrap().ino()
    };
    let number = |dir: &str| fs::metadata(mount.path(dir)).unwrap().ino();
    for dir in ["a/x", "a/x", "a/x", "b/y", "b/y", "b/y"] {
        assert_eq!(parent(dir), number(&dir[..1]), "{dir}"); // the second listing is kept
    }
    renameat_with(CWD, mount.path("a/x"), CWD, mount.path("b/y"), RenameFlags::EXCHANGE).unwrap();
    assert_eq!((parent("a/x"), parent("b/y")), (number("a"), number("b")));
    fs::rename(mount.path("a/x"), mount.path("b/z")).unwrap();
    assert_eq!(parent("b/z"), number("b"));
    mount.judge(NAME);
}

/// Flags of a directory's handle were not passed on.
#[test]
fn regression_a_listing_without_access_time_sets_none() {
    const NAME: &str = "listing::regression_a_listing_without_access_time_sets_none";
    for options in ["strictatime", "strictatime,noreaddirplus"] {
        let mount = mounted!(NAME, 64 * MIB, options);
        for (name, flags, stays) in [("without", OFlags::NOATIME, true), ("with", OFlags::empty(), false)] {
            fs::create_dir(mount.path(name)).unwrap();
            let dir = opened(&mount.path(name), flags);
            let past = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };
            let same = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
            futimens(&dir, &Timestamps { last_access: past, last_modification: same }).unwrap();
            assert_eq!(Dir::new(dir).unwrap().count(), 2, "only . and ..");
            // The kernel keeps attributes: a change brings those that the volume has.
            fs::set_permissions(mount.path(name), fs::Permissions::from_mode(0o700)).unwrap();
            let accessed = fs::metadata(mount.path(name)).unwrap().atime();
            assert_eq!(accessed == past.tv_sec, stays, "{options} {name}");
        }
        mount.judge(NAME);
    }
}

/// Every name that was there all the time is listed once, whatever is added and removed; a name that was
/// removed before its position was reached may be listed or not, as POSIX specifies.
#[test]
fn an_open_stream_tells_every_name_that_stays_once() {
    const NAME: &str = "listing::an_open_stream_tells_every_name_that_stays_once";
    // A directory of one block, one with an index, and one whose index has two levels.
    for (count, options) in [(20, ""), (2_000, ""), (2_000, "noreaddirplus"), (20_000, "")] {
        let mount = mounted!(NAME, 128 * MIB, options);
        prepare(&mount);
        made(&mount, "stays", count);
        made(&mount, "goes", count);
        let mut dir = stream(&mount);
        let first = read(&mut dir, count / 2);
        for nr in 0..count {
            fs::remove_file(mount.path("d").join(format!("goes-{nr}"))).unwrap();
        }
        made(&mount, "comes", count);
        let rest = read(&mut dir, usize::MAX);
        let mut seen = BTreeMap::<&str, usize>::new();
        for (name, _) in first.iter().chain(&rest) {
            *seen.entry(name).or_default() += 1;
        }
        let staying = seen.iter().filter(|(name, _)| name.starts_with("stays"));
        assert_eq!(staying.clone().count(), count, "{options}");
        assert!(staying.clone().all(|(_, times)| *times == 1), "{count} {options}");

        // From the start the stream lists the present names.
        dir.rewind();
        let mut names: Vec<String> = read(&mut dir, usize::MAX).into_iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        let mut now: Vec<String> = ["stays", "comes"]
            .iter()
            .flat_map(|kind| (0..count).map(move |nr| format!("{kind}-{nr}")))
            .collect();
        now.sort_unstable();
        assert!(names == now, "{count} {options}: {} names of {}", names.len(), now.len());
        drop(dir);
        mount.judge(NAME);
    }
}

/// `telldir` and `seekdir`.
#[test]
fn a_place_in_a_stream_is_found_again() {
    const NAME: &str = "listing::a_place_in_a_stream_is_found_again";
    for count in [20, 5_000] {
        let mount = mounted!(NAME, 128 * MIB, "");
        prepare(&mount);
        made(&mount, "stays", count);
        let mut dir = stream(&mount);
        let all = read(&mut dir, usize::MAX);
        assert_eq!(all.len(), count);
        let check = |dir: &mut Dir, expected: &dyn Fn(&str) -> bool| {
            for at in [0, count / 3, count / 2, count - 2] {
                dir.seek(all[at].1).unwrap();
                let rest = read(dir, usize::MAX);
                let (wanted, found): (Vec<_>, Vec<_>) = (
                    all[at + 1..].iter().map(|(name, _)| name).filter(|name| expected(name)).collect(),
                    rest.iter().map(|(name, _)| name).filter(|name| expected(name)).collect(),
                );
                assert_eq!(found, wanted, "after {} of {count}", at + 1);
            }
        };
        check(&mut dir, &|_| true);
        // Positions stay valid although names around them, and at them, are removed and added.
        let is_even = |name: &str| name.ends_with(['0', '2', '4', '6', '8']);
        for (name, _) in all.iter().filter(|(name, _)| !is_even(name)) {
            fs::remove_file(mount.path("d").join(name)).unwrap();
        }
        made(&mount, "comes", count);
        let stays_even = |name: &str| name.starts_with("stays") && is_even(name);
        check(&mut dir, &stays_even);
        drop(dir);
        mount.judge(NAME);
    }
}

#[test]
fn a_directory_is_listed_while_it_changes() {
    let mount = mounted!("listing::a_directory_is_listed_while_it_changes", 64 * MIB, "");
    for n in 0..3000 {
        fs::write(mount.path(&format!("stays-{n}")), "").unwrap();
    }
    let dir = mount.dir.clone();
    let churn = thread::spawn(move || {
        for n in 0..2000 {
            fs::write(dir.join(format!("comes-{n}")), "").unwrap();
            fs::remove_file(dir.join(format!("comes-{n}"))).unwrap();
        }
    });
    for _ in 0..5 {
        let mut names: Vec<_> = fs::read_dir(&mount.dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.retain(|name| name.to_string_lossy().starts_with("stays-"));
        assert_eq!(names.len(), 3000, "each once");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 3000);
    }
    churn.join().unwrap();
    mount.judge("listing::a_directory_is_listed_while_it_changes");
}
