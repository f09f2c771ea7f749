//! The checksum of every XFS structure: crc32c over the whole, its own field as zeros, stored little-endian.
//!
//! The structures of a fresh group are nearly all zeros, and a volume of ten petabytes has fifty thousand of
//! them. So only the start of one is read. The effect of the zeros behind it on the checksum's register is a
//! linear map, known beforehand for each power of two of them ([`Zeros`]).

use crc_fast::{CrcAlgorithm, checksum};
use hectare_units::{low32, u64_of};
use std::array::from_fn;
use std::sync::LazyLock;

/// The Castagnoli polynomial, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// The unit of precomputed zeros, in bytes: smaller ones would hardly be faster to look up than to read.
const UNIT: usize = 64;
/// How many powers of two of units are precomputed: enough for the zeros in a block of 64 KiB.
const POWERS: usize = 11;

/// What a unit of zeros, two units, four and so on make of a register.
static ZEROS: LazyLock<[Zeros; POWERS]> = LazyLock::new(|| {
    let bit = Zeros::of(|register| (register >> 1) ^ if register & 1 == 1 { POLYNOMIAL } else { 0 });
    let mut next = (0..UNIT.ilog2() + 3).fold(bit, |zeros, _| zeros.twice());
    from_fn(|_| {
        let twice = next.twice();
        std::mem::replace(&mut next, twice)
    })
});

/// Writes the checksum of `bytes` into its four bytes at `at`, which must be zero before.
pub(crate) fn seal(bytes: &mut [u8], at: usize) {
    seal_start(bytes, bytes.len(), at);
}

/// As [`seal`], for bytes of which all from `used` on are zero.
pub(crate) fn seal_start(bytes: &mut [u8], used: usize, at: usize) {
    debug_assert!(bytes[used..].iter().all(|byte| *byte == 0), "more than {used} bytes are used");
    let units = ((bytes.len() - used) / UNIT).min((1 << POWERS) - 1);
    let start = &bytes[..bytes.len() - units * UNIT];
    let crc = before_zeros(low32(checksum(CrcAlgorithm::Crc32Iscsi, start)), units);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// The checksum of data with checksum `crc`, followed by `units` units of zeros.
fn before_zeros(crc: u32, units: usize) -> u32 {
    let powers = ZEROS.iter().enumerate().filter(|(power, _)| (units >> power) & 1 == 1);
    !powers.fold(!crc, |register, (_, zeros)| zeros.after(register))
}

/// What some number of zeros make of a register, by the values of its nibbles.
struct Zeros([[u32; 16]; 8]);

impl Zeros {
    /// A map that must be linear.
    fn of(map: impl Fn(u32) -> u32) -> Self {
        Self(from_fn(|nibble| from_fn(|value| map(low32(u64_of(value)) << (4 * nibble)))))
    }

    /// What twice as many make of it.
    fn twice(&self) -> Self {
        Self::of(|register| self.after(self.after(register)))
    }

    fn after(&self, register: u32) -> u32 {
        let nibbles = self.0.iter().enumerate();
        nibbles.fold(0, |made, (nr, values)| made ^ values[((register >> (4 * nr)) & 0xf) as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_checksum_is_the_published_one() {
        let mut bytes = *b"\0\0\0\x00123456789";
        seal(&mut bytes[..4], 0); // four zeros have 0x48674bc7
        assert_eq!(bytes[..4], 0x4867_4bc7_u32.to_le_bytes());
    }

    proptest! {
        #[test]
        fn zeros_that_are_not_read_count(
            start in prop::collection::vec(any::<u8>(), 4..300),
            zeros in 0..200_000usize,
        ) {
            let used = start.len();
            let mut bytes = start;
            bytes[..4].fill(0);
            bytes.resize(used + zeros, 0);
            let whole = low32(checksum(CrcAlgorithm::Crc32Iscsi, &bytes));
            seal_start(&mut bytes, used, 0);
            prop_assert_eq!(&bytes[..4], whole.to_le_bytes());
        }
    }
}
