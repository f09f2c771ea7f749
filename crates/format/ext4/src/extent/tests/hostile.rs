//! Bytes that are almost a tree.

use super::{Store, extent};
use crate::checksum::Seed;
use crate::error::Corrupt;
use crate::extent::{
    Extent, Progress, ROOT_LEN, TreeGeometry, TreeRead, check_block, for_each, for_each_node, insert, lookup,
    mark, remove, set_checksum, shift_down, shift_up, verify_checksum,
};
use crate::indirect;
use hectare_units::{BlockNr, BlockSize, Blocks, InodeNr, LogicalBlock};
use proptest::prelude::*;
use std::ops::ControlFlow;
use std::rc::Rc;

fn deep() -> Store {
    let mut store = Store::new(148);
    for i in 0..300u32 {
        let at = i * 37 % 300;
        insert(&mut store, extent(4 * at, 2, 9000 + 5 * u64::from(at), i % 3 == 0)).unwrap();
    }
    store
}

/// What is written where: mostly small numbers at places that mean something.
fn damage() -> impl Strategy<Value = Vec<(usize, usize, u8)>> {
    let byte = prop_oneof![any::<u8>(), 0..16u8, Just(0), Just(255)];
    prop::collection::vec((0..60usize, 0..148usize, byte), 1..6)
}

fn damaged(damage: &[(usize, usize, u8)]) -> Store {
    let mut store = deep();
    let all: Vec<u64> = store.nodes.keys().copied().collect();
    for (node, at, byte) in damage {
        match node.checked_sub(3).map(|i| all[i % all.len()]) {
            None => store.root[at % ROOT_LEN] = *byte,
            Some(nr) => Rc::get_mut(store.nodes.get_mut(&nr).unwrap()).unwrap()[*at] = *byte,
        }
    }
    store
}

proptest! {
    #![proptest_config(crate::testing::cases("extent::hostile", 2000))]

    #[test]
    fn damaged_nodes_give_errors_and_nothing_worse(damage in damage(), verifies: bool, at in 0..1300u32) {
        let mut store = damaged(&damage);
        store.verifies = verifies;
        let block = LogicalBlock::new(at);
        let _ = lookup(&store, block);
        let mut seen = 0;
        let _ = for_each(&store, LogicalBlock::ZERO, &mut |_| { seen += 1; ControlFlow::Continue(()) });
        let _ = for_each_node(&store, &mut |_, _| { seen += 1; ControlFlow::Continue(()) });
        prop_assert!(seen < 100_000, "{} extents out of 300", seen);
        let _ = insert(&mut store, extent(at, 1, 77, false));
        let _ = mark(&mut store, block, u64::from(at) + 50, at % 2 == 0);
        store.reads.set(0);
        let (mut next, mut steps) = (Some(block), 0);
        while let Some(Ok(Some(from))) = next.map(|from| shift_down(&mut store, from, at % 7, 2)) {
            next = Some(from);
            steps += 1;
            prop_assert!(steps < 10_000, "moving down does not end");
        }
        let (mut next, mut steps) = (Some(1 << 32), 0);
        while let Some(Ok(Some(to))) = next.map(|to| shift_up(&mut store, block, to, at % 100, 2)) {
            next = Some(to);
            steps += 1;
            prop_assert!(steps < 10_000, "moving up does not end");
        }
        steps = 0;
        let first = LogicalBlock::ZERO;
        while let Ok(Progress::More) = remove(&mut store, first, 1 << 32, 20, &mut |_, _, _| ()) {
            steps += 1;
            prop_assert!(steps < 10_000, "removing does not end");
        }
    }

    #[test]
    fn any_bytes_as_a_node_or_a_map_give_errors_and_nothing_worse(
        bytes in prop::collection::vec(any::<u8>(), 1024),
        len in 0..1024usize,
        at: u32,
    ) {
        let geometry = deep().geometry();
        let _ = check_block(&bytes[..len], BlockNr::new(5), &geometry, Some(Seed::stored(1)));
        let mut node = bytes.clone();
        node[..2].copy_from_slice(&0xf30au16.to_le_bytes());
        let _ = check_block(&node, BlockNr::new(5), &geometry, None);
        set_checksum(&mut node[..len], Seed::stored(1));
        let geometry = TreeGeometry { blocks_count: Blocks::new(1 << 32), ..geometry };
        let mut i_block = [0; ROOT_LEN];
        i_block.copy_from_slice(&bytes[..ROOT_LEN]);
        let table = |_: BlockNr| Ok::<_, Corrupt>(bytes.clone());
        let _ = indirect::lookup(&i_block, &geometry, LogicalBlock::new(at), table);
        let mut seen = 0;
        let _ = indirect::for_each(&i_block, &geometry, LogicalBlock::new(at), table, &mut |_| {
            seen += 1;
            if seen > 1000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }
}

/// A leaf of one extent, as bytes, changed in one place.
fn leaf(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = vec![0u8; 1024];
    bytes[..12].copy_from_slice(&[0x0a, 0xf3, 2, 0, 84, 0, 0, 0, 0, 0, 0, 0]);
    bytes[12..24].copy_from_slice(&[10, 0, 0, 0, 5, 0, 0, 0, 100, 0, 0, 0]);
    bytes[24..36].copy_from_slice(&[15, 0, 0, 0, 1, 0, 0, 0, 200, 0, 0, 0]);
    change(&mut bytes);
    bytes
}

#[test]
fn each_kind_of_damage_is_named() {
    let geometry = TreeGeometry {
        block_size: BlockSize::KIB1,
        first_data_block: BlockNr::new(1),
        blocks_count: Blocks::new(4096),
        inode: InodeNr::new(12),
    };
    let verdict = |bytes: Vec<u8>| check_block(&bytes, BlockNr::new(77), &geometry, None);
    assert_eq!(verdict(leaf(|_| ())), Ok(()));
    let cases: [(Vec<u8>, &str); 10] = [
        (leaf(|b| b[0] = 0), "its magic is 0xf300, not 0xf30a"),
        (leaf(|b| b[4] = 85), "it claims room for 85 entries, but has room for 84"),
        (leaf(|b| b[4] = 0), "it claims room for 0 entries, but has room for 84"),
        (leaf(|b| b[2] = 85), "it claims 85 entries and room for 84"),
        (leaf(|b| b[6] = 5), "its depth is 5, too much for a node below the root"),
        (leaf(|b| b[2] = 0), "it has no entries, which only the root of an empty file may have"),
        (leaf(|b| b[16] = 0), "the extent at file block 10 has no length"),
        (leaf(|b| b[16] = 6), "the extent of file blocks 10 to 16 leaves its range of 0 to 15"),
        (leaf(|b| b[24] = 3), "the extent of file blocks 10 to 15 leaves its range of 0 to 3"),
        (
            leaf(|b| b[33] = 255),
            "the extent at file block 15 lies in 1 blocks from 65480, outside the volume's 4096",
        ),
    ];
    for (bytes, reason) in cases {
        let error = verdict(bytes).unwrap_err();
        assert_eq!(error.to_string(), format!("extent node in block 77 is corrupt: {reason}"));
    }
    let mut sealed = leaf(|_| ());
    set_checksum(&mut sealed, Seed::stored(3));
    assert_eq!(verify_checksum(&sealed, BlockNr::new(77), Seed::stored(3)), Ok(()));
    assert!(verify_checksum(&sealed, BlockNr::new(77), Seed::stored(4)).is_err());
    sealed[30] ^= 1;
    assert!(verify_checksum(&sealed, BlockNr::new(77), Seed::stored(3)).is_err());
}

#[test]
fn a_parent_that_does_not_know_its_child_is_refused() {
    let store = deep();
    let nr = *store.nodes.iter().find(|(_, node)| node[6] == 0).unwrap().0;
    for (at, what) in [(12, "its first key is"), (6, "its depth is")] {
        let mut store = store.clone();
        let mut bytes = store.nodes[&nr].to_vec();
        bytes[at] ^= 1;
        store.nodes.insert(nr, Rc::new(bytes));
        store.verifies = false;
        let mut read: Vec<Extent> = Vec::new();
        let error = for_each(&store, LogicalBlock::ZERO, &mut |extent| {
            read.push(extent);
            ControlFlow::Continue(())
        })
        .unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
}

#[test]
fn a_map_of_one_table_named_over_and_over_ends() {
    let geometry = TreeGeometry { blocks_count: Blocks::new(5000), ..deep().geometry() };
    let i_block: Vec<u8> = std::iter::repeat_n(7u32.to_le_bytes(), 15).flatten().collect();
    let table: Vec<u8> = std::iter::repeat_n(7u32.to_le_bytes(), 256).flatten().collect();
    let result = indirect::for_each(
        i_block.as_slice().try_into().unwrap(),
        &geometry,
        LogicalBlock::ZERO,
        |_| Ok::<_, Corrupt>(table.as_slice()),
        &mut |_| ControlFlow::Continue(()),
    );
    assert!(result.unwrap_err().to_string().contains("more tables than the volume has blocks"));
}
