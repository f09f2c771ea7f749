//! Which clusters have an owner, and what one file holds.

use crate::bits::Bits;

/// The claims so far.
pub(crate) struct Claims {
    pub(crate) bits: Bits,
    /// Whether some map was too broken to know all its blocks: then the bitmaps can't be judged.
    pub(crate) incomplete: bool,
}

impl Claims {
    pub(crate) fn new(bits: Bits) -> Self {
        Self { bits, incomplete: false }
    }
}

/// What a file holds so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct FileClusters {
    /// Clusters claimed.
    pub(crate) clusters: u64,
    /// The clusters of the last block, in the file and on the volume; the next extent may continue them.
    pub(crate) last: Option<(u64, u64)>,
}
