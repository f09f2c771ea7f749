//! Corrupt volumes of every kind: whatever the bytes, opening and walking them ends, with a result or an
//! error.
//!
//! Small valid volumes are damaged at random, mostly where they hold metadata; those without checksums let
//! the damage through to every parser. A walk is bounded by what it visits, not by what the volume claims.

use crate::common::{format_bytes, in_memory_with, pattern, save};
use hectare_engine::{Changes, Creation, Error, Kind, NewNode, OpenOptions, RenameMode, Volume, XattrHow};
use hectare_oracle::trees::Random;
use hectare_oracle::{Scale, Skip, Tree, corpus, hunt, skip, skip_part, source, unpacked};
use hectare_units::InodeNr;
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::mpsc;
use std::time::Duration;

const ENTRIES_MAX: usize = 2000;
const READ_MAX: u64 = 1 << 20;

/// Reads everything; errors are valid results. Returns how many inodes it saw.
fn walk_all(volume: &Volume) -> usize {
    let mut todo = vec![InodeNr::ROOT];
    let mut seen = BTreeSet::new();
    let mut buffer = vec![0; 64 << 10];
    while let Some(nr) = todo.pop() {
        if !seen.insert(nr) || seen.len() > ENTRIES_MAX {
            continue;
        }
        if let Ok(names) = volume.list_xattrs(nr) {
            for name in names {
                let _ = volume.get_xattr(nr, &name);
            }
        }
        match volume.stat(nr).map(|metadata| metadata.kind) {
            Ok(Kind::Directory) => {
                let entries = volume.list(nr).unwrap_or_default();
                for entry in &entries {
                    let _ = volume.lookup(nr, &entry.name);
                }
                todo.extend(entries.into_iter().map(|entry| entry.inode));
            }
            Ok(Kind::Symlink) => drop(volume.read_link_at(nr)),
            Ok(Kind::File) => read_some(volume, nr, &mut buffer),
            _ => {}
        }
    }
    let _ = volume.statfs();
    for path in ["file", "dir/deep/file", "link/x", "dir/../link"] {
        let _ = volume.metadata(path);
    }
    seen.len()
}

fn read_some(volume: &Volume, nr: InodeNr, buffer: &mut [u8]) {
    let Ok(file) = volume.open_inode(nr) else { return };
    let _ = file.data_ranges();
    let mut at = 0;
    while at < READ_MAX {
        match file.read_at(at, buffer) {
            Ok(n) if n > 0 => at += n as u64,
            _ => break,
        }
    }
    let size = file.metadata().map_or(0, |metadata| metadata.size);
    for far in [size.saturating_sub(100), size, 1 << 40, u64::MAX - 5] {
        let _ = file.read_at(far, buffer);
    }
}

/// Some of every change; errors are valid results.
fn change_some(volume: &Volume) {
    let c = Creation::default();
    let root: Vec<Vec<u8>> =
        volume.list(InodeNr::ROOT).unwrap_or_default().into_iter().take(20).map(|entry| entry.name).collect();
    for n in 0..6 {
        let _ = volume.write_file(format!("new-{n}-{}", "n".repeat(200)), &pattern(n, 0, 5000), c);
    }
    let _ = volume.create_dir_all("new/deep/er", c);
    let _ = volume.symlink([b't'; 300], "new-link", c);
    for (n, name) in root.iter().enumerate() {
        if let Ok(file) = volume.open_file(name) {
            let _ = file.write_at(10, &[1; 3000]);
            let _ = file.write_at(100_000, &[1; 3000]);
            let _ = file.set_len(2000);
        }
        if let Ok(nr) = volume.resolve(name, false) {
            let _ = volume.set_xattr(nr, "user.new", &[1; 300], XattrHow::Either);
            let _ = volume.change(nr, &Changes { permissions: Some(0o600), ..Changes::default() });
            let _ = volume.create(nr, b"inside", NewNode::File, c);
        }
        let second = &root[(n + 1) % root.len()];
        match n % 6 {
            0 => drop(volume.rename_path(name, second, RenameMode::Exchange)),
            1 => drop(volume.rename_path(name, "dir/moved", RenameMode::Replace)),
            2 => drop(volume.rename_path(name, second, RenameMode::WHITEOUT)),
            3 => drop(volume.hard_link(name, "second")),
            4 => drop(volume.remove_dir_all(name)),
            _ => drop(volume.remove_file(name)),
        }
    }
    let _ = volume.sync();
    for name in &root {
        let _ = volume.remove_dir_all(name);
    }
    let _ = volume.close();
}

/// Opens bytes both ways and runs everything on them. Returns how many inodes it saw.
fn exercise(bytes: &[u8]) -> usize {
    let mut seen = 0;
    let options = OpenOptions { cache_bytes: 1 << 20, cache_inodes: 256, ..OpenOptions::default() };
    let read_only = OpenOptions { read_only: true, ..options.clone() };
    if let Ok(held) = in_memory_with(bytes, read_only) {
        seen += walk_all(&held.volume);
        assert!(held.device.to_vec() == bytes, "reading changed bytes");
    }
    if let Ok(held) = in_memory_with(bytes, options) {
        change_some(&held.volume);
        walk_all(&held.volume);
    }
    seen
}

/// Exercises bytes; reports the origin of the bytes on a panic, and ends the process if it hangs. Returns how
/// many inodes were seen.
fn survive(label: &str, bytes: Vec<u8>) -> usize {
    let (done, ended) = mpsc::channel();
    let thread = std::thread::Builder::new().spawn(move || {
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| exercise(&bytes)));
        let _ = done.send(result.ok());
    });
    let thread = thread.unwrap();
    let Ok(seen) = ended.recv_timeout(Duration::from_secs(300)) else {
        eprintln!("{label}: it does not end");
        std::process::abort();
    };
    thread.join().unwrap();
    seen.unwrap_or_else(|| panic!("{label}: a panic"))
}

/// A small volume with some of everything in it.
fn specimen(args: &[&str], size: &str) -> Result<Vec<u8>, Skip> {
    let folder = source(Tree::Links, &Scale { target: 500, ..Scale::SMALL })?;
    let bytes = {
        let temporary = tempfile::tempdir().unwrap();
        let image = temporary.path().join("image");
        let from = folder.to_string_lossy().into_owned();
        let args: Vec<&str> = args.iter().copied().chain(["-d", &from]).collect();
        hectare_oracle::mke2fs(&args, &image, size)?;
        std::fs::read(&image).unwrap()
    };
    let Ok(held) = in_memory_with(&bytes, OpenOptions::default()) else { return Ok(bytes) };
    let v = &held.volume;
    let c = Creation::default();
    // Inline or indirect volumes refuse some of this.
    let _ = v.create_dir_all("dir/deep", c);
    let _ = v.write_file("dir/deep/file", &pattern(1, 0, 3000), c);
    let _ = v.write_file("file", &pattern(2, 0, 70_000), c);
    if let Ok(file) = v.create_file("comb", c) {
        for n in 0..200 {
            let _ = file.write_at(n * 8192, &[1; 10]);
        }
        let _ = v.set_xattr(file.inode(), "user.large", &[5; 600], XattrHow::Either);
        let _ = v.set_xattr(file.inode(), "user.small", b"small", XattrHow::Either);
    }
    for n in 0..60 {
        let _ = v.make(format!("dir/{n}-{}", "n".repeat(120)), NewNode::Fifo, c);
    }
    v.close().unwrap();
    Ok(held.device.to_vec())
}

/// Ranges of 64 bytes that are not empty, file data mostly left out by how little of it there is.
fn interesting(bytes: &[u8]) -> Vec<usize> {
    bytes
        .chunks(64)
        .enumerate()
        .filter(|(_, chunk)| chunk.iter().any(|b| *b != 0))
        .map(|(n, _)| n * 64)
        .collect()
}

fn damage(bytes: &mut [u8], places: &[usize], random: &mut Random) {
    for _ in 0..1 + random.below(6) {
        let at = if random.below(5) == 0 {
            random.below(bytes.len() as u64) as usize
        } else {
            places[random.below(places.len() as u64) as usize] + random.below(64) as usize
        };
        let at = at.min(bytes.len() - 8);
        match random.below(7) {
            0 | 1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = random.bytes(1)[0],
            3 => bytes[at..at + 4].fill(0xff),
            4 => bytes[at..at + 4].fill(0),
            5 => {
                let value = [0u32, 1, 2, 7, 8, 12, 0x7fff, 0x8000, 0xffff, 0x7fff_ffff, 0x8000_0000]
                    [random.below(11) as usize];
                let at = at & !3;
                bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            }
            _ => {
                let from = places[random.below(places.len() as u64) as usize].min(bytes.len() - 64);
                let to = at.min(bytes.len() - 64);
                bytes.copy_within(from..from + 64, to);
            }
        }
    }
}

const KINDS: [(&str, &[&str], &str); 9] = [
    ("no-csum", &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^has_journal"], "2M"),
    (
        "uninit",
        &["-t", "ext4", "-b", "1024", "-g", "512", "-O", "^metadata_csum,uninit_bg,^has_journal"],
        "2M",
    ),
    ("csum", &["-t", "ext4", "-b", "1024", "-O", "^has_journal"], "2M"),
    ("4k", &["-t", "ext4", "-b", "4096", "-I", "128", "-O", "^metadata_csum,^has_journal"], "4M"),
    (
        "bigalloc",
        &["-t", "ext4", "-b", "1024", "-C", "4096", "-O", "bigalloc,^metadata_csum,^has_journal"],
        "4M",
    ),
    ("inline", &["-t", "ext4", "-b", "1024", "-O", "inline_data,^metadata_csum,^has_journal"], "2M"),
    ("ext2", &["-t", "ext2", "-b", "1024"], "2M"),
    ("ea-inode", &["-t", "ext4", "-b", "1024", "-O", "ea_inode,large_dir,^metadata_csum,^has_journal"], "2M"),
    (
        "meta-bg",
        &["-t", "ext4", "-b", "1024", "-g", "256", "-O", "meta_bg,^resize_inode,^metadata_csum,^has_journal"],
        "2M",
    ),
];

#[test]
fn damaged_volumes_hurt_nobody() {
    let (rounds, seed) = (hunt::share(250), hunt::seed("hostile"));
    for (label, args, size) in KINDS {
        let specimen = match specimen(args, size) {
            Ok(specimen) => specimen,
            Err(reason) => {
                skip_part!(format!("hostile, {label}"), reason);
                continue;
            }
        };
        let whole = survive(&format!("{label}, whole"), specimen.clone());
        let mut seen = 0;
        let places = interesting(&specimen);
        for round in 0..rounds {
            let name = format!("{label} {seed} {round}");
            let mut bytes = specimen.clone();
            damage(&mut bytes, &places, &mut Random::new(&name));
            seen += survive(&name, bytes);
        }
        // Damage that keeps every volume from being opened would show nothing.
        assert!(
            whole > 15 && seen > whole * usize::try_from(rounds).unwrap() / 8,
            "{label}: {whole} inodes, then {seen} in {rounds} rounds"
        );
    }
}

/// A volume that debugfs corrupted on purpose.
fn broken(requests: &[&str]) -> Result<Vec<u8>, Skip> {
    let bytes = format_bytes(&["-t", "ext4", "-b", "1024", "-O", "^has_journal,ea_inode"], "4M")?;
    let held = in_memory_with(&bytes, OpenOptions::default()).unwrap();
    let c = Creation::default();
    for dir in ["a/b/c", "x/y"] {
        held.volume.create_dir_all(dir, c).unwrap();
    }
    held.volume.write_file("file", b"content", c).unwrap();
    held.volume.close().unwrap();
    let temporary = tempfile::tempdir().unwrap();
    let image = temporary.path().join("image");
    save(&held.device.to_vec(), &image);
    hectare_oracle::debugfs_write(&image, requests)?;
    Ok(std::fs::read(&image).unwrap())
}

#[test]
fn regression_directories_that_hold_themselves_do_not_lock_up() {
    // Names for directories in themselves and below, and for the journal's inode.
    let requests = [
        "link <12> /a/self",
        "link <12> /a/b/c/up",
        "link <15> /x/self",
        "link <8> /journal",
        "link <2> /x/top",
    ];
    let bytes = match broken(&requests) {
        Ok(bytes) => bytes,
        Err(reason) => skip!("hostile::directories_that_hold_themselves", reason),
    };
    let (done, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let held = in_memory_with(&bytes, OpenOptions::default()).unwrap();
        let v = &held.volume;
        let corrupt =
            |result: Result<(), Error>| assert!(matches!(result, Err(Error::Corrupt(_))), "{result:?}");
        corrupt(v.rename_path("a/self", "x/moved", RenameMode::Replace));
        corrupt(v.rename_path("file", "x/self", RenameMode::Replace));
        corrupt(v.rename_path("file", "x/self", RenameMode::Exchange));
        corrupt(v.remove_dir("a/self"));
        corrupt(v.remove_file("journal"));
        corrupt(v.metadata("journal").map(drop));
        corrupt(v.remove_dir_all("a"));
        done.send(()).unwrap();
    });
    let ended = ended.recv_timeout(Duration::from_secs(300));
    if ended == Err(mpsc::RecvTimeoutError::Timeout) {
        eprintln!("directories that hold themselves: it does not end");
        std::process::abort();
    }
    thread.join().unwrap();
}

#[test]
fn the_corpus_hurts_nobody() {
    for packed in corpus("hostile::the_corpus") {
        survive(&packed.to_string_lossy(), unpacked(&packed));
    }
}
