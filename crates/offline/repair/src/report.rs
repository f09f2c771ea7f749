//! What a repair did, as data, and why one can't be done.

use crate::mends::Mends;
use crate::order::Order;
use crate::pages::PageStore;
use hectare_check::{Problem, What};
use hectare_ext4::error::{FormatError, Place};
use std::fmt;
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

/// One thing that was mended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mend {
    /// The structure.
    pub what: What,
    /// Where it lies.
    pub place: Place,
    /// What was wrong, and what was done.
    pub text: String,
    /// Whether something is no longer there, or no longer under its name.
    pub loses: bool,
}

impl fmt::Display for Mend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.what.name(), self.place, self.text)
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

/// Why a volume can't be repaired. Nothing was written then.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] hectare_device::Error),
    /// What the repair has to remember has no room: not in memory, nor in the file that it spills to.
    #[error(transparent)]
    Spill(hectare_device::Error),
    /// The check can't judge the volume.
    #[error(transparent)]
    Check(#[from] hectare_check::Error),
    /// No superblock was found that leads anywhere.
    #[error("no superblock leads to a volume: {0}")]
    NoSuperblock(FormatError),
    /// Something outside is needed first.
    #[error("{0}")]
    Refused(String),
    /// After the last round something was still wrong.
    #[error(
        "it can't be made sound: after {rounds} rounds {count} problems are left, the first of them: {first}"
    )]
    Left {
        /// Rounds.
        rounds: u32,
        /// Problems.
        count: u64,
        /// The first.
        first: Box<Problem>,
    },
}

impl From<hectare_units::OutOfMemory> for Error {
    fn from(error: hectare_units::OutOfMemory) -> Self {
        Self::Check(error.into())
    }
}
