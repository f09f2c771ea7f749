//! Reads the blocks of a log.

use super::{LogMap, RecoveryError};
use crate::format::{JournalSuperblock, SUPERBLOCK_LEN};
use hectare_device::Device;
use hectare_ext4::{Corrupt, Place};
use hectare_units::{BlockNr, LogicalBlock, index_of, low32, u64_of, usize_of};

/// Bytes read at once where many log blocks are wanted.
const READ_MAX: usize = 1 << 20;

/// A journal on its device.
pub(super) struct LogReader<'a> {
    device: &'a dyn Device,
    map: &'a LogMap,
}

impl<'a> LogReader<'a> {
    pub(super) fn new(device: &'a dyn Device, map: &'a LogMap) -> Self {
        Self { device, map }
    }

    pub(super) const fn map(&self) -> &'a LogMap {
        self.map
    }

    /// The superblock, once it is known to suit the place the journal has.
    pub(super) fn superblock(&self) -> Result<JournalSuperblock, RecoveryError> {
        let mut bytes = [0; SUPERBLOCK_LEN];
        let (nr, _) = self.locate(self.map.superblock())?;
        self.device.read_at(nr.offset(self.map.block_size()), &mut bytes)?;
        let superblock = JournalSuperblock::parse(&bytes)?;
        let corrupt = |reason| Corrupt::new("journal superblock", Place::Volume, reason);
        if superblock.block_size() != self.map.block_size() {
            let (own, volume) = (superblock.block_size(), self.map.block_size());
            return Err(corrupt(format!("its block size is {own}, the volume's is {volume}")).into());
        }
        if superblock.blocks() > self.map.blocks() {
            let (claimed, there) = (superblock.blocks(), self.map.blocks());
            return Err(corrupt(format!("it claims {claimed} blocks, but there are {there}")).into());
        }
        if superblock.first() <= self.map.superblock() {
            return Err(corrupt(format!("its log starts at block {}", superblock.first())).into());
        }
        Ok(superblock)
    }

    /// A buffer for a block.
    pub(super) fn buffer(&self) -> Vec<u8> {
        vec![0; self.map.block_size().len()]
    }

    /// Reads a log block into a buffer of its size.
    pub(super) fn read(&self, at: LogicalBlock, block: &mut [u8]) -> Result<(), RecoveryError> {
        let (nr, _) = self.locate(at)?;
        Ok(self.device.read_at(nr.offset(self.map.block_size()), block)?)
    }

    /// Reads many log blocks, given in ascending order with no repeats, and hands each to `take` with its
    /// place in the list. Neighbours are read together.
    pub(super) fn read_each(
        &self,
        wanted: &[LogicalBlock],
        mut take: impl FnMut(usize, &[u8]) -> Result<(), RecoveryError>,
    ) -> Result<(), RecoveryError> {
        let size = self.map.block_size().len();
        let mut buffer = Vec::new();
        let mut done = 0;
        while let Some(first) = wanted.get(done) {
            let (nr, side_by_side) = self.locate(*first)?;
            let most = usize_of(side_by_side).min(READ_MAX / size);
            let follows = |(i, at): &(usize, &LogicalBlock)| {
                first.checked_add(low32(u64_of(*i))).is_some_and(|expected| expected == **at)
            };
            let count = wanted[done..].iter().enumerate().take(most).take_while(follows).count();
            buffer.resize(count * size, 0);
            self.device.read_at(nr.offset(self.map.block_size()), &mut buffer)?;
            for block in buffer.chunks_exact(size) {
                take(done, block)?;
                done += 1;
            }
        }
        Ok(())
    }

    /// Where a block of the log lies, and how many lie behind it.
    pub(super) fn locate(&self, at: LogicalBlock) -> Result<(BlockNr, u32), RecoveryError> {
        self.map.locate(at).ok_or_else(|| {
            Corrupt::new("journal file", Place::Volume, format!("log block {at} has no place")).into()
        })
    }
}

/// The ring of log blocks: where reading continues, and how much of one turn is left.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    first: u32,
    end: u32,
    next: u32,
    left: u32,
}

impl Ring {
    /// A turn from `start`, which lies inside the log.
    pub(super) fn from(superblock: &JournalSuperblock, start: LogicalBlock) -> Self {
        let (first, end) = (superblock.first().get(), superblock.end().get());
        Self { first, end, next: start.get(), left: end.saturating_sub(first) }
    }

    /// The block that comes next.
    pub(super) const fn position(&self) -> LogicalBlock {
        LogicalBlock::new(self.next)
    }

    /// Advances by one block and returns it; `None` once the turn is complete.
    pub(super) fn step(&mut self) -> Option<LogicalBlock> {
        self.left = self.left.checked_sub(1)?;
        let at = self.next;
        self.next = if at + 1 >= self.end { self.first } else { at + 1 };
        Some(LogicalBlock::new(at))
    }

    /// Advances by `count` blocks and returns them; `None` if the turn has fewer left.
    pub(super) fn steps(&mut self, count: usize) -> Option<Vec<LogicalBlock>> {
        if u64_of(count) > u64::from(self.left) {
            return None;
        }
        let mut steps = Vec::with_capacity(index_of(u64_of(count)));
        while steps.len() < count {
            steps.push(self.step()?);
        }
        Some(steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_units::BlockSize;

    #[test]
    fn a_ring_wraps_and_ends_after_one_turn() {
        let superblock = JournalSuperblock::new(BlockSize::KIB1, 5, 0, [0; 16]);
        let mut ring = Ring::from(&superblock, LogicalBlock::new(3));
        let numbers = |steps: Option<Vec<LogicalBlock>>| steps.map(|s| s.iter().map(|b| b.get()).collect());
        assert_eq!(numbers(ring.steps(3)), Some(vec![3, 4, 1]));
        assert_eq!(numbers(ring.steps(2)), None);
        assert_eq!(ring.position().get(), 2);
        assert_eq!((ring.step().map(LogicalBlock::get), ring.step()), (Some(2), None));
    }
}
