//! How to repair, and what a repair did, as data.

use crate::mends::Mends;
use crate::stage::order::Order;
use crate::stage::pages::PageStore;
use std::sync::Arc;

/// How to repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// The time to store, in seconds since 1970.
    pub now: u32,
    /// How many rounds of mending and checking there are at most.
    pub rounds_max: u32,
    /// What becomes of blocks with two owners.
    pub duplicates: Duplicates,
}

/// What becomes of blocks with two owners; the first keeps them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Duplicates {
    /// The other gets a copy.
    #[default]
    Clone,
    /// The other loses them, and has a hole there.
    Delete,
}

impl Default for Options {
    fn default() -> Self {
        Self { now: 1, rounds_max: 6, duplicates: Duplicates::Clone }
    }
}

/// A repair that is finished, and not yet written.
#[derive(Debug)]
pub struct Repaired {
    /// What was mended, in order; nothing if the volume was sound.
    pub mends: Mends,
    /// How many rounds it took.
    pub rounds: u32,
    /// What could not be judged, by name.
    pub unchecked: Vec<String>,
    /// The order in which it is to be written.
    pub order: Order,
}

impl Repaired {
    /// One that found nothing yet.
    pub(crate) fn new(store: &Arc<PageStore>) -> Self {
        Self { mends: Mends::new(store), rounds: 0, unchecked: Vec::new(), order: Order::default() }
    }

    /// Whether anything was lost or lost its name.
    #[must_use]
    pub fn loses(&self) -> bool {
        self.mends.lose()
    }
}
