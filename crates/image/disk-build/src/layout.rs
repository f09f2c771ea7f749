//! Where everything lies on the disk.
//!
//! Partitions lie in the order of the description, each as far forward as its alignment and what has a fixed
//! place allow. One may take the rest of a disk of a given size; several may share it by weight.
//!
//! Invariant: no two things share a byte, and none shares one with the table; else the error names both.

use crate::error::{Error, Result};
use crate::spec::Spec;
use crate::table;
use hectare_units::u64_of;

/// What sizes that are found here are a multiple of.
const GRAIN: u64 = 4096;

/// A thing with a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) start: u64,
    pub(crate) len: u64,
}

impl Place {
    fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }

    fn meets(&self, other: &Self) -> bool {
        self.start < other.end() && other.start < self.end()
    }
}

/// How large a partition is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// Exactly that.
    Bytes(u64),
    /// All that is left.
    Rest {
        /// At least that.
        least: u64,
    },
    /// A share of what is left.
    Grow {
        /// At least that.
        least: u64,
        /// At most that.
        most: Option<u64>,
        /// Its weight among the others.
        weight: u32,
    },
}

impl Need {
    const fn least(self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Rest { least } | Self::Grow { least, .. } => least,
        }
    }
}

/// Where partitions lie, and how large the disk is.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub(crate) partitions: Vec<Place>,
    pub(crate) size: u64,
}

/// What is not a partition, with the name that errors have for it.
pub(crate) type Fixed = Vec<(String, Place)>;

/// Finds a place for everything. `blobs` are the lengths of the blobs.
pub(crate) fn layout(spec: &Spec, needs: &[Need], blobs: &[(String, u64)]) -> Result<Layout> {
    let sector = u64::from(spec.sector);
    let first = table::first_usable(spec.table, sector);
    let mut fixed: Fixed = vec![("the partition table".to_owned(), Place { start: 0, len: first })];
    for (blob, (name, len)) in spec.blobs.iter().zip(blobs) {
        fixed.push((name.clone(), Place { start: blob.offset, len: *len }));
    }
    for (index, part) in spec.partitions.iter().enumerate() {
        if let Some(start) = part.start {
            fixed.push((spec.shown(index), Place { start, len: needs[index].least() }));
        }
    }
    let limit = match spec.size {
        Some(size) => Some(size.checked_sub(table::tail(spec.table, sector)).ok_or_else(|| Error::Spec {
            file: spec.file.clone(),
            line: None,
            reason: format!("size: {size} bytes hold no table"),
        })?),
        None => None,
    };
    let mut sizes: Vec<u64> = needs.iter().map(|need| need.least()).collect();
    let places = grown(spec, needs, &fixed, limit, &mut sizes)?;
    disjoint(spec, &places, &fixed)?;
    let all = places.iter().chain(fixed.iter().map(|(_, place)| place));
    let end = all.map(Place::end).max().unwrap_or(first);
    let size = match (spec.size, limit) {
        (Some(size), Some(limit)) if end > limit => {
            let last = places.iter().position(|place| place.end() == end).map(|index| spec.shown(index));
            let what = last.unwrap_or_else(|| "a blob".to_owned());
            let more = end - limit;
            let reason =
                format!("size: the disk of {size} bytes is {more} too small: {what} ends at byte {end}");
            return Err(Error::Spec { file: spec.file.clone(), line: None, reason });
        }
        (Some(size), _) => size,
        (None, _) => {
            let whole = end.checked_add(table::tail(spec.table, sector));
            whole.and_then(|end| end.checked_next_multiple_of(spec.round)).ok_or_else(|| too_large(spec))?
        }
    };
    if size > i64::MAX.unsigned_abs() {
        return Err(too_large(spec));
    }
    Ok(Layout { partitions: places, size })
}

fn too_large(spec: &Spec) -> Error {
    Error::Spec {
        file: spec.file.clone(),
        line: None,
        reason: "size: all of it together is larger than a file can be".to_owned(),
    }
}

/// Places with what is left given to those that take it.
fn grown(
    spec: &Spec,
    needs: &[Need],
    fixed: &Fixed,
    limit: Option<u64>,
    sizes: &mut [u64],
) -> Result<Vec<Place>> {
    let mut places = place(spec, sizes, fixed)?;
    let takes: Vec<usize> =
        (0..needs.len()).filter(|index| !matches!(needs[*index], Need::Bytes(_))).collect();
    let Some(first) = takes.first() else { return Ok(places) };
    let Some(limit) = limit else {
        if let Some(rest) = takes.iter().find(|index| matches!(needs[**index], Need::Rest { .. })) {
            return Err(
                spec.wrong(*rest, "size: rest needs a size of the disk; give size above the partitions")
            );
        }
        return Ok(places);
    };
    let rests = takes.iter().filter(|index| matches!(needs[**index], Need::Rest { .. }));
    if let Some(second) = rests.clone().nth(1) {
        return Err(spec.wrong(*second, "size: another partition takes the rest already"));
    }
    let end = |places: &[Place]| places.iter().map(Place::end).max().unwrap_or(0);
    if matches!(needs[*first], Need::Rest { .. }) {
        // What comes behind moves with its end: as far as it goes.
        let start = places[*first].start;
        let next = fixed.iter().map(|(_, place)| place.start).filter(|at| *at > start).min();
        let most = next.unwrap_or(u64::MAX).min(limit).saturating_sub(start);
        let least = sizes[*first];
        let mut size = most / GRAIN * GRAIN;
        while size > least {
            sizes[*first] = size;
            places = place(spec, sizes, fixed)?;
            match end(&places).checked_sub(limit) {
                None | Some(0) => return Ok(places),
                Some(over) => size = size.saturating_sub(over.next_multiple_of(GRAIN)),
            }
        }
        sizes[*first] = least;
        return place(spec, sizes, fixed);
    }
    let left = (limit / GRAIN * GRAIN).saturating_sub(end(&places));
    share(needs, takes, left, sizes);
    place(spec, sizes, fixed)
}

/// Divides what is left, and what they have already, among those that grow: by weight, as far as that is no
/// less than each needs and no more than it may have.
fn share(needs: &[Need], takes: Vec<usize>, left: u64, sizes: &mut [u64]) {
    let parts = |index: usize| match needs[index] {
        Need::Grow { least, most, weight } => {
            (least, most.map_or(u64::MAX, |most| most / GRAIN * GRAIN), weight)
        }
        other => (other.least(), other.least(), 0),
    };
    let part_of = |span: u64, index: usize, weights: u64| {
        let share = u128::from(span) * u128::from(parts(index).2) / u128::from(weights.max(1));
        u64::try_from(share).unwrap_or(u64::MAX) / GRAIN * GRAIN
    };
    let mut open = takes;
    let mut span = open.iter().fold(left, |sum, index| sum.saturating_add(sizes[*index]));
    loop {
        let weights: u64 = open.iter().map(|index| u64::from(parts(*index).2)).sum();
        let too_little = open.iter().position(|index| part_of(span, *index, weights) < parts(*index).0);
        let too_much = || open.iter().position(|index| part_of(span, *index, weights) > parts(*index).1);
        let (at, bound) = match (too_little, too_little.is_none().then(too_much).flatten()) {
            (Some(at), _) => (at, parts(open[at]).0),
            (None, Some(at)) => (at, parts(open[at]).1.max(parts(open[at]).0)),
            (None, None) => break,
        };
        // The others divide what it leaves.
        sizes[open[at]] = bound;
        span = span.saturating_sub(bound);
        open.remove(at);
    }
    let mut weights: u64 = open.iter().map(|index| u64::from(parts(*index).2)).sum();
    for index in open {
        let size = part_of(span, index, weights).clamp(parts(index).0, parts(index).1.max(parts(index).0));
        sizes[index] = size;
        span = span.saturating_sub(size);
        weights -= u64::from(parts(index).2);
    }
}

/// Puts partitions one behind the other, around what has a fixed place.
fn place(spec: &Spec, sizes: &[u64], fixed: &Fixed) -> Result<Vec<Place>> {
    let mut places = Vec::with_capacity(sizes.len());
    let mut cursor = table::first_usable(spec.table, spec.sector.into());
    for (index, (part, len)) in spec.partitions.iter().zip(sizes).enumerate() {
        let beyond = || spec.wrong(index, "it ends beyond all disks");
        let mut place = Place { start: part.start.unwrap_or(cursor), len: *len };
        if part.start.is_none() {
            let align = part.align.unwrap_or(spec.align);
            loop {
                place.start = place.start.checked_next_multiple_of(align).ok_or_else(beyond)?;
                let met = fixed.iter().map(|(_, fixed)| fixed).filter(|fixed| fixed.meets(&place));
                match met.map(Place::end).max() {
                    Some(end) => place.start = end,
                    None => break,
                }
            }
        }
        let end = place.start.checked_add(place.len).ok_or_else(beyond)?;
        cursor = cursor.max(end);
        places.push(place);
    }
    Ok(places)
}

/// Refuses what overlaps, by both names.
fn disjoint(spec: &Spec, places: &[Place], fixed: &Fixed) -> Result<()> {
    let named = places.iter().enumerate().map(|(index, place)| (spec.shown(index), place.clone()));
    let others = fixed.iter().filter(|(name, _)| !name.starts_with("partition ")).cloned();
    let mut all: Vec<(String, Place)> = named.chain(others).filter(|(_, place)| place.len > 0).collect();
    all.sort_by_key(|(_, place)| (place.start, u64_of(usize::from(place.len == 0))));
    for pair in all.windows(2) {
        let [(one, first), (other, second)] = pair else { continue };
        if first.meets(second) {
            let text =
                |name: &str, place: &Place| format!("{name} (bytes {} to {})", place.start, place.end());
            let reason = format!("{} overlaps {}", text(other, second), text(one, first));
            return Err(Error::Spec { file: spec.file.clone(), line: None, reason });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test that cannot continue fails

    use super::*;
    use proptest::prelude::*;
    use std::fmt::Write;
    use std::path::Path;

    const MIB: u64 = 1 << 20;

    /// A partition: MiB, perhaps a start in KiB, what it takes of the rest.
    fn spec(size: Option<u64>, sector: u32, parts: &[(u64, Option<u64>, bool)]) -> Spec {
        let mut text = format!("sector = {sector}\n");
        if let Some(size) = size {
            writeln!(text, "size = \"{size}M\"").unwrap();
        }
        for (len, start, takes_rest) in parts {
            let len = if *takes_rest { "\"rest\"".to_owned() } else { format!("\"{len}M\"") };
            writeln!(text, "[[partition]]\ntype = \"linux\"\nsize = {len}").unwrap();
            if let Some(start) = start {
                writeln!(text, "offset = \"{start}K\"").unwrap();
            }
        }
        Spec::parse(Path::new("disk.toml"), &text).unwrap()
    }

    fn needs(parts: &[(u64, Option<u64>, bool)]) -> Vec<Need> {
        let need = |(len, _, takes_rest): &(u64, Option<u64>, bool)| match takes_rest {
            true => Need::Rest { least: 4096 },
            false => Need::Bytes(len * MIB),
        };
        parts.iter().map(need).collect()
    }

    #[test]
    fn partitions_go_around_what_has_a_place() {
        let parts = [(3, None, false), (2, Some(3 << 10), false), (1, None, false)];
        let found = layout(&spec(None, 512, &parts), &needs(&parts), &[]).unwrap();
        let starts: Vec<_> = found.partitions.iter().map(|place| place.start / MIB).collect();
        assert_eq!((starts, found.size / MIB), (vec![5, 3, 8], 10));
    }

    #[test]
    fn shares_follow_the_weights_up_to_their_limits() {
        let parts = [(1, None, false), (1, None, false), (1, None, false)];
        let grow = |weight, most| Need::Grow { least: MIB, most, weight };
        let needs = [grow(3000, None), grow(1000, None), grow(1000, Some(2 * MIB))];
        let mut spec = spec(Some(100), 512, &parts);
        spec.align = 4096;
        let found = layout(&spec, &needs, &[]).unwrap();
        let lens: Vec<_> = found.partitions.iter().map(|place| place.len / MIB).collect();
        assert_eq!(lens[2], 2);
        assert!((70..=74).contains(&lens[0]) && (23..=26).contains(&lens[1]), "{lens:?}");
        assert_eq!(lens[0], 73);
        let (end, limit) = (found.partitions[2].end(), 100 * MIB - 33 * 512);
        assert!(end <= limit && limit - end < 4096, "{end}");
    }

    fn part() -> impl Strategy<Value = (u64, Option<u64>, bool)> {
        let start = (0_u64..40_000).prop_map(|n| n * 4);
        (1_u64..8, prop::option::weighted(0.3, start), prop::bool::weighted(0.1))
    }

    proptest! {
        #[test]
        fn nothing_overlaps_whatever_is_asked_for(
            size in prop::option::of(1_u64..64),
            sector in prop::sample::select(vec![512_u32, 4096]),
            parts in prop::collection::vec(part(), 0..8),
        ) {
            let spec = spec(size, sector, &parts);
            let Ok(found) = layout(&spec, &needs(&parts), &[]) else { return Ok(()) };
            let first = table::first_usable(spec.table, sector.into());
            let last = found.size - table::tail(spec.table, sector.into());
            let mut places = found.partitions.clone();
            places.sort_by_key(|place| place.start);
            let is_inside = |place: &Place| place.start >= first && place.end() <= last && place.len > 0;
            prop_assert!(places.iter().all(is_inside));
            prop_assert!(places.windows(2).all(|pair| pair[0].end() <= pair[1].start));
            for (place, (len, start, takes_rest)) in found.partitions.iter().zip(&parts) {
                prop_assert!(*takes_rest || place.len == len * MIB);
                prop_assert!(start.map_or(place.start % MIB == 0, |start| place.start == start << 10));
            }
            if let Some(size) = size {
                prop_assert_eq!(found.size, size * MIB);
            }
        }
    }
}
