//! The records of a directory block, as they are on disk.
//!
//! The format crate's own walk is for using a directory; here unused records are judged, too, and the
//! stored file type is needed unchanged.

/// Bytes before a record's name.
const HEADER: usize = 8;
/// The shortest record.
const SHORTEST: usize = 12;

/// A record whose lengths are sound.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    /// Where in the block it starts.
    pub at: usize,
    /// The inode, 0 if it is unused.
    pub inode: u32,
    /// The stored file type.
    pub file_type: u8,
    /// The name.
    pub name: &'a [u8],
    /// The byte after the name, if the record extends that far.
    pub after: Option<u8>,
}

/// The records of `block` up to byte `end`. An error, the byte where no sound record starts, is the last
/// item.
pub fn records(block: &[u8], end: usize) -> impl Iterator<Item = Result<Record<'_>, usize>> {
    let block = block.get(..end).unwrap_or(block);
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= block.len() {
            return None;
        }
        let Some((record, len)) = record(block, at, end) else {
            let broken = at;
            at = block.len();
            return Some(Err(broken));
        };
        at += len;
        Some(Ok(record))
    })
}

fn record(block: &[u8], at: usize, end: usize) -> Option<(Record<'_>, usize)> {
    let rest = block.get(at..)?;
    let [i0, i1, i2, i3, l0, l1, name_len, file_type] = *rest.first_chunk::<HEADER>()?;
    let len = match u16::from_le_bytes([l0, l1]) {
        // A record that fills a block of 64 KiB is longer than 16 bits hold.
        0 | 65535 if end > 65000 => 65536,
        len => usize::from(len),
    };
    if len < SHORTEST || !len.is_multiple_of(4) || len > rest.len() {
        return None;
    }
    let name = rest.get(HEADER..len)?.get(..usize::from(name_len))?;
    let after = rest.get(HEADER..len).and_then(|room| room.get(name.len())).copied();
    let inode = u32::from_le_bytes([i0, i1, i2, i3]);
    Some((Record { at, inode, file_type, name, after }, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_a_whole_large_block_is_the_only_one() {
        let mut block = vec![0; 65536];
        assert_eq!(records(&block, 65536).filter(Result::is_ok).count(), 1);
        block[..12].copy_from_slice(&[2, 0, 0, 0, 12, 0, 1, 2, b'.', 0, 0, 0]);
        for len in [0u16, 65535] {
            block[16..18].copy_from_slice(&len.to_le_bytes());
            assert_eq!(records(&block, 65536).last().map(|last| last.err()), Some(Some(12)));
        }
    }

    #[test]
    fn records_tile_the_block_or_are_refused() {
        let mut block = vec![0; 64];
        block[..12].copy_from_slice(&[2, 0, 0, 0, 12, 0, 1, 2, b'.', 0, 0, 0]);
        block[12..24].copy_from_slice(&[9, 0, 0, 0, 52, 0, 2, 1, b'a', b'b', 7, 0]);
        let all: Vec<_> = records(&block, 64).map(Result::unwrap).collect();
        assert_eq!((all.len(), all[1].inode, all[1].name, all[1].after), (2, 9, &b"ab"[..], Some(7)));
        for (at, byte) in [(16, 56), (16, 51), (16, 8), (18, 45)] {
            let mut bad = block.clone();
            bad[at] = byte;
            assert_eq!(records(&bad, 64).last().map(|last| last.err()), Some(Some(12)), "{at} {byte}");
        }
        block[16] = 40;
        assert_eq!(records(&block, 64).last().map(|last| last.err()), Some(Some(52)));
    }
}
