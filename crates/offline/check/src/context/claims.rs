//! Which clusters have an owner, and what one file holds.

use crate::bits::Bits;
use std::ops::Range;

/// The claims so far.
pub(crate) struct Claims {
    pub(crate) bits: Bits,
    /// Clusters with the data of files, where files may share those (`shared_blocks`).
    data: Option<Bits>,
    /// Whether some map was too broken to know all its blocks: then the bitmaps can't be judged.
    pub(crate) incomplete: bool,
}

impl Claims {
    /// No claims yet; `data` has as many bits as `bits` where files may share blocks.
    pub(crate) fn new(bits: Bits, data: Option<Bits>) -> Self {
        Self { bits, data, incomplete: false }
    }

    /// Takes what another has claimed, where files don't share data; false if both claim a cluster.
    pub(crate) fn absorb(&mut self, other: Self) -> bool {
        self.incomplete |= other.incomplete;
        self.bits.absorb(other.bits) && self.data.is_none() && other.data.is_none()
    }

    /// Claims clusters for the data of a file, and gives the first that belongs to something else.
    pub(crate) fn claim_data(&mut self, clusters: Range<u64>) -> Option<u64> {
        let Some(data) = &mut self.data else { return self.bits.claim(clusters) };
        let mut taken = None;
        for cluster in clusters {
            let owned = self.bits.claim(cluster..cluster + 1).is_some();
            let shared = data.claim(cluster..cluster + 1).is_some();
            if owned && !shared {
                taken.get_or_insert(cluster);
            }
        }
        taken
    }
}

/// What a file holds so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct FileClusters {
    /// Clusters claimed.
    pub(crate) clusters: u64,
    /// The clusters of the last block, in the file and on the volume; the next extent may continue them.
    pub(crate) last: Option<(u64, u64)>,
    /// Whether it is an ordinary file, whose data others may share where the volume allows that.
    pub(crate) may_share: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_data_of_files_may_lie_where_data_of_files_lies() {
        let bits = || Bits::new(64).unwrap();
        let mut claims = Claims::new(bits(), Some(bits()));
        assert_eq!(claims.bits.claim(0..4), None, "metadata");
        assert_eq!(claims.claim_data(4..20), None);
        assert_eq!(claims.claim_data(10..30), None, "data in part of another file's");
        assert_eq!(claims.bits.claim(12..13), Some(12), "metadata over data");
        assert_eq!(claims.claim_data(2..6), Some(2), "data over metadata");
        let mut alone = Claims::new(bits(), None);
        assert_eq!((alone.claim_data(4..20), alone.claim_data(10..30)), (None, Some(10)));
    }
}
