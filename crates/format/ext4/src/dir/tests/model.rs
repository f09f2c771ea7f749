//! Random operations compared with a map, and the cases that random ones don't reach.

use super::super::*;
use super::store::*;
use hectare_units::{InodeNr, LogicalBlock};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

#[derive(Clone, Debug)]
enum Op {
    Insert(u16, u32),
    Remove(u16),
    Replace(u16, u32),
    Lookup(u16),
}

/// The names that random operations choose from: short, long, not UTF-8, and (for TEA) colliding.
fn pool_name(i: u16) -> Vec<u8> {
    match i % 4 {
        0 => tea_twin(64, u32::from(i / 4)),
        1 => vec![0x80 | i.to_le_bytes()[0], b'x', i.to_be_bytes()[0] | 1, b'.'],
        2 => format!("file-{i}-{}", "long".repeat(usize::from(i) % 60)).into_bytes(),
        _ => format!("{i}").into_bytes(),
    }
}

fn ops(len: usize) -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => (0..400u16, 11..u32::MAX).prop_map(|(i, n)| Op::Insert(i, n)),
        3 => (0..400u16).prop_map(Op::Remove),
        1 => (0..400u16, 11..u32::MAX).prop_map(|(i, n)| Op::Replace(i, n)),
        1 => (0..400u16).prop_map(Op::Lookup),
    ];
    prop::collection::vec(op, 1..len)
}

fn formats() -> impl Strategy<Value = Format> {
    let versions = prop_oneof![Just(HashVersion::Legacy), Just(HashVersion::HalfMd4), Just(HashVersion::Tea)];
    let sign = prop_oneof![Just(Signedness::Signed), Just(Signedness::Unsigned)];
    let sizes = prop_oneof![Just(1024u64), Just(4096), Just(65536)];
    (sizes, any::<[bool; 3]>(), prop::bool::weighted(0.85), versions, sign, any::<[u32; 4]>()).prop_map(
        |(size, [checksums, large, filetype], index, hash_version, hash_signedness, hash_seed)| Format {
            filetype,
            index,
            hash_version,
            hash_signedness,
            hash_seed,
            ..format(size, checksums, large)
        },
    )
}

fn file_type(format: &Format, inode: u32) -> FileType {
    if format.filetype { FileType::from_code((inode % 8).try_into().unwrap()) } else { FileType::Unknown }
}

fn apply(store: &mut VecStore, format: &Format, model: &mut Listing, op: &Op) {
    match op {
        Op::Insert(i, inode) => {
            let bytes = pool_name(*i);
            let file_type = file_type(format, *inode);
            let entry = Entry { name: name(&bytes), inode: InodeNr::new(*inode), file_type };
            let there = model.contains_key(&bytes);
            let done = insert(store, format, &entry).unwrap();
            assert_eq!(done, if there { Insert::Exists } else { Insert::Done });
            model.entry(bytes).or_insert((*inode, file_type));
        }
        Op::Remove(i) => {
            let bytes = pool_name(*i);
            let found = remove(store, format, name(&bytes)).unwrap();
            assert_eq!(found.map(|f| (f.inode.get(), f.file_type)), model.remove(&bytes));
        }
        Op::Replace(i, inode) => {
            let bytes = pool_name(*i);
            let file_type = file_type(format, *inode);
            let found = replace(store, format, name(&bytes), InodeNr::new(*inode), file_type).unwrap();
            let before = model.get_mut(&bytes).map(|slot| std::mem::replace(slot, (*inode, file_type)));
            assert_eq!(found.map(|f| (f.inode.get(), f.file_type)), before);
        }
        Op::Lookup(i) => {
            let bytes = pool_name(*i);
            let found = lookup(store, format, name(&bytes)).unwrap();
            assert_eq!(found.map(|f| (f.inode.get(), f.file_type)), model.get(&bytes).copied());
        }
    }
}

/// A listing in progress: at most `step` entries a call.
struct Lister {
    cookie: Cookie,
    seen: BTreeMap<Vec<u8>, u32>,
    done: bool,
}

impl Lister {
    fn start() -> Self {
        Self { cookie: Cookie::START, seen: BTreeMap::new(), done: false }
    }

    fn step(&mut self, store: &VecStore, format: &Format, step: usize) {
        let mut left = step;
        read_dir(store, format, self.cookie, &mut |entry| {
            if left == 0 {
                return ControlFlow::Break(());
            }
            left -= 1;
            assert!(entry.next > self.cookie && entry.next.get() < 1 << 63);
            self.cookie = entry.next;
            *self.seen.entry(entry.name.to_vec()).or_default() += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
        self.done = left > 0;
    }
}

proptest! {
    #![proptest_config(crate::testing::cases("dir::model", 48))]

    #[test]
    fn a_directory_behaves_like_a_map(format in formats(), ops in ops(600)) {
        let mut store = VecStore::new(&format);
        let mut model = Listing::new();
        for (i, op) in ops.iter().enumerate() {
            apply(&mut store, &format, &mut model, op);
            if i % 97 == 0 {
                check(&store, &format);
            }
        }
        check(&store, &format);
        prop_assert_eq!(is_empty(&store, &format).unwrap(), model.is_empty());
        let directory = if format.filetype { FileType::Directory } else { FileType::Unknown };
        model.insert(b".".to_vec(), (OWN.get(), directory));
        model.insert(b"..".to_vec(), (PARENT.get(), directory));
        prop_assert_eq!(list(&store, &format), model);
    }

    #[test]
    fn a_listing_survives_changes(
        format in formats(),
        ops in ops(900),
        step in 1..40usize,
        burst in 1..60usize,
    ) {
        let mut store = VecStore::new(&format);
        let mut model = Listing::new();
        let (before, during) = ops.split_at(ops.len() / 3);
        for op in before {
            apply(&mut store, &format, &mut model, op);
        }
        let mut always: BTreeSet<Vec<u8>> = model.keys().cloned().collect();
        let mut ever = always.clone();
        let mut lister = Lister::start();
        let mut during = during.chunks(burst);
        while !lister.done {
            lister.step(&store, &format, step);
            // The twins have one cookie for all: changing them is outside of the promise.
            for op in during.next().unwrap_or_default() {
                if let Op::Insert(i, _) | Op::Remove(i) = op && i % 4 == 0 {
                    continue;
                }
                // A name that goes and comes back may lie elsewhere.
                if let Op::Remove(i) = op {
                    always.remove(&pool_name(*i));
                }
                apply(&mut store, &format, &mut model, op);
            }
            always.retain(|name| model.contains_key(name));
            ever.extend(model.keys().cloned());
        }
        for name in &always {
            prop_assert_eq!(lister.seen.get(name), Some(&1), "{:?}", name);
        }
        for name in lister.seen.keys() {
            prop_assert!(ever.contains(name) || name == b"." || name == b"..");
        }
        if format.index {
            prop_assert!(lister.seen.values().all(|times| *times == 1));
        }
    }

    #[test]
    fn what_is_built_reads_back(
        format in formats(),
        picks in prop::collection::btree_set(0..4000u16, 0..900),
        percent in 50..=100u8,
    ) {
        let names: BTreeSet<Vec<u8>> = picks.iter().map(|i| pool_name(*i)).collect();
        let mut entries: Vec<Entry<'_>> = names.iter().zip(11..).map(|(name, i)| entry(name, i)).collect();
        let fill = Fill::percent(percent).unwrap();
        let built = build(&entries, OWN, PARENT, &format, None, fill).unwrap();
        entries.reverse();
        prop_assert_eq!(&build(&entries, OWN, PARENT, &format, None, fill).unwrap(), &built);
        let needed = blocks_needed(names.iter().map(|n| name(n)), &format, fill).unwrap();
        prop_assert_eq!(needed.index() * format.block_size.len(), built.blocks.len());
        let mut store = VecStore::from_bytes(&built.blocks, &format, built.indexed);
        check(&store, &format);
        prop_assert_eq!(list(&store, &format).len(), names.len() + 2);
        for entry in &entries {
            let found = lookup(&store, &format, entry.name).unwrap();
            prop_assert_eq!(found.map(|found| found.inode), Some(entry.inode));
        }
        for entry in &entries {
            prop_assert!(remove(&mut store, &format, entry.name).unwrap().is_some());
        }
        prop_assert!(is_empty(&store, &format).unwrap());
        check(&store, &format);
    }
}

#[test]
fn a_directory_grows_to_three_levels() {
    let format = format(1024, true, true);
    let mut store = VecStore::new(&format);
    let names: Vec<String> = (0..300_000).map(|i| format!("{i:07}-{}", "n".repeat(60 + i % 60))).collect();
    for (inode, name) in (11..).zip(&names) {
        assert_eq!(insert(&mut store, &format, &entry(name.as_bytes(), inode)).unwrap(), Insert::Done);
    }
    check(&store, &format);
    assert_eq!(store.blocks[0].as_ref().unwrap()[24 + 6], 2, "two levels of nodes below the root");
    for (inode, bytes) in (11..).zip(&names) {
        let found = lookup(&store, &format, name(bytes.as_bytes())).unwrap();
        assert_eq!(found.map(|found| found.inode.get()), Some(inode), "{bytes}");
    }
    assert_eq!(list(&store, &format).len(), names.len() + 2);
}

#[test]
fn two_levels_end_with_a_full_index_and_everything_still_there() {
    let format = format(1024, false, false);
    let mut store = VecStore::new(&format);
    let mut count = 0u32;
    loop {
        let bytes = format!("{count:0250}");
        match insert(&mut store, &format, &entry(bytes.as_bytes(), count + 11)).unwrap() {
            Insert::Done => count += 1,
            Insert::IndexFull => break,
            Insert::Exists => panic!("{bytes} was never put in"),
        }
    }
    assert!(count > 20_000, "{count} names");
    check(&store, &format);
    assert_eq!(list(&store, &format).len(), count as usize + 2);
    let names: Vec<String> = (0..70_000).map(|i| format!("{i:0250}")).collect();
    let entries: Vec<Entry<'_>> = names.iter().map(|name| entry(name.as_bytes(), 12)).collect();
    let refused = build(&entries, OWN, PARENT, &format, None, Fill::DEFAULT);
    assert_eq!(refused, Err(BuildError::TooLarge { entries: 70_000 }));
}

#[test]
fn names_that_collide_fill_many_leaves() {
    let format = Format { hash_version: HashVersion::Tea, ..format(1024, true, false) };
    let mut store = VecStore::new(&format);
    let names: Vec<Vec<u8>> = (0..4096).map(|i| tea_twin(96, i)).collect();
    let hashes: BTreeSet<DirHash> = names.iter().map(|n| format.hasher(HashVersion::Tea).hash(n)).collect();
    assert_eq!(hashes.len(), 1, "the names collide");
    for (inode, bytes) in (11..).zip(&names) {
        for bytes in [bytes.clone(), format!("other {inode}").into_bytes()] {
            assert_eq!(insert(&mut store, &format, &entry(&bytes, inode)).unwrap(), Insert::Done);
        }
    }
    check(&store, &format);
    for (inode, bytes) in (11..).zip(&names) {
        assert_eq!(lookup(&store, &format, name(bytes)).unwrap().unwrap().inode.get(), inode);
    }
    let mut lister = Lister::start();
    while !lister.done {
        lister.step(&store, &format, 61);
    }
    assert_eq!(lister.seen.len(), 2 * names.len() + 2);
    assert!(lister.seen.values().all(|times| *times == 1));
}

#[test]
fn removing_what_was_listed_empties_a_directory_of_colliding_names() {
    let format = Format { hash_version: HashVersion::Tea, ..format(1024, true, false) };
    let mut store = VecStore::new(&format);
    for i in 0..500 {
        _ = insert(&mut store, &format, &entry(&tea_twin(96, i), 11 + i)).unwrap();
    }
    let mut lister = Lister::start();
    while !lister.done {
        lister.step(&store, &format, 7);
        for bytes in std::mem::take(&mut lister.seen).keys() {
            remove(&mut store, &format, name(bytes)).unwrap();
        }
    }
    assert!(is_empty(&store, &format).unwrap());
}

#[test]
fn a_full_volume_leaves_a_sound_directory() {
    let format = format(1024, true, true);
    let names: Vec<String> = (0..20_000).map(|i| format!("{i:0200}")).collect();
    for capacity in [1, 2, 3, 125, 126, 127, 128, 129, 130, 250, 251] {
        let mut store = VecStore::new(&format);
        store.capacity = capacity;
        let mut done = 0;
        while insert(&mut store, &format, &entry(names[done].as_bytes(), 12)).is_ok() {
            done += 1;
        }
        check(&store, &format);
        assert_eq!(list(&store, &format).len(), done + 2);
        assert_eq!(lookup(&store, &format, name(names[done].as_bytes())).unwrap(), None);
        store.capacity = usize::MAX;
        assert_eq!(insert(&mut store, &format, &entry(names[done].as_bytes(), 12)).unwrap(), Insert::Done);
        check(&store, &format);
    }
}

#[test]
fn dots_are_found_replaced_and_kept() {
    for count in [0, 500] {
        let format = format(1024, true, false);
        let mut store = VecStore::new(&format);
        for i in 0..count {
            _ = insert(&mut store, &format, &entry(format!("name {i}").as_bytes(), 12)).unwrap();
        }
        assert_eq!(store.indexed, count > 0);
        assert_eq!(lookup(&store, &format, Name::DOT).unwrap().unwrap().inode, OWN);
        let moved = InodeNr::new(77);
        let before =
            replace(&mut store, &format, Name::DOT_DOT, moved, FileType::Directory).unwrap().unwrap();
        assert_eq!((before.inode, before.file_type), (PARENT, FileType::Directory));
        assert_eq!(lookup(&store, &format, Name::DOT_DOT).unwrap().unwrap().inode, moved);
        assert_eq!(remove(&mut store, &format, Name::DOT_DOT).unwrap(), None);
        check(&store, &format);
        assert_eq!(is_empty(&store, &format).unwrap(), count == 0);
    }
}

#[test]
fn an_unknown_hash_is_read_as_a_list_and_not_written() {
    let format = format(1024, true, false);
    let mut store = VecStore::new(&format);
    for i in 0..300 {
        _ = insert(&mut store, &format, &entry(format!("name {i}").as_bytes(), 12 + i)).unwrap();
    }
    store.edit(LogicalBlock::ZERO, |block| block[28] = 6).unwrap();
    assert_eq!(lookup(&store, &format, name(b"name 7")).unwrap().unwrap().inode.get(), 19);
    assert_eq!(list(&store, &format).len(), 302);
    for error in [
        insert(&mut store, &format, &entry(b"new", 12)).unwrap_err(),
        remove(&mut store, &format, name(b"name 7")).unwrap_err(),
    ] {
        assert!(error.to_string().contains("siphash"), "{error}");
    }
    let no_index = Format { index: false, ..format };
    assert!(insert(&mut store, &no_index, &entry(b"new", 12)).unwrap_err().to_string().contains("dir_index"));
    assert_eq!(list(&store, &no_index).len(), 302);
}

#[test]
fn doubled_and_dotted_names_are_not_built() {
    let format = format(4096, false, false);
    for names in [["a", "b", "a"], ["a", "..", "b"]] {
        let entries = names.map(|name| entry(name.as_bytes(), 12));
        let built = build(&entries, OWN, PARENT, &format, None, Fill::DEFAULT);
        assert!(matches!(built, Err(BuildError::Duplicate(_))), "{built:?}");
    }
}
