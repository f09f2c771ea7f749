//! fs-verity: a Merkle tree and a descriptor behind a file's end, by which its content can be verified.
//!
//! The tree starts at the first multiple of 64 KiB after the end of the content. It hashes the content in
//! blocks, the last one padded with zeros; the hashes of a level are packed into blocks, which are hashed for
//! the level above, until one hash is left, the root. The blocks lie root first. Behind the tree, from the
//! next block on, lies the descriptor, and its size in the last four bytes of the last mapped block. Each
//! hash starts with the salt, padded to the input size of the hash. The digest of the file is the hash of the
//! descriptor.
//!
//! A file of one block has no tree: its hash is the root. The root of an empty file is zeros.
//!
//! Source: the kernel's documentation, "fs-verity", and ext4's chapter on verity files. What this is not: it
//! verifies no signature, which it keeps as it is.

use crate::error::{Corrupt, Place};
use hectare_units::{InodeNr, low8, low32, u64_of, usize_of};
use sha2::{Digest, Sha256, Sha512};
use std::fmt;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The tree starts at a multiple of this many bytes.
pub const ALIGN: u64 = 64 << 10;
/// Bytes of the longest salt.
pub const SALT_MAX: usize = 32;
/// Bytes of the longest descriptor, with its signature.
pub const DESCRIPTOR_MAX: u32 = 16 << 10;
/// The smallest and the largest block that is hashed, as powers of two; the kernel takes none above its
/// pages.
const LOG_MIN: u8 = 10;
const LOG_MAX: u8 = 16;

/// The descriptor as it lies on disk; a signature may follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    version: u8,
    hash_algorithm: u8,
    log_blocksize: u8,
    salt_size: u8,
    sig_size: U32,
    data_size: U64,
    root_hash: [u8; 64],
    salt: [u8; SALT_MAX],
    reserved: [u8; 144],
}

const _: () = assert!(size_of::<Raw>() == 256);

/// How blocks are hashed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Algorithm {
    /// SHA-256.
    #[default]
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    const fn code(self) -> u8 {
        match self {
            Self::Sha256 => 1,
            Self::Sha512 => 2,
        }
    }

    /// Bytes of a hash.
    #[must_use]
    pub const fn hash_len(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// Bytes that it takes at a time, to which the salt is padded.
    const fn input(self) -> usize {
        2 * self.hash_len()
    }

    fn of(self, parts: &[&[u8]]) -> Vec<u8> {
        fn all<D: Digest>(parts: &[&[u8]]) -> Vec<u8> {
            let mut digest = D::new();
            parts.iter().for_each(|part| digest.update(part));
            digest.finalize().to_vec()
        }
        match self {
            Self::Sha256 => all::<Sha256>(parts),
            Self::Sha512 => all::<Sha512>(parts),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        })
    }
}

/// How a file is hashed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Params {
    /// The hash.
    pub algorithm: Algorithm,
    /// The blocks' size as a power of two.
    log: u8,
    salt: Vec<u8>,
}

impl Params {
    /// Checks the size of blocks, in bytes, and the salt; `None` if the format has no such.
    #[must_use]
    pub fn new(algorithm: Algorithm, block_size: u32, salt: &[u8]) -> Option<Self> {
        let log = low8(block_size.trailing_zeros().into());
        let fits =
            block_size.is_power_of_two() && (LOG_MIN..=LOG_MAX).contains(&log) && salt.len() <= SALT_MAX;
        fits.then(|| Self { algorithm, log, salt: salt.to_vec() })
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_size(&self) -> usize {
        1 << self.log
    }

    /// The hash of a block, which is padded with zeros if it is the last of the content.
    #[must_use]
    pub fn hash(&self, block: &[u8]) -> Vec<u8> {
        let mut salt = self.salt.clone();
        if !salt.is_empty() {
            salt.resize(self.algorithm.input(), 0);
        }
        let padding = vec![0; self.block_size().saturating_sub(block.len())];
        self.algorithm.of(&[&salt, block, &padding])
    }

    fn hashes_per_block(&self) -> u64 {
        u64_of(self.block_size() / self.algorithm.hash_len())
    }
}

/// Where the hashes of a file's tree lie.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    per_block: u64,
    /// From the leaves up: the first block of a level, counted from the start of the tree.
    starts: Vec<u64>,
    /// Blocks of the tree.
    pub blocks: u64,
}

impl Shape {
    /// The shape for so many bytes of content.
    #[must_use]
    pub fn of(params: &Params, size: u64) -> Self {
        let per_block = params.hashes_per_block();
        let mut level = size.div_ceil(u64_of(params.block_size()));
        let mut lens = Vec::new();
        while level > 1 {
            level = level.div_ceil(per_block);
            lens.push(level);
        }
        let blocks = lens.iter().sum();
        // The root comes first.
        let mut end = blocks;
        let starts = lens.iter().map(|len| {
            end -= len;
            end
        });
        Self { per_block, starts: starts.collect(), blocks }
    }

    /// Levels of blocks between the content and the root.
    #[must_use]
    pub fn levels(&self) -> usize {
        self.starts.len()
    }

    /// For the block `index` of the level below: the block of the tree that has its hash, counted from the
    /// tree's start; that block's index in its own level; and which of its hashes it is.
    #[must_use]
    pub fn place(&self, level: usize, index: u64) -> Option<(u64, u64, usize)> {
        let within = index / self.per_block;
        let slot = usize_of(low32(index % self.per_block));
        self.starts.get(level).map(|start| (start + within, within, slot))
    }
}

/// Makes a tree, block by block of the content.
#[derive(Debug)]
pub struct Builder {
    params: Params,
    size: u64,
    hashes: Vec<u8>,
}

impl Builder {
    /// For content that is still to come.
    #[must_use]
    pub fn new(params: Params) -> Self {
        Self { params, size: 0, hashes: Vec::new() }
    }

    /// Adds content: whole blocks, but for the last call.
    pub fn add(&mut self, content: &[u8]) {
        self.size += u64_of(content.len());
        for block in content.chunks(self.params.block_size()) {
            self.hashes.extend(self.params.hash(block));
        }
    }

    /// The tree, and the descriptor of the file.
    #[must_use]
    pub fn finish(self) -> (Vec<u8>, Descriptor) {
        let Self { params, size, mut hashes } = self;
        let (block, len) = (params.block_size(), params.algorithm.hash_len());
        let mut levels = Vec::new();
        while hashes.len() > len {
            hashes.resize(hashes.len().next_multiple_of(block), 0);
            let above = hashes.chunks(block).flat_map(|block| params.hash(block)).collect();
            levels.push(std::mem::replace(&mut hashes, above));
        }
        let tree = levels.into_iter().rev().flatten().collect();
        hashes.resize(len, 0);
        (tree, Descriptor { params, size, root: hashes, signature: Vec::new() })
    }
}

/// What is known of a sealed file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Descriptor {
    /// How it is hashed.
    pub params: Params,
    /// Bytes of its content.
    pub size: u64,
    /// The root of its tree.
    pub root: Vec<u8>,
    signature: Vec<u8>,
}

impl Descriptor {
    /// Reads the descriptor of inode `nr`.
    ///
    /// # Errors
    /// [`Corrupt`] names the inode and the field.
    pub fn parse(bytes: &[u8], nr: InodeNr) -> Result<Self, Corrupt> {
        let (raw, rest) = Raw::ref_from_prefix(bytes).map_err(|_| corrupt(nr, "it is truncated"))?;
        if raw.version != 1 {
            return Err(corrupt(nr, format!("its version is {}", raw.version)));
        }
        let algorithm = match raw.hash_algorithm {
            1 => Algorithm::Sha256,
            2 => Algorithm::Sha512,
            other => return Err(corrupt(nr, format!("its hash {other} is unknown"))),
        };
        let salt = raw.salt.get(..raw.salt_size.into()).ok_or_else(|| corrupt(nr, "its salt is too long"))?;
        let size = 1_u32.checked_shl(raw.log_blocksize.into()).unwrap_or(0);
        let params = Params::new(algorithm, size, salt)
            .ok_or_else(|| corrupt(nr, format!("its blocks have 2^{} bytes", raw.log_blocksize)))?;
        let signature = rest
            .get(..usize_of(raw.sig_size.get()))
            .ok_or_else(|| corrupt(nr, "its signature is truncated"))?;
        let root = raw.root_hash[..algorithm.hash_len()].to_vec();
        Ok(Self { params, size: raw.data_size.get(), root, signature: signature.to_vec() })
    }

    /// The descriptor as it is stored.
    #[must_use]
    pub fn render(&self) -> Vec<u8> {
        let mut raw = self.raw();
        raw.sig_size = low32(u64_of(self.signature.len())).into();
        [raw.as_bytes(), &self.signature].concat()
    }

    /// The digest of the file: what `fsverity digest` prints, and what a signature signs.
    #[must_use]
    pub fn digest(&self) -> Vec<u8> {
        self.params.algorithm.of(&[self.raw().as_bytes()])
    }

    fn raw(&self) -> Raw {
        let mut raw = Raw::new_zeroed();
        raw.version = 1;
        raw.hash_algorithm = self.params.algorithm.code();
        raw.log_blocksize = self.params.log;
        raw.salt_size = low8(u64_of(self.params.salt.len()));
        raw.data_size = self.size.into();
        raw.root_hash[..self.root.len()].copy_from_slice(&self.root);
        raw.salt[..self.params.salt.len()].copy_from_slice(&self.params.salt);
        raw
    }
}

/// What follows the content of a file of `size` bytes from [`start`] on: the tree, the descriptor, and its
/// size in the last four bytes, in blocks of the volume.
#[must_use]
pub fn behind(tree: &[u8], descriptor: &Descriptor, block_size: usize) -> Vec<u8> {
    let mut bytes = tree.to_vec();
    bytes.resize(bytes.len().next_multiple_of(block_size), 0);
    let rendered = descriptor.render();
    bytes.extend(&rendered);
    bytes.resize((bytes.len() + 4).next_multiple_of(block_size) - 4, 0);
    bytes.extend(low32(u64_of(rendered.len())).to_le_bytes());
    bytes
}

/// Bytes of what [`behind`] gives for a file of `size` bytes that is hashed so, without a signature.
#[must_use]
pub fn behind_len(params: &Params, size: u64, block_size: usize) -> u64 {
    let block = u64_of(block_size);
    let tree = Shape::of(params, size).blocks.saturating_mul(u64_of(params.block_size()));
    let descriptor = (u64_of(size_of::<Raw>()) + 4).next_multiple_of(block);
    tree.checked_next_multiple_of(block).unwrap_or(u64::MAX).saturating_add(descriptor)
}

/// The byte at which the tree of a file of `size` bytes starts; `None` if no file reaches that far.
#[must_use]
pub fn start(size: u64) -> Option<u64> {
    size.checked_next_multiple_of(ALIGN)
}

fn corrupt(nr: InodeNr, what: impl Into<std::borrow::Cow<'static, str>>) -> Corrupt {
    Corrupt::new("the fs-verity descriptor", Place::Inode(nr), what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(algorithm: Algorithm, block: u32, salt: &[u8]) -> Params {
        Params::new(algorithm, block, salt).unwrap()
    }

    #[test]
    fn every_hash_of_a_tree_is_where_its_shape_says() {
        for (algorithm, block) in
            [(Algorithm::Sha256, 1024), (Algorithm::Sha512, 1024), (Algorithm::Sha256, 4096)]
        {
            for size in [0_usize, 1, 1024, 1025, 4096, 40_000, 600_000] {
                let params = params(algorithm, block, b"salt");
                let content: Vec<u8> = (0..size).map(|n| low8(u64_of(n * 7))).collect();
                let mut builder = Builder::new(params.clone());
                builder.add(&content);
                let (tree, descriptor) = builder.finish();
                let shape = Shape::of(&params, u64_of(size));
                let (len, block) = (algorithm.hash_len(), params.block_size());
                assert_eq!(u64_of(tree.len()), shape.blocks * u64_of(block), "{size}");
                for volume in [1024, 4096, 65_536] {
                    let len = behind_len(&params, u64_of(size), volume);
                    assert_eq!(u64_of(behind(&tree, &descriptor, volume).len()), len, "{size} {volume}");
                }
                for (n, data) in content.chunks(block).enumerate() {
                    let (mut hash, mut index) = (params.hash(data), u64_of(n));
                    for level in 0..shape.levels() {
                        let (at, within, slot) = shape.place(level, index).unwrap();
                        let node = &tree[usize_of(low32(at)) * block..][..block];
                        assert_eq!(&node[slot * len..][..len], hash, "{size} {n} {level}");
                        (hash, index) = (params.hash(node), within);
                    }
                    assert_eq!(hash, descriptor.root, "{size} {n}");
                }
            }
        }
    }

    #[test]
    fn descriptors_come_back_and_bad_ones_are_told() {
        let mut builder = Builder::new(params(Algorithm::Sha512, 2048, &[7; 32]));
        builder.add(&[1; 5000]);
        let (_, descriptor) = builder.finish();
        let (bytes, nr) = (descriptor.render(), InodeNr::new(12));
        assert_eq!(Descriptor::parse(&bytes, nr).unwrap(), descriptor);
        for (at, value, what) in [
            (0, 2, "version"),
            (1, 9, "hash 9"),
            (2, 9, "2^9"),
            (2, 200, "2^200"),
            (3, 33, "salt"),
            (4, 1, "signature"),
        ] {
            let mut bad = bytes.clone();
            bad[at] = value;
            let told = Descriptor::parse(&bad, nr).unwrap_err().to_string();
            assert!(told.contains(what), "{told}");
        }
        assert!(Descriptor::parse(&bytes[..255], nr).is_err());
        assert!(Params::new(Algorithm::Sha256, 3000, b"").is_none());
        assert!(Params::new(Algorithm::Sha256, 4096, &[0; 33]).is_none());
    }
}
