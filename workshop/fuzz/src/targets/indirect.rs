//! Fuzz target: indirect maps of any bytes.

use crate::input::Input;
use crate::tree::Nodes;
use hectare_ext4::error::Corrupt;
use hectare_ext4::extent::{Mapping, TreeRead};
use hectare_ext4::indirect;
use hectare_units::{Blocks, LogicalBlock};
use std::ops::ControlFlow;

/// A caller stops at the file's size; here that is this many runs.
const RUNS_MAX: usize = 3000;

pub(super) fn target(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let at = LogicalBlock::new(input.long());
    let blocks = Blocks::new(u64::from(input.word()));
    let root = input.array::<60>();
    let store = Nodes::new(root, input.rest(), 1024, false);
    let mut geometry = store.geometry();
    geometry.blocks_count = blocks;
    let table = |nr| Ok::<_, Corrupt>(store.table(nr));
    let found = indirect::lookup(&root, &geometry, at, table);
    let mut first = None;
    let (mut runs, mut reached) = (0, 0);
    let walked = indirect::for_each(&root, &geometry, at, table, &mut |run| {
        assert!(run.len > 0 && u64::from(run.logical.get()) >= reached, "runs out of order");
        reached = run.end();
        first.get_or_insert(run);
        runs += 1;
        if runs < RUNS_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    if let (Ok(mapping), Ok(())) = (found, walked) {
        let begins_here = first.and_then(|run| run.block_of(at));
        match mapping {
            Mapping::Mapped(run) => assert_eq!(run.block_of(at), begins_here),
            Mapping::Hole { .. } => assert_eq!(None, begins_here),
        }
    }
}
