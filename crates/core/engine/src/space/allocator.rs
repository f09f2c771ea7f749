//! Makes the allocator of a volume: its layout, policy, and what it keeps for vital requests.
//!
//! A full volume must still be able to free: punching a hole makes two extents of one, which may need a node
//! more, and writing into preallocated blocks splits them likewise. So some clusters are reserved for the
//! blocks of trees ([`kept`], the kernel's `s_resv_clusters`), and no count of available space includes them.

use crate::error::Result;
use crate::options::OpenOptions;
use crate::stores::groups::{Groups, Source, flex};
use hectare_alloc::{Allocator, Config, Layout, Tunables};
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::feature::Incompat;
use hectare_ext4::superblock::SuperBlock;
use hectare_units::Clusters;
use std::sync::Arc;

/// The largest number of clusters that is reserved.
const KEPT_MAX: u64 = 4096;

/// The reserved share of the volume's clusters, if that is less: a fiftieth.
const KEPT_SHARE: u64 = 50;

/// Clusters of a volume that only a vital request gets: as many as the kernel reserves
/// (`ext4_calculate_resv_clusters`), which does so where files have extents, and counts the block before the
/// first group as well.
pub(crate) fn kept(sb: &SuperBlock, options: &OpenOptions) -> Clusters {
    let all = sb.geometry().blocks_count.get() >> sb.geometry().cluster_ratio_shift;
    let has_extents = sb.features().incompat.contains(Incompat::EXTENTS);
    Clusters::new(if has_extents && options.keep_clusters { (all / KEPT_SHARE).min(KEPT_MAX) } else { 0 })
}

/// The allocator of a volume, with nothing allocated from it yet.
pub(crate) fn allocator(
    groups: &Arc<Groups>,
    sb: &SuperBlock,
    options: &OpenOptions,
) -> Result<Allocator<Source>> {
    let geometry = sb.geometry();
    let layout = Layout::new(geometry.clusters_per_group, geometry.clusters_count())
        .ok_or_else(|| Corrupt::new("the superblock", Place::Volume, "its groups are impossible"))?;
    let config = Config {
        policy: options.policy,
        tunables: Tunables { stripe: options.tunables.stripe.or(Some(stripe(sb))), ..options.tunables },
        block_bytes: geometry.block_size.get(),
        cluster_blocks: geometry.cluster_blocks(),
        flex_groups: flex::flex_groups(geometry),
        discard: options.discard,
        record: options.record,
    };
    let allocator = Allocator::new(Source::new(Arc::clone(groups)), layout, config);
    allocator.set_root_reserve(Clusters::new(sb.reserved_blocks().get() >> geometry.cluster_ratio_shift));
    allocator.keep(kept(sb, options));
    Ok(allocator)
}

/// Blocks of the stripe that the volume was made for, 0 for none: its stripe's width, else its stride, if no
/// longer than a group. Source: the kernel's use of both (`ext4_get_stripe_size`).
fn stripe(sb: &SuperBlock) -> u32 {
    let (raw, group) = (sb.raw(), sb.geometry().blocks_per_group());
    let fitting = [raw.s_raid_stripe_width.get(), raw.s_raid_stride.get().into()];
    fitting.into_iter().find(|blocks| (1..=group).contains(blocks)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::assemble::tests::planned;

    #[test]
    fn a_fiftieth_is_kept_unless_the_caller_declines() {
        let (sb, mut options) = (planned(), OpenOptions::default());
        let all = sb.geometry().clusters_count().get();
        assert_eq!(kept(&sb, &options).get(), all / KEPT_SHARE);
        options.keep_clusters = false;
        assert_eq!(kept(&sb, &options), Clusters::ZERO);
    }
}
