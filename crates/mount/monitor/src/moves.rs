//! Moving blocks in a volume that is mounted, a step at a time, for a client of the control socket.
//!
//! `gather INODE` moves the blocks of a file or directory together, `places INODE` only looks. To make free space
//! whole, the client needs to know what is free (`free GROUP`) and where files lie (`extents INODE`), makes a
//! plan, and has each of its moves made (`move INODE BLOCK COUNT FROM UNWRITTEN TO`). Programs go on working
//! meanwhile, so that a plan is old when it is carried out: a move is made only if the file still lies where the
//! client saw it, and if the blocks are free then ([`Volume::move_extent`](hectare_engine::Volume::move_extent)).
//!
//! Hazard: both sides may be of different users. The server believes no number of a request, and the client none
//! of an answer ([`Free::is_possible`], [`Extents::extents`]).

use crate::shared::{Shared, json};
use hectare_engine::{Error, Gathered};
use hectare_ext4::extent::Extent;
use hectare_units::{BlockNr, GroupNr, InodeNr, LogicalBlock};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The most extents of a file that are reported: they have to fit into an answer.
const EXTENTS_MAX: usize = 200_000;
/// Blocks are numbered below this.
const BLOCKS_MAX: u64 = 1 << 48;

/// An answer that may be a refusal.
pub(crate) trait Refusable {
    /// Why the request was refused.
    fn refused(&mut self) -> &mut Option<String>;
}

/// What became of the blocks of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GatherReport {
    /// In how many places they were.
    pub before: u64,
    /// In how many they are now, or could be.
    pub after: u64,
    /// Bytes that moved.
    pub bytes: u64,
    /// Why they could not be moved.
    pub refused: Option<String>,
}

/// What is free in a group, and how the volume is laid out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Free {
    /// Groups of the volume.
    pub groups: u32,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Whether blocks are allocated in clusters (bigalloc).
    pub has_clusters: bool,
    /// The free runs of blocks in the group, in order.
    pub runs: Vec<Range<u64>>,
    refused: Option<String>,
}

/// Where a file lies: each extent as its block in the file, its length, its block on the volume, and whether it
/// is unwritten.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Extents {
    extents: Vec<(u32, u32, u64, bool)>,
    refused: Option<String>,
}

/// What became of a move.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Moved {
    pub(crate) moved: bool,
    /// Why no more can be moved.
    pub(crate) ended: Option<String>,
    refused: Option<String>,
}

macro_rules! refusable {
    ($($answer:ty),*) => {
        $(impl Refusable for $answer {
            fn refused(&mut self) -> &mut Option<String> {
                &mut self.refused
            }
        })*
    };
}

refusable!(GatherReport, Free, Extents, Moved);

impl Free {
    /// Whether the numbers are those of a volume.
    pub(crate) fn is_possible(&self) -> bool {
        let is_block = self.block_bytes.is_power_of_two() && (1 << 10..=1 << 16).contains(&self.block_bytes);
        is_block && self.runs.iter().all(|run| run.start < run.end && run.end <= BLOCKS_MAX)
    }
}

impl Extents {
    /// The extents, unless their numbers can't be.
    pub(crate) fn extents(self) -> Option<Vec<Extent>> {
        let extent = |(logical, len, physical, unwritten): (u32, u32, u64, bool)| {
            let is_possible =
                len > 0 && u64::from(logical) + u64::from(len) <= 1 << 32 && physical < BLOCKS_MAX;
            is_possible.then(|| Extent {
                logical: LogicalBlock::new(logical),
                len,
                physical: BlockNr::new(physical),
                unwritten,
            })
        };
        self.extents.into_iter().map(extent).collect()
    }
}

impl Shared {
    /// The answer to a request about moving blocks, if it is one.
    pub(crate) fn moving(&self, request: &str) -> Option<Vec<u8>> {
        let (name, words) = request.split_once(' ')?;
        Some(match name {
            "gather" => answer(self.gather(words, true)),
            "places" => answer(self.gather(words, false)),
            "free" => answer(self.free(words)),
            "extents" => answer(self.extents(words)),
            "move" => answer(self.move_extent(words)),
            _ => return None,
        })
    }

    /// Moves the blocks of an inode together, or looks at them. Inodes of the format are refused.
    fn gather(&self, number: &str, is_move: bool) -> Result<GatherReport, String> {
        let number: u32 = number.parse().map_err(|_| format!("{number} is no number of an inode"))?;
        // The kernel knows the root of a mount by its own number.
        let nr = if number == 1 { InodeNr::ROOT } else { InodeNr::new(number) };
        let volume = &self.watched.volume;
        if !is_move {
            let blocks = volume.inode_blocks(nr).map_err(told)?;
            let (before, after) = (blocks.places(), blocks.stretches());
            return Ok(GatherReport { before, after, ..GatherReport::default() });
        }
        let Gathered { before, after, moved } = volume.gather(nr).map_err(told)?;
        let size = volume.superblock().geometry().block_size;
        let bytes = moved.get().saturating_mul(size.bytes().get());
        Ok(GatherReport { before, after, bytes, refused: None })
    }

    /// What is free in a group.
    fn free(&self, number: &str) -> Result<Free, String> {
        let volume = &self.watched.volume;
        let (groups, geometry) = (volume.group_count(), volume.superblock().geometry());
        let group = number.parse().ok().filter(|group| *group < groups).map(GroupNr::new);
        let group = group.ok_or_else(|| format!("{number} is no number of a group"))?;
        let runs = volume.free_runs_now(group).map_err(told)?;
        Ok(Free {
            groups,
            block_bytes: geometry.block_size.bytes().get(),
            has_clusters: geometry.cluster_ratio_shift > 0,
            runs: runs.into_iter().map(|run| run.start.get()..run.end.get()).collect(),
            refused: None,
        })
    }

    /// Where a file lies.
    fn extents(&self, number: &str) -> Result<Extents, String> {
        let number = number.parse().map_err(|_| format!("{number} is no number of an inode"))?;
        let blocks = self.watched.volume.inode_blocks(InodeNr::new(number)).map_err(told)?;
        if blocks.extents.len() > EXTENTS_MAX {
            return Err(format!(
                "inode {number} lies in {} places, and {EXTENTS_MAX} is the most: defragment it first",
                blocks.extents.len()
            ));
        }
        let fields =
            |extent: &Extent| (extent.logical.get(), extent.len, extent.physical.get(), extent.unwritten);
        Ok(Extents { extents: blocks.extents.iter().map(fields).collect(), refused: None })
    }

    /// Moves an extent.
    fn move_extent(&self, words: &str) -> Result<Moved, String> {
        let numbers: Option<Vec<u64>> = words.split(' ').map(|word| word.parse().ok()).collect();
        let odd = || format!("move {words}: six numbers are needed");
        let numbers = numbers.and_then(|all| <[u64; 6]>::try_from(all).ok()).ok_or_else(odd)?;
        let [nr, logical, len, physical, unwritten, to] = numbers;
        let short = |number: u64| u32::try_from(number).map_err(|_| odd());
        let extent = Extent {
            logical: LogicalBlock::new(short(logical)?),
            len: short(len)?,
            physical: BlockNr::new(physical),
            unwritten: unwritten != 0,
        };
        let nr = InodeNr::new(short(nr)?);
        match self.watched.volume.move_extent(nr, extent, BlockNr::new(to)) {
            Ok(moved) => Ok(Moved { moved, ..Moved::default() }),
            Err(error @ (Error::Aborted(_) | Error::ReadOnly)) => {
                Ok(Moved { ended: Some(told(error)), ..Moved::default() })
            }
            // It was removed meanwhile.
            Err(Error::NotFound) => Ok(Moved::default()),
            Err(error) => Err(told(error)),
        }
    }
}

#[allow(clippy::needless_pass_by_value)] // shaped for map_err
fn told(error: Error) -> String {
    error.to_string()
}

/// An answer, or the refusal in its place.
fn answer<T: Refusable + Default + Serialize>(answer: Result<T, String>) -> Vec<u8> {
    json(&answer.unwrap_or_else(|reason| {
        let mut refusal = T::default();
        *refusal.refused() = Some(reason);
        refusal
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_with_blocks_that_can_not_be_is_noticed() {
        let free = |run: Range<u64>| Free { block_bytes: 4096, runs: vec![run], ..Free::default() };
        assert!(free(5..9).is_possible() && !free(9..9).is_possible());
        assert!(!free(1..u64::MAX).is_possible() && !Free::default().is_possible());
        let extents = |extent| Extents { extents: vec![extent], refused: None }.extents();
        assert_eq!(extents((1, 2, 3, true)).unwrap()[0].end(), 3);
        for odd in [(1, 0, 3, true), (u32::MAX, 2, 3, false), (0, 1, u64::MAX, false)] {
            assert!(extents(odd).is_none(), "{odd:?}");
        }
    }
}
