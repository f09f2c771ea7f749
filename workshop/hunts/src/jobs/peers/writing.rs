//! Volumes that are changed by each library that writes: what e2fsck says then, and what the kernel reads.
//!
//! Every operation is done on a directory of the host as well, unless the library said that it failed. The
//! truth is that directory; the judges are `e2fsck -fn` and the kernel (or, where that can't mount the volume,
//! our own reader).

use super::adapters::{End, Peer};
use super::judge::Verdict;
use super::listing::{Listing, printed};
use super::table::Table;
use hectare_oracle::mount::Access;
use hectare_oracle::{Combo, Entry, KernelMount, e2fsck, walk};
use hectare_units::low8;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

/// The volumes that are changed; the last is one that the library makes itself.
const KINDS: [&str; 15] = [
    "ext4",
    "ext4-1k",
    "ext4-64k",
    "ext2",
    "ext3-1k",
    "no-csum",
    "no-journal",
    "no-extents",
    "inline-data",
    "bigalloc",
    "ea-inode",
    "large-dir",
    "meta-bg",
    "quota",
    "orphan-file",
];
const OWN: &str = "its own";
const OWN_BYTES: &str = "67108864";

/// Changes all; fails if e2fsck finds anything in one of ours, or something else is read than was written.
pub(super) fn run(peers: &[Peer], folder: &Path) -> Result<(), String> {
    let writers: Vec<&Peer> = peers.iter().filter(|peer| peer.writes()).collect();
    let Some(reader) = peers.first() else { return Ok(()) };
    let mut table = Table::new("volume", &writers);
    let (mut ours, mut examples) = (Vec::new(), Vec::new());
    for kind in KINDS.into_iter().chain([OWN]) {
        let mut cells = Vec::new();
        for peer in &writers {
            let (cell, example) = one(kind, peer, reader, folder)?;
            if peer.is_ours() && cell != "right" {
                ours.push(format!("{kind}: {cell}: {example}"));
            }
            if !example.is_empty() {
                examples.push(format!("- {kind}, {}: {example}", peer.name));
            }
            cells.push(cell);
        }
        table.row(kind, cells);
    }
    table.print("Writing");
    println!("\n{}", examples.join("\n"));
    super::none_wrong(&ours)
}

/// One library on one kind of volume: a cell, and an example of what is wrong.
fn one(kind: &str, peer: &Peer, ours: &Peer, folder: &Path) -> Result<(String, String), String> {
    let (image, host, input) = (folder.join("work.img"), folder.join("host"), folder.join("operations"));
    let failed = |error: std::io::Error| error.to_string();
    let _ = fs::remove_file(&image); // absent at first
    let _ = fs::remove_dir_all(&host); // absent at first
    fs::create_dir(&host).map_err(failed)?;
    if kind == OWN {
        let made = peer.run(&["make"], &image, &[OWN_BYTES], None, folder)?;
        if made.end != End::Code(0) {
            return Ok(("can't be made".to_owned(), made.said));
        }
    } else {
        Combo::named(kind).make(&image).map_err(|skip| skip.to_string())?;
    }
    let operations = operations();
    fs::write(&input, operations.join("\n") + "\n").map_err(failed)?;
    let ran = peer.run(&["work"], &image, &[], Some(&input), folder)?;
    let answers = String::from_utf8_lossy(&ran.printed).into_owned();
    let answers: Vec<&str> = answers.lines().collect();
    if answers.is_empty() && matches!(ran.end, End::Code(code) if code != 0) {
        return Ok(("refuses".to_owned(), ran.said));
    }
    let (mut done, mut errors, mut example) = (0, 0, String::new());
    for (operation, answer) in operations.iter().zip(&answers) {
        if *answer == "done" {
            mirror(&host, operation).map_err(|error| format!("{operation}: {error}"))?;
            done += 1;
        } else {
            errors += 1;
            if example.is_empty() {
                example = format!("{operation}: {answer}");
            }
        }
    }
    let mut parts = Vec::new();
    if ran.end != End::Code(0) || answers.last() != Some(&".") {
        parts.push(format!("**ends badly** after {done} operations"));
        example = format!("{:?}: {}", ran.end, ran.said);
    }
    let report = e2fsck(&image).map_err(|skip| skip.to_string())?;
    if !report.is_sound() {
        let lines: Vec<&str> = report.output.lines().filter(|line| !line.starts_with("Pass")).collect();
        parts.push("**e2fsck finds damage**".to_owned());
        example = lines.get(1).or(lines.first()).map_or(String::new(), |line| (*line).to_owned());
    }
    let verdict = read_back(&image, &walk(&host), ours, folder)?;
    if verdict.is_wrong() || verdict.refused.is_some() {
        parts.push(verdict.cell());
        example = verdict.examples.first().cloned().unwrap_or(example);
    }
    let parts = if parts.is_empty() { "right".to_owned() } else { parts.join(", ") };
    let errors =
        if errors == 0 { String::new() } else { format!(", {errors} of {} refused", operations.len()) };
    Ok((parts + &errors, example))
}

/// What is read of it, by the kernel if it can.
fn read_back(image: &Path, truth: &[Entry], ours: &Peer, folder: &Path) -> Result<Verdict, String> {
    let what = |mut listing: Listing| {
        // What the operations say nothing of: owners, times, and modes of what is new.
        for line in listing.entries.values_mut() {
            (line.uid, line.gid, line.mode, line.mtime, line.attributes) = (None, None, None, None, None);
        }
        listing
    };
    let fine = |said: &str| super::adapters::Ran {
        end: End::Code(0),
        printed: Vec::new(),
        said: said.to_owned(),
        time: Duration::ZERO,
    };
    match KernelMount::attempt(image, Access::ReadOnly, "noload") {
        Ok(mount) => {
            let found = walk::try_walk(mount.path());
            mount.unmount();
            let lines = match found {
                Ok(found) => found.iter().map(printed).collect::<Vec<_>>().join("\n") + "\n.\n",
                Err(error) => format!("!\t\tthe kernel: {error}\n"),
            };
            Ok(Verdict::of(&what(Listing::parse(lines.as_bytes())), &fine(""), truth, true))
        }
        Err(hectare_oracle::MountError::Refused { said, .. }) => {
            Ok(Verdict { died: Some(format!("the kernel refuses it: {said}")), ..Verdict::default() })
        }
        Err(_) => {
            let (listing, ran) = ours.list(image, folder)?;
            Ok(Verdict::of(&what(listing), &ran, truth, true))
        }
    }
}

/// What is done: everything that a program that fills and updates an image does.
fn operations() -> Vec<String> {
    let mut all: Vec<String> =
        ["a", "a/b", "a/b/c", "many", "gone"].map(|path| format!("mkdir {path}")).into();
    let sizes = [0, 1, 59, 60, 61, 160, 1023, 1024, 4095, 4096, 4097, 65_536, 100_000, 1_500_000, 9_000_000];
    for (number, size) in sizes.into_iter().enumerate() {
        all.push(format!("write a/file{number} {size} {number}"));
    }
    for number in 0..400 {
        all.push(format!("write many/a_name_that_is_not_short_{number} {} {number}", number % 300));
    }
    for number in (0..400).step_by(7) {
        all.push(format!("remove many/a_name_that_is_not_short_{number}"));
    }
    for (number, size) in [10, 4096, 70_000, 2_000_000].into_iter().enumerate() {
        all.push(format!("append a/file{} {size} {}", number * 3, number + 50));
    }
    all.extend(
        ["short".to_owned(), "x".repeat(59), "y".repeat(60), "z".repeat(200)]
            .iter()
            .enumerate()
            .map(|(number, target)| format!("symlink a/link{number} {target}")),
    );
    let rest = [
        "link a/file8 a/b/second",
        "rename a/file5 a/renamed",
        "rename a/file6 a/b/c/moved",
        "rename many/a_name_that_is_not_short_1 many/a_name_that_is_not_short_2",
        "rename a/b gone/b",
        "truncate a/file12 5000",
        "truncate a/file13 0",
        "truncate a/file3 3000000",
        "write a/file11 200000 99",
        "write a/file14 10 98",
        "chmod a/file1 384",
        "remove a/file2",
        "mkdir empty",
        "remove empty",
    ];
    all.extend(rest.map(str::to_owned));
    all
}

/// What is written: `len` bytes that follow from a seed.
pub(super) fn content(len: u64, seed: u64) -> Vec<u8> {
    let mut seed = seed;
    let byte = |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        low8(seed >> 56)
    };
    (0..len).map(byte).collect()
}

/// The same on the host.
fn mirror(host: &Path, operation: &str) -> std::io::Result<()> {
    let at = |path: &str| host.join(path);
    let number = |text: &str| text.parse::<u64>().map_err(std::io::Error::other);
    match operation.split(' ').collect::<Vec<_>>()[..] {
        ["mkdir", path] => fs::create_dir(at(path)),
        ["write", path, len, seed] => overwrite(&at(path), &content(number(len)?, number(seed)?)),
        ["append", path, len, seed] => {
            let mut file = fs::File::options().write(true).open(at(path))?;
            file.seek(SeekFrom::End(0))?;
            file.write_all(&content(number(len)?, number(seed)?))
        }
        ["remove", path] if at(path).symlink_metadata()?.is_dir() => fs::remove_dir(at(path)),
        ["remove", path] => fs::remove_file(at(path)),
        ["rename", from, to] => fs::rename(at(from), at(to)),
        ["symlink", path, target] => symlink(target, at(path)),
        ["link", from, to] => fs::hard_link(at(from), at(to)),
        ["truncate", path, len] => fs::File::options().write(true).open(at(path))?.set_len(number(len)?),
        ["chmod", path, mode] => {
            let mode = u32::try_from(number(mode)?).map_err(std::io::Error::other)?;
            fs::set_permissions(at(path), fs::Permissions::from_mode(mode))
        }
        _ => Err(std::io::Error::other(format!("{operation} is no operation"))),
    }
}

/// Writes at the beginning; what a file has beyond stays.
fn overwrite(path: &Path, content: &[u8]) -> std::io::Result<()> {
    fs::File::options().write(true).create(true).truncate(false).open(path)?.write_all(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operations_can_be_done() {
        let host = tempfile::tempdir().unwrap();
        for operation in operations() {
            mirror(host.path(), &operation).unwrap_or_else(|error| panic!("{operation}: {error}"));
        }
        let file14 = fs::read(host.path().join("a/file14")).unwrap();
        assert_eq!((file14.len(), &file14[..10]), (9_000_000, &content(10, 98)[..]));
        assert!(mirror(host.path(), "paint it").is_err());
    }
}
