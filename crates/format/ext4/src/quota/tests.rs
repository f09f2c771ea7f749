//! The tree against a map, against mke2fs's, and broken ones.

use super::build::Memory;
use super::*;
use crate::error::FormatError;
use hectare_units::random;
use std::collections::BTreeMap;

fn empty() -> (Memory, Info) {
    let mut file = Memory { kind: Kind::User, blocks: vec![[0; BLOCK_BYTES]; 2] };
    let info = Info::empty();
    info.write(&mut file).unwrap();
    (file, info)
}

fn record(used: u64) -> Record {
    let space = Resource { used, soft: 1 << 20, hard: 2 << 20, expires: 0 };
    Record { space, inodes: Resource { used: 7, soft: 0, hard: 9, expires: 3 } }
}

fn all(file: &Memory) -> Result<BTreeMap<u32, Record>, FormatError> {
    let mut found = BTreeMap::new();
    for_each(file, &Info::read(file)?, &mut |id, _, record| {
        assert!(found.insert(id, record).is_none());
        Ok(())
    })?;
    Ok(found)
}

#[test]
fn a_record_is_read_as_it_was_written_and_an_empty_one_takes_its_slot() {
    for (id, record) in
        [(0, Record::default()), (5, Record::default()), (0, record(0)), (u32::MAX, record(3))]
    {
        let mut bytes = [0; Record::BYTES];
        record.render(id, &mut bytes);
        assert_eq!(Record::parse(&bytes), Some((id, record)));
    }
    assert_eq!(Record::parse(&[0; Record::BYTES]), None);
}

#[test]
fn the_tree_is_a_map() {
    let (mut file, mut info) = empty();
    let mut model: BTreeMap<u32, Record> = BTreeMap::new();
    let mut seed = 1;
    let mut next = |below: u64| {
        seed = random::mixed(random::STEP.wrapping_add(seed));
        seed % below
    };
    for step in 0..4000 {
        // Dense ids, sparse ones and neighbours of both.
        let id = match next(3) {
            0 => u32::try_from(next(60)).unwrap(),
            1 => u32::try_from(next(40) << 26).unwrap() + 7,
            _ => u32::try_from(next(300) * 251).unwrap(),
        };
        if next(5) < 2 {
            assert_eq!(remove(&mut file, &mut info, id).unwrap(), model.remove(&id).is_some(), "{step}");
        } else {
            let slot = insert(&mut file, &mut info, id).unwrap();
            let record = record(next(1 << 40));
            file.edit(slot.leaf, |block| record.render(id, &mut block[slot.bytes()])).unwrap();
            model.insert(id, record);
        }
        if step % 200 == 0 {
            assert_eq!(all(&file).unwrap(), model, "{step}");
        }
        assert_eq!(Info::read(&file).unwrap(), info);
    }
    let most = file.blocks.len();
    for id in model.keys().copied().collect::<Vec<_>>() {
        assert!(remove(&mut file, &mut info, id).unwrap());
    }
    assert!(all(&file).unwrap().is_empty() && lookup(&file, &info, 7).unwrap().is_none());
    // Everything is used again.
    for id in 0..300 {
        insert(&mut file, &mut info, id).unwrap();
    }
    assert!(file.blocks.len() <= most + 1, "{} {most}", file.blocks.len());
}

#[test]
fn what_is_built_is_what_was_put_in() {
    let records: BTreeMap<u32, Record> = (0..500).map(|id| (id * 1_000_003, record(id.into()))).collect();
    let bytes = build(Kind::Project, &records);
    let blocks = bytes.as_chunks::<BLOCK_BYTES>().0.to_vec();
    let file = Memory { kind: Kind::Project, blocks };
    assert_eq!(all(&file).unwrap(), records);
}

/// Files that e2fsprogs wrote, of a user who owns the root and lost+found.
#[test]
fn an_empty_volume_has_the_file_that_mke2fs_makes() {
    let used = |used| Resource { used, ..Resource::default() };
    let root = Record { space: used(13_312), inodes: used(2) };
    let bytes = build(Kind::User, &BTreeMap::from([(0, root)]));
    assert_eq!(bytes.len(), 6 * BLOCK_BYTES);
    let word = |block: usize, at: usize| u32_at(&bytes, block * BLOCK_BYTES + at);
    assert_eq!((word(0, 0), word(0, 4), word(0, 8), word(0, 20)), (0xd9c0_1f11, 1, 604_800, 6));
    assert_eq!([word(0, 24), word(0, 28)], [0, 5], "the lists");
    assert_eq!([word(1, 0), word(2, 0), word(3, 0), word(4, 0)], [2, 3, 4, 5], "the path of id 0");
    assert_eq!(word(5, COUNT_AT), 1);
}

const COUNT_AT: usize = 8;

#[test]
fn broken_trees_are_named_with_the_block() {
    let broken = |change: &dyn Fn(&mut Memory)| {
        let (mut file, mut info) = empty();
        for id in [0, 1, 70_000] {
            insert(&mut file, &mut info, id).unwrap();
        }
        change(&mut file);
        all(&file).unwrap_err().to_string()
    };
    let at = |block: usize, at: usize, value: u32| {
        broken(&move |file: &mut Memory| set_u32(&mut file.blocks[block], at, value))
    };
    let is = |error: String, words: &[&str]| {
        assert!(error.starts_with("the user quota file of inode 3 "), "{error}");
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    };
    is(at(0, 0, 5), &["block 0", "magic is 0x00000005"]);
    assert!(at(0, 4, 0).contains("version 0"));
    is(at(0, 20, 100), &["counts 100 blocks"]);
    is(at(0, 24, 1), &["list of unused blocks begins with block 1"]);
    is(at(0, 28, 99), &["leaves with room begins with block 99"]);
    is(at(1, 0, 1), &["block 1 of its tree", "leads to block 1 of"]);
    is(at(1, 4, 2), &["block 2 of it, which is in the tree twice"]);
    is(at(2, 4, 3), &["twice"]);
    is(at(4, 12, 4000), &["block 4 of its tree", "leads to block 4000"]);
    is(at(4, 12, 5), &["block 5 of its tree", "no record of id 3"]);
    is(broken(&|file| file.blocks.truncate(1)), &["1 blocks of 1 KiB"]);
}

#[test]
fn broken_lists_are_refused_and_never_followed_for_ever() {
    let (mut file, mut info) = empty();
    for id in 0..20 {
        insert(&mut file, &mut info, id).unwrap();
    }
    let leaf = usize::try_from(info.free_leaf).unwrap();
    // A leaf that counts as if it were full, and one that is.
    let mut full = Memory { kind: Kind::User, blocks: file.blocks.clone() };
    full.blocks[leaf][8] = 14;
    let refused = insert(&mut full, &mut info.clone(), 50).unwrap_err().to_string();
    assert!(refused.contains("counts 14 records"), "{refused}");
    full.blocks[leaf][LEAF_HEADER..].fill(1);
    let refused = insert(&mut full, &mut info.clone(), 50).unwrap_err().to_string();
    assert!(refused.contains("and has none"), "{refused}");
    // A list of unused blocks that leads to itself.
    info.free_block = 2;
    set_u32(&mut file.blocks[2], 0, 2);
    let refused = insert(&mut file, &mut info, 1 << 30).unwrap_err().to_string();
    assert!(refused.contains("after it is block 2"), "{refused}");
}

/// New blocks were taken, and entered, before the tree was found to be broken.
#[test]
fn regression_an_insertion_is_tried_before_anything_is_changed() {
    let mut seed = 5;
    let mut next = |below: usize| {
        seed = random::mixed(random::STEP.wrapping_add(seed));
        usize::try_from(seed).unwrap() % below
    };
    let (mut refused, mut done) = (0, 0);
    for _ in 0..3000 {
        let (mut file, mut info) = empty();
        for id in 0..u32::try_from(next(70)).unwrap() {
            insert(&mut file, &mut info, id * 300).unwrap();
        }
        for _ in 0..1 + next(8) {
            let (block, at) = (next(file.blocks.len()), next(12) * 4);
            let value = u32::try_from(next(40)).unwrap();
            set_u32(&mut file.blocks[block], at, value);
        }
        let Ok(mut info) = Info::read(&file) else { continue };
        let (before, id) = (file.blocks.clone(), u32::try_from(next(1 << 20)).unwrap());
        let checked = check_insert(&file, &info, id);
        assert!(file.blocks == before);
        let inserted = insert(&mut file, &mut info, id).map(drop);
        assert_eq!(checked, inserted);
        *(if inserted.is_ok() { &mut done } else { &mut refused }) += 1;
    }
    assert!(refused > 50 && done > 50, "{refused} {done}");
}
