//! Explains allocations: how requests of this volume were served, and how one would be.
//!
//! A volume opened with [`OpenOptions::record`] keeps its last requests ([`crate::Volume::explanation`]). For
//! one that is open for reading only, [`explain`] simulates a request: it is made to a temporary allocator
//! that is dropped with all it allocated. Nothing is written.
//!
//! What it is not: a forecast of what a mount would do now. A fresh allocator knows only the descriptor of a
//! group, no size class, and no preallocation; one that has worked for a while may choose differently, which
//! its own record shows.

use crate::error::{Error, Result};
use crate::options::OpenOptions;
use crate::space::map::MapRef;
use crate::space::reserve::Hole;
use crate::space::{allocator, reserve};
use crate::state::Core;
use hectare_alloc::{
    AllocError, FileRequest, GoalFrom, Preallocation, Recording, Request, Reservation, Trace, Window,
};
use hectare_units::{BlockNr, Clusters, InodeNr, LogicalBlock, low32};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The geometry of a volume, as far as traces need it: they name clusters and groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Shape {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Blocks of a cluster.
    pub cluster_blocks: u32,
    /// The block that cluster 0 begins with.
    pub first_block: u32,
    /// Clusters of a group.
    pub group_clusters: u32,
    /// Groups.
    pub groups: u32,
    /// Groups of a flex group.
    pub flex_groups: u32,
}

/// The trace of requests, with what is needed to read it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Explanation {
    /// The policy.
    pub policy: String,
    /// Tunables that differ from their defaults, as `NAME=VALUE`.
    pub tunables: Vec<String>,
    /// The volume.
    pub shape: Shape,
    /// The requests.
    #[serde(flatten)]
    pub trace: Trace,
}

/// The goal of a request to be explained.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AskGoal {
    /// At a block.
    Block(BlockNr),
    /// At the end of a file; for a directory, or a file without space, in its own group.
    Behind(InodeNr),
    /// Like `Behind`, through the policy's preallocation for files: as many requests as it makes for an
    /// append of that size.
    Append(InodeNr),
}

/// A request to be explained. Lengths in clusters, each at least 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// The full length.
    pub want: Clusters,
    /// What is needed at once: the goal is not trimmed below that.
    pub asked: Clusters,
    /// The smallest useful length.
    pub least: Clusters,
    /// The goal.
    pub goal: AskGoal,
}

/// Simulates a request under the policy and the tunables of [`OpenOptions`] `options`; everything else in
/// them is ignored. Changes nothing, here or on the device.
pub(crate) fn explain(core: &Core, ask: &Ask, options: &OpenOptions) -> Result<Explanation> {
    if !core.state.read_only {
        return Err(Error::Invalid("of a volume that is open for writing, only its own requests are known"));
    }
    let options = OpenOptions { record: Some(Recording::WHOLE), ..options.clone() };
    let allocator = allocator::allocator(&core.state.groups, &core.state.sb, &options)?;
    let request = |(goal, from)| {
        let request = Request::new(goal, ask.want).for_data(ask.asked).at_least(ask.least);
        Request { goal_from: from, ..request }.with_root_reserve(options.use_reserved_blocks)
    };
    match ask.goal {
        AskGoal::Block(block) => {
            let geometry = core.state.geometry();
            if geometry.group_of(block).is_none() {
                return Err(Error::Invalid("the goal lies outside the volume"));
            }
            let goal = (geometry.cluster_of(block), GoalFrom::Caller);
            unless_full(allocator.reserve(&request(goal)))?;
        }
        AskGoal::Behind(nr) => {
            let inode = core.state.inode(nr)?;
            let held = inode.get();
            let end = end_of(core, MapRef { state: &core.state, nr, inode: &held }, ask.asked)?;
            let goal = match reserve::continuation(core, &end)? {
                Some(goal) => (goal, GoalFrom::Continuation),
                None => (reserve::home(core, nr)?, GoalFrom::Home),
            };
            unless_full(allocator.reserve(&request(goal).of_file(nr.get(), goal.1)))?;
        }
        AskGoal::Append(nr) => {
            let inode = core.state.inode(nr)?;
            let held = inode.get();
            let end = end_of(core, MapRef { state: &core.state, nr, inode: &held }, ask.want)?;
            let logical = u64::from(end.logical.get()) >> core.state.geometry().cluster_ratio_shift;
            // Nothing follows the end, whatever a corrupt map says.
            let mut request = FileRequest { right: None, ..reserve::file_request(core, &end, logical)? };
            let (prealloc, window) = (Preallocation::new(allocator.config()), Arc::<Window>::default());
            let mut taken: Vec<Reservation> = Vec::new();
            while !request.len.is_zero() && taken.len() < Recording::WHOLE.requests {
                let Some(piece) = unless_full(prealloc.take(&allocator, &window, &request))? else {
                    break;
                };
                request.logical += piece.len().get();
                request.len = request.len - piece.len();
                request.continuation = Some(piece.run().end());
                taken.push(piece);
            }
            window.discard();
        }
    }
    Ok(explained(core, &options, allocator.trace().unwrap_or_default()))
}

/// The hole after the last block of a file, `clusters` long.
fn end_of<'a>(core: &Core, map: MapRef<'a>, clusters: Clusters) -> Result<Hole<'a>> {
    let mut end = 0;
    map.for_each(LogicalBlock::ZERO, &mut |extent| {
        end = extent.end().max(end);
        std::ops::ControlFlow::Continue(())
    })?;
    let shift = core.state.geometry().cluster_ratio_shift;
    let end = end.div_ceil(1 << shift) << shift;
    let logical = u32::try_from(end).map_err(|_| Error::FileTooLarge)?;
    Ok(Hole { map, logical: LogicalBlock::new(logical), lead: 0, clusters })
}

pub(crate) fn explained(core: &Core, options: &OpenOptions, trace: Trace) -> Explanation {
    let geometry = core.state.geometry();
    Explanation {
        policy: options.policy.to_string(),
        tunables: options.tunables.changed().collect(),
        shape: Shape {
            block_bytes: geometry.block_size.get(),
            cluster_blocks: geometry.cluster_blocks(),
            first_block: low32(geometry.first_block(hectare_units::GroupNr::new(0)).get()),
            group_clusters: geometry.clusters_per_group,
            groups: geometry.groups(),
            flex_groups: core.state.allocator.config().flex_groups,
        },
        trace,
    }
}

/// Space, or `None` if there is none.
fn unless_full<T>(space: std::result::Result<T, AllocError<Error>>) -> Result<Option<T>> {
    match space {
        Ok(space) => Ok(Some(space)),
        // A read error is recorded with the request.
        Err(_) => Ok(None),
    }
}
