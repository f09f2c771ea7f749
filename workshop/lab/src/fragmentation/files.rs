//! Counts the pieces that the files under a directory lie in.

use hectare_engine::{Extent, Result, Volume};
use hectare_ext4::inode::Kind;
use hectare_units::InodeNr;
use serde::{Deserialize, Serialize};

/// Regular files and the pieces they lie in. A piece is a run of a file's blocks that lies in one run of the
/// volume's blocks: two extents that continue each other, as long ones must, are one piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FileExtents {
    /// Files that have any blocks.
    pub files: u64,
    /// Bytes mapped, by all of them.
    pub bytes: u64,
    /// Pieces of all of them.
    pub extents: u64,
    /// Pieces of the file with the most.
    pub extents_max: u64,
}

impl FileExtents {
    /// Counts the files under a directory, to any depth. A file with two names counts twice.
    ///
    /// # Errors
    /// As [`Volume::read_dir`], and for maps that can't be read.
    pub fn under(volume: &Volume, directory: &[u8]) -> Result<Self> {
        let mut counted = Self::default();
        let mut waiting = vec![volume.resolve(directory, true)?];
        while let Some(directory) = waiting.pop() {
            for entry in volume.list(directory)? {
                let kind = match entry.kind {
                    Some(kind) => kind,
                    None => volume.stat(entry.inode)?.kind,
                };
                match kind {
                    Kind::Directory => waiting.push(entry.inode),
                    Kind::File => counted.add(volume, entry.inode)?,
                    _ => {}
                }
            }
        }
        Ok(counted)
    }

    fn add(&mut self, volume: &Volume, nr: InodeNr) -> Result<()> {
        let extents = volume.open_inode(nr)?.extents()?;
        let block = volume.superblock().geometry().block_size.bytes().get();
        let pieces = pieces(&extents);
        self.files += u64::from(pieces > 0);
        self.extents += pieces;
        self.bytes += extents.iter().map(|extent| u64::from(extent.len) * block).sum::<u64>();
        self.extents_max = self.extents_max.max(pieces);
        Ok(())
    }

    /// Pieces of the average file.
    #[must_use]
    pub fn per_file(&self) -> Option<f64> {
        ratio(self.extents, self.files)
    }

    /// KiB of the average piece.
    #[must_use]
    pub fn kib_per_extent(&self) -> Option<f64> {
        ratio(self.bytes, self.extents).map(|bytes| bytes / 1024.0)
    }
}

#[allow(clippy::cast_precision_loss)] // a mean needs no more than 52 bits
fn ratio(of: u64, by: u64) -> Option<f64> {
    (by > 0).then(|| of as f64 / by as f64)
}

fn pieces(extents: &[Extent]) -> u64 {
    let goes_on = |pair: &&[Extent]| {
        let [first, next] = pair else { return false };
        let adjacent = first.physical.get() + u64::from(first.len) == next.physical.get();
        first.end() == u64::from(next.logical.get()) && adjacent
    };
    let joined = extents.windows(2).filter(goes_on).count();
    hectare_units::u64_of(extents.len() - joined)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_units::{BlockNr, LogicalBlock};

    #[test]
    fn extents_that_continue_each_other_are_one_piece() {
        let extent = |logical, physical, len, unwritten| Extent {
            logical: LogicalBlock::new(logical),
            physical: BlockNr::new(physical),
            len,
            unwritten,
        };
        assert_eq!(pieces(&[]), 0);
        assert_eq!(pieces(&[extent(0, 100, 8, false), extent(8, 108, 8, true)]), 1);
        assert_eq!(pieces(&[extent(0, 100, 8, false), extent(9, 108, 8, false)]), 2, "a hole between");
        assert_eq!(pieces(&[extent(0, 100, 8, false), extent(8, 109, 8, false)]), 2);
    }
}
