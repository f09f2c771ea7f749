//! The map of a file in memory, as far as it can be true.

use hectare_ext4::extent::Extent;
use hectare_units::{BlockNr, low32};

/// A map as it can be read.
#[derive(Default)]
pub(crate) struct Map {
    /// In order of the file, without overlaps.
    pub(crate) extents: Vec<Extent>,
    /// The blocks of the map itself, in the order in which they were met.
    pub(crate) nodes: Vec<BlockNr>,
    /// Blocks that it leads to as to blocks of itself, and that hold something else.
    pub(crate) foreign: Vec<BlockNr>,
    /// The first thing that is wrong: the map must be made anew.
    pub(crate) broken: Option<String>,
    /// Whether something that was mapped could not be kept.
    pub(crate) loses: bool,
}

impl Map {
    /// Notes what is wrong.
    pub(crate) fn blame(&mut self, loses: bool, reason: impl Into<String>) {
        self.broken.get_or_insert_with(|| reason.into());
        self.loses |= loses;
    }

    /// The file block after the last that is mapped.
    pub(crate) fn end(&self) -> u64 {
        self.extents.last().map_or(0, Extent::end)
    }

    /// The file block after the last that is mapped and written.
    pub(crate) fn written_end(&self) -> u64 {
        self.extents.iter().filter(|extent| !extent.unwritten).map(Extent::end).max().unwrap_or(0)
    }

    /// Gives up everything from a file block on.
    pub(crate) fn cut(&mut self, at: u64) {
        self.extents.retain(|extent| u64::from(extent.logical.get()) < at);
        if let Some(last) = self.extents.last_mut()
            && last.end() > at
        {
            last.len = low32(at - u64::from(last.logical.get()));
        }
    }

    /// Blocks that are mapped.
    pub(crate) fn blocks(&self) -> u64 {
        self.extents.iter().map(|extent| u64::from(extent.len)).sum()
    }
}

/// Extents with neighbours joined.
pub(crate) fn joined(extents: &[Extent]) -> Vec<Extent> {
    let mut list: Vec<Extent> = Vec::with_capacity(extents.len());
    for extent in extents {
        match list.last_mut() {
            Some(last) if last.joins(extent) => last.len += extent.len,
            _ => list.push(*extent),
        }
    }
    list
}

/// The numbers in a table.
pub(crate) fn numbers(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(4).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]))
}
