//! Uses a recovery: lays it over the volume, one block at a time, or writes all of it to the final locations.

use super::reader::LogReader;
use super::{LoggedCopy, Recovery, RecoveryError};
use crate::format::MAGIC;
use hectare_device::{Device, Elsewhere, ElsewhereDevice};
use hectare_units::{BlockNr, LogicalBlock};

/// Bytes collected before they are written, so that neighbours go out in one write.
const BATCH: usize = 8 << 20;

impl Recovery {
    /// Reads the newest committed content of a block from the log on `journal`, and says whether it has any;
    /// if not, `block` is left as it is.
    ///
    /// # Errors
    /// If reading fails.
    ///
    /// # Panics
    /// If `block` has not the size of a block.
    pub fn read_block(
        &self,
        journal: &dyn Device,
        nr: BlockNr,
        block: &mut [u8],
    ) -> Result<bool, RecoveryError> {
        assert_eq!(block.len(), self.map.block_size().len(), "a buffer of a block");
        let Some(copy) = self.blocks.get(&nr) else { return Ok(false) };
        LogReader::new(journal, &self.map).read(copy.at, block)?;
        unescape(copy, block);
        Ok(true)
    }

    /// The volume as it will be once every block is in its place, read from both devices. Of each block only
    /// its place is held in memory, so that what a journal claims to hold costs nothing until it is read.
    ///
    /// # Errors
    /// If a copy has no place on `journal`.
    pub fn laid_over<D: Device, S: Device>(
        &self,
        volume: D,
        journal: S,
    ) -> Result<ElsewhereDevice<D, S>, RecoveryError> {
        let size = self.map.block_size();
        let reader = LogReader::new(&journal, &self.map);
        let place = |(nr, copy): (&BlockNr, &LoggedCopy)| {
            let (at, _) = reader.locate(copy.at)?;
            let head = copy.escaped.then(|| MAGIC.to_be_bytes());
            Ok((*nr, Elsewhere { at: at.offset(size), head }))
        };
        let blocks = self.blocks.iter().map(place).collect::<Result<_, RecoveryError>>()?;
        Ok(ElsewhereDevice::new(volume, journal, size, blocks))
    }

    /// Writes every block to its place on `volume`, in ascending order, neighbours together. Nothing is
    /// flushed: the caller flushes, then writes the [clean superblock](Self::clean_superblock).
    ///
    /// # Errors
    /// If reading or writing fails; it may then be tried again.
    pub fn apply(&self, journal: &dyn Device, volume: &dyn Device) -> Result<(), RecoveryError> {
        let size = self.map.block_size().len();
        let all: Vec<(BlockNr, LoggedCopy)> = self.blocks.iter().map(|(nr, copy)| (*nr, *copy)).collect();
        let mut buffer = vec![0; (BATCH / size).min(all.len()) * size];
        for batch in all.chunks(BATCH / size) {
            self.gather(journal, batch, &mut buffer)?;
            self.write(volume, batch, &buffer)?;
        }
        Ok(())
    }

    /// Reads the copies of a batch in the order of the log, each to its place in `buffer`.
    fn gather(
        &self,
        journal: &dyn Device,
        batch: &[(BlockNr, LoggedCopy)],
        buffer: &mut [u8],
    ) -> Result<(), RecoveryError> {
        let size = self.map.block_size().len();
        let mut order: Vec<usize> = (0..batch.len()).collect();
        order.sort_unstable_by_key(|i| batch[*i].1.at);
        let places: Vec<LogicalBlock> = order.iter().map(|i| batch[*i].1.at).collect();
        LogReader::new(journal, &self.map).read_each(&places, |i, logged| {
            let target = &mut buffer[order[i] * size..][..size];
            target.copy_from_slice(logged);
            unescape(&batch[order[i]].1, target);
            Ok(())
        })
    }

    fn write(
        &self,
        volume: &dyn Device,
        batch: &[(BlockNr, LoggedCopy)],
        buffer: &[u8],
    ) -> Result<(), RecoveryError> {
        let block_size = self.map.block_size();
        let mut rest = buffer;
        for run in batch.chunk_by(|(a, _), (b, _)| b.get() - a.get() == 1) {
            let (bytes, behind) = rest.split_at(run.len() * block_size.len());
            volume.write_at(run[0].0.offset(block_size), bytes)?;
            rest = behind;
        }
        Ok(())
    }
}

/// Gives an escaped block its first word back.
fn unescape(copy: &LoggedCopy, block: &mut [u8]) {
    if copy.escaped {
        block[..4].copy_from_slice(&MAGIC.to_be_bytes());
    }
}
