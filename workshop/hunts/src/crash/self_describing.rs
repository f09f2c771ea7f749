//! Self-describing content.
//!
//! Files are written in cells of 16 bytes, each of which names its file, the operation that wrote it and its
//! place in the file, with a check over the three. So the owner and the age of every part of a sector found
//! after a crash are known. A cell of zeros was never written, or was freed.

use hectare_units::{low32, u64_of};

/// Bytes of a cell. A divisor of the sector, so that no cell is torn.
pub(super) const CELL: u64 = 16;

/// The same as an index.
pub(super) const CELL_LEN: usize = 16;

/// The content of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cell {
    /// The file.
    pub(super) file: u32,
    /// The operation, counted from 1 in its thread's history.
    pub(super) version: u32,
    /// Its place in the file, in cells, when it was written.
    pub(super) index: u32,
}

/// What 16 bytes turn out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Decoded {
    /// Zeros.
    Zero,
    /// A whole cell.
    Cell(Cell),
    /// Nothing that a workload wrote into a file.
    Other,
}

impl Cell {
    fn check(self) -> u32 {
        let mut hash = 0x68ec_7a2e_u32;
        for part in [self.file, self.version, self.index] {
            hash = (hash ^ part).wrapping_mul(0x85eb_ca6b).rotate_left(13);
        }
        hash
    }

    pub(super) fn encode(self) -> [u8; CELL_LEN] {
        let mut bytes = [0; CELL_LEN];
        for (at, part) in [self.file, self.version, self.index, self.check()].into_iter().enumerate() {
            bytes[at * 4..at * 4 + 4].copy_from_slice(&part.to_le_bytes());
        }
        bytes
    }

    /// What a cell of the file's content holds.
    pub(super) fn decode(bytes: &[u8; CELL_LEN]) -> Decoded {
        if *bytes == [0; CELL_LEN] {
            return Decoded::Zero;
        }
        let (parts, _) = bytes.as_chunks::<4>();
        let part = |n: usize| u32::from_le_bytes(parts[n]);
        let cell = Self { file: part(0), version: part(1), index: part(2) };
        if part(3) == cell.check() { Decoded::Cell(cell) } else { Decoded::Other }
    }
}

/// The bytes an operation writes: `len` of them from byte `at` on, both multiples of a cell.
pub(super) fn written(file: u32, version: u32, at: u64, len: u64) -> Vec<u8> {
    let cells = at / CELL..(at + len) / CELL;
    cells.flat_map(|index| Cell { file, version, index: low32(index) }.encode()).collect()
}

/// Values of attributes from this length on are equal for all files, so that these share them.
pub(super) const SHARED_MIN: u64 = 5000;

/// The value of an extended attribute: of any length, and self-describing as well.
pub(super) fn attribute(file: u32, version: u32, len: usize) -> Vec<u8> {
    let (file, version) = if u64_of(len) < SHARED_MIN { (file, version) } else { (0, 0) };
    let mut value = written(file, version, 0, u64_of(len).next_multiple_of(CELL));
    value.truncate(len);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_come_back_and_damage_shows() {
        let cell = Cell { file: 7, version: 1, index: 0 };
        let mut bytes = cell.encode();
        assert_eq!(Cell::decode(&bytes), Decoded::Cell(cell));
        bytes[4] ^= 1;
        assert_eq!(Cell::decode(&bytes), Decoded::Other);
        assert_eq!(Cell::decode(&[0; CELL_LEN]), Decoded::Zero);
        assert_eq!(Cell::decode(&[0xab; CELL_LEN]), Decoded::Other);
        assert_eq!(written(7, 1, 32, 16), Cell { file: 7, version: 1, index: 2 }.encode());
    }
}
