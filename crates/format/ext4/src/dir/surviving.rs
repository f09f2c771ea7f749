//! What can still be read of a directory block that is damaged, or of which names were removed.
//!
//! A removed record usually keeps its bytes: its space goes to the record before it. And a record whose
//! length is wrong hides those after it, or ends the walk. So here the walk goes on wherever a sound record
//! starts.
//!
//! What this is not: a listing. What it finds may never have been a name; its user compares it with the
//! inode.

use super::record::{HEADER_LEN, Head, RECORD_MIN, head};
use super::{FileType, Format, Name};
use hectare_units::InodeNr;

/// Records start at multiples of this.
const STEP: usize = 4;

/// A record that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Survivor<'a> {
    /// The inode it leads to.
    pub inode: InodeNr,
    /// That inode's type, as the record says it.
    pub file_type: FileType,
    /// The name; any bytes, also `.` and `..`.
    pub name: &'a [u8],
    /// Whether the records before it pass over it: it was removed, or one of them is damaged.
    pub hidden: bool,
}

/// The records of a block whose lengths can be followed, in order.
#[must_use]
pub fn surviving<'a>(block: &'a [u8], format: &Format) -> Vec<Survivor<'a>> {
    let mut found = Vec::new();
    let (mut at, mut next, mut is_tiled) = (0, 0, true);
    // A record that begins where the one before it ends is taken as it is; one that is met on the way there
    // must look like a name.
    while at + RECORD_MIN <= block.len() {
        let on_tile = at == next;
        let Some(record) =
            head(block, at, block.len()).filter(|head| on_tile || may_be(block, at, head, format))
        else {
            is_tiled &= !on_tile;
            at += STEP;
            next = if on_tile { at } else { next };
            continue;
        };
        let takes_over = on_tile && (is_tiled || record.inode == 0 || may_be(block, at, &record, format));
        if let Some(inode) = InodeNr::from_disk(record.inode).filter(|_| takes_over || !on_tile) {
            let name = &block[at + HEADER_LEN..at + HEADER_LEN + record.name_len];
            let code = if format.filetype { block[at + 7] } else { 0 };
            found.push(Survivor { inode, file_type: FileType::from_code(code), name, hidden: !on_tile });
        }
        if on_tile {
            next = at + record.len;
        }
        at += record.used.max(RECORD_MIN);
        next = next.max(at);
    }
    found
}

/// Whether what starts there looks like a record in use.
fn may_be(block: &[u8], at: usize, head: &Head, format: &Format) -> bool {
    let Some(name) = block.get(at + HEADER_LEN..at + HEADER_LEN + head.name_len) else { return false };
    let known_type = !format.filetype || (1..=7).contains(&block[at + 7]);
    head.inode != 0 && known_type && (format.opaque_names || Name::new(name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dir::{Entry, HashVersion, Signedness, leaf};
    use crate::error::Place;
    use hectare_units::{BlockNr, BlockSize};
    use proptest::prelude::*;

    fn format() -> Format {
        Format {
            block_size: BlockSize::KIB1,
            filetype: true,
            checksums: false,
            index: true,
            large_dir: false,
            hash_version: HashVersion::from_code(1).unwrap(),
            hash_signedness: Signedness::Signed,
            hash_seed: [0; 4],
            opaque_names: false,
            folding: None,
        }
    }

    fn block() -> Vec<u8> {
        let (format, mut block) = (format(), vec![0; 1024]);
        leaf::init_empty(&mut block, &format);
        for (nr, name) in ["alpha", "beta", "gamma", "delta"].into_iter().enumerate() {
            let inode = InodeNr::new(20 + u32::try_from(nr).unwrap());
            let name = Name::new(name.as_bytes()).unwrap();
            let entry = Entry { name, inode, file_type: FileType::Regular };
            assert!(leaf::insert(&mut block, &format, Place::Block(BlockNr::new(1)), &entry).unwrap());
        }
        block
    }

    fn names(block: &[u8]) -> Vec<(String, bool)> {
        let shown = |found: &Survivor<'_>| (String::from_utf8_lossy(found.name).into_owned(), found.hidden);
        surviving(block, &format()).iter().map(shown).collect()
    }

    #[test]
    fn a_whole_block_has_its_names_and_no_more() {
        let plain = ["alpha", "beta", "gamma", "delta"].map(|name| (name.to_owned(), false));
        assert_eq!(names(&block()), plain);
    }

    #[test]
    fn names_behind_a_broken_or_grown_record_are_found() {
        let mut grown = block();
        grown[4] = 32; // alpha takes beta over, as when beta is removed
        let found = names(&grown);
        assert!(found.contains(&("beta".to_owned(), true)), "{found:?}");
        assert_eq!(found.len(), 4);
        let mut broken = block();
        broken[4..8].fill(0xff);
        let found: Vec<String> = names(&broken).into_iter().map(|(name, _)| name).collect();
        assert_eq!(found, ["beta", "gamma", "delta"]);
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_bounded_number_of_records(
            bytes in proptest::collection::vec(any::<u8>(), 0..1025),
        ) {
            prop_assert!(surviving(&bytes, &format()).len() <= bytes.len() / RECORD_MIN);
        }
    }
}
