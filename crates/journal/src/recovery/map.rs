//! Where the blocks of a log lie.

use super::RecoveryError;
use hectare_device::{Device, Result as DeviceResult};
use hectare_ext4::feature::Incompat;
use hectare_ext4::raw;
use hectare_units::{BlockNr, BlockSize, Blocks};
use zerocopy::FromBytes;

/// Which blocks of a device a log consists of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogMap {
    /// The first block of the log, its place, and how many follow; ascending, without gaps.
    runs: Vec<(u32, BlockNr, u32)>,
    /// The block of the log that holds its superblock.
    superblock: u32,
}

impl LogMap {
    /// A log that consists of runs: the first block of the log in it, its place on the device, and how many blocks there
    /// are. They are ascending and follow each other without gaps. The superblock comes first.
    #[must_use]
    pub const fn new(runs: Vec<(u32, BlockNr, u32)>) -> Self {
        Self { runs, superblock: 0 }
    }

    /// The block of the log that holds its superblock.
    #[must_use]
    pub const fn superblock(&self) -> u32 {
        self.superblock
    }

    /// Blocks of the log.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.runs.last().map_or(0, |(first, _, len)| u64::from(*first) + u64::from(*len))
    }

    /// Where a block of the log lies, and how many lie there one after the other, this one included. `None` beyond
    /// the end.
    #[must_use]
    pub fn run_at(&self, block: u32) -> Option<(BlockNr, u32)> {
        let index = self.runs.partition_point(|(first, ..)| *first <= block).checked_sub(1)?;
        let (first, start, len) = self.runs[index];
        let within = block - first;
        (within < len).then(|| (start + Blocks::new(within.into()), len - within))
    }

    fn place(&self, block: u32) -> BlockNr {
        // Superblocks whose ring is not covered by the map are refused, and nothing else makes up block numbers.
        self.run_at(block).expect("the map covers the ring").0
    }

    pub(crate) fn read(
        &self,
        device: &dyn Device,
        size: BlockSize,
        block: u32,
        out: &mut [u8],
    ) -> DeviceResult<()> {
        device.read_at(self.place(block).offset(size), out)
    }

    pub(crate) fn write(
        &self,
        device: &dyn Device,
        size: BlockSize,
        block: u32,
        data: &[u8],
    ) -> DeviceResult<()> {
        device.write_at(self.place(block).offset(size), data)
    }
}

/// The log on a device of its own, which must be that of the volume whose superblock names `uuid`.
///
/// Such a device has a superblock like a volume's, of which little is used, and the log's own in the block after it.
/// Blocks of the log are counted from the start of the device.
///
/// # Errors
/// [`RecoveryError::NotTheJournal`] if it is anything else; or the device fails.
pub fn external(device: &dyn Device, uuid: &[u8; 16]) -> Result<LogMap, RecoveryError> {
    let not = |what: &str| RecoveryError::NotTheJournal(format!("{} {what}", device.name()));
    let mut bytes = vec![0; size_of::<raw::SuperBlock>()];
    if device.len().get() < 4096 {
        return Err(not("is too small for a journal"));
    }
    device.read_at(hectare_ext4::geometry::SUPERBLOCK_OFFSET, &mut bytes)?;
    let Ok((sb, _)) = raw::SuperBlock::read_from_prefix(&bytes) else { return Err(not("is no journal")) };
    let is_journal = Incompat::from_bits_retain(sb.s_feature_incompat.get()).contains(Incompat::JOURNAL_DEV);
    if sb.s_magic.get() != 0xef53 || !is_journal {
        return Err(not("is not a journal device"));
    }
    if sb.s_uuid != *uuid {
        return Err(not("is the journal of another volume: its UUID is not the one that the volume names"));
    }
    let size = sb.s_log_block_size.get().checked_add(10).and_then(BlockSize::from_shift);
    let Some(size) = size else { return Err(not("has an impossible block size")) };
    let blocks = u32::try_from(device.len().get() >> size.shift()).unwrap_or(u32::MAX);
    let superblock = if size == BlockSize::KIB1 { 2 } else { 1 };
    Ok(LogMap { runs: vec![(0, BlockNr::new(0), blocks)], superblock })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_in_their_runs() {
        let map = LogMap::new(vec![(0, BlockNr::new(100), 10), (10, BlockNr::new(50), 5)]);
        assert_eq!(map.blocks(), 15);
        assert_eq!(map.run_at(0), Some((BlockNr::new(100), 10)));
        assert_eq!(map.run_at(9), Some((BlockNr::new(109), 1)));
        assert_eq!(map.run_at(12), Some((BlockNr::new(52), 3)));
        assert_eq!(map.run_at(15), None);
    }
}
