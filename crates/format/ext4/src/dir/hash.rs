//! The hash of a name, by which an indexed directory finds it.
//!
//! Three functions exist: a historical one ("legacy"), a shortened MD4 and one built on the TEA cipher. Each
//! also exists in two readings of a name's bytes, signed and unsigned, because the first implementations
//! hashed `char`, whose sign depends on the machine; the superblock records which one a volume uses. A
//! fourth, SipHash, belongs to case-folded encrypted directories and is refused.
//!
//! Invariants of a [`DirHash`]: bit 0 of `major` is clear (an index uses it to say "the leaf before holds
//! this hash too"), and `major` is never 0xffff_fffe, which is reserved for the end of a listing.
//!
//! What this is not: a safe hash. Colliding names are easy to make (TEA has equivalent keys), so every user
//! must stay correct when names collide.

use crate::{Unsupported, casefold};
use hectare_units::{low32, u64_of};

/// Which function hashes the names of an indexed directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HashVersion {
    /// The first one, code 0. It has no minor hash.
    Legacy,
    /// Half MD4, code 1; the usual one.
    HalfMd4,
    /// TEA, code 2.
    Tea,
}

impl HashVersion {
    /// The version a code in an index root or superblock stands for.
    ///
    /// # Errors
    /// [`Unsupported`], naming the code, for SipHash (6) and for codes the format doesn't define. Codes 3 to
    /// 5 (the unsigned forms) are among the latter: they never appear on disk.
    pub fn from_code(code: u8) -> Result<Self, Unsupported> {
        match code {
            0 => Ok(Self::Legacy),
            1 => Ok(Self::HalfMd4),
            2 => Ok(Self::Tea),
            6 => Err(Unsupported("directory hash siphash (6), of case-folded directories".into())),
            _ => Err(Unsupported(format!("directory hash version {code}, which does not exist"))),
        }
    }

    /// The stored code, 0 to 2.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Legacy => 0,
            Self::HalfMd4 => 1,
            Self::Tea => 2,
        }
    }
}

/// How bytes of 0x80 and above enter the hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Signedness {
    /// As negative numbers (`s_flags` bit 0).
    Signed,
    /// As positive numbers (`s_flags` bit 1).
    Unsigned,
}

/// The hash of a name; the order of hashes is the order of an index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DirHash {
    /// What the index is ordered by. Bit 0 is clear; at most 0xffff_fffc.
    pub major: u32,
    /// Distinguishes most names of one `major`. Not stored anywhere; 0 for [`HashVersion::Legacy`].
    pub minor: u32,
}

/// A volume's hash function: version, signedness and seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hasher {
    version: HashVersion,
    signedness: Signedness,
    start: [u32; 4],
    folds: bool,
}

impl Hasher {
    /// The function. A `seed` of all zeros stands for MD4's initial state.
    #[must_use]
    pub const fn new(version: HashVersion, signedness: Signedness, seed: [u32; 4]) -> Self {
        let start = match seed {
            [0, 0, 0, 0] => [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476],
            seed => seed,
        };
        Self { version, signedness, start, folds: false }
    }

    /// The same function, of names as they are folded, where they can be.
    #[must_use]
    pub const fn with_folding(self, folds: bool) -> Self {
        Self { folds, ..self }
    }

    /// The version.
    #[must_use]
    pub const fn version(&self) -> HashVersion {
        self.version
    }

    /// The hash of `name`.
    #[must_use]
    pub fn hash(&self, name: &[u8]) -> DirHash {
        let folded = if self.folds { casefold::fold(name) } else { None };
        self.hash_bytes(folded.as_deref().unwrap_or(name))
    }

    fn hash_bytes(&self, name: &[u8]) -> DirHash {
        let (major, minor) = match self.version {
            HashVersion::Legacy => (self.legacy(name), 0),
            HashVersion::HalfMd4 => {
                let state = self.chunks::<32, 8>(name).fold(self.start, half_md4);
                (state[1], state[2])
            }
            HashVersion::Tea => {
                let state = self.chunks::<16, 4>(name).fold([self.start[0], self.start[1]], tea);
                (state[0], state[1])
            }
        };
        let major = major & !1;
        DirHash { major: if major == END_MAJOR { END_MAJOR - 2 } else { major }, minor }
    }

    /// One byte as the hash sees it.
    fn widen(&self, byte: u8) -> u32 {
        match self.signedness {
            Signedness::Signed => i32::from(byte.cast_signed()).cast_unsigned(),
            Signedness::Unsigned => u32::from(byte),
        }
    }

    fn legacy(&self, name: &[u8]) -> u32 {
        let (mut hash0, mut hash1) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
        for byte in name {
            let mixed = hash0 ^ self.widen(*byte).wrapping_mul(7_152_373);
            let mut hash = hash1.wrapping_add(mixed);
            if hash & 0x8000_0000 != 0 {
                hash = hash.wrapping_sub(0x7fff_ffff);
            }
            (hash1, hash0) = (hash0, hash);
        }
        hash0 << 1
    }

    /// The name in pieces of `BYTES` bytes, each as `WORDS` words; the last piece is padded with the number
    /// of bytes that were left when it began.
    fn chunks<const BYTES: usize, const WORDS: usize>(
        &self,
        name: &[u8],
    ) -> impl Iterator<Item = [u32; WORDS]> {
        name.chunks(BYTES).enumerate().map(move |(i, piece)| {
            let left = low32(u64_of(name.len() - i * BYTES));
            let pad = left.wrapping_mul(0x0101_0101);
            let mut words = [pad; WORDS];
            for (word, bytes) in words.iter_mut().zip(piece.chunks(4)) {
                *word = self.word(pad, bytes);
            }
            words
        })
    }

    /// Up to four bytes as a word; `pad` is what is in place of those that are missing.
    fn word(&self, pad: u32, bytes: &[u8]) -> u32 {
        if let Ok(four) = <[u8; 4]>::try_from(bytes) {
            let word = u32::from_be_bytes(four);
            // Most names are ASCII, in which no byte is negative.
            if word & 0x8080_8080 == 0 || self.signedness == Signedness::Unsigned {
                return word;
            }
        }
        bytes.iter().fold(pad, |word, byte| (word << 8).wrapping_add(self.widen(*byte)))
    }
}

/// The major hash that is never used for a name: it would read as the end of a listing.
const END_MAJOR: u32 = 0xffff_fffe;

fn tea(state: [u32; 2], key: [u32; 4]) -> [u32; 2] {
    let [mut x, mut y] = state;
    let mut sum = 0u32;
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9e37_79b9);
        x = x.wrapping_add(tea_mix(y, sum, key[0], key[1]));
        y = y.wrapping_add(tea_mix(x, sum, key[2], key[3]));
    }
    [state[0].wrapping_add(x), state[1].wrapping_add(y)]
}

const fn tea_mix(v: u32, sum: u32, key_low: u32, key_high: u32) -> u32 {
    (v << 4).wrapping_add(key_low) ^ v.wrapping_add(sum) ^ (v >> 5).wrapping_add(key_high)
}

/// MD4's three rounds, each over eight words instead of sixteen.
fn half_md4(state: [u32; 4], words: [u32; 8]) -> [u32; 4] {
    type Mix = fn(u32, u32, u32) -> u32;
    let rounds: [(Mix, u32, [usize; 8], [u32; 4]); 3] = [
        (|x, y, z| z ^ (x & (y ^ z)), 0, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19]),
        (|x, y, z| (x & y).wrapping_add((x ^ y) & z), 0x5a82_7999, [1, 3, 5, 7, 0, 2, 4, 6], [3, 5, 9, 13]),
        (|x, y, z| x ^ y ^ z, 0x6ed9_eba1, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15]),
    ];
    let [mut a, mut b, mut c, mut d] = state;
    for (mix, constant, order, shifts) in rounds {
        for (step, word) in order.into_iter().enumerate() {
            let sum = a.wrapping_add(mix(b, c, d)).wrapping_add(words[word]).wrapping_add(constant);
            // The four registers take turns: what was computed becomes the next step's `b`.
            (a, b, c, d) = (d, sum.rotate_left(shifts[step % 4]), b, c);
        }
    }
    [state[0].wrapping_add(a), state[1].wrapping_add(b), state[2].wrapping_add(c), state[3].wrapping_add(d)]
}
