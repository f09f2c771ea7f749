//! Fuzz target: extent trees of any bytes: each node checked, the tree looked up, walked, and changed.

use crate::input::Input;
use crate::tree::Nodes;
use hectare_ext4::checksum::Seed;
use hectare_ext4::extent::{
    Extent, Mapping, Progress, check_block, for_each, for_each_node, insert, lookup, mark, remove,
    set_checksum, verify_checksum,
};
use hectare_ext4::extent::{TreeRead, tree_blocks};
use hectare_units::{BlockNr, BlockSize, LogicalBlock};
use std::ops::ControlFlow;

/// More extents than any of the small trees has.
const SEEN_MAX: usize = 200_000;

pub(super) fn target(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let flags = input.byte();
    // Small nodes make deep trees of few bytes.
    let node_len = if flags & 1 == 0 { 64 } else { 1024 };
    let operations = input.array::<24>();
    let verifies = flags & 2 == 0;
    let store = if flags & 8 == 0 {
        Nodes::grown(input.byte(), node_len, verifies, &mut input)
    } else {
        Nodes::new(input.array::<60>(), input.rest(), node_len, verifies)
    };
    check_nodes(&store);
    let reading = flags & 4 == 0;
    let operations = &mut Input::new(&operations);
    if reading { read(&store, operations) } else { change(store, operations) }
}

fn check_nodes(store: &Nodes) {
    for node in store.all().iter().take(4) {
        let (nr, seed) = (BlockNr::new(5), Seed::stored(1));
        let _ = check_block(node, nr, &store.geometry(), Some(seed));
        let mut node = node.to_vec();
        set_checksum(&mut node, seed);
        if check_block(&node, nr, &store.geometry(), Some(seed)).is_ok() {
            verify_checksum(&node, nr, seed).expect("the checksum was just set");
        }
    }
}

fn read(store: &Nodes, input: &mut Input<'_>) {
    let mut extents = Vec::new();
    let whole = for_each(store, LogicalBlock::ZERO, &mut |extent| {
        extents.push(extent);
        assert!(extents.len() < SEEN_MAX, "a tree of more extents than its bytes can hold");
        ControlFlow::Continue(())
    });
    for pair in extents.windows(2) {
        assert!(pair[0].end() <= u64::from(pair[1].logical.get()), "extents overlap: {pair:?}");
    }
    let mut nodes = 0;
    let _ = for_each_node(store, &mut |_, _| {
        nodes += 1;
        assert!(nodes < SEEN_MAX, "a tree of more nodes than its bytes can hold");
        ControlFlow::Continue(())
    });
    // In a tree that reads well as a whole, looking up says the same as walking.
    for at in [input.long(), 0, u32::MAX, input.long() & 0xff] {
        let found = lookup(store, LogicalBlock::new(at));
        if whole.is_err() {
            continue;
        }
        let walked = extents.iter().find(|extent| extent.block_of(LogicalBlock::new(at)).is_some());
        match found.expect("a tree that reads well can be looked up in") {
            Mapping::Mapped(extent) => assert_eq!(Some(&extent), walked),
            Mapping::Hole { .. } => assert_eq!(None, walked),
        }
    }
    let _ = tree_blocks(extents.len(), BlockSize::KIB1);
}

fn change(mut store: Nodes, input: &mut Input<'_>) {
    for _ in 0..4 {
        let (what, at, len) =
            (input.byte(), LogicalBlock::new(u32::from(input.word())), u32::from(input.byte()));
        let end = u64::from(at.get()) + u64::from(len);
        match what % 4 {
            0 => {
                let extent =
                    Extent { logical: at, len, physical: BlockNr::new(500 + end), unwritten: what & 64 != 0 };
                let _ = insert(&mut store, extent);
            }
            1 => {
                let _ = mark(&mut store, at, end, what & 64 != 0);
            }
            _ => {
                let mut steps = 0;
                let to = if what & 64 == 0 { end } else { 1 << 32 };
                while let Ok(Progress::More) = remove(&mut store, at, to, 8, &mut |_, _, _| ()) {
                    steps += 1;
                    assert!(steps < SEEN_MAX, "removing does not end");
                }
            }
        }
    }
}
