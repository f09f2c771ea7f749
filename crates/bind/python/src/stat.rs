//! What an inode says, as Python gets it.

use hectare::fs::{FileType, Metadata};
use hectare::inode::Timestamp;
/// Mode, inode, links, uid, gid, size; nanoseconds of atime, mtime, ctime and birth; block size, sectors,
/// and the numbers of a device.
pub(crate) type Stat =
    ((u32, u64, u64, u32, u32, u64), (i128, i128, i128, Option<i128>), (u64, u64, u32, u32));

/// What an inode says, as numbers.
pub(crate) fn stat_of(found: &Metadata) -> Stat {
    let raw = found.as_engine();
    let nanoseconds = |at: Timestamp| i128::from(at.seconds) * 1_000_000_000 + i128::from(at.nanoseconds);
    let times =
        (nanoseconds(raw.atime), nanoseconds(raw.mtime), nanoseconds(raw.ctime), raw.crtime.map(nanoseconds));
    let mode = kind_bits(found.file_type()) | found.mode();
    let (major, minor) = found.device();
    let own = (mode, found.ino(), found.nlink(), found.uid(), found.gid(), found.len());
    (own, times, (found.blksize(), found.blocks(), major, minor))
}

/// The bits of a mode that say what a file is (`S_IFMT`; inode(7)).
fn kind_bits(kind: FileType) -> u32 {
    match letter(kind) {
        'd' => 0o040_000,
        'l' => 0o120_000,
        'c' => 0o020_000,
        'b' => 0o060_000,
        'p' => 0o010_000,
        's' => 0o140_000,
        _ => 0o100_000,
    }
}

/// What a file is, by the letter of `ls -l`.
pub(crate) fn letter(kind: FileType) -> char {
    let letters = [
        (kind.is_dir(), 'd'),
        (kind.is_symlink(), 'l'),
        (kind.is_char_device(), 'c'),
        (kind.is_block_device(), 'b'),
        (kind.is_fifo(), 'p'),
        (kind.is_socket(), 's'),
    ];
    letters.iter().find(|(is, _)| *is).map_or('-', |(_, letter)| *letter)
}
