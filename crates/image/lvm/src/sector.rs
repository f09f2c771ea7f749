//! The unit of LVM2's places and lengths, and what its structures on disk are made of.

pub(crate) const SECTOR: u64 = 512;
pub(crate) const SECTOR_LEN: usize = 512;
/// With what LVM2 begins its checksums.
const CRC_START: u64 = 0xf597_a6cf;

/// LVM2's checksum: CRC-32 with another start, and not turned round in the end.
pub(crate) fn crc(bytes: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new_with_init_state(crc_fast::CrcAlgorithm::Crc32IsoHdlc, CRC_START);
    digest.update(bytes);
    !hectare_units::low32(digest.finalize())
}

pub(crate) fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|n| bytes[at + n]))
}

pub(crate) fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|n| bytes[at + n]))
}
