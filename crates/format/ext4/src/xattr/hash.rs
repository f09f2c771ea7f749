//! The hashes of attribute entries and blocks.
//!
//! They serve to find equal blocks, not to detect damage: only the value of an `ea_inode` attribute is ever
//! refused for a wrong one. Names were hashed as signed characters on most machines until that was noticed,
//! so names with bytes above 127 have two valid hashes; the unsigned one is what is written.

use crate::checksum::Seed;

/// The hash of an entry whose value lies beside it.
#[must_use]
pub fn entry_hash(suffix: &[u8], value: &[u8]) -> u32 {
    with_value(name_hash(suffix, u32::from), value)
}

/// The same hash as machines with signed characters wrote it.
#[must_use]
pub fn entry_hash_signed(suffix: &[u8], value: &[u8]) -> u32 {
    with_value(name_hash(suffix, sign_extended), value)
}

/// The hash of a value in an inode of its own, over the value's bytes from the volume's seed; that inode
/// keeps it in place of its access time.
#[must_use]
pub fn inode_value_hash(seed: Seed, value: &[u8]) -> u32 {
    seed.checksum(value)
}

/// The hash of an entry whose value, of this hash, lies in an inode of its own.
#[must_use]
pub fn held_entry_hash(suffix: &[u8], value_hash: u32) -> u32 {
    mix(name_hash(suffix, u32::from), value_hash)
}

/// Whether `value`, read from an inode of its own, is the one that the entry with `hash` was made for. The
/// entry's hash covers its name and, as one word, the value's hash.
#[must_use]
pub fn inode_value_matches(hash: u32, suffix: &[u8], value: &[u8], seed: Seed) -> bool {
    let value_hash = inode_value_hash(seed, value);
    let signed = mix(name_hash(suffix, sign_extended), value_hash);
    hash == held_entry_hash(suffix, value_hash) || hash == signed
}

/// The hash of a block with entries of these hashes, in their order; 0 (not to be shared) if one has none.
#[must_use]
pub fn block_hash(entries: impl IntoIterator<Item = u32>) -> u32 {
    let mut hash = 0;
    for entry in entries {
        if entry == 0 {
            return 0;
        }
        hash = mix(hash, entry);
    }
    hash
}

fn name_hash(suffix: &[u8], widen: impl Fn(u8) -> u32) -> u32 {
    suffix.iter().fold(0u32, |hash, byte| hash.rotate_left(5) ^ widen(*byte))
}

fn sign_extended(byte: u8) -> u32 {
    i32::from(byte.cast_signed()).cast_unsigned()
}

/// Continues over a value, word by word, as if it were padded with zeros.
fn with_value(hash: u32, value: &[u8]) -> u32 {
    value.chunks(4).fold(hash, |hash, chunk| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(hash, u32::from_le_bytes(word))
    })
}

const fn mix(hash: u32, word: u32) -> u32 {
    hash.rotate_left(16) ^ word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_hashes_differ_only_for_bytes_above_127() {
        assert_eq!(entry_hash(b"comment", b"value"), entry_hash_signed(b"comment", b"value"));
        assert_ne!(entry_hash("caf\u{e9}".as_bytes(), b"x"), entry_hash_signed("caf\u{e9}".as_bytes(), b"x"));
    }

    #[test]
    fn an_entry_without_hash_leaves_the_block_without() {
        assert_eq!(block_hash([]), 0);
        assert_eq!(block_hash([5, 0, 7]), 0);
        assert_eq!(block_hash([5, 7]), 5 << 16 ^ 7);
    }
}
