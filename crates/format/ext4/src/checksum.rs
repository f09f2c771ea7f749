//! The checksums of ext4: crc32c for `metadata_csum`, crc16 for the older `uninit_bg` (gdt_csum).
//!
//! ext4 keeps the raw crc32c register: it starts from a given value and is not inverted at the end. Every
//! structure's checksum starts from a [`Seed`], and a seed is itself the register after the volume's UUID (or
//! the stored `s_checksum_seed`), so that a block copied from another volume never verifies. Structures that
//! belong to a file continue from that file's own seed.
//!
//! Hazard: the superblock's checksum alone starts from all ones, not from the seed.

use hectare_units::InodeNr;

/// The crc32c register after `bytes`, started from `init`, not inverted.
#[must_use]
pub fn crc32c(init: u32, bytes: &[u8]) -> u32 {
    use crc_fast::{CrcAlgorithm, Digest};
    if bytes.is_empty() {
        return init;
    }
    // The library works on the register inverted at both ends; undo both inversions.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(init));
    digest.update(bytes);
    !hectare_units::low32(digest.finalize())
}

/// The register after one byte, started from zero.
const CRC32C: [u32; 256] = crc32c_table();
/// Which byte leads to a register with these upper 8 bits.
const CRC32C_INDEX: [u8; 256] = crc32c_index();

const fn crc32c_table() -> [u32; 256] {
    let mut table = [0u32; 256];
    let mut i = 0u32;
    while i < 256 {
        let mut crc = i;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[i as usize] = crc;
        i += 1;
    }
    table
}

const fn crc32c_index() -> [u8; 256] {
    let mut index = [0u8; 256];
    let mut i = 0u8;
    loop {
        index[(CRC32C[i as usize] >> 24) as usize] = i;
        if i == u8::MAX {
            return index;
        }
        i += 1;
    }
}

/// Corrects the one byte that is wrong, if one wrong byte explains that the checksum of `bytes`, started from
/// `seed`, is not `found`; returns where it is. Nothing is changed if none does, or if several bytes could be
/// it. That an answer is wrong for bytes that are damaged otherwise has a chance of about one in 2^24 for each
/// byte.
///
/// The register is linear: a wrong byte leaves a difference there, which each byte behind it turns into
/// another one. So the difference at the end is turned back, byte by byte, until it is one that a byte makes.
pub fn mend(bytes: &mut [u8], seed: Seed, found: u32) -> Option<usize> {
    let mut difference = seed.checksum(bytes) ^ found;
    let mut mended: Option<(usize, u8)> = None;
    for at in (0..bytes.len()).rev() {
        let made_by = CRC32C_INDEX[hectare_units::usize_of(difference >> 24)];
        let register = CRC32C[usize::from(made_by)];
        if register == difference && made_by != 0 {
            if mended.is_some() {
                return None;
            }
            mended = Some((at, made_by));
        }
        difference = (difference ^ register) << 8 | u32::from(made_by);
    }
    let (at, wrong) = mended?;
    bytes[at] ^= wrong;
    Some(at)
}

/// The crc16 (polynomial 0x8005, reflected) register after `bytes`, started from `init`.
#[must_use]
pub fn crc16(init: u16, bytes: &[u8]) -> u16 {
    const TABLE: [u16; 256] = crc16_table();
    bytes.iter().fold(init, |crc, byte| (crc >> 8) ^ TABLE[usize::from((crc ^ u16::from(*byte)) & 0xff)])
}

const fn crc16_table() -> [u16; 256] {
    let mut table = [0u16; 256];
    let mut i = 0u16;
    while i < 256 {
        let mut crc = i;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xa001 } else { crc >> 1 };
            bit += 1;
        }
        table[i as usize] = crc;
        i += 1;
    }
    table
}

/// Where a structure's checksum starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seed(u32);

impl Seed {
    /// A seed stored on disk (`s_checksum_seed`, feature `metadata_csum_seed`).
    #[must_use]
    pub const fn stored(seed: u32) -> Self {
        Self(seed)
    }

    /// The seed of a volume that stores none: the register after its UUID.
    #[must_use]
    pub fn of_uuid(uuid: &[u8; 16]) -> Self {
        Self(crc32c(!0, uuid))
    }

    /// The seed of everything that belongs to one inode: the volume's, then its number and generation.
    #[must_use]
    pub fn inode(self, inode: InodeNr, generation: u32) -> Self {
        self.then(&inode.get().to_le_bytes()).then(&generation.to_le_bytes())
    }

    /// The seed continued over `bytes`.
    #[must_use]
    pub fn then(self, bytes: &[u8]) -> Self {
        Self(crc32c(self.0, bytes))
    }

    /// The checksum of `bytes` started from this seed.
    #[must_use]
    pub fn checksum(self, bytes: &[u8]) -> u32 {
        self.then(bytes).0
    }

    /// The register itself.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One bit at a time, straight from the definition.
    fn crc32c_slow(mut crc: u32, bytes: &[u8]) -> u32 {
        for byte in bytes {
            crc ^= u32::from(*byte);
            for _ in 0..8 {
                crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            }
        }
        crc
    }

    #[test]
    fn crc32c_matches_its_definition_at_every_length() {
        let bytes: Vec<u8> = (0..600u32).map(|i| hectare_units::low8(u64::from(i * 31 + 7))).collect();
        for len in 0..bytes.len() {
            for init in [0, !0, 0x1234_5678] {
                assert_eq!(crc32c(init, &bytes[..len]), crc32c_slow(init, &bytes[..len]), "{len} {init:#x}");
            }
        }
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
    }

    #[test]
    fn one_wrong_byte_is_found_and_corrected_and_two_are_not() {
        let whole: Vec<u8> = (0..4084u32).map(|i| hectare_units::low8(u64::from(i * 31 + 7))).collect();
        let seed = Seed::stored(0x1234_5678);
        let found = seed.checksum(&whole);
        for at in [0, 1, 77, 255, 2048, 4080, 4083] {
            for wrong in [1, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] ^= wrong;
                assert_eq!(mend(&mut bytes, seed, found), Some(at));
                assert!(bytes == whole);
            }
        }
        let mut bytes = whole;
        assert_eq!(mend(&mut bytes, seed, found), None, "nothing is wrong");
        bytes[5] ^= 1;
        bytes[900] ^= 3;
        assert_eq!(mend(&mut bytes, seed, found), None);
    }

    #[test]
    fn crc16_has_the_known_check_value() {
        assert_eq!(crc16(0, b"123456789"), 0xbb3d);
    }
}
