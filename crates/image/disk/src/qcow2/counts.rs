//! Whether a qcow2 counts its own tables as used: else the next cluster that is allocated may be one of them.
//!
//! Looked at are the header, the table of counts with its blocks, and the first level of the map, before an image is
//! opened for writing. That takes a few reads: what the rest of the map names is not compared with the counts, which
//! is what `qemu-img check` is for.
//!
//! Facts: "qcow2" in QEMU's documentation. Numbers are stored highest byte first.

use crate::error::{Error, Result};
use hectare_device::{Device, FileDevice};
use hectare_probe::record::record;
use hectare_units::{Bytes, index_of, u64_of};

const CLUSTER_BITS: std::ops::RangeInclusive<u32> = 9..=21;
const ORDER_MAX: u32 = 6;
/// In an entry of the table: where the block is.
const PLACE: u64 = !0x1ff;

/// The table of counts.
struct Counts<'a> {
    file: &'a FileDevice,
    cluster: u64,
    /// How many bits a count has.
    width: u64,
    /// Where each block is; 0 for one that is not there.
    blocks: Vec<u64>,
}

impl Counts<'_> {
    fn has_block(&self, number: u64) -> bool {
        usize::try_from(number).ok().and_then(|number| self.blocks.get(number)).is_some_and(|at| *at != 0)
    }

    /// Whether the cluster that a byte lies in is counted as used.
    fn has(&self, at: u64) -> hectare_device::Result<bool> {
        let (cluster, per_block) = (at / self.cluster, self.cluster * 8 / self.width);
        let block = usize::try_from(cluster / per_block).ok().and_then(|index| self.blocks.get(index));
        let Some(block) = block.filter(|block| **block != 0) else { return Ok(false) };
        let bit = cluster % per_block * self.width;
        let len = index_of(self.width.div_ceil(8));
        let mut bytes = vec![0; len];
        let place = block.saturating_add(bit / 8);
        if place.checked_add(self.width.div_ceil(8)).is_none_or(|end| end > self.file.len().get()) {
            return Ok(false);
        }
        self.file.read_at(Bytes::new(place), &mut bytes)?;
        if self.width >= 8 {
            return Ok(bytes.iter().any(|byte| *byte != 0));
        }
        let mask = (1_u32 << self.width) - 1;
        Ok(u32::from(bytes[0]) >> (bit % 8) & mask != 0)
    }
}

/// Refuses an image whose own tables count as free.
pub(super) fn check(file: &FileDevice) -> Result<()> {
    let wrong = |what: &str| Error::new(file.name(), format!("the qcow2 image is damaged: {what}"));
    let head = record(file, 0, 104)?.ok_or_else(|| wrong("it is cut off"))?;
    let (bits, order) = (head.be32(20), if head.be32(4) >= 3 { head.be32(96) } else { 4 });
    if !CLUSTER_BITS.contains(&bits) || order > ORDER_MAX {
        return Err(wrong("its clusters or counts have a size that can't be"));
    }
    let cluster = 1_u64 << bits;
    let (table_at, table_len) = (head.be64(48), u64::from(head.be32(56)) * cluster);
    // A table at the end of a file may lack the zeros of its last cluster.
    let stored = table_len.min(file.len().get().saturating_sub(table_at)) / 8 * 8;
    let table = record(file, table_at, index_of(stored))?;
    let table = table.ok_or_else(|| wrong("its table of counts lies beyond its end"))?;
    let blocks: Vec<u64> = (0..table.len() / 8).map(|index| table.be64(index * 8) & PLACE).collect();
    let counts = Counts { file, cluster, width: 1 << order, blocks };
    let (l1_at, l1_len) = (head.be64(40), u64::from(head.be32(36)) * 8);
    let tables = [(0, 1), (table_at, table_len), (l1_at, l1_len)];
    let clusters = tables.into_iter().flat_map(|(at, len)| {
        let ends = at.saturating_add(len);
        (at..ends).step_by(index_of(cluster))
    });
    let own_blocks: Vec<u64> = counts.blocks.iter().copied().filter(|block| *block != 0).collect();
    for at in clusters.chain(own_blocks) {
        if !counts.has(at)? {
            return Err(wrong("it counts its own tables as free: qemu-img check -r all mends it"));
        }
    }
    // A write would make the file longer, and what was cut off would read as zeros from then on.
    let per_block = cluster * 8 / counts.width;
    let first = file.len().get().div_ceil(cluster);
    for block in (first / per_block..u64_of(counts.blocks.len())).filter(|block| counts.has_block(*block)) {
        for number in first.max(block * per_block)..(block + 1) * per_block {
            if counts.has(number.saturating_mul(cluster))? {
                return Err(wrong("it is cut off: clusters beyond its end count as used"));
            }
        }
    }
    Ok(())
}
