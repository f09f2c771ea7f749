//! Fuzz target: directories of any bytes: blocks verified and sealed, names looked up, listed, added, taken
//! out.

use crate::input::Input;
use crate::tree::{Directory, dir_format};
use hectare_ext4::checksum::Seed;
use hectare_ext4::dir::{
    self, Cookie, DirRead, Entry, FileType, Format, Name, insert, leaf, lookup, read_dir, remove, replace,
};
use hectare_units::{InodeNr, LogicalBlock};
use std::ops::ControlFlow;

const OWN: InodeNr = InodeNr::new(12);

pub(super) fn target(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (flags, more) = (input.byte(), input.byte());
    let format = dir_format(flags);
    let operations = input.array::<32>();
    let mut store = if more & 8 == 0 {
        Directory::grown(usize::from(more >> 4) * 12, &format, &mut input)
    } else {
        Directory::new(input.rest(), &format, more & 1 != 0)
    };
    if more & 2 != 0 {
        repair(&mut store, &format);
    }
    blocks(&store, &format);
    list(&store, &format, &mut Input::new(&operations));
    if more & 4 != 0 {
        change(store, &format, &mut Input::new(&operations));
    }
}

/// Gives every block the tail that its form requires, so that more of them are parsed.
fn repair(store: &mut Directory, format: &Format) {
    for block in store.blocks.iter_mut().flatten().filter(|_| format.checksums) {
        let mut bytes = block.to_vec();
        let at = bytes.len() - 12;
        bytes[at..at + 8].copy_from_slice(&[0, 0, 0, 0, 12, 0, 0, 0xde]);
        *block = bytes.into();
    }
}

fn blocks(store: &Directory, format: &Format) {
    let seed = Some(Seed::stored(7));
    for (i, block) in store.blocks.iter().enumerate().take(4) {
        let at = LogicalBlock::new(u32::try_from(i).expect("four at most"));
        let Some(block) = block else { continue };
        let place = store.place(at);
        let _ = dir::verify_block(block, format, seed, at, store.indexed, place);
        let mut block = block.to_vec();
        if dir::set_checksum(&mut block, format, seed, at, store.indexed, place).is_ok() {
            dir::verify_block(&block, format, seed, at, store.indexed, place).expect("it was just sealed");
        }
        let _ = leaf::remove(&mut block, format, place, 24);
        let name = Name::new(b"leaf").expect("a good name");
        let entry = Entry { name, inode: OWN, file_type: FileType::Regular };
        let _ = leaf::insert(&mut block, format, place, &entry);
        let _ = leaf::set_target(&mut block, format, place, 12, OWN, FileType::Fifo);
    }
    let _ = dir::is_empty(store, format);
}

fn list(store: &Directory, format: &Format, input: &mut Input<'_>) {
    let arbitrary = u64::from(input.long()) << 32 | u64::from(input.long());
    let mut names: Vec<Vec<u8>> = Vec::new();
    for cookie in [0, arbitrary, 1, u64::MAX] {
        let mut left = 100_000;
        let _ = read_dir(store, format, Cookie::new(cookie), &mut |entry| {
            assert!(name_of(entry.name, format).is_some());
            if names.len() < 16 {
                names.push(entry.name.to_vec());
            }
            left -= 1;
            assert!(left > 0, "more entries than the directory has room for");
            ControlFlow::Continue(())
        });
    }
    for name in &names {
        let _ = lookup(store, format, name_of(name, format).expect("listed names are good"));
    }
}

fn name_of<'a>(bytes: &'a [u8], format: &Format) -> Option<Name<'a>> {
    if format.opaque_names { Name::opaque(bytes) } else { Name::new(bytes) }
}

fn change(mut store: Directory, format: &Format, input: &mut Input<'_>) {
    for _ in 0..6 {
        let (what, len) = (input.byte(), usize::from(input.byte()).clamp(1, 255));
        let mut bytes = vec![b'n'; len];
        bytes[0] = what;
        let Some(name) = Name::new(&bytes) else { continue };
        let entry = Entry { name, inode: OWN, file_type: FileType::Directory };
        match what % 4 {
            0 => {
                let _ = remove(&mut store, format, name);
            }
            1 => {
                let _ = replace(&mut store, format, name, OWN, FileType::Socket);
            }
            _ => {
                if insert(&mut store, format, &entry).is_ok() && !name.is_dot() {
                    // What was put in where the directory is sound is found there.
                    let _ = lookup(&store, format, name);
                }
            }
        }
    }
}
