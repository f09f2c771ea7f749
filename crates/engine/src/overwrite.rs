//! Direct overwrites: writes over mapped, written blocks in place, without a handle.
//!
//! A write inside the size and inside written blocks changes no map. It shares the operation lock with reads
//! and other such writes, and its time stamp waits for the next commit ([`crate::stores::lazytime`]).
//!
//! Guarantee: two overlapping writes of one file end wholly as one or the other, across extents and on every
//! device, since each enters its range ([`crate::stores::writers`]) for as long as it writes. Writes that do
//! not overlap run concurrently. All other changes of content exclude these by the operation lock. A read is
//! not kept out: one that overlaps a write may see parts of it, as with direct I/O in the kernel.

use crate::error::Result;
use crate::file::Source;
use crate::map::MAP_CREDITS;
use crate::stores::inode_cache::CachedInode;
use crate::volume::Volume;
use hectare_ext4::error::{Corrupt, Place};
use hectare_units::{Bytes, index_of, u64_of};
use std::sync::Arc;

impl Volume {
    /// Overwrites blocks that are mapped and written, inside the size, under the shared lock; returns whether
    /// that was possible. No handle is needed: only the times change, and wait for the next commit.
    pub(crate) fn overwrite(
        &self,
        inode: &Arc<CachedInode>,
        at: u64,
        data: &[u8],
        source: Source,
    ) -> Result<bool> {
        let (listed, looked_up) = {
            let _operation = inode.lock().read();
            let place = match inode.runs().find(at, data.len()) {
                Some((place, true)) => Some(place),
                _ if self.is_written(inode, at, data.len(), source)? => None,
                _ => return Ok(false),
            };
            if self.options.overwrite_handles {
                drop(self.start(MAP_CREDITS)?); // like the transaction in which ext4 looked up the mapping
            }
            self.overwrite_range(inode, at, data, place)?;
            self.count_written(data.len());
            (source == Source::Caller && inode.touch(self.now(), &self.inodes), place.is_none())
        };
        if listed {
            self.relieve()?;
        }
        if looked_up {
            self.sync_if_asked(inode)?; // files that require sync have no runs cached as writable
        }
        Ok(true)
    }

    /// Whether the bytes all lie inside the size and in written blocks, and may be overwritten in place.
    fn is_written(&self, inode: &CachedInode, mut at: u64, len: usize, source: Source) -> Result<bool> {
        let end = at + u64_of(len);
        if end > inode.get().size || self.journals_data(&inode.get()) {
            return Ok(false);
        }
        self.check_write(inode, at, source)?;
        while at < end {
            let (Some(_), len) = self.run_at(inode, at)? else { return Ok(false) };
            at += len.min(end - at);
        }
        Ok(true)
    }

    /// Overwrites bytes, alone in their range: in one write where they all lie at `place`.
    fn overwrite_range(&self, inode: &CachedInode, at: u64, data: &[u8], place: Option<Bytes>) -> Result<()> {
        let _writing = inode.writers().enter(at..at + u64_of(data.len()));
        match place {
            Some(place) => self.write_data(place, data),
            None => self.overwrite_runs(inode, at, data),
        }
    }

    fn overwrite_runs(&self, inode: &CachedInode, mut at: u64, data: &[u8]) -> Result<()> {
        let mut rest = data;
        while !rest.is_empty() {
            if let Some((place, true)) = inode.runs().find(at, rest.len()) {
                return self.write_data(place, rest);
            }
            let (Some(place), len) = self.run_at(inode, at)? else {
                return Err(Corrupt::new("the map", Place::Inode(inode.nr()), "it changes by itself").into());
            };
            let (now, after) = rest.split_at(index_of(len.min(u64_of(rest.len()))));
            self.write_data(place, now)?;
            at += u64_of(now.len());
            rest = after;
        }
        Ok(())
    }
}
