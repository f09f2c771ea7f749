//! Reads the few superblock fields that decide whether the kernel here can be used at all.
//!
//! This is no parser of the format (that is `hectare-ext4`, which this crate tests and so can't use); it
//! reads the magic, the block size and the three feature words at their offsets in the ext4 disk layout.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// An image's block size and features.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Summary {
    /// Bytes in a block.
    pub block_size: u64,
    /// `s_feature_compat`.
    pub compat: u32,
    /// `s_feature_incompat`.
    pub incompat: u32,
    /// `s_feature_ro_compat`.
    pub ro_compat: u32,
}

const START: u64 = 1024;
const MAGIC: u32 = 0xef53;
const LARGE_BLOCKS: &str = "blocks larger than a page";

/// Reads the superblock of an image.
///
/// # Errors
/// If the file can't be read, is too short, or holds no ext2, ext3 or ext4 magic.
pub fn read(image: &Path) -> io::Result<Summary> {
    let mut bytes = [0; 256];
    File::open(image)?.read_exact_at(&mut bytes, START)?;
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let log_block_size = word(0x18);
    if word(0x38) & 0xffff != MAGIC || log_block_size > 6 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "no ext4 superblock"));
    }
    Ok(Summary {
        block_size: 1024 << log_block_size,
        compat: word(0x5c),
        incompat: word(0x60),
        ro_compat: word(0x64),
    })
}

impl Summary {
    /// The arguments of mke2fs for a volume with what is optional in this one.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let features: Vec<_> =
            self.optional_in_kernels().into_iter().filter(|name| *name != LARGE_BLOCKS).collect();
        let mut arguments = ["-t", "ext4", "-b", &self.block_size.to_string()].map(str::to_owned).to_vec();
        if !features.is_empty() {
            arguments.extend(["-O".to_owned(), features.join(",")]);
        }
        arguments
    }

    /// What the image uses that kernels are commonly built without, or too old for. Only then may a refused
    /// mount be the kernel's fault.
    #[must_use]
    pub fn optional_in_kernels(&self) -> Vec<&'static str> {
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
        let uses = [
            (self.block_size > page, LARGE_BLOCKS),
            (self.incompat & 0x2_0000 != 0, "casefold"),
            (self.incompat & 0x1_0000 != 0, "encrypt"),
            (self.ro_compat & 0x8000 != 0, "verity"),
            (self.ro_compat & 0x0100 != 0, "quota"),
            (self.ro_compat & 0x2000 != 0, "project"),
            (self.compat & 0x1000 != 0, "orphan_file"),
        ];
        uses.iter().filter(|(used, _)| *used).map(|(_, name)| *name).collect()
    }
}
