//! Byte offsets and byte counts.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A number of bytes, or an offset in bytes from the start of a device or file. 0 to 2^64 - 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Bytes(u64);

impl Bytes {
    /// No bytes, or the start.
    pub const ZERO: Self = Self(0);

    /// Wraps a raw count.
    #[must_use]
    pub const fn new(n: u64) -> Self {
        Self(n)
    }
    /// The length of something in memory.
    #[must_use]
    pub const fn of(n: usize) -> Self {
        Self(n as u64)
    }
    /// `n` KiB.
    #[must_use]
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }
    /// `n` MiB.
    #[must_use]
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }
    /// `n` GiB.
    #[must_use]
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }
    /// The raw count.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
    /// Sum, or `None` on overflow.
    #[must_use]
    pub const fn checked_add(self, n: Self) -> Option<Self> {
        match self.0.checked_add(n.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }
    /// Difference, or zero where it would be negative.
    #[must_use]
    pub const fn saturating_sub(self, n: Self) -> Self {
        Self(self.0.saturating_sub(n.0))
    }
    /// The smaller of two.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Ord::min(self, other)
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, n: Self) -> Self {
        Self(self.0 + n.0)
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, n: Self) {
        self.0 += n.0;
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, n: Self) -> Self {
        Self(self.0 - n.0)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
