//! The form of a patch: a few changed ranges of a volume in one object, so that a small change need not put
//! whole chunks.
//!
//! Little-endian: `HECTPTCH`; of 32 bits: version, count; UUID; for each range, of 64 bits: place, length,
//! and 0 if it became zeros or 1 if it has bytes; then those bytes, in order; a checksum (CRC-64/NVME) of
//! all before it. Ranges are in order and lie inside the volume.
//!
//! Hazard: it comes from strangers. Counts and lengths are checked against the bytes that are there.

use crate::codec::{Fields, seal, unsealed};
use crate::manifest::Manifest;
use crate::{Error, Result};
use hectare_units::{index_of, u64_of};
use std::ops::Range;

const MAGIC: [u8; 8] = *b"HECTPTCH";
const VERSION: u32 = 1;
const HEAD: usize = 32;
/// What a range takes besides its bytes.
pub(crate) const RECORD_LEN: usize = 24;
/// What a patch takes besides its ranges.
pub(crate) const FRAME_LEN: usize = HEAD + 8;

/// A range of a patch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    /// The bytes of the volume.
    pub(crate) range: Range<u64>,
    /// Where in the object their content begins; `None` for zeros.
    pub(crate) from: Option<usize>,
}

/// A patch of some ranges, which are in order; those without bytes became zeros.
pub(crate) fn encode(uuid: [u8; 16], changes: &[(Range<u64>, Option<Vec<u8>>)]) -> Vec<u8> {
    let bytes = changes.iter().flat_map(|(_, bytes)| bytes).map(Vec::len).sum::<usize>();
    let mut out = Vec::with_capacity(FRAME_LEN + RECORD_LEN * changes.len() + bytes);
    out.extend_from_slice(&MAGIC);
    for field in [VERSION, u32::try_from(changes.len()).unwrap_or(u32::MAX)] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    out.extend_from_slice(&uuid);
    for (range, bytes) in changes {
        for field in [range.start, range.end - range.start, u64::from(bytes.is_some())] {
            out.extend_from_slice(&field.to_le_bytes());
        }
    }
    changes.iter().flat_map(|(_, bytes)| bytes).for_each(|bytes| out.extend_from_slice(bytes));
    seal(&mut out);
    out
}

/// Parses a patch of a volume.
///
/// # Errors
/// [`Error::Damaged`] with what is wrong.
pub(crate) fn parse(bytes: &[u8], manifest: &Manifest) -> Result<Vec<Record>> {
    let wrong = |what: &str| Error::Damaged(format!("a patch of it {what}"));
    let body = unsealed(bytes).ok_or_else(|| wrong("has a wrong checksum"))?;
    let mut fields = Fields::new(body);
    let magic = fields.bytes::<8>();
    let (version, count) = fields.u32().zip(fields.u32()).ok_or_else(|| wrong("is too short"))?;
    if magic != Some(MAGIC) || version != VERSION || fields.bytes() != Some(manifest.uuid) {
        return Err(wrong("is not one that the manifest can name"));
    }
    records(&mut fields, index_of(u64::from(count)), manifest.len).ok_or_else(|| wrong("has wrong ranges"))
}

fn records(fields: &mut Fields<'_>, count: usize, end: u64) -> Option<Vec<Record>> {
    let bytes = fields.rest().checked_sub(count.checked_mul(RECORD_LEN)?)?;
    let (mut records, mut next) = (Vec::with_capacity(count), 0);
    let first = HEAD + count * RECORD_LEN;
    let mut from = first;
    for _ in 0..count {
        let (at, len, kind) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let range = at..at.checked_add(len)?;
        if at < next || len == 0 || range.end > end || kind > 1 {
            return None;
        }
        next = range.end;
        let has_bytes = kind == 1;
        records.push(Record { range, from: has_bytes.then_some(from) });
        if has_bytes {
            from = from.checked_add(usize::try_from(len).ok()?).filter(|from| from - first <= bytes)?;
        }
    }
    (u64_of(from - first) == u64_of(bytes)).then_some(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn manifest() -> Manifest {
        Manifest::new([7; 16], 1000, 1 << 12, 9).unwrap()
    }

    #[test]
    fn a_patch_is_read_as_written_and_every_changed_byte_is_seen() {
        let changes = [(5..8, Some(b"abc".to_vec())), (8..500, None), (998..1000, Some(b"yz".to_vec()))];
        let bytes = encode([7; 16], &changes);
        assert_eq!(bytes.len(), FRAME_LEN + 3 * RECORD_LEN + 5);
        let records = parse(&bytes, &manifest()).unwrap();
        let found: Vec<_> = records.iter().map(|record| (record.range.clone(), record.from)).collect();
        assert_eq!(found, [(5..8, Some(104)), (8..500, None), (998..1000, Some(107))]);
        assert_eq!(&bytes[104..109], b"abcyz");
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            assert!(parse(&changed, &manifest()).is_err(), "byte {at}");
            assert!(parse(&bytes[..at], &manifest()).is_err(), "cut at {at}");
        }
        parse(&bytes, &Manifest { uuid: [8; 16], ..manifest() }).unwrap_err();
    }

    #[test]
    fn impossible_ranges_are_refused() {
        let refused = |changes: &[(Range<u64>, Option<Vec<u8>>)]| {
            parse(&encode([7; 16], changes), &manifest()).unwrap_err();
        };
        refused(&[(990..1001, None)]);
        refused(&[(5..9, None), (8..10, None)]);
        refused(&[(5..9, Some(vec![1; 3]))]);
        refused(&[(5..9, Some(vec![1; 5]))]);
        refused(&[(5..5, None)]);
        parse(&encode([7; 16], &[(5..9, None), (9..10, None)]), &manifest()).unwrap();
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(
            count in 0_u32..5,
            tail in proptest::collection::vec(0_u8..3, 0..90),
        ) {
            let mut bytes = encode([7; 16], &[]);
            bytes.truncate(HEAD);
            bytes[12..16].copy_from_slice(&count.to_le_bytes());
            bytes.extend_from_slice(&tail);
            seal(&mut bytes);
            let _ = parse(&bytes, &manifest());
        }
    }
}
