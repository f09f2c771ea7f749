//! A flush of few changes: one object that has just those, a patch ([`crate::patches`]), and the manifest.
//!
//! What it costs: the changed bytes and 24 for each range of them; now and then those of earlier patches,
//! which become one with it; and the manifest, which has 32 bytes for each patch and each of at most
//! [`INLINE_TABLES`] tables, however large the volume is.

use super::work::{Next, Work, take};
use super::{StoreDevice, Writer};
use crate::Result;
use crate::manifest::{INLINE_TABLES, Manifest, PATCHES_MAX};
use crate::patch::{FRAME_LEN, RECORD_LEN, encode};
use crate::patches::{Patch, Patches, RECORDS_MAX};
use crate::staged::Source;
use bytes::Bytes;
use hectare_units::{index_of, u64_of};
use std::ops::Range;

/// A patch is put if it is so many times smaller than the chunks and tables that would be put.
const SMALLER: u64 = 8;
/// Neighbours are joined up to about this many bytes; what the log has in one piece may be longer.
const PIECE: u64 = 1 << 20;

impl StoreDevice {
    /// Whether a patch is what a flush puts.
    ///
    /// Not if the length changes or whole chunks become zeros: a patch could not say the former, and would
    /// keep the storage of the latter. Nor if something changed beyond the end: the volume was longer for a
    /// while.
    pub(super) fn is_patch(&self, work: &Work) -> bool {
        let Work { sealed, base, patches, len, .. } = work;
        let (changed, cleared) = sealed.staged.chunks(base.chunk(), base.len);
        let listed = base.list.is_some() || base.tables.len() <= INLINE_TABLES;
        let beyond = sealed.staged.end() > base.len;
        if *len != base.len || beyond || changed.is_empty() || !cleared.is_empty() || !listed {
            return false;
        }
        let mut tables: Vec<u32> = changed.iter().map(|chunk| base.place(*chunk).0).collect();
        tables.dedup();
        let table = |index: &u32| base.tables.get(index).map_or(0, |slot| u64::from(slot.len));
        let all = u64_of(changed.len()) * base.chunk() + tables.iter().map(table).sum::<u64>();
        let (pieces, bytes) = sealed.staged.weight();
        let bytes = bytes + u64_of(FRAME_LEN + pieces * RECORD_LEN);
        bytes * SMALLER <= all
            && patches.bytes() + bytes <= self.patches_max
            && patches.records() + pieces <= RECORDS_MAX
            && patches.list().len() < PATCHES_MAX
    }

    /// Puts the patch, with those of the last ones that become one with it.
    pub(super) async fn put_patch(&self, writer: &Writer, work: &Work) -> Result<Next> {
        let (pieces, bytes) = work.sealed.staged.weight();
        let new = bytes + u64_of(FRAME_LEN + pieces * RECORD_LEN);
        let (kept, merged) = work.patches.list().split_at(work.patches.merged_with(new));
        let last = Patches::new(merged.to_vec());
        let ranges = work.sealed.staged.over(last.staged());
        let changes = ranges.ranges().map(|range| content(work, &range)).collect::<Result<Vec<_>>>()?;
        let changes = joined(changes.into_iter().flatten());
        let bytes = Bytes::from(encode(work.base.uuid, &changes));
        drop(changes);
        let slot = self.put_object(writer, bytes.clone()).await?;
        let mut list = kept.to_vec();
        list.push(Patch::new(slot, bytes, &work.base)?);
        let mut manifest = Manifest::clone(&work.base);
        manifest.patches = list.iter().map(|patch| patch.slot).collect();
        let superseded = merged.iter().map(|patch| patch.slot.id).collect();
        Ok(Next { manifest, patches: Patches::new(list), superseded })
    }
}

/// Changed ranges, each with its bytes; those without became zeros.
type Changes = Vec<(Range<u64>, Option<Vec<u8>>)>;

/// The content of a range that the log or a patch has.
fn content(work: &Work, range: &Range<u64>) -> Result<Changes> {
    let mut changes = Changes::new();
    for (range, source) in work.sources(range) {
        if matches!(source, Source::Zero) {
            changes.push((range, None));
            continue;
        }
        debug_assert!(!matches!(source, Source::Below), "only what was changed is asked for");
        let mut bytes = vec![0; index_of(range.end - range.start)];
        take(source, &mut bytes)?;
        changes.push((range, Some(bytes)));
    }
    Ok(changes)
}

/// Neighbours of the same kind become one.
fn joined(changes: impl Iterator<Item = (Range<u64>, Option<Vec<u8>>)>) -> Changes {
    let mut out = Changes::new();
    for (range, bytes) in changes {
        match (out.last_mut(), bytes) {
            (Some((last, None)), None) if last.end == range.start => last.end = range.end,
            (Some((last, Some(before))), Some(bytes))
                if last.end == range.start && u64_of(before.len()) < PIECE =>
            {
                before.extend_from_slice(&bytes);
                last.end = range.end;
            }
            (_, bytes) => out.push((range, bytes)),
        }
    }
    out
}
