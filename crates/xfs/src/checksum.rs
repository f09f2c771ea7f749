//! The checksum of every XFS structure: crc32c over the whole, its own field as zeros, stored little-endian.

use crc_fast::{CrcAlgorithm, checksum};
use hectare_units::low32;

/// Writes the checksum of `bytes` into its four bytes at `at`, which must be zero before.
pub(crate) fn seal(bytes: &mut [u8], at: usize) {
    let crc = low32(checksum(CrcAlgorithm::Crc32Iscsi, bytes));
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_published_one() {
        let mut bytes = *b"\0\0\0\x00123456789";
        seal(&mut bytes[..4], 0); // four zeros have 0x48674bc7
        assert_eq!(bytes[..4], 0x4867_4bc7_u32.to_le_bytes());
    }
}
