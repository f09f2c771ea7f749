//! Conversions between the widths of integers, and of fields that are stored in pieces.
//!
//! They exist so that no `as` stands elsewhere: each says by its name what it keeps.

/// Widens an index to the 64 bits that disk structures count in. Lossless on every supported target.
#[must_use]
pub const fn u64_of(n: usize) -> u64 {
    n as u64
}

/// Widens a 32-bit field to an index. Lossless on every supported target (32 bits or more).
#[must_use]
pub const fn usize_of(n: u32) -> usize {
    n as usize
}

/// Narrows a 64-bit count to an index.
///
/// # Panics
/// If the value does not fit the address space; callers bound it first.
#[must_use]
pub fn index_of(n: u64) -> usize {
    usize::try_from(n).expect("a count that was bounded before")
}

/// The low 32 bits of a 64-bit field that is stored in two halves.
#[must_use]
#[allow(clippy::cast_possible_truncation)] // dropping the high half is the purpose
pub const fn low32(n: u64) -> u32 {
    n as u32
}

/// The high 32 bits of a 64-bit field that is stored in two halves.
#[must_use]
pub const fn high32(n: u64) -> u32 {
    low32(n >> 32)
}

/// The low 16 bits of a wider field that is stored in pieces.
#[must_use]
#[allow(clippy::cast_possible_truncation)] // dropping the high part is the purpose
pub const fn low16(n: u64) -> u16 {
    n as u16
}

/// The low 8 bits of a wider field that is stored in pieces.
#[must_use]
#[allow(clippy::cast_possible_truncation)] // dropping the high part is the purpose
pub const fn low8(n: u64) -> u8 {
    n as u8
}

/// Joins two stored halves of a 64-bit field.
#[must_use]
pub const fn join32(low: u32, high: u32) -> u64 {
    (low as u64) | ((high as u64) << 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_join_to_the_whole() {
        for n in [0, 1, u64::from(u32::MAX), 1 << 32, 0x1234_5678_9abc_def0, u64::MAX] {
            assert_eq!(join32(low32(n), high32(n)), n);
            assert_eq!(u64::from(low16(n)), n % (1 << 16));
            assert_eq!(u64::from(low8(n)), n % (1 << 8));
            assert_eq!(u64_of(index_of(n)), n);
        }
        assert_eq!(u64_of(usize_of(u32::MAX)), u64::from(u32::MAX));
    }
}
