//! Buffers appends: which writes qualify, and the claim on the space they will need.

use crate::error::{Error, Result};
use crate::file::Source;
use crate::map::MapRef;
use crate::stores::appended::{Buffer, State};
use crate::stores::inode_cache::CachedInode;
use crate::volume::Volume;
use hectare_alloc::{AllocError, Claim};
use hectare_ext4::extent::Mapping;
use hectare_units::{Bytes, Clusters, LogicalBlock, u64_of};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Larger writes are placed at once.
const SMALL_MAX: usize = 64 << 10;
/// A file with more buffered bytes than this is placed.
const FILE_MAX: usize = 1 << 20;
/// Bytes are charged to the budget in units of this size.
const CHARGE: usize = 4096;
/// Bytes of space claimed ahead, so that not every cluster needs a claim of its own.
const AHEAD: u64 = 64 << 10;
/// The most levels of nodes that a tree has below its root.
const LEVELS: u32 = 5;

impl Volume {
    /// Buffers a write at `at` if it qualifies; returns whether it did. The caller holds the operation lock
    /// exclusively, and has checked that the size is possible.
    pub(crate) fn append_delayed(
        &self,
        inode: &Arc<CachedInode>,
        at: u64,
        data: &[u8],
        source: Source,
    ) -> Result<bool> {
        if data.len() >= SMALL_MAX || self.delay.budget == 0 {
            return Ok(false);
        }
        let gathered = match inode.delayed().end() {
            Some(end) => {
                if at < end {
                    self.check_write(inode, at, source)?;
                }
                self.extend_buffer(inode, at, data)?
            }
            None => self.begin_buffer(inode, at, data, source)?,
        };
        let Some(len) = gathered else { return Ok(false) };
        if source == Source::Caller {
            inode.touch(self.now(), &self.inodes);
        }
        if len >= FILE_MAX.min(self.delay.budget) {
            self.place_locked(inode)?;
        }
        Ok(true)
    }

    /// Adds to the bytes of a file; returns how many there are then, or `None` if these can't be added.
    fn extend_buffer(&self, inode: &Arc<CachedInode>, at: u64, data: &[u8]) -> Result<Option<usize>> {
        let mut state = inode.delayed().state();
        let State { buffer: Some(buffer), claim: Some(claim), .. } = &mut *state else { return Ok(None) };
        if at < buffer.start || at > buffer.end() {
            return Ok(None);
        }
        let end = buffer.end().max(at + u64_of(data.len()));
        let clusters = self.clusters_to(buffer.first_cluster, end);
        if clusters > buffer.clusters {
            let need = self.with_nodes(clusters);
            if need > claim.left() {
                let Some(more) = self.claim_ahead(need - claim.left())? else { return Ok(None) };
                claim.absorb(more);
            }
            self.delay.promised.fetch_add((clusters - buffer.clusters).get(), Ordering::Relaxed);
            buffer.clusters = clusters;
        }
        buffer.write(at, data);
        if buffer.bytes.len() > buffer.charged {
            let charged = buffer.bytes.len().next_multiple_of(CHARGE);
            self.delay.bytes.fetch_add(charged - buffer.charged, Ordering::Relaxed);
            buffer.charged = charged;
        }
        inode.delayed().set_end(end);
        Ok(Some(buffer.bytes.len()))
    }

    /// Buffers the first bytes of a file, if they continue it into space that is not mapped.
    fn begin_buffer(
        &self,
        inode: &Arc<CachedInode>,
        at: u64,
        data: &[u8],
        source: Source,
    ) -> Result<Option<usize>> {
        self.check_write(inode, at, source)?;
        if self.journals_data(&inode.get()) {
            return Ok(None);
        }
        let Some(first_cluster) = self.unmapped_after_end(inode, at)? else { return Ok(None) };
        let need = self.with_nodes(self.clusters_to(first_cluster, at + 1));
        let Some(claim) = self.claim_ahead(need)? else { return Ok(None) };
        if !self.delay.register(inode) {
            return Ok(None);
        }
        let buffer = Buffer {
            start: at,
            bytes: Vec::new(),
            first_cluster,
            clusters: Clusters::ZERO,
            charged: 0,
            since: Instant::now(),
        };
        {
            let mut state = inode.delayed().state();
            (state.buffer, state.claim) = (Some(buffer), Some(claim));
        }
        let len = self.extend_buffer(inode, at, data)?;
        if len.is_none() {
            self.drop_delayed(inode);
        }
        Ok(len)
    }

    /// The first cluster of the file that bytes appended at `at` need; `None` unless that is the end of the
    /// file, nothing is mapped after it but the rest of its last block, and writes need not be durable.
    fn unmapped_after_end(&self, inode: &CachedInode, at: u64) -> Result<Option<u64>> {
        let geometry = self.geometry();
        let (size, shift) = (geometry.block_size, geometry.cluster_ratio_shift);
        let held = inode.get();
        if held.size != at || self.syncs_changes(held.flags) {
            return Ok(None);
        }
        let map = MapRef { volume: self, nr: inode.nr(), inode: &held };
        let block = LogicalBlock::containing(Bytes::new(at), size).ok_or(Error::FileTooLarge)?;
        let first = match map.lookup(block)? {
            Mapping::Hole { next: None } => u64::from(block.get()),
            Mapping::Mapped(last)
                if last.end() == u64::from(block.get()) + 1 && size.within(held.bytes()) > 0 =>
            {
                match last.end().try_into().map(|next| map.lookup(LogicalBlock::new(next))) {
                    Ok(Ok(Mapping::Hole { next: None })) => last.end(),
                    Ok(Err(error)) => return Err(error),
                    _ => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        // With bigalloc, the cluster that holds the previous block may be allocated already.
        let cluster = first >> shift;
        let begun = first > cluster << shift && map.first_in(cluster << shift, first)?.is_some();
        Ok(Some(cluster + u64::from(begun)))
    }

    /// How many clusters a file needs from one of its clusters to a byte.
    fn clusters_to(&self, first: u64, end: u64) -> Clusters {
        Clusters::new(end.div_ceil(self.geometry().cluster_bytes()).saturating_sub(first))
    }

    /// Claims `clusters`, and some more if there are; returns `None` if there is no space.
    fn claim_ahead(&self, clusters: Clusters) -> Result<Option<Claim>> {
        let (ahead, reserve) = (AHEAD / self.geometry().cluster_bytes(), self.options.use_reserved_blocks);
        for wanted in [clusters + Clusters::new(ahead), clusters] {
            match self.allocator.claim(wanted, reserve) {
                Ok(claim) => return Ok(Some(claim)),
                Err(AllocError::NoSpace) => {}
                Err(other) => return Err(other.into()),
            }
        }
        Ok(None)
    }

    /// `clusters` of data, and those that the nodes of a tree may take that maps each separately: every level
    /// may have to split once, and split nodes are half full.
    pub(super) fn with_nodes(&self, clusters: Clusters) -> Clusters {
        let entries = (u64::from(self.geometry().block_size.get()) - 16) / 12 / 2;
        let mut nodes = clusters.get();
        let mut need = clusters;
        for _ in 0..LEVELS {
            nodes = nodes.div_ceil(entries);
            need += Clusters::new(nodes + 1);
        }
        need
    }
}
