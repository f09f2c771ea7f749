//! The one walk that finds a name and room for it, compared with one walk for each over whole records.

use super::super::leaf::{self, Leaf};
use super::super::record::{self, Record, Records, Scan};
use super::super::*;
use super::store::*;
use crate::{Corrupt, Place};
use hectare_units::InodeNr;
use proptest::prelude::*;
use proptest::sample::Index;

/// The first record with the name; else where the least slack is that is enough, of equals the first.
fn step_by_step<'a>(records: &Records<'a>, name: Name<'_>, need: usize) -> Result<Scan<'a>, Corrupt> {
    let mut passed: Vec<Record<'_>> = Vec::new();
    for record in records.clone() {
        let record = record?;
        if record.name == name.bytes() {
            return Ok(Scan::Found(record));
        }
        passed.push(record);
    }
    let slack = |record: &Record<'_>| match record.inode {
        Some(_) => record.len - record::space(record.name.len()),
        None => record.len,
    };
    let roomy = passed.iter().filter(|record| slack(record) >= need);
    Ok(Scan::Absent { room: roomy.min_by_key(|record| slack(record)).map(|record| record.offset) })
}

/// Names that differ in their first, last or middle bytes, or in length, around the eight that are compared
/// at once.
fn names() -> impl Strategy<Value = Vec<u8>> {
    let short = prop::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(0x81)], 1..12);
    let long = (1..=255usize, any::<Index>(), 1..=3u8).prop_map(|(len, at, by)| {
        let mut name = vec![b'a'; len];
        name[at.index(len)] += by;
        name
    });
    prop_oneof![3 => short, 1 => long]
}

/// Insists that both ways come to the same, be it an error.
fn compare(block: &[u8], format: &Format, end: usize, wanted: &[u8]) {
    // Names of any bytes: the scan shows none, and so looks at none but for what it searches.
    let format = Format { opaque_names: true, ..*format };
    let records = Records::new(block, end, &format, Place::Volume).unwrap();
    let (wanted, need) = (name(wanted), record::space(wanted.len()));
    assert_eq!(records.scan_for(wanted, need), step_by_step(&records, wanted, need));
}

proptest! {
    #![proptest_config(crate::testing::cases("dir::scan", 300))]

    #[test]
    fn one_walk_finds_what_two_would(
        size in prop_oneof![Just(1024u64), Just(4096), Just(65536)],
        checksums: bool,
        put in prop::collection::vec(names(), 0..120),
        taken in prop::collection::vec(any::<Index>(), 0..40),
        wanted in prop::collection::vec(names(), 1..8),
        pokes in prop::collection::vec((any::<Index>(), any::<u8>()), 0..3),
    ) {
        let format = format(size, checksums, true);
        let mut block = vec![0; format.block_size.len()];
        leaf::init_empty(&mut block, &format);
        for bytes in &put {
            _ = leaf::insert(&mut block, &format, Place::Volume, &entry(bytes, 12)).unwrap();
        }
        for index in &taken {
            let leaf = Leaf::parse(&block, &format, Place::Volume).unwrap();
            let used: Vec<usize> = leaf
                .records()
                .map(|record| record.unwrap())
                .filter(|record| record.inode.is_some())
                .map(|record| record.offset)
                .collect();
            if used.is_empty() {
                break;
            }
            let at = used[index.index(used.len())].try_into().unwrap();
            leaf::remove(&mut block, &format, Place::Volume, at).unwrap();
        }
        let end = format.leaf_end();
        for wanted in wanted.iter().chain(&put) {
            compare(&block, &format, end, wanted);
        }
        for (at, byte) in pokes {
            let at = at.index(block.len().min(1500));
            block[at] = byte;
        }
        for wanted in wanted.iter().chain(&put).take(12) {
            compare(&block, &format, end, wanted);
        }
    }

    #[test]
    fn any_bytes_are_walked_alike(
        bytes in prop::collection::vec(prop_oneof![4 => Just(0u8), 1 => 0..32u8, 1 => any::<u8>()], 1024),
        wanted in names(),
    ) {
        compare(&bytes, &format(1024, false, true), 1024, &wanted);
    }

    #[test]
    fn a_name_goes_where_the_search_found_room(
        checksums: bool,
        index: bool,
        picks in prop::collection::vec(names(), 1..200),
    ) {
        let format = Format { index, ..format(1024, checksums, true) };
        let (mut store, mut model) = (VecStore::new(&format), std::collections::BTreeSet::new());
        for bytes in picks {
            let there = !model.insert(bytes.clone());
            match search(&store, &format, name(&bytes)).unwrap() {
                Search::Found(found) => {
                    prop_assert!(there);
                    prop_assert_eq!(lookup(&store, &format, name(&bytes)).unwrap(), Some(found));
                }
                Search::Absent(spot) => {
                    prop_assert!(!there);
                    prop_assert_eq!(lookup(&store, &format, name(&bytes)).unwrap(), None);
                    let done = insert_at(&mut store, &format, spot, &entry(&bytes, 12)).unwrap();
                    prop_assert_eq!(done, Insert::Done);
                }
            }
        }
        check(&store, &format);
        prop_assert_eq!(list(&store, &format).len(), model.len() + 2);
    }
}

#[test]
fn a_place_that_is_none_is_refused() {
    let format = format(1024, true, true);
    let mut block = vec![0; 1024];
    leaf::init_dots(&mut block, &format, OWN, InodeNr::ROOT);
    let before = block.clone();
    for offset in [0, 4, 13, 1011, 1012, 1024, 5000, usize::MAX] {
        let put = leaf::put_at(&mut block, &format, Place::Volume, &entry(b"name", 12), offset);
        assert!(put.is_err(), "byte {offset}");
        assert_eq!(block, before);
    }
}
