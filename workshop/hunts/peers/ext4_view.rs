//! Lists an image by the crate `ext4-view`: `ext4_view IMAGE`. `cargo hunt peers` builds it in a package of
//! its own. The form of the lines is described in `listing.py`.

use ext4_view::{Ext4, FileType, Path, PathBuf};
use sha2::{Digest, Sha256};
use std::fmt::Write;

const CHUNK: usize = 65_536;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn failed(path: &[u8], reason: impl std::fmt::Display) {
    println!("!\t{}\t{}", hex(path), reason.to_string().escape_default());
}

fn digest(volume: &Ext4, path: Path<'_>, size: u64) -> Result<String, String> {
    let mut file = volume.open(path).map_err(|error| error.to_string())?;
    let (mut summed, mut buffer, mut read) = (Sha256::new(), vec![0; CHUNK], 0);
    for number in 0_u64.. {
        let mut filled = 0;
        while filled < CHUNK {
            match file.read_bytes(&mut buffer[filled..]).map_err(|error| error.to_string())? {
                0 => break,
                some => filled += some,
            }
        }
        buffer[filled..].fill(0);
        read += filled as u64;
        if buffer.iter().any(|byte| *byte != 0) {
            summed.update(number.to_le_bytes());
            summed.update(&buffer);
        }
        if filled < CHUNK {
            break;
        }
    }
    if read != size {
        return Err(format!("{read} bytes of {size} were read"));
    }
    summed.update(u64::MAX.to_le_bytes());
    summed.update(size.to_le_bytes());
    Ok(hex(&summed.finalize()))
}

/// One entry; returns whether it is a directory.
fn entry(volume: &Ext4, path: Path<'_>, shown: &[u8]) -> Result<bool, String> {
    let text = |error: ext4_view::Ext4Error| error.to_string();
    let found = volume.symlink_metadata(path).map_err(text)?;
    let (kind, held) = match found.file_type() {
        FileType::Regular => ("f", digest(volume, path, found.len())?),
        FileType::Directory => ("d", "-".to_owned()),
        FileType::Symlink => ("l", hex(volume.read_link(path).map_err(text)?.as_ref())),
        FileType::Fifo => ("p", "-".to_owned()),
        FileType::Socket => ("s", "-".to_owned()),
        FileType::CharacterDevice => ("c", "-".to_owned()),
        FileType::BlockDevice => ("b", "-".to_owned()),
    };
    let (mode, uid, gid, size) = (found.mode() & 0o7777, found.uid(), found.gid(), found.len());
    println!("{}\t{kind}\t{mode:o}\t{uid}\t{gid}\t{size}\t?\t?\t{held}\t?", hex(shown));
    Ok(kind == "d")
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let image = std::env::args().nth(1).ok_or("usage: ext4_view IMAGE")?;
    let volume = Ext4::load_from_path(std::path::Path::new(&image))?;
    let mut todo = vec![PathBuf::new("/")];
    while let Some(path) = todo.pop() {
        let bytes: Vec<u8> = path.as_path().as_ref().to_vec();
        let shown = bytes.strip_prefix(b"/").unwrap_or(&bytes);
        match entry(&volume, path.as_path(), shown) {
            Ok(false) => continue,
            Ok(true) => {}
            Err(reason) => {
                failed(shown, reason);
                continue;
            }
        }
        if bytes.iter().filter(|byte| **byte == b'/').count() > 300 {
            failed(shown, "the tree does not end");
            break;
        }
        let entries = match volume.read_dir(path.as_path()) {
            Ok(entries) => entries,
            Err(error) => {
                failed(shown, error);
                continue;
            }
        };
        for entry in entries {
            match entry {
                Ok(entry) if matches!(entry.file_name().as_ref(), b"." | b"..") => {}
                Ok(entry) => todo.push(entry.path()),
                Err(error) => failed(shown, error),
            }
        }
    }
    println!(".");
    Ok(())
}
