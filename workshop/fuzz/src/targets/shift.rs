//! Fuzz target: moving ranges of extent trees, against a model: every block of the file by itself.

use crate::input::Input;
use crate::tree::Nodes;
use hectare_ext4::extent::{self, Extent, Progress, for_each, insert, remove};
use hectare_units::{BlockNr, LogicalBlock};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Where each mapped block of the file lies, and whether it is unwritten.
type Model = BTreeMap<u32, (u64, bool)>;

/// No operation moves further up than the blocks of the small trees here can go.
const STEPS_MAX: u32 = 10_000;

pub(super) fn target(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let flags = input.byte();
    let node_len = if flags & 1 == 0 { 64 } else { 1024 };
    let mut tree = Nodes::grown(input.byte(), node_len, false, &mut Input::new(&[]));
    let mut model = model_of(&tree);
    for _ in 0..24 {
        if input.is_empty() || !step(&mut tree, &mut model, &mut input) {
            break;
        }
        assert_eq!(model_of(&tree), model);
    }
}

/// Does something to both; false if the store was full, after which the tree may be in between.
fn step(tree: &mut Nodes, model: &mut Model, input: &mut Input<'_>) -> bool {
    let (what, at, by) = (input.byte(), u32::from(input.word() % 1200), 1 + u32::from(input.byte() % 64));
    let leaves = usize::from(what >> 4);
    match what % 4 {
        0 => put(tree, model, at, by),
        1 => cut(tree, model, at, at + by),
        2 => down(tree, model, at, by, leaves),
        _ => up(tree, model, at, by, leaves),
    }
}

fn put(tree: &mut Nodes, model: &mut Model, at: u32, len: u32) -> bool {
    if model.range(at..at + len).next().is_some() {
        return true;
    }
    let (physical, unwritten) = (20_000 + u64::from(at) * 3, len.is_multiple_of(2));
    let extent = Extent { logical: LogicalBlock::new(at), len, physical: BlockNr::new(physical), unwritten };
    let done = insert(tree, extent).is_ok();
    if done {
        model.extend((0..len).map(|n| (at + n, (physical + u64::from(n), unwritten))));
    }
    done
}

fn cut(tree: &mut Nodes, model: &mut Model, from: u32, to: u32) -> bool {
    let mut steps = 0;
    loop {
        match remove(tree, LogicalBlock::new(from), u64::from(to), 3, &mut |_, _, _| ()) {
            Ok(Progress::Done) => break,
            Ok(Progress::More) => steps += 1,
            Err(_) => return false,
        }
        assert!(steps < STEPS_MAX, "removing does not end");
    }
    model.retain(|at, _| !(from..to).contains(at));
    true
}

/// What follows a range moves down over it; refused while something is mapped there.
fn down(tree: &mut Nodes, model: &mut Model, at: u32, by: u32, leaves: usize) -> bool {
    let is_gap = model.range(at..at + by).next().is_none();
    let mut next = Some(LogicalBlock::new(at + by));
    let mut steps = 0;
    while let Some(from) = next {
        match extent::shift_down(tree, from, by, leaves) {
            Ok(further) => next = further,
            Err(error) => {
                assert!(!is_gap && steps == 0, "a sound tree can't be shifted: {error}");
                return true;
            }
        }
        steps += 1;
        assert!(steps < STEPS_MAX, "shifting down does not end");
    }
    assert!(is_gap, "blocks were shifted over others");
    move_from(model, at, |key| key - by);
    true
}

fn up(tree: &mut Nodes, model: &mut Model, at: u32, by: u32, leaves: usize) -> bool {
    let mut next = Some(1 << 32);
    let mut steps = 0;
    while let Some(to) = next {
        match extent::shift_up(tree, LogicalBlock::new(at), to, by, leaves) {
            Ok(further) => next = further,
            Err(_) => return false,
        }
        steps += 1;
        assert!(steps < STEPS_MAX, "shifting up does not end");
    }
    move_from(model, at, |key| key + by);
    true
}

fn move_from(model: &mut Model, at: u32, to: impl Fn(u32) -> u32) {
    let moved = model.split_off(&at);
    model.extend(moved.into_iter().map(|(key, place)| (to(key), place)));
}

fn model_of(tree: &Nodes) -> Model {
    let mut model = Model::new();
    for_each(tree, LogicalBlock::ZERO, &mut |extent| {
        let (at, physical) = (extent.logical.get(), extent.physical.get());
        let block = |n: u32| (at + n, (physical + u64::from(n), extent.unwritten));
        model.extend((0..extent.len).map(block));
        ControlFlow::Continue(())
    })
    .expect("a sound tree can be walked");
    model
}
