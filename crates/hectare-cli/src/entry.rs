//! One file of a volume, for lists and JSON.

use crate::clock;
use crate::name::{JsonName, shown};
use hectare_engine::{Kind, Metadata};
use serde::Serialize;

/// The letter of `ls -l`.
pub(crate) const fn letter(kind: Kind) -> char {
    match kind {
        Kind::File => '-',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
        Kind::CharDevice => 'c',
        Kind::BlockDevice => 'b',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
    }
}

/// The kind in words.
pub(crate) const fn words(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "regular file",
        Kind::Directory => "directory",
        Kind::Symlink => "symbolic link",
        Kind::CharDevice => "character device",
        Kind::BlockDevice => "block device",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
    }
}

/// `-rwxr-xr-x`, set-id and sticky bits included.
pub(crate) fn mode_text(kind: Kind, mode: u16) -> String {
    let mut text = String::from(letter(kind));
    for (shift, special, lower, upper) in
        [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
    {
        text.push(if mode >> shift & 4 != 0 { 'r' } else { '-' });
        text.push(if mode >> shift & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode >> shift & 1 != 0, mode & special != 0) {
            (true, true) => lower,
            (false, true) => upper,
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// A file in JSON. Times are RFC 3339 in UTC, the mode is octal without the kind.
#[derive(Serialize)]
pub(crate) struct JsonEntry {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<JsonName>,
    pub(crate) name: JsonName,
    inode: u32,
    kind: &'static str,
    mode: String,
    links: u32,
    uid: u32,
    gid: u32,
    size: u64,
    sectors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    major: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    minor: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<JsonName>,
    atime: String,
    mtime: String,
    ctime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    crtime: Option<String>,
}

impl JsonEntry {
    /// From the metadata that `stat` returns, and a link's target.
    pub(crate) fn new(name: &[u8], meta: &Metadata, target: Option<Vec<u8>>) -> Self {
        let device = matches!(meta.kind, Kind::CharDevice | Kind::BlockDevice).then_some(meta.device);
        Self {
            path: None,
            name: JsonName(name.to_vec()),
            inode: meta.inode.get(),
            kind: words(meta.kind),
            mode: format!("{:04o}", meta.permissions),
            links: meta.links,
            uid: meta.uid,
            gid: meta.gid,
            size: meta.size,
            sectors: meta.sectors,
            major: device.map(|device| device.major),
            minor: device.map(|device| device.minor),
            target: target.map(JsonName),
            atime: clock::json(meta.atime),
            mtime: clock::json(meta.mtime),
            ctime: clock::json(meta.ctime),
            crtime: meta.crtime.map(clock::json),
        }
    }
}

/// ` -> target`, or nothing.
pub(crate) fn arrow(target: Option<&[u8]>) -> String {
    target.map(|target| format!(" -> {}", shown(target))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_read_as_in_ls() {
        assert_eq!(mode_text(Kind::File, 0o4755), "-rwsr-xr-x");
        assert_eq!(mode_text(Kind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode_text(Kind::File, 0o6644), "-rwSr-Sr--");
        assert_eq!(mode_text(Kind::Symlink, 0o777), "lrwxrwxrwx");
    }
}
