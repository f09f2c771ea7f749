//! Fuzz target: quota files of any bytes, and names folded; what is put into a sound tree is found again.

use crate::input::Input;
use crate::patch;
use hectare_ext4::casefold;
use hectare_ext4::error::FormatError;
use hectare_ext4::quota::{
    self, BLOCK_BYTES, Block, BlockIndex, Info, Kind, QuotaRead, QuotaWrite, Record, Resource,
};
use hectare_units::{InodeNr, low32, u64_of, usize_of};
use std::collections::BTreeMap;

/// More blocks than any input needs.
const BLOCKS_MAX: usize = 4096;

struct File(Vec<Block>);

impl QuotaRead for File {
    type Error = FormatError;

    fn kind(&self) -> Kind {
        Kind::User
    }

    fn inode(&self) -> InodeNr {
        InodeNr::new(3)
    }

    fn len(&self) -> u32 {
        low32(u64_of(self.0.len()))
    }

    fn block(&self, at: BlockIndex) -> Result<Block, FormatError> {
        Ok(self.0[usize_of(at.get())])
    }
}

impl QuotaWrite for File {
    fn edit<R>(&mut self, at: BlockIndex, change: impl FnOnce(&mut Block) -> R) -> Result<R, FormatError> {
        Ok(change(&mut self.0[usize_of(at.get())]))
    }

    fn grow(&mut self, blocks: u32) -> Result<(), FormatError> {
        assert!(usize_of(blocks) < BLOCKS_MAX, "a tree that grows without end");
        let len = self.0.len().max(usize_of(blocks));
        self.0.resize(len, [0; BLOCK_BYTES]);
        Ok(())
    }
}

pub(super) fn target(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.byte() & 3 {
        0 => names(input.rest()),
        1 => sound(&mut input),
        _ => broken(&mut input),
    }
}

/// Folding ends: what it makes has no characters that are left out, across which marks keep their order; so the
/// second time is the last that changes anything. What is alike hashes alike.
fn names(name: &[u8]) {
    let Some(once) = casefold::fold(name) else {
        assert!(str::from_utf8(name).is_err());
        return;
    };
    let twice = casefold::fold(&once).expect("what is folded is text");
    assert_eq!(casefold::fold(&twice).as_ref(), Some(&twice));
    assert_eq!(casefold::alike(name, &once), once == twice || name == once);
    assert!(once.len() <= 18 * name.len());
}

fn tree(input: &mut Input<'_>) -> (File, Info, BTreeMap<u32, Record>) {
    let mut records = BTreeMap::new();
    for _ in 0..input.byte() % 48 {
        let id = if input.byte() & 1 == 0 { u32::from(input.byte()) } else { input.long() };
        let space = Resource { used: input.long().into(), ..Resource::default() };
        records.insert(id, Record { space, ..Record::default() });
    }
    let file = File(quota::build(Kind::User, &records).as_chunks::<BLOCK_BYTES>().0.to_vec());
    let info = Info::read(&file).expect("it was just made");
    (file, info, records)
}

fn sound(input: &mut Input<'_>) {
    let (mut file, mut info, mut records) = tree(input);
    for _ in 0..64 {
        let id = if input.byte() & 1 == 0 { u32::from(input.byte()) } else { input.long() };
        if input.byte() & 1 == 0 {
            quota::insert(&mut file, &mut info, id).expect("a sound tree");
            records.entry(id).or_default();
        } else {
            let was = quota::remove(&mut file, &mut info, id).expect("a sound tree");
            assert_eq!(was, records.remove(&id).is_some());
        }
    }
    let mut found = BTreeMap::new();
    let walked = quota::for_each(&file, &info, &mut |id, _, record| {
        found.insert(id, record);
        Ok(())
    });
    assert!(walked.is_ok() && found == records);
}

fn broken(input: &mut Input<'_>) {
    let (mut file, _, _) = tree(input);
    let mut bytes = file.0.concat();
    patch::scatter(&mut bytes, &mut Input::new(input.bytes(40)));
    file.0 = bytes.as_chunks::<BLOCK_BYTES>().0.to_vec();
    let Ok(mut info) = Info::read(&file) else { return };
    let mut seen = 0;
    let walked = quota::for_each(&file, &info, &mut |_, _, _| {
        seen += 1;
        Ok(())
    });
    assert!(seen <= file.0.len() * quota::LEAF_RECORDS, "a record is shown twice");
    for _ in 0..8 {
        let id = input.long();
        let _ = quota::insert(&mut file, &mut info, id);
        let _ = quota::lookup(&file, &info, id);
        let _ = quota::remove(&mut file, &mut info, id);
    }
    drop(walked);
}
