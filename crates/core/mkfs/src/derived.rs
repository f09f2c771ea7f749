//! UUIDs and hash seeds that are derived from what a volume is, instead of drawn.
//!
//! With `SOURCE_DATE_EPOCH` the same request gives the same volume, so its UUID and the seed of its directory
//! hashes are a digest of the request. The UUID is of version 8 (RFC 9562: contents of the maker's choice).
//!
//! Hazard: two volumes of the same description have the same UUID. What must differ goes into the digest.

use hectare_units::u64_of;
use sha2::{Digest, Sha256};

/// The digest of a description. Its parts can't run into each other.
pub struct Derivation(Sha256);

impl Derivation {
    /// Begins a description; each `kind` of description has digests of its own.
    #[must_use]
    pub fn new(kind: &[u8]) -> Self {
        let mut new = Self(Sha256::new());
        new.bytes(kind);
        new
    }

    /// Adds a number.
    pub fn number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    /// Adds bytes, with their number before them.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(u64_of(bytes.len()));
        self.0.update(bytes);
    }

    /// The UUID and the seed of the directory hashes.
    #[must_use]
    pub fn finish(self) -> ([u8; 16], [u8; 16]) {
        let digest: [u8; 32] = self.0.finalize().into();
        let (mut uuid, mut hash_seed) = ([0; 16], [0; 16]);
        uuid.copy_from_slice(&digest[..16]);
        hash_seed.copy_from_slice(&digest[16..]);
        uuid[6] = uuid[6] & 0x0f | 0x80; // version 8
        uuid[8] = uuid[8] & 0x3f | 0x80; // the variant of RFC 9562
        (uuid, hash_seed)
    }
}

/// The identity of an empty volume of a kind (`ext4`, `xfs`), a label, a time and a size in bytes.
pub(crate) fn of_empty(kind: &str, label: &[u8], now: i64, size: u64) -> ([u8; 16], [u8; 16]) {
    let mut derivation = Derivation::new(b"hectare volume 1");
    derivation.bytes(kind.as_bytes());
    derivation.bytes(label);
    derivation.number(now.cast_unsigned());
    derivation.number(size);
    derivation.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_description_counts() {
        let one = of_empty("ext4", b"a", 1, 2);
        assert_eq!(one, of_empty("ext4", b"a", 1, 2));
        for other in [("xfs", b"a", 1, 2), ("ext4", b"b", 1, 2), ("ext4", b"a", 2, 2), ("ext4", b"a", 1, 3)] {
            assert_ne!(one, of_empty(other.0, other.1, other.2, other.3), "{other:?}");
        }
        assert_eq!((one.0[6] >> 4, one.0[8] >> 6), (8, 2));
        assert_ne!(one.0, one.1);
    }
}
