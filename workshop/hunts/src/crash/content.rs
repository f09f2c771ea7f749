//! The content of a file after its operations, and what of it may be there after a crash.
//!
//! A file is a list of cells; each is zero or names the operation that wrote it, and its place. After a crash
//! every cell must be as it was after the last operation known to be durable, or after one of those begun
//! since: each cell separately, since in-place overwrites and delayed allocations reach storage in any order.
//! The size must be that after one of these operations, or, while a file grows, between. Where data is
//! journalled, all cells together must be as after one of them.
//!
//! Not here: which operations are known to be durable ([`super::expect`]).

use super::self_describing::{CELL, CELL_LEN, Cell, Decoded};
use hectare_units::{index_of, low32, u64_of};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A change of a file's content. Places and lengths are in bytes, multiples of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Edit {
    /// Writes cells.
    Write { at: u64, len: u64 },
    /// Writes this many runs of `each` bytes, with gaps of the same length between them.
    Comb { at: u64, each: u64, count: u64 },
    /// Makes the file longer or shorter.
    Resize { size: u64 },
    /// Allocates a range, which reads as before.
    Allocate { at: u64, len: u64, keep_size: bool },
    /// Frees the blocks of a range.
    Punch { at: u64, len: u64 },
    /// Makes a range zero.
    Zero { at: u64, len: u64, keep_size: bool },
    /// Removes a range; what follows moves down.
    Collapse { at: u64, len: u64 },
    /// Inserts a range; what follows moves up.
    Insert { at: u64, len: u64 },
}

/// Bytes that are written under one handle even to the smallest log with the smallest blocks, in a file whose
/// blocks are all of one state.
const ONE_HANDLE: u64 = 96 << 10;
/// The same in any file: each block can be of another state than the one before, and take a change of the map.
const ONE_HANDLE_FRAGMENTED: u64 = 4 << 10;

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keep = |keep_size: bool| if keep_size { ", size kept" } else { "" };
        match *self {
            Self::Write { at, len } => write!(f, "write {len} at {at}"),
            Self::Comb { at, each, count } => write!(f, "write {count} pieces of {each} from {at} on"),
            Self::Resize { size } => write!(f, "truncate to {size}"),
            Self::Allocate { at, len, keep_size } => write!(f, "allocate {len} at {at}{}", keep(keep_size)),
            Self::Punch { at, len } => write!(f, "punch {len} at {at}"),
            Self::Zero { at, len, keep_size } => write!(f, "zero {len} at {at}{}", keep(keep_size)),
            Self::Collapse { at, len } => write!(f, "collapse {len} at {at}"),
            Self::Insert { at, len } => write!(f, "insert {len} at {at}"),
        }
    }
}

impl Edit {
    /// The size of a file of `size` bytes afterwards.
    pub(super) fn size_after(self, size: u64) -> u64 {
        match self {
            Self::Resize { size } => size,
            Self::Comb { at, each, count } => size.max(at + each * (2 * count - 1)),
            Self::Write { at, len }
            | Self::Allocate { at, len, keep_size: false }
            | Self::Zero { at, len, keep_size: false } => size.max(at + len),
            Self::Allocate { .. } | Self::Zero { .. } | Self::Punch { .. } => size,
            Self::Collapse { len, .. } => size - len,
            Self::Insert { len, .. } => size + len,
        }
    }

    fn moves(self) -> bool {
        matches!(self, Self::Collapse { .. } | Self::Insert { .. })
    }

    /// Whether it may be done in several transactions: it is not a plain write, or more than one holds.
    fn takes_steps(self, fragmented: bool) -> bool {
        match self {
            Self::Write { len, .. } => len > if fragmented { ONE_HANDLE_FRAGMENTED } else { ONE_HANDLE },
            Self::Resize { .. } => false,
            _ => true,
        }
    }

    /// Whether it leaves blocks of several states in a file of `size` bytes: holes, unwritten and written ones.
    fn fragments(self, size: u64) -> bool {
        match self {
            Self::Write { at, .. } => at > size,
            Self::Resize { size: after } => after > size,
            _ => true,
        }
    }

    /// Whether it makes a cell zero.
    fn clears(self, cell: u64) -> bool {
        let byte = cell * CELL;
        match self {
            Self::Resize { size } => byte >= size,
            Self::Punch { at, len } | Self::Zero { at, len, .. } => (at..at + len).contains(&byte),
            _ => false,
        }
    }

    fn writes(self, cell: u64) -> bool {
        self.written().any(|(at, len)| (at..at + len).contains(&(cell * CELL)))
    }

    /// The ranges it writes, each by its first byte and its length.
    pub(super) fn written(self) -> impl Iterator<Item = (u64, u64)> {
        let (at, each, count) = match self {
            Self::Write { at, len } => (at, len, 1),
            Self::Comb { at, each, count } => (at, each, count),
            _ => (0, 0, 0),
        };
        (0..count).map(move |n| (at + 2 * each * n, each))
    }
}

/// A cell in memory: 0 if it is zero.
type Token = u64;

fn token(version: u32, index: u32) -> Token {
    u64::from(version) << 32 | u64::from(index)
}

/// The content after some operations.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Content {
    cells: Vec<Token>,
    /// Whether its blocks may be of several states.
    fragmented: bool,
}

impl Content {
    /// Its size in bytes.
    pub(super) fn size(&self) -> u64 {
        u64_of(self.cells.len()) * CELL
    }

    fn cell(&self, n: u64) -> Token {
        self.cells.get(index_of(n)).copied().unwrap_or(0)
    }

    /// Does an edit, as the operation with this number.
    pub(super) fn apply(&mut self, edit: Edit, version: u32) {
        self.fragmented |= edit.fragments(self.size());
        let size = edit.size_after(self.size());
        let cell = |byte: u64| index_of(byte / CELL);
        match edit {
            Edit::Collapse { at, len } => drop(self.cells.drain(cell(at)..cell(at + len))),
            Edit::Insert { at, len } => {
                let zeros = std::iter::repeat_n(0, cell(len));
                self.cells.splice(cell(at)..cell(at), zeros);
            }
            _ => self.cells.resize(cell(size), 0),
        }
        let end = cell(size);
        match edit {
            Edit::Punch { at, len } | Edit::Zero { at, len, .. } => {
                self.cells[cell(at).min(end)..cell(at + len).min(end)].fill(0);
            }
            _ => {}
        }
        for (at, len) in edit.written() {
            for n in at / CELL..(at + len) / CELL {
                self.cells[index_of(n)] = token(version, low32(n));
            }
        }
    }

    /// What is wrong with content found after a crash, if this is how it was after the last operation known
    /// to be durable, and `since` are the later ones.
    pub(super) fn check(&self, since: &[(u32, Edit)], file: u32, found: &[u8]) -> Result<(), String> {
        self.check_size(since, u64_of(found.len()))?;
        let loose = since.iter().any(|(_, edit)| edit.moves());
        let (cells, _) = found.as_chunks::<CELL_LEN>();
        for (n, bytes) in (0..).zip(cells) {
            let fine = match Cell::decode(bytes) {
                Decoded::Zero => loose || self.may_be_zero(since, n),
                Decoded::Cell(cell) if cell.file == file => loose || self.may_hold(since, n, cell),
                Decoded::Cell(_) | Decoded::Other => false,
            };
            if !fine {
                return Err(self.complaint(since, n, Cell::decode(bytes)));
            }
        }
        Ok(())
    }

    /// The same where data is journalled: the content must be that after one of the operations. Those that
    /// take several steps may be in between.
    pub(super) fn check_in_order(
        &self,
        since: &[(u32, Edit)],
        file: u32,
        found: &[u8],
    ) -> Result<(), String> {
        let mut content = self.clone();
        for (version, edit) in since {
            let between = edit.takes_steps(content.fragmented)
                && content.check(&[(*version, *edit)], file, found).is_ok();
            if between || content.is(file, found) {
                return Ok(());
            }
            content.apply(*edit, *version);
        }
        if content.is(file, found) {
            return Ok(());
        }
        self.check(since, file, found)?;
        Err(format!("it is not as it was after any of the operations, {}", told(since)))
    }

    /// Whether the file with this id holds just this.
    fn is(&self, file: u32, found: &[u8]) -> bool {
        let (cells, rest) = found.as_chunks::<CELL_LEN>();
        let token_of = |bytes| match Cell::decode(bytes) {
            Decoded::Zero => Some(0),
            Decoded::Cell(cell) if cell.file == file => Some(token(cell.version, cell.index)),
            Decoded::Cell(_) | Decoded::Other => None,
        };
        rest.is_empty()
            && cells.len() == self.cells.len()
            && cells.iter().zip(&self.cells).all(|(bytes, token)| token_of(bytes) == Some(*token))
    }

    fn may_be_zero(&self, since: &[(u32, Edit)], n: u64) -> bool {
        self.cell(n) == 0 || since.iter().any(|(_, edit)| edit.clears(n))
    }

    fn may_hold(&self, since: &[(u32, Edit)], n: u64, cell: Cell) -> bool {
        let token = token(cell.version, cell.index);
        let written = |(version, edit): &(u32, Edit)| {
            *version == cell.version && u64::from(cell.index) == n && edit.writes(n)
        };
        self.cell(n) == token || since.iter().any(written)
    }

    fn check_size(&self, since: &[(u32, Edit)], found: u64) -> Result<(), String> {
        let mut size = self.size();
        let mut fine = found == size;
        for (_, edit) in since {
            let after = edit.size_after(size);
            fine |= found == after || (size..after).contains(&found);
            // The range moves in steps, and the size with it.
            fine |= edit.moves() && (after.min(size)..=after.max(size)).contains(&found);
            size = after;
        }
        if fine && found.is_multiple_of(CELL) {
            return Ok(());
        }
        Err(format!("it has {found} bytes; {} were durable, {}", self.size(), told(since)))
    }

    fn complaint(&self, since: &[(u32, Edit)], n: u64, found: Decoded) -> String {
        let holds = match found {
            Decoded::Zero => "zeros".to_owned(),
            Decoded::Other => "what no operation wrote".to_owned(),
            Decoded::Cell(Cell { file, version, index }) => {
                format!("what operation {version} wrote to byte {} of file {file}", u64::from(index) * CELL)
            }
        };
        let durable = match self.cell(n) {
            0 => "zeros".to_owned(),
            token => format!("what operation {} wrote", hectare_units::high32(token)),
        };
        format!("byte {} holds {holds}; durable was {durable}, {}", n * CELL, told(since))
    }
}

fn told(since: &[(u32, Edit)]) -> String {
    if since.is_empty() {
        return "and nothing was done since".to_owned();
    }
    let told: Vec<String> = since.iter().map(|(version, edit)| format!("{version}: {edit}")).collect();
    format!("since then {}", told.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Content {
        /// The bytes of the file with this id.
        fn bytes(&self, file: u32) -> Vec<u8> {
            let bytes = |token: &Token| match *token {
                0 => [0; CELL_LEN],
                token => Cell { file, version: hectare_units::high32(token), index: low32(token) }.encode(),
            };
            self.cells.iter().flat_map(bytes).collect()
        }
    }

    fn after(edits: &[(u32, Edit)]) -> Content {
        let mut content = Content::default();
        edits.iter().for_each(|(version, edit)| content.apply(*edit, *version));
        content
    }

    const WRITE: Edit = Edit::Write { at: 0, len: 1024 };

    #[test]
    fn edits_do_to_cells_what_they_do_to_bytes() {
        let mut content = after(&[(1, WRITE), (2, Edit::Punch { at: 512, len: 4096 })]);
        assert_eq!((content.size(), content.cell(31), content.cell(32)), (1024, token(1, 31), 0));
        content.apply(Edit::Write { at: 2048, len: 16 }, 3);
        assert_eq!((content.size(), content.cell(127), content.cell(128)), (2064, 0, token(3, 128)));
        content.apply(Edit::Collapse { at: 0, len: 1024 }, 4);
        assert_eq!((content.size(), content.cell(64)), (1040, token(3, 128)));
        content.apply(Edit::Insert { at: 16, len: 1024 }, 5);
        assert_eq!((content.size(), content.cell(128)), (2064, token(3, 128)));
        content.apply(Edit::Zero { at: 2048, len: 64, keep_size: false }, 6);
        assert_eq!((content.size(), content.cell(128)), (2112, 0));
        content.apply(Edit::Comb { at: 2048, each: 16, count: 3 }, 9);
        assert_eq!((content.size(), content.cell(129), content.cell(132)), (2128, 0, token(9, 132)));
        content.apply(Edit::Resize { size: 16 }, 7);
        content.apply(Edit::Allocate { at: 0, len: 64, keep_size: true }, 8);
        assert_eq!(content.size(), 16);
    }

    #[test]
    fn durable_content_must_be_there_and_later_content_may() {
        let durable = after(&[(1, WRITE)]);
        let since = [(2, Edit::Write { at: 512, len: 1024 })];
        let newer = after(&[(1, WRITE), since[0]]);
        let (old, new) = (durable.bytes(9), newer.bytes(9));
        durable.check(&since, 9, &old).unwrap();
        durable.check(&since, 9, &new).unwrap();
        let mixed = [&old[..768], &new[768..]].concat();
        durable.check(&since, 9, &mixed).unwrap();
        durable.check(&[], 9, &new).unwrap_err();
        newer.check(&[], 9, &old).unwrap_err();
        let zeros = [&new[..1024], &[0; 512]].concat();
        durable.check(&since, 9, &zeros).unwrap();
        newer.check(&[], 9, &zeros).unwrap_err();
        durable.check(&since, 8, &new).unwrap_err();
        let lost = [&[0; 512], &new[512..]].concat();
        durable.check(&since, 9, &lost).unwrap_err();
    }

    #[test]
    fn journalled_content_is_that_after_one_operation() {
        let durable = after(&[(1, WRITE)]);
        let since = [(2, Edit::Write { at: 512, len: 1024 }), (3, Edit::Write { at: 0, len: 16 })];
        let newer = after(&[(1, WRITE), since[0]]);
        let newest = after(&[(1, WRITE), since[0], since[1]]);
        for content in [&durable, &newer, &newest] {
            durable.check_in_order(&since, 9, &content.bytes(9)).unwrap();
        }
        let (old, new) = (durable.bytes(9), newest.bytes(9));
        for mixed in [[&new[..16], &old[16..]].concat(), [&old[..768], &new[768..]].concat()] {
            durable.check(&since, 9, &mixed).unwrap();
            assert!(durable.check_in_order(&since, 9, &mixed).unwrap_err().contains("any of the operations"));
        }
        durable.check_in_order(&since, 8, &old).unwrap_err();
        // What finds blocks of several states may take steps.
        let long = [(4, Edit::Write { at: 0, len: 6 << 10 })];
        let (plain, holes) =
            (after(&[(1, WRITE)]), after(&[(1, WRITE), (2, Edit::Write { at: 2048, len: 16 })]));
        for (content, fine) in [(plain, false), (holes, true)] {
            let mut later = content.clone();
            later.apply(long[0].1, 4);
            let half = [&later.bytes(9)[..512], &content.bytes(9)[512..]].concat();
            assert_eq!(content.check_in_order(&long, 9, &half).is_ok(), fine);
        }
        // In between of what takes steps, and nothing later.
        let punched = [(2, Edit::Punch { at: 0, len: 1024 }), (3, WRITE)];
        durable.check_in_order(&punched, 9, &[&[0; 512], &old[512..]].concat()).unwrap();
        let late = [&[0; 512], &after(&[(3, WRITE)]).bytes(9)[512..]].concat();
        durable.check_in_order(&punched, 9, &late).unwrap_err();
    }

    #[test]
    fn sizes_between_are_those_of_growing_files() {
        let durable = after(&[(1, WRITE)]);
        let zeros = |len: usize| [durable.bytes(9), vec![0; len]].concat();
        durable.check(&[(2, Edit::Write { at: 1024, len: 4096 })], 9, &zeros(2048)).unwrap();
        let shorter = [(2, Edit::Resize { size: 512 })];
        durable.check(&shorter, 9, &durable.bytes(9)[..512]).unwrap();
        durable.check(&shorter, 9, &durable.bytes(9)[..768]).unwrap_err();
        durable.check(&[], 9, &zeros(16)).unwrap_err();
    }

    #[test]
    fn content_of_others_and_of_nobody_is_found() {
        let durable = after(&[(1, WRITE)]);
        let mut found = durable.bytes(9);
        found[0] ^= 1;
        assert!(durable.check(&[], 9, &found).unwrap_err().contains("no operation"));
        let other = after(&[(3, Edit::Resize { size: 1024 })]);
        assert!(other.check(&[], 8, &durable.bytes(9)).unwrap_err().contains("file 9"));
    }
}
