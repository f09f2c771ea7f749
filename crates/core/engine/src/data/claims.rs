//! Claims on space for buffered bytes: how many clusters they may need, the blocks of the tree included.

use crate::error::Result;
use crate::state::Core;
use crate::stores::inode_cache::CachedInode;
use hectare_alloc::{AllocError, Claim};
use hectare_units::Clusters;

/// Bytes of space claimed ahead, so that not every cluster needs a claim of its own.
const AHEAD: u64 = 64 << 10;

/// The most levels of nodes that a tree has below its root.
const LEVELS: u32 = 5;

/// How many clusters a file needs from one of its clusters to a byte.
pub(crate) fn clusters_to(core: &Core, first: u64, end: u64) -> Clusters {
    Clusters::new(end.div_ceil(core.state.geometry().cluster_bytes()).saturating_sub(first))
}

/// Claims `clusters`, and some more if there are; returns `None` if there is no space.
pub(crate) fn claim_ahead(core: &Core, clusters: Clusters) -> Result<Option<Claim>> {
    let (ahead, reserve) =
        (AHEAD / core.state.geometry().cluster_bytes(), core.state.options.use_reserved_blocks);
    for wanted in [clusters + Clusters::new(ahead), clusters] {
        match core.state.allocator.claim(wanted, reserve) {
            Ok(claim) => return Ok(Some(claim)),
            Err(AllocError::NoSpace) => {}
            Err(other) => return Err(other.into()),
        }
    }
    Ok(None)
}

/// `clusters` of data, and those that the nodes of a tree may take that maps each separately: every level
/// may have to split once, and split nodes are half full.
pub(crate) fn with_nodes(core: &Core, clusters: Clusters) -> Clusters {
    let entries = (u64::from(core.state.geometry().block_size.get()) - 16) / 12 / 2;
    let mut nodes = clusters.get();
    let mut need = clusters;
    for _ in 0..LEVELS {
        nodes = nodes.div_ceil(entries);
        need += Clusters::new(nodes + 1);
    }
    need
}

/// Keeps of a file's claim what the bytes from `at` to `end` need.
pub(crate) fn spend_claim(core: &Core, inode: &CachedInode, at: u64, end: u64) {
    let first = at / core.state.geometry().cluster_bytes();
    let left = Clusters::new(end.div_ceil(core.state.geometry().cluster_bytes()).saturating_sub(first));
    let mut state = inode.delayed().state();
    if let Some(claim) = &mut state.claim {
        claim.shrink_to(with_nodes(core, left));
    }
    if let Some(quota) = &mut state.quota {
        quota.shrink_to(left.get() * core.state.geometry().cluster_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OpenOptions;
    use crate::open::assemble::tests::unformatted;

    #[test]
    fn a_claim_covers_the_clusters_and_a_split_on_every_level() {
        let core = unformatted(OpenOptions::default());
        let cluster = core.state.geometry().cluster_bytes();
        assert_eq!(clusters_to(&core, 0, 1), Clusters::ONE);
        assert_eq!(clusters_to(&core, 2, 2 * cluster), Clusters::ZERO);
        assert_eq!(clusters_to(&core, 2, 3 * cluster + 1), Clusters::new(2));
        let need = |n| with_nodes(&core, Clusters::new(n)).get();
        assert!(need(1) > 1 + u64::from(LEVELS));
        assert!((1..2000).all(|n| need(n) <= need(n + 1) && need(n) >= n), "it grows with the data");
    }
}
