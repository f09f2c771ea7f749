//! Trees made of names, sizes, holes and links.
//!
//! The boundaries come from the ext4 format: 59 and 60 bytes (a link target inside the inode), 156 and 160
//! bytes (inline data in a 256-byte inode), the block sizes, and 12 blocks (the direct part of a block map).

use super::Random;
use rustix::fs::{CWD, FileType, Mode};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

pub(super) fn many(folder: &Path, n: u32) -> io::Result<()> {
    for i in 0..n {
        // Names of different lengths, so that directory blocks do not all split alike.
        let tail = "x".repeat(usize::try_from(i % 23).unwrap_or(0));
        fs::write(folder.join(format!("file-{i:06}{tail}")), if i % 4 == 0 { &b"some"[..] } else { b"" })?;
    }
    Ok(())
}

pub(super) fn deep(folder: &Path, levels: u32) -> io::Result<()> {
    let mut path = folder.to_owned();
    for level in 0..=levels {
        fs::write(path.join("file"), format!("level {level}\n"))?;
        path.push(format!("level-{level:02}-{}", "d".repeat(40)));
        fs::create_dir(&path)?;
    }
    Ok(())
}

pub(super) fn names(folder: &Path) -> io::Result<()> {
    for length in [1, 2, 3, 4, 5, 8, 12, 63, 127, 128, 199, 200, 251, 252, 253, 254, 255] {
        fs::write(folder.join("n".repeat(length)), format!("{length}"))?;
        let name: Vec<u8> = (0..length).map(|i| [0xff, 0xfe, 0x80, 0xc3][i % 4]).collect();
        fs::write(folder.join(OsStr::from_bytes(&name)), "no UTF-8")?;
    }
    let odd: [&[u8]; 16] = [
        b"-rf",
        b"--help",
        b" ",
        b"  two  spaces  ",
        b"...",
        b".hidden",
        b"new\nline",
        b"tab\tand\rreturn",
        b"\x01\x1b[31m",
        b"back\\slash",
        b"quote\"'`$HOME",
        b"*?[a-z]",
        b"colon:path",
        b"caf\xc3\xa9",
        b"cafe\xcc\x81",
        b"\xf0\x9f\x8c\xb3\xe6\xa8\xb9",
    ];
    for name in odd {
        fs::write(folder.join(OsStr::from_bytes(name)), name)?;
    }
    for name in ["Case", "case", "CASE", "lost+found2", "con", "aux.txt"] {
        fs::create_dir(folder.join(name))?;
        fs::write(folder.join(name).join(name), name)?;
    }
    Ok(())
}

pub(super) fn sizes(folder: &Path, random: &mut Random) -> io::Result<()> {
    let mut sizes = vec![0, 1, 2, 59, 60, 61, 127, 128, 155, 156, 157, 160, 255, 256, 257, 511, 512, 513];
    for block in [1024, 2048, 4096, 8192, 16_384, 65_536] {
        sizes.extend([block - 1, block, block + 1]);
    }
    sizes.extend([12 * 1024, 12 * 1024 + 1, 268 * 1024, 268 * 1024 + 1, 12 * 4096, 12 * 4096 + 1, 1_048_577]);
    for size in sizes {
        fs::write(folder.join(format!("random-{size}")), random.bytes(size))?;
    }
    for size in [1, 60, 4096, 70_000] {
        fs::write(folder.join(format!("zeros-{size}")), vec![0; size])?; // written, not holes
    }
    Ok(())
}

pub(super) fn sparse(folder: &Path, largest: u64, random: &mut Random) -> io::Result<()> {
    const BLOCK: u64 = 65_536; // so that every block size sees the same holes
    let plans: [(&str, u64, &[u64]); 6] = [
        ("hole-only", 10 * BLOCK, &[]),
        ("hole-first", 10 * BLOCK, &[9]),
        ("hole-last", 10 * BLOCK, &[0]),
        ("hole-between", 10 * BLOCK, &[0, 9]),
        ("hole-last-odd", 10 * BLOCK + 77, &[3]),
        ("comb", 64 * BLOCK, &[0, 2, 4, 6, 8, 20, 40, 63]),
    ];
    for (name, size, blocks) in plans {
        let file = File::create(folder.join(name))?;
        file.set_len(size)?;
        for block in blocks {
            file.write_all_at(&random.bytes(65_536), block * BLOCK)?;
        }
    }
    let file = File::create(folder.join("huge"))?;
    file.set_len(largest)?;
    for part in 0..8 {
        let at = (largest / 8 * part) / BLOCK * BLOCK;
        file.write_all_at(&random.bytes(4096), at)?;
    }
    file.write_all_at(&random.bytes(65_536), largest.saturating_sub(BLOCK) / BLOCK * BLOCK)
}

/// Writes a file of `extents` blocks of `block` bytes with a hole of one block after each, so that it takes
/// at least this many extents with any allocator.
///
/// # Errors
/// If it can't be written.
pub fn fragmented(path: &Path, extents: u32, block: u32) -> io::Result<()> {
    let file = File::create(path)?;
    let size = u64::from(block);
    let mut content = vec![0; usize::try_from(block).unwrap_or(4096)];
    for i in 0..extents {
        content.fill(b'a' + u8::try_from(i % 26).unwrap_or(0));
        file.write_all_at(&content, u64::from(i) * size * 2)?;
    }
    Ok(())
}

pub(super) fn links(folder: &Path, longest: u16) -> io::Result<()> {
    let target = |length: usize| "/target".bytes().cycle().take(length).collect::<Vec<u8>>();
    for length in [1, 2, 58, 59, 60, 61, 127, 255, 1000, usize::from(longest)] {
        let link = folder.join(format!("target-{length}"));
        if fs::symlink_metadata(&link).is_err() {
            symlink(OsStr::from_bytes(&target(length)), link)?;
        }
    }
    symlink("nowhere", folder.join("dangling"))?;
    symlink("loop", folder.join("loop"))?;
    symlink(OsStr::from_bytes(b"\xff\xfe"), folder.join("no-utf8"))?;
    fs::create_dir(folder.join("a"))?;
    fs::create_dir(folder.join("b"))?;
    symlink("../a", folder.join("b/up"))?;
    fs::write(folder.join("a/first"), "linked")?;
    for i in 0..5 {
        fs::hard_link(folder.join("a/first"), folder.join(format!("b/again-{i}")))?;
        fs::hard_link(folder.join("a/first"), folder.join(format!("again-{i}")))?;
    }
    fs::hard_link(folder.join("dangling"), folder.join("b/linked-link"))
}

pub(super) fn pipes(folder: &Path) -> io::Result<()> {
    for i in 0..3 {
        node(&folder.join(format!("pipe-{i}")), FileType::Fifo, 0, 0)?;
        node(&folder.join(format!("socket-{i}")), FileType::Socket, 0, 0)?;
    }
    fs::hard_link(folder.join("pipe-0"), folder.join("pipe-again"))
}

pub(super) fn devices(folder: &Path) -> io::Result<()> {
    // Below 256 the numbers take ext4's old 16-bit form, above its new 32-bit one.
    for (major, minor) in [(1, 3), (8, 0), (255, 255), (256, 1), (1, 256), (259, 70_000), (4095, 1_048_575)] {
        node(&folder.join(format!("char-{major}-{minor}")), FileType::CharacterDevice, major, minor)?;
        node(&folder.join(format!("block-{major}-{minor}")), FileType::BlockDevice, major, minor)?;
    }
    Ok(())
}

fn node(path: &Path, kind: FileType, major: u32, minor: u32) -> io::Result<()> {
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP;
    Ok(rustix::fs::mknodat(CWD, path, kind, mode, rustix::fs::makedev(major, minor))?)
}

pub(super) fn ordinary(folder: &Path, random: &mut Random) -> io::Result<()> {
    for package in 0..12 {
        let home = folder.join(format!("package-{package}"));
        for part in ["", "doc", "lib", "share/locale/de"] {
            fs::create_dir_all(home.join(part))?;
            for i in 0..random.below(8) {
                let limit = 16 << random.below(12);
                let size = usize::try_from(random.below(limit)).unwrap_or(0);
                fs::write(home.join(part).join(format!("file-{i}.txt")), random.bytes(size))?;
            }
        }
        fs::write(home.join("doc/copyright"), "free\n")?;
        symlink("../doc/copyright", home.join("lib/copyright"))?;
    }
    Ok(())
}
