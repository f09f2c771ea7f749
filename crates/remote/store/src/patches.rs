//! The patches of a volume, in memory, laid over each other.
//!
//! A flush of few changes puts them as one object, a patch ([`crate::patch`]), and names it in the manifest
//! behind those that are there. So it costs what was changed, and not whole chunks. Patches of like size
//! are merged as they get many ([`Patches::merged_with`]): a byte is put again a few times, and there are
//! never more than some dozens. Beyond a number of bytes ([`limit`]) a flush
//! puts the chunks that all of them change, and no patch is left.
//!
//! Invariants: the bytes of all patches together are bounded, and so are their ranges (to those of which there
//! are [`RECORDS_MAX`] no more are put). A
//! value is never changed: it belongs to one manifest.

use crate::bucket::Bucket;
use crate::fetch::fetch;
use crate::manifest::{Manifest, PATCHES_BYTES, Slot};
use crate::patch::{Record, parse};
use crate::staged::{Source, Staged};
use crate::{Error, Result};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use hectare_units::index_of;
use std::ops::Range;
use std::sync::Arc;

/// The most ranges that patches have together.
pub(crate) const RECORDS_MAX: usize = 1 << 15;
/// The most that is read: to merge may cut a range in two.
const RECORDS_READ_MAX: usize = 4 * RECORDS_MAX;
/// As many patches of a level become one of the next.
const FAN: usize = 8;
/// Patches of at most this length are of the lowest level.
const LOWEST: u64 = 8 << 10;

/// A patch.
pub(crate) struct Patch {
    pub(crate) slot: Slot,
    records: Vec<Record>,
    bytes: Bytes,
}

impl Patch {
    /// A patch that the bytes of its object are.
    ///
    /// # Errors
    /// If they are none of this volume.
    pub(crate) fn new(slot: Slot, bytes: Bytes, manifest: &Manifest) -> Result<Arc<Self>> {
        Ok(Arc::new(Self { slot, records: parse(&bytes, manifest)?, bytes }))
    }
}

/// The patches of a manifest, oldest first.
#[derive(Default)]
pub(crate) struct Patches {
    list: Vec<Arc<Patch>>,
    /// What they change; bytes lie at places of `segments`.
    staged: Staged,
    /// Bytes by the place where they begin. Places are counted on with a gap between segments, so no piece
    /// extends over two.
    segments: Vec<(u64, Bytes)>,
}

impl Patches {
    pub(crate) fn new(list: Vec<Arc<Patch>>) -> Self {
        let (mut staged, mut segments, mut place) = (Staged::default(), Vec::new(), 0);
        for patch in &list {
            for Record { range, from } in &patch.records {
                let Some(from) = *from else {
                    staged.zero(range.clone());
                    continue;
                };
                let len = range.end - range.start;
                staged.write(range.clone(), place);
                segments.push((place, patch.bytes.slice(from..from + index_of(len))));
                place += len + 1;
            }
        }
        Self { list, staged, segments }
    }

    /// Those that a manifest names.
    ///
    /// # Errors
    /// If one is gone or damaged, or the store fails.
    pub(crate) async fn load(bucket: &Bucket, manifest: &Manifest) -> Result<Self> {
        let slots = stream::iter(&manifest.patches);
        let patches = slots.map(|slot| async { Patch::new(*slot, fetch(bucket, *slot).await?, manifest) });
        let patches = patches.buffered(bucket.parallel).try_collect().await.map(Self::new)?;
        if patches.records() > RECORDS_READ_MAX {
            return Err(Error::Damaged(format!("its patches have more than {RECORDS_READ_MAX} ranges")));
        }
        Ok(patches)
    }

    pub(crate) fn list(&self) -> &[Arc<Patch>] {
        &self.list
    }

    pub(crate) fn staged(&self) -> &Staged {
        &self.staged
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The bytes of their objects.
    pub(crate) fn bytes(&self) -> u64 {
        self.list.iter().map(|patch| u64::from(patch.slot.len)).sum()
    }

    /// How many ranges they have.
    pub(crate) fn records(&self) -> usize {
        self.list.iter().map(|patch| patch.records.len()).sum()
    }

    /// Cuts a range where the bytes of its parts come from different places, in order.
    pub(crate) fn sources(&self, range: &Range<u64>) -> Vec<(Range<u64>, Source)> {
        self.staged.sources_of(range, |from, len| {
            let segment = self.segments.partition_point(|(place, _)| *place <= from).saturating_sub(1);
            let (place, bytes) = &self.segments[segment];
            let start = index_of(from - place);
            Source::Memory(bytes.slice(start..start + index_of(len)))
        })
    }

    /// The first of those that become one with a new patch of a length.
    pub(crate) fn merged_with(&self, len: u64) -> usize {
        merged(&self.list.iter().map(|patch| u64::from(patch.slot.len)).collect::<Vec<_>>(), len)
    }
}

/// The most bytes of all patches of a volume: a few chunks, so that what they change is worth putting.
pub(crate) fn limit(wanted: u64, manifest: &Manifest) -> u64 {
    wanted.min((4 * manifest.chunk()).clamp(1 << 20, 16 << 20)).min(PATCHES_BYTES)
}

/// With which of the last patches, by their lengths, a new one is merged: each level has fewer than
/// [`FAN`].
fn merged(lens: &[u64], new: u64) -> usize {
    let level = |len: u64| len.div_ceil(LOWEST).max(1).ilog2().div_ceil(FAN.ilog2());
    let (mut first, mut len) = (lens.len(), new);
    loop {
        let run = lens[..first].iter().rev().take_while(|other| level(**other) <= level(len)).count();
        if run + 1 < FAN {
            return first;
        }
        first -= run;
        len += lens[first..first + run].iter().sum::<u64>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_units::random::SplitMix64;

    /// Puts patches of random lengths; returns the most there ever were, and the bytes put for each byte.
    fn life(random: &mut SplitMix64, longest: u64) -> (usize, u64) {
        let (mut lens, mut most, mut put, mut written) = (Vec::new(), 0, 0, 0);
        while lens.iter().sum::<u64>() < 16 << 20 {
            let new = 4200 + random.below(longest);
            let first = merged(&lens, new);
            let len = new + lens.drain(first..).sum::<u64>();
            lens.push(len);
            (most, put, written) = (most.max(lens.len()), put + len, written + new);
        }
        (most, put / written)
    }

    #[test]
    fn there_are_few_patches_and_no_byte_is_put_often() {
        let mut random = SplitMix64::new(4);
        for longest in [1, 100, 20_000, 2 << 20] {
            let (most, times) = life(&mut random, longest);
            assert!(most <= 40 && times <= 5, "{longest}: {most}, {times}");
        }
    }
}
