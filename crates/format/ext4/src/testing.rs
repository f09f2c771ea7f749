//! What tests of this crate share: how long they run (short by default, long under `HECTARE_LONG=1`), and a
//! superblock.

use crate::feature::Incompat;
use crate::raw;
use crate::superblock::{self, SuperBlock};
use hectare_oracle::hunt;
use proptest::prelude::ProptestConfig;
use zerocopy::FromZeros;

/// How many times as many cases a long run has.
const LONG: u32 = 50;

/// `cases` cases, or [`LONG`] times as many in a long run, which is listed as left out otherwise.
pub(crate) fn cases(test: &str, cases: u32) -> ProptestConfig {
    let long = hunt::long(format!("{test}, {LONG} times as many cases"));
    let cases = if long { cases.saturating_mul(LONG) } else { cases };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// The superblock of a small volume with extents and values in inodes, without checksums.
pub(crate) fn superblock() -> SuperBlock {
    let mut raw = raw::SuperBlock::new_zeroed();
    raw.s_magic = superblock::MAGIC.into();
    raw.s_rev_level = 1.into();
    raw.s_log_block_size = 2.into();
    raw.s_blocks_count_lo = 4096.into();
    raw.s_blocks_per_group = 32_768.into();
    raw.s_inodes_per_group = 1024.into();
    raw.s_inodes_count = 1024.into();
    raw.s_first_ino = superblock::FIRST_INODE_DEFAULT.into();
    raw.s_inode_size = 256.into();
    raw.s_want_extra_isize = 32.into();
    raw.s_feature_incompat = (Incompat::FILETYPE | Incompat::EXTENTS | Incompat::EA_INODE).bits().into();
    SuperBlock::from_raw(raw).expect("the fields agree")
}
