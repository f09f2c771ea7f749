//! Trims: discards all free space of a range on the device (`FITRIM`).
//!
//! Every free run is taken out of the allocator, discarded, and returned, so that it is not written
//! meanwhile. Only one run at a time is out; an allocation that lacks space just then waits for it
//! ([`crate::stores::discards`]). Space that waits for a commit is committed first, and so is included.

use crate::data::sync;
use crate::error::{Error, Result};
use crate::state::Core;
use hectare_alloc::DiscardRun;
use hectare_units::{ClusterNr, Clusters, GroupNr, low32};
use std::ops::Range;

/// Discards the free runs of at least `min_len` bytes, clipped to a range of the volume's bytes; returns
/// how many bytes that was.
pub(crate) fn trim(core: &Core, range: Range<u64>, min_len: u64) -> Result<u64> {
    core.check_takes_changes()?;
    let geometry = core.state.geometry();
    let too_short = range.end.saturating_sub(range.start) < geometry.block_size.bytes().get();
    if too_short || range.start >= geometry.bytes().get() {
        return Err(Error::Invalid("the range to trim is no part of the volume"));
    }
    let least = low32(min_len.div_ceil(geometry.cluster_bytes()).clamp(1, u32::MAX.into()));
    if least > geometry.clusters_per_group {
        return Err(Error::Invalid("no group has free runs as long as those to trim"));
    }
    sync::settle(core)?;
    let clusters = clusters_inside(core, &range);
    let layout = core.state.allocator.layout();
    let mut trimmed = Clusters::ZERO;
    for group in (0..layout.groups()).map(GroupNr::new) {
        let start = layout.group_start(group).get();
        let within = |cluster: ClusterNr| {
            low32(cluster.get().saturating_sub(start).min(layout.group_len(group).into()))
        };
        trimmed += trim_group(core, group, within(clusters.start)..within(clusters.end), least)?;
    }
    Ok(trimmed.get() * geometry.cluster_bytes())
}

fn trim_group(core: &Core, group: GroupNr, mut within: Range<u32>, least: u32) -> Result<Clusters> {
    let mut trimmed = Clusters::ZERO;
    while !within.is_empty() {
        let found = core.state.discards.with(|| {
            let found = core.state.allocator.take_free(group, within.clone(), least)?;
            found.map(|(end, run)| trim_run(core, run).map(|len| (end, len))).transpose()
        })?;
        let Some((end, len)) = found else { break };
        trimmed += len;
        within.start = end;
    }
    Ok(trimmed)
}

/// Discards a run and returns it.
fn trim_run(core: &Core, run: DiscardRun) -> Result<Clusters> {
    let len = run.run().len;
    core.state.discard_clusters(run.run())?;
    Ok(len)
}

/// The clusters that lie wholly in a range of bytes.
fn clusters_inside(core: &Core, range: &Range<u64>) -> Range<ClusterNr> {
    let geometry = core.state.geometry();
    let (size, first) = (geometry.block_size, u64::from(geometry.first_data_block));
    let start = range.start.div_ceil(size.bytes().get()).clamp(first, geometry.blocks_count.get());
    let start = (start - first).div_ceil(geometry.cluster_blocks().into());
    let end = match range.end >> size.shift() {
        end if end >= geometry.blocks_count.get() => geometry.clusters_count().get(),
        end => end.saturating_sub(first) >> geometry.cluster_ratio_shift,
    };
    ClusterNr::new(start)..ClusterNr::new(end.max(start))
}
