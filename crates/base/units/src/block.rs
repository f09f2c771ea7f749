//! Blocks and clusters: their numbers, counts and sizes.

use crate::{Bytes, index_of, low32, usize_of};
use std::fmt;
use std::ops::{Add, AddAssign, Sub};

macro_rules! number64 {
    ($(#[$doc:meta])* $name:ident counted by $count:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(u64);

        impl $name {
            /// Wraps a raw number.
            #[must_use]
            pub const fn new(n: u64) -> Self {
                Self(n)
            }
            /// The raw number.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }
            /// The number `n` further on, or `None` on overflow.
            #[must_use]
            pub const fn checked_add(self, n: $count) -> Option<Self> {
                match self.0.checked_add(n.0) {
                    Some(sum) => Some(Self(sum)),
                    None => None,
                }
            }
            /// How far this lies after `earlier`; `None` if it lies before.
            #[must_use]
            pub const fn checked_since(self, earlier: Self) -> Option<$count> {
                match self.0.checked_sub(earlier.0) {
                    Some(n) => Some($count(n)),
                    None => None,
                }
            }
        }

        impl Add<$count> for $name {
            type Output = Self;
            fn add(self, n: $count) -> Self {
                Self(self.0 + n.0)
            }
        }

        impl AddAssign<$count> for $name {
            fn add_assign(&mut self, n: $count) {
                self.0 += n.0;
            }
        }

        impl Sub for $name {
            type Output = $count;
            fn sub(self, earlier: Self) -> $count {
                $count(self.0 - earlier.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

macro_rules! count64 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(u64);

        impl $name {
            /// None at all.
            pub const ZERO: Self = Self(0);
            /// Just one.
            pub const ONE: Self = Self(1);

            /// Wraps a raw count.
            #[must_use]
            pub const fn new(n: u64) -> Self {
                Self(n)
            }
            /// The raw count.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }
            /// The count as an index or length in memory.
            ///
            /// # Panics
            /// If it does not fit the address space.
            #[must_use]
            pub fn index(self) -> usize {
                index_of(self.0)
            }
            /// Whether there are none.
            #[must_use]
            pub const fn is_zero(self) -> bool {
                self.0 == 0
            }
            /// Difference, or zero where it would be negative.
            #[must_use]
            pub const fn saturating_sub(self, n: Self) -> Self {
                Self(self.0.saturating_sub(n.0))
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, n: Self) -> Self {
                Self(self.0 + n.0)
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, n: Self) {
                self.0 += n.0;
            }
        }

        impl Sub for $name {
            type Output = Self;
            fn sub(self, n: Self) -> Self {
                Self(self.0 - n.0)
            }
        }

        impl std::iter::Sum for $name {
            fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
                Self(iter.map(|n| n.0).sum())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

count64! {
    /// A number of blocks.
    Blocks
}
count64! {
    /// A number of allocation clusters (equal to blocks unless the volume has `bigalloc`).
    Clusters
}
number64! {
    /// A block of the volume, counted from 0 at the start of the device; ext4 uses 48 bits of it.
    BlockNr counted by Blocks
}
number64! {
    /// An allocation cluster of the volume, counted from 0 at the cluster of the first data block.
    ClusterNr counted by Clusters
}

impl BlockNr {
    /// Where the block starts on the device.
    #[must_use]
    pub const fn offset(self, size: BlockSize) -> Bytes {
        Bytes::new(self.0 << size.shift())
    }
}

impl Blocks {
    /// How many bytes the blocks hold.
    #[must_use]
    pub const fn bytes(self, size: BlockSize) -> Bytes {
        Bytes::new(self.0 << size.shift())
    }
}

/// A block of a file, counted from 0; the format gives it 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LogicalBlock(u32);

impl LogicalBlock {
    /// The first block of a file.
    pub const ZERO: Self = Self(0);

    /// Wraps a raw number.
    #[must_use]
    pub const fn new(n: u32) -> Self {
        Self(n)
    }
    /// The raw number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
    /// The number `n` blocks further on, or `None` beyond the last possible block.
    #[must_use]
    pub const fn checked_add(self, n: u32) -> Option<Self> {
        match self.0.checked_add(n) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }
    /// The block that holds byte `at` of a file; `None` where the format has no such block.
    #[must_use]
    pub fn containing(at: Bytes, size: BlockSize) -> Option<Self> {
        u32::try_from(at.get() >> size.shift()).ok().map(Self)
    }
    /// Where the block starts inside its file.
    #[must_use]
    pub const fn offset(self, size: BlockSize) -> Bytes {
        Bytes::new((self.0 as u64) << size.shift())
    }
}

impl fmt::Display for LogicalBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The size of a block: a power of two from 1 KiB to 64 KiB, kept as its logarithm.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockSize(u8);

impl BlockSize {
    /// 1 KiB, the smallest.
    pub const KIB1: Self = Self(10);
    /// 4 KiB, the usual one.
    pub const KIB4: Self = Self(12);
    /// 64 KiB, the largest.
    pub const KIB64: Self = Self(16);

    /// The size 2^`shift` bytes; `None` outside 1 KiB to 64 KiB.
    #[must_use]
    pub const fn from_shift(shift: u32) -> Option<Self> {
        match shift {
            10 => Some(Self(10)),
            11 => Some(Self(11)),
            12 => Some(Self(12)),
            13 => Some(Self(13)),
            14 => Some(Self(14)),
            15 => Some(Self(15)),
            16 => Some(Self(16)),
            _ => None,
        }
    }
    /// The size of `bytes` bytes; `None` if that is no power of two from 1 KiB to 64 KiB.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Option<Self> {
        if bytes.is_power_of_two() { Self::from_shift(bytes.trailing_zeros()) } else { None }
    }
    /// Its base-2 logarithm, 10 to 16.
    #[must_use]
    pub const fn shift(self) -> u32 {
        self.0 as u32
    }
    /// Bytes in a block.
    #[must_use]
    pub const fn get(self) -> u32 {
        1 << self.0
    }
    /// Bytes in a block, as a length in memory.
    #[must_use]
    pub const fn len(self) -> usize {
        1 << self.0
    }
    /// Always false; here because `len` is.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        false
    }
    /// Bytes in a block.
    #[must_use]
    pub const fn bytes(self) -> Bytes {
        Bytes::new(1 << self.0)
    }
    /// Blocks needed to hold `n` bytes.
    #[must_use]
    pub const fn blocks_for(self, n: Bytes) -> Blocks {
        Blocks(n.get().div_ceil(1 << self.0))
    }
    /// The block that holds byte `at` of the device.
    #[must_use]
    pub const fn block_at(self, at: Bytes) -> BlockNr {
        BlockNr(at.get() >> self.0)
    }
    /// The offset of byte `at` inside its block.
    #[must_use]
    pub const fn within(self, at: Bytes) -> usize {
        usize_of(low32(at.get() & ((1 << self.0) - 1)))
    }
}

impl fmt::Display for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_sizes_are_powers_of_two_between_1_and_64_kib() {
        assert_eq!(BlockSize::from_bytes(4096), Some(BlockSize::KIB4));
        assert_eq!(BlockSize::from_bytes(512), None);
        assert_eq!(BlockSize::from_bytes(131_072), None);
        assert_eq!(BlockSize::from_bytes(5000), None);
    }

    #[test]
    fn bytes_round_up_to_blocks() {
        let size = BlockSize::KIB4;
        assert_eq!(size.blocks_for(Bytes::ZERO), Blocks::ZERO);
        assert_eq!(size.blocks_for(Bytes::new(4097)), Blocks::new(2));
        assert_eq!(LogicalBlock::containing(Bytes::new(1 << 44), size), None);
    }
}
