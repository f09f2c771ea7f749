//! A file as `fallocate(2)` sees it, in memory: its bytes, and the state of each of its blocks.

use crate::common::pattern;
use hectare_engine::{Error, ExtentFlags, FallocateMode, OpenFile};
use proptest::prelude::*;
use rustix::fs::{FallocateFlags, SeekFrom};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// An operation on a file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Write { at: u64, len: u64, seed: u64 },
    Truncate { at: u64 },
    Fallocate { mode: FallocateMode, at: u64, len: u64 },
}

/// Blocks that positions are taken from.
const SPACE: u64 = 90;

/// A number of bytes: some whole clusters, some whole blocks, some neither.
fn bytes(blocks: u64, block: u64, cluster: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (0..=blocks * block / cluster).prop_map(move |n| n * cluster),
        2 => (0..=blocks).prop_map(move |n| n * block),
        3 => 0..=blocks * block,
    ]
}

fn mode() -> impl Strategy<Value = FallocateMode> {
    use FallocateMode as M;
    prop_oneof![
        2 => any::<bool>().prop_map(|keep_size| M::Allocate { keep_size }),
        3 => Just(M::PunchHole),
        3 => any::<bool>().prop_map(|keep_size| M::ZeroRange { keep_size }),
        4 => Just(M::CollapseRange),
        4 => Just(M::InsertRange),
    ]
}

/// Operations on a file of a volume with such blocks and clusters.
pub(crate) fn op(block: u64, cluster: u64) -> impl Strategy<Value = Op> {
    let at = move || bytes(SPACE, block, cluster);
    let len = move || bytes(24, block, cluster);
    prop_oneof![
        5 => (at(), len(), any::<u16>()).prop_map(|(at, len, seed)| Op::Write { at, len, seed: seed.into() }),
        1 => at().prop_map(|at| Op::Truncate { at }),
        10 => (mode(), at(), len()).prop_map(|(mode, at, len)| Op::Fallocate { mode, at, len }),
    ]
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Hole,
    Unwritten,
    Written,
}

pub(crate) type Blocks = BTreeMap<u64, State>;

/// The file.
pub(crate) struct Model {
    block: u64,
    cluster: u64,
    pub(crate) content: Vec<u8>,
    states: Vec<State>,
    /// Whether its map has no unwritten blocks, and can't be moved.
    by_blocks: bool,
}

fn index(n: u64) -> usize {
    usize::try_from(n).unwrap()
}

impl Model {
    pub(crate) fn new(block: u64, cluster: u64) -> Self {
        Self { block, cluster, content: Vec::new(), states: Vec::new(), by_blocks: false }
    }

    pub(crate) fn mapped_by_blocks(self, by_blocks: bool) -> Self {
        Self { by_blocks, ..self }
    }

    pub(crate) fn size(&self) -> u64 {
        self.content.len() as u64
    }

    /// What is mapped.
    pub(crate) fn blocks(&self) -> Blocks {
        let mapped = self.states.iter().enumerate().filter(|(_, state)| **state != State::Hole);
        mapped.map(|(n, state)| (n as u64, *state)).collect()
    }

    fn set(&mut self, from: u64, to: u64, change: impl Fn(State) -> State) {
        if to > from && self.states.len() < index(to) {
            self.states.resize(index(to), State::Hole);
        }
        (from..to).for_each(|n| self.states[index(n)] = change(self.states[index(n)]));
    }

    fn grow(&mut self, to: u64) {
        self.content.resize(self.content.len().max(index(to)), 0);
    }

    fn clear(&mut self, at: u64, end: u64) {
        let end = end.min(self.size());
        (at..end).for_each(|n| self.content[index(n)] = 0);
    }

    /// Applies it, or returns the `errno` of the refusal.
    pub(crate) fn apply(&mut self, op: Op) -> Result<(), i32> {
        match op {
            Op::Write { len: 0, .. } => {}
            Op::Write { at, len, seed } => {
                self.grow(at + len);
                let data = pattern(seed, at, index(len));
                self.content[index(at)..index(at + len)].copy_from_slice(&data);
                self.set(at / self.block, (at + len).div_ceil(self.block), |_| State::Written);
            }
            Op::Truncate { at } => {
                if at <= self.size() {
                    self.states.truncate(index(at.div_ceil(self.block)));
                }
                self.content.resize(index(at), 0);
            }
            Op::Fallocate { len: 0, .. } => return Err(22),
            Op::Fallocate { mode, .. } if self.by_blocks && mode != FallocateMode::PunchHole => {
                return Err(95);
            }
            Op::Fallocate { mode, at, len } => return self.fallocate(mode, at, at + len),
        }
        Ok(())
    }

    fn fallocate(&mut self, mode: FallocateMode, at: u64, end: u64) -> Result<(), i32> {
        use FallocateMode as M;
        let block = self.block;
        let filled = |state| if state == State::Hole { State::Unwritten } else { state };
        match mode {
            M::Allocate { keep_size } | M::Unshare { keep_size } => {
                self.set(at / block, end.div_ceil(block), filled);
                if !keep_size {
                    self.grow(end);
                }
            }
            M::PunchHole => {
                let beyond = if end > self.size() { self.size().next_multiple_of(block) } else { 0 };
                self.clear(at, end);
                self.set(at.div_ceil(block), end.max(beyond) / block, |_| State::Hole);
            }
            M::ZeroRange { keep_size } => {
                self.clear(at, end);
                self.set(at / block, end.div_ceil(block), filled);
                self.set(at.div_ceil(block), end / block, |_| State::Unwritten);
                if !keep_size {
                    self.grow(end);
                }
            }
            M::CollapseRange | M::InsertRange
                if !at.is_multiple_of(self.cluster) || !end.is_multiple_of(self.cluster) =>
            {
                return Err(22);
            }
            M::CollapseRange => {
                if end >= self.size() {
                    return Err(22);
                }
                self.content.drain(index(at)..index(end));
                let states = self.states.len() as u64;
                self.states.drain(index((at / block).min(states))..index((end / block).min(states)));
            }
            M::InsertRange => {
                if at >= self.size() {
                    return Err(22);
                }
                let zeros = vec![0; index(end - at)];
                self.content.splice(index(at)..index(at), zeros);
                if index(at / block) < self.states.len() {
                    let holes = vec![State::Hole; index((end - at) / block)];
                    self.states.splice(index(at / block)..index(at / block), holes);
                }
            }
        }
        Ok(())
    }

    /// Where data or a hole is, from `at` on.
    fn seek(&self, at: u64, data: bool) -> Option<u64> {
        let is_data = |n: u64| self.states.get(index(n / self.block)) == Some(&State::Written);
        let mut at = at;
        while at < self.size() && is_data(at) != data {
            at = (at / self.block + 1) * self.block;
        }
        if data { Some(at).filter(|at| *at < self.size()) } else { Some(at.min(self.size())) }
    }

    /// Every position worth a query: what lies there, and what comes next.
    pub(crate) fn seeks(&self) -> Vec<(u64, Option<u64>, Option<u64>)> {
        let ends = [0, 1, self.size().saturating_sub(1)].into_iter();
        let places = ends.chain((0..self.states.len() as u64).map(|n| n * self.block + n % 3));
        let inside = places.filter(|at| *at < self.size());
        inside.map(|at| (at, self.seek(at, true), self.seek(at, false))).collect()
    }

    /// Fails unless the engine's file is this one.
    #[track_caller]
    pub(crate) fn compare(&self, file: &OpenFile, label: &str) {
        assert_eq!(file.metadata().unwrap().size, self.size(), "{label}: size");
        let mut read = vec![0xaa; self.content.len() + 1];
        let got = file.read_at(0, &mut read).unwrap();
        assert_eq!(got, self.content.len(), "{label}: length");
        if let Some(at) = (0..got).find(|at| read[*at] != self.content[*at]) {
            panic!("{label}: byte {at} is {}, not {}", read[at], self.content[at]);
        }
        let blocks = engine_blocks(file, self.block);
        assert_eq!(blocks, self.blocks(), "{label}: blocks");
        for (at, data, hole) in self.seeks() {
            assert_eq!(file.seek_data(at).unwrap(), data, "{label}: data from {at}");
            assert_eq!(file.seek_hole(at).unwrap(), hole, "{label}: hole from {at}");
        }
        for at in [self.size(), self.size() + 5000] {
            assert_eq!((file.seek_data(at).unwrap(), file.seek_hole(at).unwrap()), (None, None), "{label}");
        }
        let clusters = self.blocks().into_keys().map(|n| n * self.block / self.cluster);
        let clusters: std::collections::BTreeSet<u64> = clusters.collect();
        let sectors = clusters.len() as u64 * self.cluster / 512;
        let found = file.metadata().unwrap().sectors;
        let nodes = found.checked_sub(sectors).unwrap_or_else(|| panic!("{label}: {found} sectors"));
        // Nodes of the tree are counted too; there is at least a block of them if the root is not enough.
        assert!(nodes <= 40 * self.cluster / 512, "{label}: {found} sectors, {sectors} of them data");
    }
}

/// The mapped ranges of an engine's file, queried in parts.
fn engine_blocks(file: &OpenFile, block: u64) -> Blocks {
    let mut blocks = Blocks::new();
    let all = file.extents_in(0..1 << 40).unwrap();
    for extent in &all {
        let state =
            if extent.flags.contains(ExtentFlags::UNWRITTEN) { State::Unwritten } else { State::Written };
        let first = extent.at.get() / block;
        for n in 0..extent.len.get() / block {
            assert!(blocks.insert(first + n, state).is_none(), "block {} is mapped twice", first + n);
        }
        assert_eq!(extent.flags.contains(ExtentFlags::LAST), Some(extent) == all.last());
    }
    for (n, extent) in all.iter().enumerate() {
        // A part from inside the extent to inside the next one.
        let range = extent.at.get() + extent.len.get() / 2..extent.at.get() + extent.len.get() + 1;
        let part = file.extents_in(range.clone()).unwrap();
        let from = range.start / block * block;
        let skipped = from - extent.at.get();
        assert_eq!((part[0].at.get(), part[0].len.get()), (from, extent.len.get() - skipped));
        assert_eq!(part[0].place.get(), extent.place.get() + skipped);
        let next = all.get(n + 1).filter(|next| next.at.get() < range.end);
        assert_eq!(
            part.get(1).map(|part| (part.at, part.place, part.len.get())),
            next.map(|next| (next.at, next.place, block))
        );
        assert!(part.last().unwrap().flags.contains(ExtentFlags::LAST));
    }
    blocks
}

/// Applies it to an engine's file.
pub(crate) fn apply_engine(file: &OpenFile, op: Op) -> Result<(), i32> {
    let result: Result<(), Error> = match op {
        Op::Write { at, len, seed } => file.write_all_at(at, &pattern(seed, at, index(len))),
        Op::Truncate { at } => file.set_len(at),
        Op::Fallocate { mode, at, len } => file.fallocate(mode, at, len),
    };
    result.map_err(|error| error.errno())
}

/// Applies it to a kernel's file.
pub(crate) fn apply_kernel(file: &File, op: Op) -> Result<(), i32> {
    use FallocateMode as M;
    let keep = |keep_size| if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
    match op {
        Op::Write { at, len, seed } => {
            file.write_all_at(&pattern(seed, at, index(len)), at).unwrap();
            Ok(())
        }
        Op::Truncate { at } => {
            file.set_len(at).unwrap();
            Ok(())
        }
        Op::Fallocate { mode, at, len } => {
            let flags = match mode {
                M::Allocate { keep_size } | M::Unshare { keep_size } => keep(keep_size),
                M::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                M::ZeroRange { keep_size } => FallocateFlags::ZERO_RANGE | keep(keep_size),
                M::CollapseRange => FallocateFlags::COLLAPSE_RANGE,
                M::InsertRange => FallocateFlags::INSERT_RANGE,
            };
            rustix::fs::fallocate(file, flags, at, len).map_err(rustix::io::Errno::raw_os_error)
        }
    }
}

/// The kernel's results for the model's [`seeks`](Model::seeks).
pub(crate) fn kernel_seeks(file: &File, places: &[u64]) -> Vec<(u64, Option<u64>, Option<u64>)> {
    let seek = |to| rustix::fs::seek(file, to).ok();
    places.iter().map(|at| (*at, seek(SeekFrom::Data(*at)), seek(SeekFrom::Hole(*at)))).collect()
}
