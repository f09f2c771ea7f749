//! Manifests and tables as bytes: read as written, and everything else refused.

use super::*;
use crate::fuzz::digest;
use proptest::prelude::*;

fn slot(n: u64) -> Slot {
    Slot { id: ObjectId { session: n.wrapping_mul(77), number: n }, len: 5, sum: !n }
}

fn sample() -> Manifest {
    let mut manifest = Manifest::new([7; 16], 1 << 40, 1 << 22, 9).unwrap();
    (manifest.epoch, manifest.generation, manifest.writer, manifest.next_number) = (3, 4, 5, 6);
    manifest.tables = [(0, slot(1)), (3, slot(2)), (63, slot(3))].into();
    manifest
}

#[test]
fn a_manifest_and_a_table_are_read_as_written() {
    let manifest = sample();
    assert_eq!(Manifest::parse(&manifest.encode()).unwrap().listed(None).unwrap(), manifest);
    let table = Table { chunks: [(0, slot(1)), (4095, slot(2))].into() };
    let bytes = table.encode(manifest.uuid, 3);
    assert_eq!(Table::parse(&bytes, &manifest, 3).unwrap(), table);
    Table::parse(&bytes, &manifest, 4).unwrap_err();
    let other = Manifest { uuid: [8; 16], ..manifest };
    Table::parse(&bytes, &other, 3).unwrap_err();
    assert!(digest(&sample().encode()) > 0 && digest(&bytes) > 0);
}

/// With patches, and its tables in a list.
fn patched() -> Manifest {
    Manifest { list: Some(slot(4)), patches: vec![slot(5), slot(6)], ..sample() }
}

#[test]
fn a_manifest_with_a_list_and_patches_is_read_as_written() {
    let (manifest, list) = (patched(), patched().encode_list());
    let bytes = manifest.encode();
    assert_eq!((bytes[8], sample().encode()[8], bytes.len()), (2, 1, 96 + 3 * 32 + 8));
    let parsed = || Manifest::parse(&bytes).unwrap();
    assert_eq!(parsed().list(), Some(slot(4)));
    assert_eq!(parsed().listed(Some(&list)).unwrap(), manifest);
    // Without the list, or with another thing in its place, it is no manifest: never one of zeros.
    parsed().listed(None).unwrap_err();
    let table = Table { chunks: manifest.tables.clone() }.encode(manifest.uuid, 0);
    parsed().listed(Some(&table)).unwrap_err();
    for at in 0..list.len() {
        let mut changed = list.clone();
        changed[at] ^= 0x10;
        assert!(parsed().listed(Some(&changed)).is_err(), "byte {at}");
        assert!(parsed().listed(Some(&list[..at])).is_err(), "cut at {at}");
    }
    let short = Manifest { len: 1 << 30, ..patched() };
    Manifest::parse(&short.encode()).unwrap().listed(Some(&list)).unwrap_err();
    assert!(digest(&bytes) == 4 && digest(&list) == 6);
}

#[test]
fn every_changed_byte_and_every_lost_tail_is_seen() {
    for bytes in [sample().encode(), patched().encode()] {
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            assert!(Manifest::parse(&changed).is_err(), "byte {at}");
            assert!(Manifest::parse(&bytes[..at]).is_err(), "cut at {at}");
        }
    }
    let bytes = sample().encode();
    let with_version = |version| [&bytes[..8], &[version, 0, 0, 0], &bytes[12..]].concat();
    let text = Manifest::parse(&with_version(3)).unwrap_err().to_string();
    assert!(text.contains("version 3"), "{text}");
    // The version says whether there are patches or a list.
    assert!(Manifest::parse(&with_version(2)).is_err());
}

#[test]
fn impossible_values_are_refused() {
    let refused = |change: &dyn Fn(&mut Manifest)| {
        let mut manifest = sample();
        change(&mut manifest);
        let parsed = Manifest::parse(&manifest.encode()).and_then(|parsed| parsed.listed(None));
        assert!(parsed.is_err(), "{manifest:?}");
    };
    refused(&|manifest| manifest.len = 0);
    refused(&|manifest| manifest.len = u64::MAX);
    // A table beyond the end.
    refused(&|manifest| manifest.len = 1 << 30);
    refused(&|manifest| manifest.chunk_shift = 63);
    refused(&|manifest| manifest.table_shift = 0);
    refused(&|manifest| manifest.tables.get_mut(&3).unwrap().len = 0);
    refused(&|manifest| manifest.tables.get_mut(&3).unwrap().len = u32::MAX);
    refused(&|manifest| manifest.patches = vec![slot(1); PATCHES_MAX + 1]);
    refused(&|manifest| manifest.patches = vec![Slot { len: 0, ..slot(1) }]);
    refused(&|manifest| manifest.patches = vec![Slot { len: 33 << 20, ..slot(1) }; 2]);
    Manifest::new([0; 16], 1 << 55, 1 << 22, 0).unwrap_err();
    Manifest::new([0; 16], 1 << 55, 1 << 26, 0).unwrap();
    Manifest::new([0; 16], 1 << 30, 5000, 0).unwrap_err();
    Manifest::new([0; 16], 1 << 30, 1 << 27, 0).unwrap_err();
}

#[test]
fn names_are_those_of_objects_or_none() {
    let id = ObjectId { session: 0xabc, number: 2 };
    assert_eq!(id.key(), "objects/0000000000000abc/0000000000000002");
    assert_eq!(ObjectId::of_key(&id.key()), Some(id));
    for key in ["manifest", "objects/abc/2", "objects/0000000000000abc/0000000000000002/x", "objects/+1/2"] {
        assert_eq!(ObjectId::of_key(key), None, "{key}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = digest(&bytes);
        let sample = sample().encode();
        for (at, byte) in sample.iter().take(16).enumerate() {
            if let Some(to) = bytes.get_mut(at) { *to = *byte; }
        }
        let _ = digest(&bytes);
    }
}
