//! Our own adapter: a program on the crate `hectare`, with the jobs and the output of those in
//! `workshop/hunts/peers`.
//!
//! It runs as a process of its own, as theirs do, so that a crash would be seen.

use super::listing::{hex, printed};
use hectare::Volume;
use hectare::fs::{Metadata, OpenOptions, Permissions};
use hectare_oracle::entry::{Content, Entry, Kind, Time};
use std::io::{BufRead, Write};

const CHUNK: usize = 65_536;

/// `list IMAGE`, `work IMAGE` or `make IMAGE BYTES`.
pub(super) fn run(words: &[&str]) -> Result<(), String> {
    let text = |error: hectare::Error| error.to_string();
    match *words {
        ["list", image] => list(&Volume::open(image).map_err(text)?),
        ["work", image] => {
            let volume = Volume::open_writable(image).map_err(text)?;
            work(&volume)?;
            volume.close().map_err(text)
        }
        ["make", image, bytes] => {
            let bytes = bytes.parse().map_err(|_| format!("{bytes} is no size"))?;
            hectare::mkfs::Format::new().create(image, bytes).map_err(text)
        }
        _ => Err("usage: list|work|make IMAGE [BYTES]".to_owned()),
    }
}

fn list(volume: &Volume) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    let mut todo = vec![Vec::new()];
    while let Some(path) = todo.pop() {
        let line = match entry(volume, &path) {
            Ok(entry) => {
                if entry.kind == Kind::Directory {
                    children(volume, &path, &mut todo).unwrap_or_else(|error| println!("{error}"));
                }
                printed(&entry)
            }
            Err(error) => failed(&path, &error),
        };
        writeln!(out, "{line}").map_err(|error| error.to_string())?;
    }
    writeln!(out, ".").map_err(|error| error.to_string())
}

fn failed(path: &[u8], error: &hectare::Error) -> String {
    format!("!\t{}\t{}", hex(path), error.to_string().escape_default())
}

fn absolute(path: &[u8]) -> Vec<u8> {
    [b"/", path].concat()
}

/// Adds the paths of what is in a directory; on an error the line that says so.
fn children(volume: &Volume, path: &[u8], todo: &mut Vec<Vec<u8>>) -> Result<(), String> {
    let entries = volume.read_dir(absolute(path)).map_err(|error| failed(path, &error))?;
    for entry in entries {
        let entry = entry.map_err(|error| failed(path, &error))?;
        let name = entry.file_name_bytes();
        todo.push(if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() });
    }
    Ok(())
}

fn entry(volume: &Volume, path: &[u8]) -> hectare::Result<Entry> {
    let at = absolute(path);
    let found = volume.symlink_metadata(&at)?;
    let mut entry = Entry::new(path, kind(&found));
    let inode = found.as_engine();
    entry.mode = u16::try_from(found.mode() & 0o7777).unwrap_or_default();
    (entry.uid, entry.gid, entry.nlink, entry.size) = (found.uid(), found.gid(), found.nlink(), found.len());
    entry.mtime = Time { secs: inode.mtime.seconds, nanos: inode.mtime.nanoseconds };
    match entry.kind {
        Kind::Symlink => entry.target = volume.read_link(&at)?.into_os_string().into_encoded_bytes(),
        Kind::File => entry.digest = digest(&volume.open_file(&at)?, entry.size)?,
        _ => {}
    }
    if entry.kind != Kind::Symlink {
        for name in volume.xattrs(&at)? {
            let value = volume.xattr(&at, &name)?.unwrap_or_default();
            entry.xattrs.insert(name, value);
        }
    }
    Ok(entry)
}

fn kind(found: &Metadata) -> Kind {
    match found.file_type() {
        kind if kind.is_dir() => Kind::Directory,
        kind if kind.is_symlink() => Kind::Symlink,
        kind if kind.is_fifo() => Kind::Fifo,
        kind if kind.is_socket() => Kind::Socket,
        kind if kind.is_char_device() => Kind::Char,
        kind if kind.is_block_device() => Kind::Block,
        _ => Kind::File,
    }
}

fn digest(file: &hectare::fs::File, size: u64) -> hectare::Result<[u8; 32]> {
    let (mut content, mut buffer, mut at) = (Content::new(), vec![0; CHUNK], 0);
    loop {
        let some = file.read_at(&mut buffer, at)?;
        if some == 0 {
            return Ok(content.finish(size));
        }
        content.add(at, &buffer[..some]);
        at += hectare_units::u64_of(some);
    }
}

/// Carries out operations, and says of each whether it was done.
fn work(volume: &Volume) -> Result<(), String> {
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        match one(volume, &line.split(' ').collect::<Vec<_>>()) {
            Ok(()) => println!("done"),
            Err(reason) => println!("error\t{reason}"),
        }
    }
    println!(".");
    Ok(())
}

fn one(volume: &Volume, words: &[&str]) -> Result<(), String> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text} is no number"));
    let text = |error: hectare::Error| error.to_string();
    match *words {
        ["mkdir", path] => volume.create_dir(path).map_err(text),
        ["write", path, len, seed] => {
            let file = OpenOptions::new().write(true).create(true).open(volume, path).map_err(text)?;
            file.write_all_at(&super::writing::content(number(len)?, number(seed)?), 0).map_err(text)
        }
        ["append", path, len, seed] => {
            let mut file = OpenOptions::new().append(true).open(volume, path).map_err(text)?;
            let bytes = super::writing::content(number(len)?, number(seed)?);
            file.write_all(&bytes).map_err(|error| error.to_string())
        }
        ["remove", path] => match volume.symlink_metadata(path).map_err(text)?.is_dir() {
            true => volume.remove_dir(path).map_err(text),
            false => volume.remove_file(path).map_err(text),
        },
        ["rename", from, to] => volume.rename(from, to).map_err(text),
        ["symlink", path, target] => volume.symlink(target, path).map_err(text),
        ["link", from, to] => volume.hard_link(from, to).map_err(text),
        ["truncate", path, len] => {
            let file = OpenOptions::new().write(true).open(volume, path).map_err(text)?;
            file.set_len(number(len)?).map_err(text)
        }
        ["chmod", path, mode] => {
            let mode = u32::try_from(number(mode)?).map_err(|error| error.to_string())?;
            volume.set_permissions(path, Permissions::from_mode(mode)).map_err(text)
        }
        _ => Err(format!("{words:?} is no operation")),
    }
}
