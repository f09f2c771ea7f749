//! Tracks which CPUs have which cache line.
//!
//! A line is with the CPU that wrote it last and with those that have read it since. Reading it there costs
//! a load; reading it anywhere else brings a copy; writing it takes it away from all others. A line on its
//! way to a writer belongs to no CPU until it arrives, so writers of one line queue: that is what makes a
//! counter that all CPUs change a bottleneck of the whole.
//!
//! What it is not: a cache. A line stays where it is until another CPU accesses it.

use super::costs::{Costs, Time};
use crate::sync::virtual_cpus::run::CPUS_MAX;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// log2 of the bytes of a line.
const LINE: u32 = 6;

/// A map by address, queried only for single entries.
pub(super) type ByAddress<T> = HashMap<usize, T, BuildHasherDefault<Spread>>;

/// Spreads addresses: they differ in the middle bits.
#[derive(Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize((*byte).into()));
    }

    fn write_usize(&mut self, n: usize) {
        self.0 = (self.0 ^ hectare_units::u64_of(n)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A set of CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Set([u64; CPUS_MAX as usize / 64]);

impl Set {
    fn of(cpu: u32) -> Self {
        let mut set = Self::default();
        set.insert(cpu);
        set
    }

    fn insert(&mut self, cpu: u32) {
        self.0[hectare_units::usize_of(cpu / 64)] |= 1 << (cpu % 64);
    }

    fn has(&self, cpu: u32) -> bool {
        self.0[hectare_units::usize_of(cpu / 64)] >> (cpu % 64) & 1 == 1
    }
}

/// One line.
struct Line {
    /// The last writer.
    owner: u32,
    /// The CPUs that have its current content.
    holders: Set,
    /// When it has come to its owner.
    there: Time,
}

/// How a line is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Use {
    /// It is read.
    Load,
    /// It is written, and the write may take its time.
    Store,
    /// It is written, and the CPU waits for that.
    Update,
}

/// All lines that were touched in a run.
#[derive(Default)]
pub(super) struct Lines(ByAddress<Line>);

impl Lines {
    /// A CPU uses the line at an address; when it is done with that.
    pub(super) fn touch(&mut self, costs: &Costs, now: Time, cpu: u32, address: usize, how: Use) -> Time {
        let own = if how == Use::Update { costs.update } else { costs.load };
        // A line not used yet counts as cached: it was set up just before the run.
        let new = Line { owner: cpu, holders: Set::of(cpu), there: Time::ZERO };
        let line = self.0.entry(address >> LINE).or_insert(new);
        let alone = line.holders == Set::of(cpu);
        if alone || (how == Use::Load && line.holders.has(cpu)) {
            line.owner = if how == Use::Load { line.owner } else { cpu };
            return now.max(line.there) + own;
        }
        let come = now.max(line.there) + costs.between(line.owner, cpu);
        if how == Use::Load {
            line.holders.insert(cpu);
        } else {
            *line = Line { owner: cpu, holders: Set::of(cpu), there: come };
        }
        come + own
    }
}
