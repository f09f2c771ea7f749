//! Several workers at once on one mount, each in its own thread: some in a directory of their own, where
//! every result is determined; others in a shared one, where only part of the outcome is.
//!
//! What must hold in the shared one, in whatever order the workers run:
//! - *records* that several append to a file are whole, none is missing, and those of each are in order,
//! - a name that is only ever replaced, or exchanged, is always there, and its file is whole,
//! - files that are renamed about are neither lost nor doubled, and link counts are right,
//! - a listing has each name that stays exactly once, whatever comes and goes beside it,
//! - `read(2)` sees what went through a mapping, and never something older than what it saw before.
//!
//! Both sides are tested, to show that these assumptions hold for the kernel's ext4.

use super::caller::Caller;
use super::user::User;
use hectare_oracle::trees::random::Random;
use mmap_io::MemoryMappedFile;
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};

/// Workers in directories of their own.
const LONERS: u32 = 2;
/// The workers that append to one file, rename in one directory, and so on.
const MANY: u32 = 3;
/// Bytes of a record.
const RECORD: usize = 100;
/// Names that stay while others come and go.
const STAYING: usize = 60;

type Job<'s> = ScopedJoinHandle<'s, Result<(), String>>;

/// The results of each worker in a directory of its own.
pub(crate) type Stories = Vec<Vec<String>>;

/// Runs all workers on a mounted volume at once, each for this many steps; returns the results of the loners.
///
/// # Errors
/// What did not hold.
pub(crate) fn work(root: &Path, seed: u64, steps: u32) -> Result<Stories, String> {
    let shared = root.join("shared");
    let lone = |nr: u32| root.join(format!("lone-{nr}"));
    for folder in (0..LONERS).map(lone).chain([shared.clone()]) {
        fs::create_dir(&folder).map_err(told(&folder))?;
    }
    let stories = thread::scope(|scope| {
        let loners: Vec<_> = (0..LONERS)
            .map(|nr| scope.spawn(move || alone(&lone(nr), &format!("{seed}-{nr}"), steps)))
            .collect();
        let shared = &shared;
        let jobs: [Job<'_>; 6] = [
            scope.spawn(move || records(shared, steps)),
            scope.spawn(move || replaced(shared, steps)),
            scope.spawn(move || exchanged(shared, steps)),
            scope.spawn(move || moved(shared, seed, steps)),
            scope.spawn(move || listed(shared, steps)),
            scope.spawn(move || mapped(shared, steps)),
        ];
        jobs.into_iter().try_for_each(|job| joined(job))?;
        loners.into_iter().map(joined).collect::<Result<Stories, String>>()
    })?;
    // The final content of the shared directory is not determined.
    fs::remove_dir_all(&shared).map_err(told(&shared))?;
    Ok(stories)
}

fn joined<T>(job: ScopedJoinHandle<'_, Result<T, String>>) -> Result<T, String> {
    job.join().unwrap_or_else(|_| Err("a worker panicked".into()))
}

fn told<E: std::fmt::Display>(path: &Path) -> impl FnOnce(E) -> String + use<E> {
    let path = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    move |error| format!("{path}: {error}")
}

/// Random calls in a directory that no other worker uses.
fn alone(root: &Path, seed: &str, steps: u32) -> Result<Vec<String>, String> {
    let mut random = Random::new(&format!("crew-{seed}"));
    let mut caller = Caller::new(root);
    let mut step = || {
        let call = caller.ground().with_room().call(&mut random);
        format!("{call:?} -> {}", caller.make(User::Root, &call))
    };
    Ok((0..steps).map(|_| step()).collect())
}

/// Several workers append records to one file.
fn records(shared: &Path, steps: u32) -> Result<(), String> {
    let path = shared.join("records");
    let record = |who: u32, nr: u32| format!("{:<w$}\n", format!("{who} {nr}"), w = RECORD - 1);
    let append = |who: u32| {
        let mut file = OpenOptions::new().append(true).create(true).open(&path).map_err(told(&path))?;
        (0..steps).try_for_each(|nr| file.write_all(record(who, nr).as_bytes())).map_err(told(&path))
    };
    thread::scope(|scope| {
        let writers: Vec<Job<'_>> = (0..MANY).map(|who| scope.spawn(move || append(who))).collect();
        writers.into_iter().try_for_each(|writer| joined(writer))
    })?;
    let found = fs::read_to_string(&path).map_err(told(&path))?;
    let mut next = [0; MANY as usize];
    for line in found.split_inclusive('\n') {
        let who = line.split(' ').next().and_then(|who| who.parse::<u32>().ok()).unwrap_or(MANY);
        match next.get_mut(who as usize) {
            Some(nr) if line == record(who, *nr) => *nr += 1,
            _ => return Err(format!("records: {line:?} where each is at {next:?}")),
        }
    }
    if next == [steps; MANY as usize] { Ok(()) } else { Err(format!("records: {next:?} of {steps} each")) }
}

/// Runs `watch` until `work` is over.
fn watched(
    work: impl FnOnce() -> Result<(), String>,
    watch: impl Fn() -> Result<(), String> + Sync,
) -> Result<(), String> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                watch()?;
            }
            Ok(())
        });
        let worked = work();
        over.store(true, Ordering::Release);
        joined(watcher).and(worked)
    })
}

/// One worker replaces a file again and again by rename, while another opens it.
fn replaced(shared: &Path, steps: u32) -> Result<(), String> {
    let (path, fresh) = (shared.join("replaced"), shared.join("replaced.new"));
    let whole = |nr: u32| format!("{nr:08}").repeat(1000);
    let replace = |nr: u32| {
        fs::write(&fresh, whole(nr)).map_err(told(&fresh))?;
        fs::rename(&fresh, &path).map_err(told(&path))
    };
    replace(0)?;
    watched(
        || (1..steps / 2).try_for_each(replace),
        || {
            let text = fs::read_to_string(&path).map_err(told(&path))?;
            let nr = text.get(..8).and_then(|nr| nr.parse().ok());
            let is_whole = nr.is_some_and(|nr| text == whole(nr));
            is_whole.then_some(()).ok_or_else(|| format!("replaced: {} bytes, torn", text.len()))
        },
    )
}

/// Two names are exchanged, and both are always there.
fn exchanged(shared: &Path, steps: u32) -> Result<(), String> {
    let names = ["one", "other"].map(|name| shared.join(name));
    for name in &names {
        fs::write(name, name.as_os_str().as_encoded_bytes()).map_err(told(name))?;
    }
    let exchange = || rustix::fs::renameat_with(CWD, &names[0], CWD, &names[1], RenameFlags::EXCHANGE);
    watched(
        || (0..steps).try_for_each(|_| exchange()).map_err(told(&names[0])),
        || names.iter().try_for_each(|name| File::open(name).map(drop).map_err(told(name))),
    )
}

/// Several workers rename, link, make and remove files, with no knowledge of each other.
fn moved(shared: &Path, seed: u64, steps: u32) -> Result<(), String> {
    let folder = shared.join("moved");
    fs::create_dir_all(folder.join("below")).map_err(told(&folder))?;
    let place = |r: &mut Random| {
        let name = format!("{}", r.below(8));
        if r.below(2) == 0 { folder.join(name) } else { folder.join("below").join(name) }
    };
    let step = |r: &mut Random, nr: u32| {
        let (one, other) = (place(r), place(r));
        let kept = [folder.join(format!("kept-{nr}")), folder.join(format!("below/kept-{nr}"))];
        let dice = r.below(5);
        let done = match dice {
            0 => File::create(&one).map(drop),
            1 => fs::remove_file(&one),
            2 => fs::hard_link(&one, &other),
            // No other worker renames this one.
            3 => fs::rename(&kept[0], &kept[1]).and_then(|()| fs::rename(&kept[1], &kept[0])),
            _ => fs::rename(&one, &other),
        };
        let fine = |error: &std::io::Error| {
            dice != 3 && matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::EXIST))
        };
        match done {
            Err(error) if !fine(&error) => Err(format!("moved: {one:?}, {other:?}: {error}")),
            _ => Ok(()),
        }
    };
    thread::scope(|scope| {
        let (step, folder) = (&step, &folder);
        let movers: Vec<Job<'_>> = (0..MANY)
            .map(|nr| {
                scope.spawn(move || {
                    let mut random = Random::new(&format!("moved-{seed}-{nr}"));
                    File::create(folder.join(format!("kept-{nr}"))).map_err(told(folder))?;
                    (0..steps).try_for_each(|_| step(&mut random, nr))
                })
            })
            .collect();
        movers.into_iter().try_for_each(|mover| joined(mover))
    })?;
    for nr in 0..MANY {
        let kept = folder.join(format!("kept-{nr}"));
        fs::metadata(&kept).map_err(told(&kept))?;
    }
    linked_right(&[folder.clone(), folder.join("below")])
}

/// Whether each file has as many links as names in these directories.
fn linked_right(folders: &[PathBuf]) -> Result<(), String> {
    let mut names: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for entry in folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten()) {
        let entry = entry.map_err(|error| format!("moved: {error}"))?;
        // Not the inode of the listing: the name must be found.
        let metadata = fs::symlink_metadata(entry.path()).map_err(told(&entry.path()))?;
        if metadata.is_file() {
            let (found, links) = names.entry(metadata.ino()).or_default();
            (*found, *links) = (*found + 1, metadata.nlink());
        }
    }
    match names.iter().find(|(_, (found, links))| found != links) {
        Some((nr, (found, links))) => Err(format!("moved: inode {nr} has {links} links and {found} names")),
        None => Ok(()),
    }
}

/// Lists a directory, while names come and go.
fn listed(shared: &Path, steps: u32) -> Result<(), String> {
    let folder = shared.join("listed");
    fs::create_dir(&folder).map_err(told(&folder))?;
    let long = "x".repeat(60); // so that blocks of directories are split
    let staying = |nr: usize| format!("staying-{nr}-{long}");
    for nr in 0..STAYING {
        File::create(folder.join(staying(nr))).map_err(told(&folder))?;
    }
    let change = |nr: u32| {
        let name = folder.join(format!("going-{nr}-{long}"));
        File::create(&name).map_err(told(&name))?;
        let old = folder.join(format!("going-{}-{long}", nr.saturating_sub(40)));
        if nr >= 40 { fs::remove_file(&old).map_err(told(&old)) } else { Ok(()) }
    };
    watched(
        || (0..steps).try_for_each(change),
        || {
            let entries = fs::read_dir(&folder).map_err(told(&folder))?;
            let mut names: Vec<String> =
                entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
            names.retain(|name| name.starts_with("staying"));
            names.sort();
            let mut all: Vec<String> = (0..STAYING).map(staying).collect();
            all.sort();
            (names == all)
                .then_some(())
                .ok_or_else(|| format!("listed: {} names that stay of {STAYING}", names.len()))
        },
    )
}

/// One worker writes through a mapping, another one reads.
fn mapped(shared: &Path, steps: u32) -> Result<(), String> {
    let path = shared.join("mapped");
    fs::write(&path, [0; 16_384]).map_err(told(&path))?;
    let mapping = MemoryMappedFile::open_rw(&path).map_err(told(&path))?;
    let file = File::open(&path).map_err(told(&path))?;
    let seen = std::sync::atomic::AtomicU64::new(0);
    let put = |nr: u32| {
        mapping.update_region(8192, &u64::from(nr).to_le_bytes()).map_err(told(&path))?;
        if nr.is_multiple_of(64) { mapping.flush().map_err(told(&path)) } else { Ok(()) }
    };
    watched(
        || (0..steps * 8).try_for_each(put),
        || {
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, 8192).map_err(told(&path))?;
            let now = u64::from_le_bytes(bytes);
            let before = seen.swap(now, Ordering::Relaxed);
            if before <= now { Ok(()) } else { Err(format!("mapped: {now} after {before}")) }
        },
    )?;
    let last = fs::read(&path).map_err(told(&path))?;
    let expected = u64::from(steps * 8 - 1).to_le_bytes();
    if last[8192..8200] == expected { Ok(()) } else { Err("mapped: the last value is not there".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_must_hold_holds_on_the_host_and_stories_repeat() {
        let told = || {
            let folder = tempfile::tempdir().unwrap();
            work(folder.path(), 1, 100).unwrap()
        };
        assert_eq!(told(), told());
    }
}
