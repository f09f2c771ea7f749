//! UUIDs that are not given: digests of the content, or of a seed as `systemd-repart --seed` makes them.
//!
//! By content: a partition's UUID is a digest of its place in the table, type, name and what fills it (the
//! volume's UUID, the bytes of a file, a root hash); the disk's is a digest of all partitions and blobs. By
//! seed: HMAC-SHA256 with the seed as the key, made a UUID of version 4.
//!
//! Facts: `systemd-repart(8)` on `--seed=`; the order of inputs was compared with its output.

use hectare_mkfs::Derivation;
use hectare_units::u64_of;
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// Where UUIDs that are not given come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Identity {
    /// From what the partitions hold.
    #[default]
    Content,
    /// From a seed, as `systemd-repart` does.
    Seed(Uuid),
}

impl Identity {
    /// By this seed.
    #[must_use]
    pub fn of_seed(seed: [u8; 16]) -> Self {
        Self::Seed(Uuid::from_bytes(seed))
    }
}

/// A digest of what is keyed, as a UUID of version 4.
fn keyed(key: Uuid, message: &[&[u8]]) -> Uuid {
    // HMAC (RFC 2104), whose key is shorter than a block of the hash.
    let padded = |pad: u8| {
        let mut block = [pad; 64];
        block.iter_mut().zip(key.as_bytes()).for_each(|(byte, key)| *byte ^= key);
        Sha256::new_with_prefix(block)
    };
    let inner = message.iter().fold(padded(0x36), |hash, part| hash.chain_update(part));
    let digest = padded(0x5c).chain_update(inner.finalize()).finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Uuid::from_bytes(bytes)
}

/// The UUID of the disk by a seed.
pub(crate) fn disk_of_seed(seed: Uuid) -> Uuid {
    keyed(seed, &[b"disk-uuid"])
}

/// The UUID of a partition by a seed: `before` partitions of the same type come before it.
pub(crate) fn partition_of_seed(seed: Uuid, kind: Uuid, before: usize) -> Uuid {
    match before {
        0 => keyed(seed, &[kind.as_bytes()]),
        before => keyed(seed, &[kind.as_bytes(), &u64_of(before).to_le_bytes()]),
    }
}

/// The UUID of a volume by that of its partition.
pub(crate) fn volume_of_seed(partition: Uuid) -> Uuid {
    keyed(partition, &[b"file-system-uuid"])
}

/// A partition of a disk. Two partitions can have one content, and must not have one identity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    pub(crate) number: usize,
    pub(crate) name: String,
}

impl Slot {
    /// The partition with an index, counted from 0.
    pub(crate) fn of(index: usize, name: &str) -> Self {
        Self { number: index + 1, name: name.to_owned() }
    }

    fn describe(&self, digest: &mut Derivation) {
        digest.number(u64_of(self.number));
        digest.bytes(self.name.as_bytes());
    }

    /// The UUID of the volume in the partition, by the one that follows from its content.
    pub(crate) fn volume(&self, by_content: [u8; 16]) -> [u8; 16] {
        let mut digest = Derivation::new(b"hectare volume 1");
        self.describe(&mut digest);
        digest.bytes(&by_content);
        digest.finish().0
    }

    /// The salt of the partition's hash tree and the UUID of its superblock, by its content.
    pub(crate) fn salt(&self, content: &[u8]) -> ([u8; 32], Uuid) {
        let mut salt = [0; 32];
        let derive = |kind: &[u8]| {
            let mut digest = Derivation::new(kind);
            self.describe(&mut digest);
            digest.bytes(content);
            digest.finish()
        };
        let (first, second) = derive(b"hectare verity salt 2");
        salt[..16].copy_from_slice(&first);
        salt[16..].copy_from_slice(&second);
        (salt, Uuid::from_bytes(derive(b"hectare verity 2").0))
    }
}

/// What a partition is, for its UUID by content.
pub(crate) struct Described<'a> {
    pub(crate) number: usize,
    pub(crate) kind: &'a [u8],
    pub(crate) name: &'a str,
    pub(crate) content: &'a [u8],
}

/// The UUID of a partition by what it is.
pub(crate) fn partition_of_content(what: &Described<'_>) -> Uuid {
    let mut digest = Derivation::new(b"hectare partition 1");
    digest.number(u64_of(what.number));
    digest.bytes(what.kind);
    digest.bytes(what.name.as_bytes());
    digest.bytes(what.content);
    Uuid::from_bytes(digest.finish().0)
}

/// The UUID of a disk by what is on it, and a second one for whatever needs arbitrary bytes.
pub(crate) fn disk_of_content<'a>(parts: impl Iterator<Item = &'a [u8]>) -> (Uuid, [u8; 16]) {
    let mut digest = Derivation::new(b"hectare disk 1");
    parts.for_each(|part| digest.bytes(part));
    let (uuid, more) = digest.finish();
    (Uuid::from_bytes(uuid), more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_slot_counts() {
        let of = |number, name: &str| Slot { number, name: name.to_owned() };
        let one = of(1, "a");
        assert_ne!(one.salt(b"a").0[..16], one.salt(b"a").0[16..]);
        assert_ne!(one.salt(b"a"), one.salt(b"b"));
        for other in [of(2, "a"), of(1, "b")] {
            assert_ne!(one.volume([7; 16]), other.volume([7; 16]));
            assert_ne!(one.salt(b"a"), other.salt(b"a"));
        }
    }

    #[test]
    fn every_part_of_a_description_counts() {
        let of = |number, kind: &[u8], name, content: &[u8]| {
            partition_of_content(&Described { number, kind, name, content })
        };
        let one = of(1, b"a", "b", b"c");
        assert_eq!(one, of(1, b"a", "b", b"c"));
        for other in
            [of(2, b"a", "b", b"c"), of(1, b"x", "b", b"c"), of(1, b"a", "x", b"c"), of(1, b"a", "b", b"x")]
        {
            assert_ne!(one, other);
        }
    }
}
