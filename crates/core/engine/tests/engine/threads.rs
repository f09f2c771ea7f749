//! Many threads on one volume: shared and own directories, renames across them, files that are open while
//! they lose their names. A watchdog ends a deadlock; afterwards every count is right, and e2fsck finds the
//! volume clean.

use crate::common::{InMemory, close_clean, entries_of, format_bytes, in_memory_with, pattern};
use hectare_engine::{Changes, Creation, Error, NewNode, OpenOptions, RenameMode, Volume, XattrHow};
use hectare_oracle::hunt::long;
use hectare_oracle::trees::Random;
use hectare_oracle::{What, assert_same, skip};
use hectare_units::InodeNr;
use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const THREADS: u64 = 8;
const SHARED: [&str; 6] = ["s0", "s1", "s0/in", "s1/in", "s0/in/deep", "s1/in/deep"];

/// Runs `work` and ends the process if it hangs.
fn guarded(label: &str, work: impl FnOnce() + Send) {
    let (done, ended) = mpsc::channel::<()>();
    let label = label.to_owned();
    let watchdog = thread::spawn(move || {
        if ended.recv_timeout(Duration::from_secs(600)) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{label}: a deadlock, or far too slow");
            std::process::abort();
        }
    });
    work();
    drop(done);
    watchdog.join().unwrap();
}

/// Errors that are valid while others change the same names.
fn tolerable(error: &Error) -> bool {
    matches!(
        error,
        Error::NotFound
            | Error::Exists
            | Error::NotADirectory
            | Error::IsADirectory
            | Error::NotEmpty
            | Error::NoSpace
            | Error::NoInodes
            | Error::NoAttribute
            | Error::LinkToDirectory
            | Error::Invalid(_)
            | Error::SymlinkLoop
    )
}

/// An exchange of a directory and a file locked the file first where it had the lower number, and waited for the
/// directory; an unlink of another name of the file, in the directory, had that and waited for the file.
#[test]
fn regression_an_exchange_waited_for_an_unlink_that_waited_for_it() {
    const NAME: &str = "threads::regression_an_exchange_waited";
    let bytes = match format_bytes(&["-t", "ext4", "-b", "1024"], "16M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!(NAME, reason),
    };
    let held = in_memory_with(&bytes, OpenOptions::default()).unwrap();
    let (volume, c) = (&held.volume, Creation::default());
    volume.write_file("file", b"x", c).unwrap();
    volume.create_dir("dir", c).unwrap();
    // One of the two is the directory, whichever name it has.
    let inside = || ["dir/link", "file/link"].into_iter();
    guarded(NAME, || {
        thread::scope(|scope| {
            scope.spawn(|| {
                (0..20_000).for_each(|_| volume.rename_path("dir", "file", RenameMode::Exchange).unwrap());
            });
            scope.spawn(|| {
                for _ in 0..20_000 {
                    let _ = inside()
                        .find(|link| ["file", "dir"].iter().any(|name| volume.hard_link(name, link).is_ok()));
                    let _ = inside().find(|link| volume.remove_file(link).is_ok());
                }
            });
        });
    });
    close_clean(&held);
}

fn shared_step(volume: &Volume, random: &mut Random) -> Result<(), Error> {
    let path = |random: &mut Random| {
        let dir = SHARED[random.below(6) as usize];
        let n = random.below(12);
        if n < 8 { format!("{dir}/{n}-{}", "n".repeat(150)) } else { format!("{dir}/{n}") }
    };
    let (a, b) = (path(random), path(random));
    let c = Creation::default();
    match random.below(20) {
        0..=2 => drop(volume.create_file(&a, c)?),
        3 => drop(volume.create_dir(&a, c)?),
        4 => drop(volume.symlink(&b, &a, c)?),
        5 => volume.remove_file(&a)?,
        6 => volume.remove_dir(&a)?,
        7 => volume.hard_link(&a, &b)?,
        8..=10 => {
            let modes =
                [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange, RenameMode::WHITEOUT];
            volume.rename_path(&a, &b, modes[random.below(4) as usize])?;
        }
        11 => {
            // Directories themselves change places.
            let (a, b) = (SHARED[random.below(6) as usize], SHARED[random.below(6) as usize]);
            volume.rename_path(a, b, RenameMode::Exchange)?;
        }
        12..=14 => {
            let file = volume.open_file(&a)?;
            let at = random.below(60_000);
            file.write_at(at, &pattern(1, at, 3000))?;
            let mut read = vec![0; 5000];
            let n = file.read_at(at, &mut read)?;
            assert!(
                read[..n.min(3000)].iter().zip(pattern(1, at, 3000)).all(|(x, y)| *x == 0 || *x == y),
                "{a}"
            );
        }
        15 => volume.open_file(&a)?.set_len(random.below(40_000))?,
        16 => {
            let nr = volume.resolve(&a, false)?;
            volume.set_xattr(nr, "user.a", &random.bytes(200), XattrHow::Either)?;
            volume.get_xattr(nr, "user.a")?;
        }
        17 => drop(volume.read_dir(SHARED[random.below(6) as usize])?),
        18 => volume.change_path(&a, &Changes { uid: Some(random.below32(9)), ..Changes::default() })?,
        _ => _ = volume.symlink_metadata(&a)?,
    }
    Ok(())
}

/// In its own directory a thread knows what must be there.
fn own_step(volume: &Volume, own: &mut BTreeMap<String, Vec<u8>>, home: &str, random: &mut Random) {
    let name = format!("{home}/{}-{}", random.below(40), "own".repeat(40));
    let len = random.below(9000) as usize;
    match random.below(5) {
        0 | 1 => {
            let content = random.bytes(len);
            volume.write_file(&name, &content, Creation::default()).unwrap();
            own.insert(name, content);
        }
        2 => match volume.remove_file(&name) {
            Ok(()) => assert!(own.remove(&name).is_some(), "{name}"),
            Err(Error::NotFound) => assert!(!own.contains_key(&name), "{name}"),
            Err(other) => panic!("{name}: {other}"),
        },
        3 => {
            let found = volume.read(&name);
            assert_eq!(found.ok().as_ref(), own.get(&name), "{name}");
        }
        _ => {
            // Open, without a name, and still itself.
            let Some(content) = own.remove(&name) else { return };
            let file = volume.open_file(&name).unwrap();
            volume.remove_file(&name).unwrap();
            let mut read = vec![0; content.len()];
            assert_eq!(file.read_at(0, &mut read).unwrap(), content.len());
            assert!(read == content, "{name}");
        }
    }
}

fn work(volume: &Volume, thread: u64, steps: u64) {
    let mut random = Random::new(&format!("thread {thread}"));
    let home = format!("own-{thread}");
    let mut own = BTreeMap::new();
    volume.create_dir(&home, Creation::default()).unwrap();
    for step in 0..steps {
        if let Err(error) = shared_step(volume, &mut random) {
            assert!(tolerable(&error), "thread {thread}, step {step}: {error}");
        }
        own_step(volume, &mut own, &home, &mut random);
        if step % 64 == 0 {
            volume.sync().unwrap();
        }
    }
    for (name, content) in &own {
        assert!(&volume.read(name).unwrap() == content, "{name}");
    }
}

fn stress(label: &str, args: &[&str], size: &str) {
    let bytes = match format_bytes(args, size) {
        Ok(bytes) => bytes,
        Err(reason) => skip!(&format!("threads::{label}"), reason),
    };
    let steps = if long(format!("threads, {label}, 20000 steps")) { 20_000 } else { 600 };
    // Small caches, so that evictions during use show.
    let options = OpenOptions { cache_bytes: 0, cache_inodes: 0, ..OpenOptions::default() };
    let held = in_memory_with(&bytes, options).unwrap();
    for dir in SHARED {
        held.volume.create_dir_all(dir, Creation::default()).unwrap();
    }
    guarded(label, || {
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let volume = held.volume.clone();
                scope.spawn(move || work(&volume, thread, steps));
            }
        });
    });
    check(held);
}

fn check(held: InMemory) {
    let entries = entries_of(&held.volume);
    // Each side of a comparison must be right on its own: directories by their subdirectories.
    assert_same(&entries, &entries, What::all());
    let mut names: BTreeMap<u64, u64> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.kind != hectare_oracle::Kind::Directory) {
        *names.entry(entry.inode).or_default() += 1;
    }
    for entry in entries.iter().filter(|entry| entry.kind != hectare_oracle::Kind::Directory) {
        assert_eq!(entry.nlink, names[&entry.inode], "{}", entry.path.escape_ascii());
    }
    close_clean(&held);
    let again = in_memory_with(&held.device.to_vec(), OpenOptions::read_only()).unwrap();
    assert_same(&entries_of(&again.volume), &entries, What::all());
}

#[test]
fn eight_threads_on_a_roomy_volume() {
    stress("roomy", &["-t", "ext4", "-b", "1024", "-g", "4096", "-O", "^has_journal"], "64M");
}

#[test]
fn eight_threads_with_bigalloc() {
    stress(
        "bigalloc",
        &["-t", "ext4", "-b", "4096", "-O", "bigalloc,^has_journal", "-C", "16384", "-N", "4096"],
        "256M",
    );
}

#[test]
fn eight_threads_fill_a_volume_and_nobody_loses() {
    let bytes = match format_bytes(
        &["-t", "ext4", "-b", "1024", "-m", "0", "-O", "^has_journal", "-g", "1024"],
        "8M",
    ) {
        Ok(bytes) => bytes,
        Err(reason) => skip!("threads::eight_threads_fill_a_volume", reason),
    };
    let held = in_memory_with(&bytes, OpenOptions::default()).unwrap();
    guarded("full", || {
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let volume = held.volume.clone();
                scope.spawn(move || fill_and_free(&volume, thread));
            }
        });
    });
    check(held);
}

/// Fills and frees in turn, so that some lack space while others' frees wait for their commit.
fn fill_and_free(volume: &Volume, thread: u64) {
    for round in 0..15 {
        let mut made = Vec::new();
        for n in 0..40 {
            let name = format!("t{thread}-{round}-{n}");
            let file = match volume.create_file(&name, Creation::default()) {
                Ok(file) => file,
                Err(Error::NoSpace | Error::NoInodes) => break,
                Err(other) => panic!("{name}: {other}"),
            };
            match file.write_at(0, &pattern(thread, 0, 50_000)) {
                Ok(done) => made.push((name, done)),
                Err(Error::NoSpace) => made.push((name, 0)),
                Err(other) => panic!("{name}: {other}"),
            }
        }
        for (n, (name, done)) in made.iter().enumerate() {
            assert!(volume.read(name).unwrap() == pattern(thread, 0, *done), "{name}");
            if round < 14 || n % 2 == 0 {
                volume.remove_file(name).unwrap();
            }
        }
    }
}

#[test]
fn threads_make_the_same_directories() {
    let bytes = match format_bytes(&["-t", "ext4", "-O", "^has_journal"], "64M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("threads::threads_make_the_same_directories", reason),
    };
    let held = in_memory_with(&bytes, OpenOptions::default()).unwrap();
    guarded("same directories", || {
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let volume = held.volume.clone();
                scope.spawn(move || {
                    for n in 0..100 {
                        let dir = format!("a/{}/{}/c", n % 10, n / 10);
                        let nr = volume.create_dir_all(&dir, Creation::default()).unwrap();
                        volume
                            .create(nr, format!("f{thread}").as_bytes(), NewNode::File, Creation::default())
                            .unwrap();
                    }
                });
            }
        });
    });
    for n in 0..100 {
        assert_eq!(held.volume.read_dir(format!("a/{}/{}/c", n % 10, n / 10)).unwrap().len(), 8);
    }
    check(held);
}

/// Many inodes are rendered beside open handles before a commit keeps those out: the commit must find what is
/// changed meanwhile. The last change of every inode must be committed, however often the threads stop.
#[test]
fn what_changes_while_a_commit_prepares_is_not_lost() {
    const CHANGES: u32 = 4;
    let label = "what_changes_while_a_commit_prepares_is_not_lost";
    let bytes = match format_bytes(&["-t", "ext4", "-O", "^has_journal"], "8M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!(&format!("threads::{label}"), reason),
    };
    let stops = if long("threads, changes beside commits, 20000 stops") { 20_000 } else { 400 };
    let held = in_memory_with(&bytes, OpenOptions::default()).unwrap();
    let make = |nr| held.volume.make(format!("f{nr}"), NewNode::File, Creation::default()).unwrap();
    let inodes: Vec<_> = (0..400).map(make).collect();
    let change_all = |mine: &[InodeNr], stop: u32| {
        for uid in stop * CHANGES..(stop + 1) * CHANGES {
            let changes = Changes { uid: Some(uid), ..Changes::default() };
            mine.iter().for_each(|nr| held.volume.change(*nr, &changes).unwrap());
        }
    };
    let until = |stop: u32| {
        thread::scope(|scope| {
            let change_all = &change_all;
            let start = |mine| scope.spawn(move || change_all(mine, stop));
            let workers: Vec<_> = inodes.chunks(200).map(start).collect();
            loop {
                held.volume.sync().unwrap();
                if workers.iter().all(thread::ScopedJoinHandle::is_finished) {
                    break;
                }
            }
        });
        held.volume.sync().unwrap();
        let seen = in_memory_with(&held.device.to_vec(), OpenOptions::read_only()).unwrap();
        let last = (stop + 1) * CHANGES - 1;
        inodes.iter().for_each(|nr| assert_eq!(seen.volume.stat(*nr).unwrap().uid, last, "inode {nr}"));
    };
    guarded(label, || (0..stops).for_each(until));
    assert!(held.volume.journal_stats().commits > u64::from(stops), "no commit came between");
    close_clean(&held);
}
