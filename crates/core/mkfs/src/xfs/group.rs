//! The content of an allocation group of a fresh volume, rendered.
//!
//! Space is taken in the order of `mkfs.xfs`: headers and roots, the log if it is this group's, then
//! the free list from the shortest free run that holds it, last the first inodes.
//!
//! The free list has the same length in all groups, a shorter last one included. The plan ensures that each
//! has room for it ([`FreeLists`]), before anything is written.

use crate::error::{Error, Result};
use hectare_units::{GroupNr, usize_of};
use hectare_xfs::btree::{self, Owner, Tree, chunk_record, free_record, owner_record};
use hectare_xfs::group::{Inodes, render_agf, render_agfl, render_agi};
use hectare_xfs::raw::RmapRecord;
use hectare_xfs::superblock::{self, Role, USED_INODES};
use hectare_xfs::{Run, Volume};

/// What a group holds. All blocks are counted from its start.
pub(super) struct Group {
    group: GroupNr,
    /// Free runs, by place.
    pub(super) free: Vec<Run>,
    /// Blocks kept to let trees grow; not among the free ones.
    pub(super) free_list: Run,
    /// The chunk of the first inodes.
    chunk: Option<Run>,
    log: Option<Run>,
}

/// Where the free lists lie, which all groups have: in the log's group, in the last one, which may be
/// shorter, and in any other.
#[derive(Clone, Debug)]
pub(super) struct FreeLists {
    with_log: Run,
    last: Run,
    other: Run,
}

impl FreeLists {
    /// # Errors
    /// If a group has no free run that is long enough.
    pub(super) fn new(volume: &Volume) -> Result<Self> {
        let at = |group| free_list(volume, group);
        Ok(Self {
            with_log: at(volume.log.group)?,
            last: at(last_group(volume))?,
            // The first inodes come after it, so the first group is as any other.
            other: at(GroupNr::new(0))?,
        })
    }

    fn of(&self, volume: &Volume, group: GroupNr) -> Run {
        match group {
            group if group == volume.log.group => self.with_log,
            group if group == last_group(volume) => self.last,
            _ => self.other,
        }
    }
}

fn last_group(volume: &Volume) -> GroupNr {
    GroupNr::new(volume.groups.saturating_sub(1))
}

/// What is free in a group before its free list is taken, by place.
fn free_runs(volume: &Volume, group: GroupNr) -> Vec<Run> {
    let mut free = vec![Run::between(volume.roots().end, volume.group_len(group))];
    if group == volume.log.group {
        take(&mut free, volume.log.run);
    }
    free
}

/// The start of the shortest free run of a group that is long enough for its free list.
fn free_list(volume: &Volume, group: GroupNr) -> Result<Run> {
    let len = volume.free_list_blocks();
    let runs = free_runs(volume, group).into_iter().filter(|run| run.len >= len);
    let shortest = runs.min_by_key(|run| (run.len, run.start)).ok_or_else(|| {
        let of = volume.group_len(group);
        let reason =
            format!("group {group}, of {of} blocks, has no {len} free ones in a row; lengthen groups");
        Error::option("allocation groups", reason)
    })?;
    Ok(Run { start: shortest.start, len })
}

impl Group {
    pub(super) fn new(volume: &Volume, group: GroupNr, free_lists: &FreeLists) -> Self {
        let mut free = free_runs(volume, group);
        let log = (group == volume.log.group).then_some(volume.log.run);
        let free_list = free_lists.of(volume, group);
        take(&mut free, free_list);
        let first = Run { start: volume.root_block(), len: volume.chunk_blocks() };
        let chunk = (group.get() == 0).then_some(first);
        if let Some(chunk) = chunk {
            take(&mut free, chunk);
        }
        Self { group, free, free_list, chunk, log }
    }

    /// The group's start: four sectors of headers, and a block for each root.
    pub(super) fn render(&self, volume: &Volume) -> Vec<u8> {
        let (roots, block) = (volume.roots(), volume.block_size.len());
        let mut bytes = vec![0; usize_of(roots.end) * block];
        self.render_headers(volume, &mut bytes);
        let mut by_length = self.free.clone();
        by_length.sort_by_key(|run| (run.len, run.start));
        let by_place: Vec<_> = self.free.iter().copied().map(free_record).collect();
        let by_length: Vec<_> = by_length.into_iter().map(free_record).collect();
        let (chunks, owners) = (self.chunk_records(volume), self.owner_records(volume));
        let place = |at| (self.group, at);
        btree::render(volume, Tree::Bno, place(roots.bno), &by_place, &mut bytes);
        btree::render(volume, Tree::Cnt, place(roots.cnt), &by_length, &mut bytes);
        btree::render(volume, Tree::Ino, place(roots.ino), &chunks, &mut bytes);
        if let Some(at) = roots.fino {
            btree::render(volume, Tree::Fino, place(at), &chunks, &mut bytes);
        }
        if let Some(at) = roots.rmap {
            btree::render(volume, Tree::Rmap, place(at), &owners, &mut bytes);
        }
        if let Some(at) = roots.refcount {
            btree::render::<u8>(volume, Tree::Refcount, place(at), &[], &mut bytes);
        }
        bytes
    }

    fn render_headers(&self, volume: &Volume, bytes: &mut [u8]) {
        let mut sectors = bytes.chunks_exact_mut(usize_of(volume.sector_size));
        let mut sector = || sectors.next().unwrap_or_default();
        superblock::render(volume, Role::of(volume, self.group), sector());
        render_agf(volume, self.group, &self.free, self.free_list, sector());
        let inodes = self.chunk.map(|chunk| Inodes {
            first: chunk.start * volume.inodes_per_block(),
            count: volume.chunk_inodes(),
            free: volume.chunk_inodes() - USED_INODES,
        });
        render_agi(volume, self.group, inodes, sector());
        render_agfl(volume, self.group, self.free_list, sector());
    }

    /// The first inodes as the inode trees have them: more than one chunk where a block holds more than 64.
    fn chunk_records(&self, volume: &Volume) -> Vec<[u8; 16]> {
        let Some(chunk) = self.chunk else { return Vec::new() };
        let first = chunk.start * volume.inodes_per_block();
        let chunks = (0..volume.chunk_inodes()).step_by(64);
        chunks.map(|at| chunk_record(volume, first + at, if at == 0 { USED_INODES } else { 0 })).collect()
    }

    fn owner_records(&self, volume: &Volume) -> Vec<RmapRecord> {
        self.owners(volume).into_iter().map(|(run, owner)| owner_record(run, owner)).collect()
    }

    /// The owners of the blocks that are not free, by place; neighbours of one owner are one record.
    fn owners(&self, volume: &Volume) -> Vec<(Run, Owner)> {
        let roots = volume.roots();
        let one = |start| Run { start, len: 1 };
        let mut owners = vec![
            (Run::between(0, roots.bno), Owner::Headers),
            (Run::between(roots.bno, roots.ino), Owner::FreeSpace),
            (Run::between(roots.ino, roots.fino.unwrap_or(roots.ino) + 1), Owner::InodeTrees),
            (self.free_list, Owner::FreeSpace),
        ];
        owners.extend(roots.rmap.map(|at| (one(at), Owner::FreeSpace)));
        owners.extend(roots.refcount.map(|at| (one(at), Owner::Refcount)));
        owners.extend(self.log.map(|log| (log, Owner::Log)));
        owners.extend(self.chunk.map(|chunk| (chunk, Owner::Inodes)));
        owners.sort_by_key(|(run, _)| run.start);
        owners.dedup_by(|(later, owner), (earlier, other)| {
            let joins = owner == other && earlier.end() == later.start;
            if joins {
                earlier.len += later.len;
            }
            joins
        });
        owners
    }
}

/// Takes blocks out of the free run that holds them.
fn take(free: &mut Vec<Run>, taken: Run) {
    let Some(at) = free.iter().position(|run| run.start <= taken.start && taken.end() <= run.end()) else {
        return;
    };
    let whole = free[at];
    let parts = [Run::between(whole.start, taken.start), Run::between(taken.end(), whole.end())];
    free.splice(at..=at, parts.into_iter().filter(|run| run.len > 0));
}

#[cfg(test)]
mod tests {
    use super::super::geometry::shape;
    use super::super::options::FormatOptions;
    use super::*;
    use hectare_units::{Blocks, Bytes};

    const MIB: u64 = 1 << 20;

    fn volume() -> Volume {
        let options = FormatOptions { rmapbt: true, ..FormatOptions::default() };
        shape(&options, Bytes::new(1024 * MIB)).unwrap().0
    }

    /// The same with a last group of `blocks` blocks.
    fn with_last(blocks: u32) -> Volume {
        let volume = volume();
        let before = u64::from(volume.groups - 1) * u64::from(volume.group_blocks);
        Volume { blocks: Blocks::new(before + u64::from(blocks)), ..volume }
    }

    #[test]
    fn regression_a_group_without_room_for_its_free_list_is_an_error() {
        let (roots, list) = (volume().roots().end, volume().free_list_blocks());
        let fits = with_last(roots + list);
        let last = FreeLists::new(&fits).unwrap().of(&fits, last_group(&fits));
        assert_eq!(last, Run { start: roots, len: list });
        for blocks in [1, roots, roots + list - 1] {
            let error = FreeLists::new(&with_last(blocks)).unwrap_err().to_string();
            let expected = format!("allocation groups: group 3, of {blocks} blocks, has no {list} free");
            assert!(error.starts_with(&expected), "{error}");
        }
        // So is one that the log fills.
        let mut full = volume();
        full.log.run = Run::between(roots, full.group_blocks - list + 1);
        assert!(FreeLists::new(&full).is_err());
    }

    #[test]
    fn each_free_list_is_in_a_free_run_of_its_group() {
        let volume = with_last(100);
        let lists = FreeLists::new(&volume).unwrap();
        for group in (0..volume.groups).map(GroupNr::new) {
            let list = lists.of(&volume, group);
            let holds = |run: &Run| run.start <= list.start && list.end() <= run.end();
            assert!(free_runs(&volume, group).iter().any(holds), "{group}");
            assert_eq!(list.len, volume.free_list_blocks());
        }
    }
}
