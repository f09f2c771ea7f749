//! The features a journal may use, and those this program knows.
//!
//! An unknown feature is refused by name: a log written with it can't be understood. Only the compatible
//! ones may be ignored, as the name says.

use hectare_ext4::Unsupported;

bitflags::bitflags! {
    /// Compatible features (`s_feature_compat`).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct JournalCompat: u32 {
        /// Commit blocks carry a checksum of their transaction (the first generation).
        const CHECKSUM = 0x1;
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// Incompatible features (`s_feature_incompat`).
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct JournalIncompat: u32 {
        /// The log may have revoke blocks.
        const REVOKE = 0x1;
        /// Block numbers have 64 bits.
        const BIT64 = 0x2;
        /// A commit block may reach the disk before the blocks of its transaction.
        const ASYNC_COMMIT = 0x4;
        /// Checksums of the second generation: 16 bits of them in a tag.
        const CSUM_V2 = 0x8;
        /// Checksums of the third generation.
        const CSUM_V3 = 0x10;
        /// The end of the journal is a fast-commit area.
        const FAST_COMMIT = 0x20;
        const _ = !0;
    }
}

impl JournalIncompat {
    /// What this program understands.
    pub const KNOWN: Self = Self::REVOKE
        .union(Self::BIT64)
        .union(Self::ASYNC_COMMIT)
        .union(Self::CSUM_V2)
        .union(Self::CSUM_V3)
        .union(Self::FAST_COMMIT);

    /// # Errors
    /// If a feature is not known; it is named by its bit.
    pub(super) fn check(self) -> Result<(), Unsupported> {
        let unknown = self.difference(Self::KNOWN);
        if unknown.is_empty() {
            return Ok(());
        }
        Err(Unsupported(format!("the journal uses the unknown incompatible features {:#x}", unknown.bits())))
    }
}
