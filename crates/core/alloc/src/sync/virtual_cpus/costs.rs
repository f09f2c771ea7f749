//! Costs in virtual time.

use crate::sync::Cost;
use serde::Serialize;
use std::fmt;
use std::ops::{Add, AddAssign, Mul};

/// A length of virtual time, or a moment of it since the start of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Time(u64);

impl Time {
    /// None.
    pub const ZERO: Self = Self(0);

    /// A cost in picoseconds: examining a word of a bitmap takes less than a nanosecond.
    #[must_use]
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// A cost in nanoseconds, to the picosecond; negative ones count as 0.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates, as it should
    pub const fn from_ns(ns: f64) -> Self {
        Self((ns * 1000.0 + 0.5) as u64)
    }

    /// In nanoseconds.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a run is shorter than 2^53 picoseconds, which is an hour and more
    pub const fn ns(self) -> f64 {
        self.0 as f64 / 1000.0
    }
}

impl Add for Time {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Time {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Mul<u32> for Time {
    type Output = Self;

    fn mul(self, times: u32) -> Self {
        Self(self.0 * u64::from(times))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.ns())
    }
}

impl Serialize for Time {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.ns())
    }
}

/// What each thing costs; serialized in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Costs {
    /// A load from a line this CPU has.
    pub load: Time,
    /// A read-modify-write, or a store with a full fence, of a line that only this CPU has. An uncontended
    /// lock and unlock are two of these.
    pub update: Time,
    /// A line that comes from another CPU of the same socket.
    pub near: Time,
    /// A line that comes from another socket.
    pub far: Time,
    /// CPUs of a socket; CPU 0 is the first of the first.
    pub socket: u32,
    /// Lines of the data a lock protects that come from the CPU that held it last, beside the lock's own.
    pub behind_lock: u32,
    /// A search begun: its plan, its statistics, the reservation it makes.
    pub request: Time,
    /// A group considered.
    pub group: Time,
    /// A free run found in a group.
    pub extent: Time,
    /// A word of a bitmap examined.
    pub word: Time,
    /// A run taken from a group's free space or given back to it.
    pub change: Time,
    /// A run marked as used or freed for a transaction.
    pub mark: Time,
    /// A piece of a reservation split off.
    pub split: Time,
}

impl Costs {
    /// The price of one step of a search.
    pub(super) const fn of(&self, cost: Cost) -> Time {
        match cost {
            Cost::Request => self.request,
            Cost::Group => self.group,
            Cost::Extent => self.extent,
            Cost::Word => self.word,
            Cost::Change => self.change,
            Cost::Mark => self.mark,
            Cost::Split => self.split,
        }
    }

    /// What it takes to bring a line from one CPU to another.
    pub(super) fn between(&self, from: u32, to: u32) -> Time {
        let socket = self.socket.max(1);
        if from / socket == to / socket { self.near } else { self.far }
    }
}
