//! Ending a mount from outside, and knowing when it has ended.
//!
//! `umount` of a FUSE file system returns when it is off the tree; whoever serves it may still be writing. So
//! [`unmount`] goes on to wait until the image can be locked, which is when the volume has been closed.
//!
//! Hazard: a mount is found by its folder in `/proc/self/mountinfo` (proc(5)), where odd bytes are written in
//! octal.

use crate::mount::{detach, is_root};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// What `/proc/self/mountinfo` calls the type.
const KIND: &str = "fuse.hectare";

/// Takes an image off a folder, and returns when its volume is closed, if the image can be opened to wait for
/// that.
///
/// # Errors
/// If no image of ours is mounted there, or it is in use.
pub fn unmount(dir: &Path) -> io::Result<()> {
    let dir = dir.canonicalize()?;
    let table = std::fs::read_to_string("/proc/self/mountinfo")?;
    let image = table.lines().filter_map(Line::parse).rfind(|line| line.dir == dir).map(|line| line.source);
    let image = image
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no image is mounted there by hectare"))?;
    detach(&dir, !is_root())?;
    if let Ok(image) = File::open(image) {
        image.lock_shared()?;
    }
    Ok(())
}

/// One of our mounts.
struct Line {
    dir: PathBuf,
    source: PathBuf,
}

impl Line {
    fn parse(line: &str) -> Option<Self> {
        let (mount, system) = line.split_once(" - ")?;
        let mut system = system.split(' ');
        if system.next()? != KIND {
            return None;
        }
        Some(Self { dir: unescaped(mount.split(' ').nth(4)?), source: unescaped(system.next()?) })
    }
}

/// A path as it is: three octal digits after a backslash are a byte.
fn unescaped(text: &str) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.filter(|_| *first == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_mounts_are_found_in_the_table() {
        let line =
            r"36 35 0:98 / /mnt/a\040b rw,noatime master:1 - fuse.hectare /srv/x\134y.img rw,user_id=0";
        let found = Line::parse(line).unwrap();
        assert_eq!((found.dir, found.source), ("/mnt/a b".into(), r"/srv/x\y.img".into()));
        assert!(Line::parse("36 35 0:98 / /mnt rw - ext4 /dev/sda1 rw").is_none());
        assert!(Line::parse("nonsense").is_none());
        assert_eq!(unescaped(r"\04"), PathBuf::from(r"\04"));
    }
}
