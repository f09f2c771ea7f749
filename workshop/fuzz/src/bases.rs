//! The volumes that inputs change: small ones by mke2fs, with one of everything in them.
//!
//! They are made by `cargo hunt fuzz bases` (see there for what each holds) and kept compressed, because a
//! fuzzer's findings are only good with the very bytes they were found on.

use crate::repair;
use flate2::read::GzDecoder;
use std::io::Read;
use std::sync::OnceLock;

/// Bytes that a change is addressed by.
pub const UNIT: usize = 1024;

/// A volume to start from.
pub struct Base {
    /// Its name, as the file in `bases` is called.
    pub name: &'static str,
    /// Its bytes.
    pub image: Vec<u8>,
    /// The units that are not all zero, by number: where a change hits something.
    pub units: Vec<usize>,
    /// Bytes of an inode's slot.
    pub inode_size: usize,
    /// Where the inodes in use have their slots: byte offsets.
    pub inodes: Vec<usize>,
}

macro_rules! bases {
    ($($name:literal),* $(,)?) => {
        const COMPRESSED: &[(&str, &[u8])] =
            &[$(($name, include_bytes!(concat!("../bases/", $name, ".img.gz")))),*];
    };
}

bases![
    "plain",
    "ext2",
    "old-csum",
    "inline",
    "bigalloc",
    "ea-inode",
    "meta-bg",
    "index",
    "modern",
    "mmp",
    "four-k",
    "deep",
    "ext3",
    "inline-old",
    "casefold",
    "quota",
];

/// All of them, in an order that inputs rely on.
pub fn all() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| COMPRESSED.iter().map(|(name, bytes)| Base::unpack(name, bytes)).collect())
}

/// The one of that number among those of these names, counted around.
///
/// # Panics
/// If there is none of that name.
pub fn named(names: &[&str], number: u8) -> &'static Base {
    let name = names[usize::from(number) % names.len()];
    all().iter().find(|base| base.name == name).expect("a base of that name")
}

impl Base {
    fn unpack(name: &'static str, compressed: &[u8]) -> Self {
        let mut image = Vec::new();
        GzDecoder::new(compressed)
            .read_to_end(&mut image)
            .expect("what was compressed for this can be unpacked");
        let used = |(_, unit): &(usize, &[u8])| unit.iter().any(|byte| *byte != 0);
        let units = image.chunks(UNIT).enumerate().filter(used).map(|(i, _)| i).collect();
        // The superblock's field; these volumes all have it.
        let inode_size = usize::from(u16::from_le_bytes([image[1024 + 0x58], image[1024 + 0x59]]));
        let inodes = repair::inodes(&mut image);
        Self { name, image, units, inode_size, inodes }
    }
}
