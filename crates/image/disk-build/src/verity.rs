//! The hash tree of dm-verity: a superblock, and the SHA-256 of every block of a partition, level by level.
//!
//! Facts: cryptsetup's description of the on-disk format (its wiki, "DMVerity"), and the kernel's
//! `Documentation/admin-guide/device-mapper/verity.rst`. Version 1, hash type 1: each digest is of the salt
//! and then the block. Blocks of data and of hashes have 4096 bytes. The superblock has the first block, the
//! levels follow, the one with the fewest blocks first; a block of hashes is padded with zeros.
//!
//! Invariant: the bytes depend on data, salt and UUID alone, never on threads.

use crate::error::{Error, Result};
use hectare_device::Device;
use hectare_units::{Bytes, index_of, u64_of};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use uuid::Uuid;

const BLOCK: u64 = 4096;
const DIGEST: usize = 32;
/// Digests in a block.
const FAN: u64 = 128;
/// Blocks of hashes whose data a thread takes at a time.
const CHUNK: u64 = 16;
/// The most levels of a tree: enough for 2^64 blocks.
const LEVELS: usize = 10;

type Digest32 = [u8; DIGEST];

/// How large a tree and its levels are.
pub(crate) struct Shape {
    data_blocks: u64,
    /// Blocks of each level, the leaves first.
    levels: Vec<u64>,
}

impl Shape {
    /// The shape for that many bytes of data.
    pub(crate) fn new(data: u64) -> std::result::Result<Self, String> {
        if data == 0 || !data.is_multiple_of(BLOCK) {
            return Err(format!("the data has {data} bytes, which are not whole blocks of {BLOCK}"));
        }
        let data_blocks = data / BLOCK;
        let (mut levels, mut blocks) = (Vec::with_capacity(LEVELS), data_blocks);
        while blocks > 1 {
            blocks = blocks.div_ceil(FAN);
            levels.push(blocks);
        }
        Ok(Self { data_blocks, levels })
    }

    /// Bytes of the superblock and the tree.
    pub(crate) fn bytes(&self) -> u64 {
        (1 + self.levels.iter().sum::<u64>()) * BLOCK
    }

    /// Where a level begins.
    fn start(&self, level: usize) -> u64 {
        (1 + self.levels[level + 1..].iter().sum::<u64>()) * BLOCK
    }
}

/// Writes the tree of `data` to `target`, which is zeros; returns the root hash.
///
/// # Errors
/// If a device fails, or the target is too small.
pub(crate) fn write(
    data: &dyn Device,
    target: &dyn Device,
    (salt, uuid): (&[u8], Uuid),
    threads: NonZeroUsize,
) -> Result<Digest32> {
    let shape = Shape::new(data.len().get()).map_err(|reason| Error::part(data.name(), reason))?;
    if shape.bytes() > target.len().get() {
        let reason = format!("the hash tree needs {} bytes, and has {}", shape.bytes(), target.len());
        return Err(Error::part(target.name(), reason));
    }
    let mut below = data;
    let tree = target;
    let mut blocks = (0, shape.data_blocks);
    for level in 0..shape.levels.len() {
        let start = shape.start(level);
        level_of(below, blocks, (tree, start), salt, threads)?;
        below = tree;
        blocks = (start, shape.levels[level]);
    }
    let mut top = vec![0; index_of(BLOCK)];
    below.read_at(Bytes::new(blocks.0), &mut top)?;
    target.write_at(Bytes::ZERO, &superblock(&shape, salt, uuid))?;
    Ok(digest(salt, &top))
}

fn digest(salt: &[u8], block: &[u8]) -> Digest32 {
    Sha256::new().chain_update(salt).chain_update(block).finalize().into()
}

/// Writes the hashes of blocks (where they begin, and how many) to a place.
fn level_of(
    below: &dyn Device,
    (from, blocks): (u64, u64),
    (tree, to): (&dyn Device, u64),
    salt: &[u8],
    threads: NonZeroUsize,
) -> Result<()> {
    let (next, failed) = (AtomicU64::new(0), Mutex::new(None));
    let of_chunk = |chunk: u64, buf: &mut Vec<u8>| -> Result<()> {
        let first = chunk * CHUNK * FAN;
        let count = (CHUNK * FAN).min(blocks - first);
        let mut hashes = Vec::with_capacity(index_of(count) * DIGEST);
        let mut at = first;
        while at < first + count {
            let now = (first + count - at).min(256);
            buf.resize(index_of(now * BLOCK), 0);
            below.read_at(Bytes::new(from + at * BLOCK), buf)?;
            buf.chunks_exact(index_of(BLOCK)).for_each(|block| hashes.extend(digest(salt, block)));
            at += now;
        }
        // What is behind the last hash stays zero.
        tree.write_at(Bytes::new(to + first / FAN * BLOCK), &hashes)?;
        Ok(())
    };
    let work = || {
        let mut buf = Vec::new();
        loop {
            let chunk = next.fetch_add(1, Ordering::Relaxed);
            if chunk >= blocks.div_ceil(CHUNK * FAN) {
                return;
            }
            if let Err(error) = of_chunk(chunk, &mut buf) {
                next.store(u64::MAX / 2, Ordering::Relaxed);
                failed.lock().get_or_insert(error);
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        let more = u64_of(threads.get()).min(blocks.div_ceil(CHUNK * FAN)).saturating_sub(1);
        (0..more).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    failed.into_inner().map_or(Ok(()), Err)
}

/// The superblock, 512 bytes.
fn superblock(shape: &Shape, salt: &[u8], uuid: Uuid) -> Vec<u8> {
    let mut bytes = b"verity\0\0".to_vec();
    bytes.extend(1_u32.to_le_bytes()); // version
    bytes.extend(1_u32.to_le_bytes()); // hash type
    bytes.extend(uuid.as_bytes());
    let mut algorithm = [0; 32];
    algorithm[..6].copy_from_slice(b"sha256");
    bytes.extend(algorithm);
    let block = u32::try_from(BLOCK).unwrap_or_default();
    bytes.extend(block.to_le_bytes()); // of data
    bytes.extend(block.to_le_bytes()); // of hashes
    bytes.extend(shape.data_blocks.to_le_bytes());
    bytes.extend(u16::try_from(salt.len()).unwrap_or_default().to_le_bytes());
    bytes.extend([0; 6]);
    bytes.extend(salt);
    bytes.resize(512, 0);
    bytes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test that cannot continue fails

    use super::*;
    use hectare_device::MemoryDevice;
    use hectare_units::low8;

    #[test]
    fn a_tree_has_the_levels_that_its_blocks_need() {
        for (blocks, levels) in
            [(1, vec![]), (2, vec![1]), (128, vec![1]), (129, vec![2, 1]), (16385, vec![129, 2, 1])]
        {
            let shape = Shape::new(blocks * BLOCK).unwrap();
            assert_eq!(shape.levels, levels, "{blocks}");
            assert_eq!(shape.bytes(), (1 + levels.iter().sum::<u64>()) * BLOCK);
        }
        assert!(Shape::new(0).is_err() && Shape::new(512).is_err());
    }

    #[test]
    fn threads_make_no_difference() {
        let bytes: Vec<u8> = (0..5000 * 4096_u64).map(|n| low8(n >> 7) ^ low8(n)).collect();
        let data = MemoryDevice::from_bytes(&bytes);
        let made = |threads| {
            let target = MemoryDevice::new(Bytes::new(Shape::new(data.len().get()).unwrap().bytes()));
            let threads = NonZeroUsize::new(threads).unwrap();
            let root = write(&data, &target, (b"salt", Uuid::from_u128(1)), threads).unwrap();
            (root, target.to_vec())
        };
        assert!(made(1) == made(7));
    }
}
