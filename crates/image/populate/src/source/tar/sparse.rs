//! Sparse files in archives: which parts of a file are data.
//!
//! Four forms, all from GNU tar: in the header and extra header blocks ("old"), in repeated pax records
//! (0.0), in one pax record (0.1), and in decimal lines before the data (1.0). All give pairs of offset and
//! length, whose bytes lie one after the other in the archive. (GNU tar manual, "Sparse Formats".)
//!
//! A map is believed only if it goes forward, stays inside the file, and adds up to the stored bytes.

use super::cursor::Cursor;
use super::header::{BLOCK_LEN, Header, unsigned};
use super::{offset, pax};
use crate::error::Error;

/// The checked map of a sparse file.
#[derive(Debug)]
pub(super) struct SparseMap {
    /// The file's length with its holes.
    pub(super) size: u64,
    /// Runs of data, `None` if there is no hole.
    pub(super) segments: Option<Vec<(u64, u64)>>,
    /// Where in the archive the data starts.
    pub(super) data: u64,
    /// Where in the archive the entry ends.
    pub(super) end: u64,
}

/// What the `GNU.sparse.` records of an entry say.
#[derive(Clone, Debug, Default)]
pub(super) struct SparseRecords {
    pub(super) name: Option<Vec<u8>>,
    major: Option<u64>,
    minor: Option<u64>,
    size: Option<u64>,
    pending_offset: Option<u64>,
    map: Option<Vec<(u64, u64)>>,
}

const NUMBER: &str = "a sparse map has something that is not a number";
/// A line of a 1.0 map: 20 digits and the newline.
const LINE_MAX: usize = 21;

impl SparseRecords {
    /// About how many bytes it takes.
    pub(super) fn len(&self) -> usize {
        self.name.as_ref().map_or(0, Vec::len) + self.map.as_ref().map_or(0, |map| map.len() * 16)
    }

    /// Takes in one record; `key` is without its `GNU.sparse.`.
    pub(super) fn record(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        let number = || pax::decimal(value).ok_or(NUMBER);
        match key {
            b"name" => self.name = Some(value.to_vec()),
            b"major" => self.major = Some(number()?),
            b"minor" => self.minor = Some(number()?),
            b"size" | b"realsize" => self.size = Some(number()?),
            b"numblocks" => self.map = Some(Vec::new()),
            b"offset" => self.pending_offset = Some(number()?),
            b"numbytes" => {
                let at = self.pending_offset.take().ok_or("a sparse map has a length without its offset")?;
                self.map.get_or_insert_default().push((at, number()?));
            }
            b"map" => {
                let numbers: Option<Vec<u64>> = match value {
                    [] => Some(Vec::new()),
                    _ => value.split(|byte| *byte == b',').map(pax::decimal).collect(),
                };
                let numbers = numbers.filter(|numbers| numbers.len() % 2 == 0).ok_or(NUMBER)?;
                self.map = Some(numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect());
            }
            _ => {}
        }
        Ok(())
    }
}

impl SparseMap {
    /// The map in an old GNU header at `header_at` and the blocks after it; `stored` bytes of data follow.
    pub(super) fn old(
        header: &Header,
        cursor: &mut Cursor,
        header_at: u64,
        mut at: u64,
        stored: u64,
    ) -> Result<Self, Error> {
        let mut pairs = Vec::new();
        let fault = |cursor: &Cursor, reason: &'static str| cursor.fault(header_at, reason);
        old_fields(header.sparse_fields(), &mut pairs).map_err(|reason| fault(cursor, reason))?;
        let mut continues = header.sparse_continues();
        while continues {
            let block = cursor.block(at, "a sparse map")?;
            old_fields(&block[..504], &mut pairs).map_err(|reason| fault(cursor, reason))?;
            continues = block[504] != 0;
            at += BLOCK_LEN;
        }
        let size = header.sparse_size().ok_or_else(|| fault(cursor, NUMBER))?;
        Self::checked(pairs, size, at, stored).map_err(|reason| fault(cursor, reason))
    }

    /// The map that pax records announce, if they do; `stored` bytes, in form 1.0 with the map, start at
    /// `start`.
    pub(super) fn of_pax(
        records: &mut SparseRecords,
        cursor: &mut Cursor,
        header_at: u64,
        start: u64,
        stored: u64,
    ) -> Result<Option<Self>, Error> {
        let size = records.size;
        let (pairs, data) = match (records.major, records.minor, records.map.take()) {
            (Some(1), Some(0), _) => read_lines(cursor, header_at, start, stored)?,
            (None | Some(0), _, Some(map)) => (map, start),
            (None, None, None) => return Ok(None),
            _ => return Err(cursor.fault(header_at, "a sparse file of an unknown form")),
        };
        let fault = |reason: &'static str| cursor.fault(header_at, reason);
        let size = size.ok_or_else(|| fault("a sparse file does not say how long it is"))?;
        let rest = stored.checked_sub(data - start).ok_or_else(|| fault("a sparse map is cut off"))?;
        Self::checked(pairs, size, data, rest).map(Some).map_err(fault)
    }

    fn checked(pairs: Vec<(u64, u64)>, size: u64, data: u64, stored: u64) -> Result<Self, &'static str> {
        let mut segments: Vec<(u64, u64)> = Vec::new();
        let (mut reached, mut sum) = (0u64, 0u64);
        for (at, len) in pairs {
            let end = at.checked_add(len).filter(|end| *end <= size);
            let end = end.ok_or("a sparse map goes beyond the end of its file")?;
            if at < reached {
                return Err("a sparse map goes backward");
            }
            match segments.last_mut() {
                _ if len == 0 => {}
                Some(last) if at == reached && last.0 + last.1 == at => last.1 += len,
                _ => segments.push((at, len)),
            }
            (reached, sum) = (end, sum + len); // the sum of runs inside the file is at most its size
        }
        if sum != stored {
            return Err("a sparse map does not add up to the stored data");
        }
        let dense = segments == [(0, size)] || size == 0;
        let end = data.checked_add(stored).ok_or("a sparse file goes beyond the end of the archive")?;
        Ok(Self { size, segments: (!dense).then_some(segments), data, end })
    }
}

/// Pairs of 12-byte numbers up to the first empty one.
fn old_fields(fields: &[u8], pairs: &mut Vec<(u64, u64)>) -> Result<(), &'static str> {
    for pair in fields.chunks_exact(24).take_while(|pair| pair[0] != 0) {
        let numbers = unsigned(&pair[..12]).zip(unsigned(&pair[12..]));
        pairs.push(numbers.ok_or(NUMBER)?);
    }
    Ok(())
}

/// The map of form 1.0: the number of pairs, then the pairs, a number a line, filled up to whole blocks.
/// Gives the pairs and where the data starts.
fn read_lines(
    cursor: &mut Cursor,
    header_at: u64,
    start: u64,
    stored: u64,
) -> Result<(Vec<(u64, u64)>, u64), Error> {
    let mut numbers = Vec::new();
    let mut wanted = 1;
    let mut line = Vec::with_capacity(LINE_MAX);
    let mut at = start;
    while numbers.len() < wanted {
        if at - start >= stored {
            return Err(cursor.fault(header_at, "a sparse map is cut off"));
        }
        let block = cursor.block(at, "a sparse map")?;
        at += BLOCK_LEN;
        for byte in block {
            if byte != b'\n' {
                line.push(byte);
                if line.len() >= LINE_MAX {
                    return Err(cursor.fault(header_at, NUMBER));
                }
                continue;
            }
            numbers.push(pax::decimal(&line).ok_or_else(|| cursor.fault(header_at, NUMBER))?);
            line.clear();
            if let [count] = numbers[..] {
                // Every pair takes 4 bytes at least.
                let count = usize::try_from(count).ok().filter(|count| offset(*count) <= stored / 4);
                wanted = count.ok_or_else(|| cursor.fault(header_at, "a sparse map is cut off"))? * 2 + 1;
            }
            if numbers.len() == wanted {
                break;
            }
        }
    }
    Ok((numbers[1..].chunks_exact(2).map(|pair| (pair[0], pair[1])).collect(), at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_must_go_forward_and_add_up() {
        let good =
            SparseMap::checked(vec![(0, 512), (512, 512), (4096, 10), (8192, 0)], 8192, 0, 1034).unwrap();
        assert_eq!(good.segments, Some(vec![(0, 1024), (4096, 10)]));
        assert_eq!(SparseMap::checked(vec![(0, 10)], 10, 0, 10).unwrap().segments, None);
        assert_eq!(SparseMap::checked(vec![(10, 0)], 10, 0, 0).unwrap().segments, Some(vec![]));
        for (pairs, stored) in [
            (vec![(0, 11)], 11),
            (vec![(4, 4), (0, 4)], 8),
            (vec![(0, 4), (2, 4)], 8),
            (vec![(0, 4)], 5),
            (vec![(u64::MAX, 2)], 2),
        ] {
            assert!(SparseMap::checked(pairs.clone(), 10, 0, stored).is_err(), "{pairs:?}");
        }
    }
}
