//! Fuzz target: attribute areas, ACLs and inline data of any bytes; what is read can be laid out and read
//! again.

use crate::input::Input;
use crate::patch;
use hectare_ext4::acl::{Acl, to_shown, to_stored};
use hectare_ext4::checksum::Seed;
use hectare_ext4::error::Place;
use hectare_ext4::inline::{HEAD, Inline};
use hectare_ext4::xattr::{self, Area, Attr, How, Name, Value};
use hectare_units::{BlockNr, BlockSize, Bytes, InodeNr};

const PLACE: Place = Place::Inode(InodeNr::new(12));
const BLOCK: BlockNr = BlockNr::new(9);

pub(super) fn target(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let flags = input.byte();
    match flags & 3 {
        0 => areas(flags, &mut input),
        1 => acls(input.rest()),
        2 => inline(&mut input),
        _ => {
            if let Ok(name) = Name::parse(input.rest()) {
                assert_eq!(name.full().as_deref().map(Name::parse), Some(Ok(name)));
            }
        }
    }
}

fn areas(flags: u8, input: &mut Input<'_>) {
    let inode_len = if flags & 4 == 0 { 96 } else { 352 };
    let (mut inode, mut block);
    if flags & 16 == 0 {
        (inode, block) = sound(input, inode_len);
        patch::scatter(&mut inode, &mut Input::new(input.bytes(12)));
        patch::scatter(&mut block, input);
    } else {
        (inode, block) = (input.bytes(inode_len).to_vec(), input.rest().to_vec());
        block.resize(1024, 0);
    }
    if flags & 8 == 0 {
        // The magic numbers, and the header's count of blocks.
        block[..4].copy_from_slice(&0xea02_0000_u32.to_le_bytes());
        block[8..12].copy_from_slice(&1u32.to_le_bytes());
        if let Some(magic) = inode.get_mut(..4) {
            magic.copy_from_slice(&0xea02_0000_u32.to_le_bytes());
        }
    }
    let seed = Seed::stored(3);
    let _ = (xattr::verify(&block, seed, BLOCK), xattr::refcount(&block));
    let in_inode = Area::in_inode(&inode, PLACE).ok().flatten();
    let in_block = Area::in_block(&block, Place::Block(BLOCK)).ok();
    let mut attrs = Vec::new();
    for area in [in_inode, in_block].into_iter().flatten() {
        let _ = area.check_hashes();
        for entry in area.entries() {
            let name = entry.name();
            assert!(area.find(&name).is_some(), "an entry is not found by its name");
            let attr = entry.to_attr();
            let _ = (name.full(), name.to_string());
            if let Value::Inline(value) = &attr.value {
                let _ = to_shown(&attr.name, value, PLACE);
            }
        }
    }
    attrs.extend(xattr::collect(in_inode, in_block));
    again(attrs, inode.len());
    xattr::seal(&mut block, seed, BLOCK);
    xattr::verify(&block, seed, BLOCK).expect("it was just sealed");
}

/// Areas that hold a few attributes, as an input says.
fn sound(input: &mut Input<'_>, inode_len: usize) -> (Vec<u8>, Vec<u8>) {
    let mut attrs = Vec::new();
    for prefix in
        ["user.", "trusted.", "security.", "user.long"].iter().cycle().take(usize::from(input.byte() % 12))
    {
        let (letter, len) = (input.byte() % 26 + b'a', usize::from(input.byte()) % 120);
        let full = format!("{prefix}{}", char::from(letter));
        let name = Name::parse(full.as_bytes()).expect("a good name");
        let _ = xattr::set(&mut attrs, &name, &vec![letter; len], How::Either);
    }
    let placed = xattr::layout(&attrs, inode_len, Some(BlockSize::KIB1));
    placed.map_or_else(
        |_| (vec![0; inode_len], vec![0; 1024]),
        |placed| (placed.inode_area, placed.block.unwrap_or_else(|| vec![0; 1024])),
    )
}

/// Changes a list, lays it out, and reads it back.
fn again(mut attrs: Vec<Attr>, inode_space: usize) {
    let name = Name::parse(b"user.new").expect("a good name");
    let _ = xattr::set(&mut attrs, &name, b"value", How::Create);
    if let Some(first) = attrs.first().map(|attr| attr.name.clone()) {
        let _ = xattr::set(&mut attrs, &first, &[7; 30], How::Replace);
        let _ = xattr::find(&attrs, &first).expect("it was just set");
    }
    let needs = xattr::needs_block(&attrs, inode_space, Some(BlockSize::KIB1));
    let Ok(placed) = xattr::layout(&attrs, inode_space, Some(BlockSize::KIB1)) else {
        assert!(needs.is_err());
        return;
    };
    assert_eq!(needs.ok(), Some(placed.block.is_some()));
    assert_eq!(placed.inode_area.len(), inode_space);
    let inode = Area::in_inode(&placed.inode_area, PLACE).expect("what is laid out can be read");
    let block = placed.block.as_ref();
    let block = block.map(|block| Area::in_block(block, PLACE).expect("what is laid out can be read"));
    for area in inode.iter().chain(&block) {
        for attr in area.entries() {
            assert!(xattr::find(&attrs, &attr.name()).is_some());
        }
    }
    let mut read = xattr::collect(inode, block);
    read.sort_by(|a, b| a.name.cmp(&b.name));
    attrs.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(format!("{read:?}"), format!("{attrs:?}"), "laid out and read again");
}

fn acls(bytes: &[u8]) {
    if let Ok(Some(mut acl)) = Acl::from_xattr(bytes) {
        exercise(&mut acl);
    }
    if let Ok(mut acl) = Acl::from_disk(bytes) {
        exercise(&mut acl);
    }
    let name = Name::parse(b"system.posix_acl_access").expect("a good name");
    if let Ok(Some(stored)) = to_stored(&name, bytes) {
        to_shown(&name, &stored, PLACE).expect("what was stored can be shown");
    }
    let _ = to_shown(&name, bytes, PLACE);
}

fn exercise(acl: &mut Acl) {
    assert_eq!(Acl::from_disk(&acl.to_disk()).as_ref(), Ok(&*acl));
    assert_eq!(Acl::from_xattr(&acl.to_xattr()), Ok(Some(acl.clone())));
    let _ = (acl.to_mode(), acl.mode_bits(), acl.apply_to(0o100_777));
    let inherited = acl.inherit(0o100_666);
    if let Some(access) = inherited.access {
        assert_eq!(Acl::from_disk(&access.to_disk()), Ok(access));
    }
    acl.chmod(0o640);
    assert_eq!(acl.mode_bits() & 0o700, 0o600);
}

fn inline(input: &mut Input<'_>) {
    let size = match input.byte() {
        n @ 0..=250 => u64::from(n),
        _ => u64::from(input.long()) << 31,
    };
    let at = u64::from(input.word());
    let head = input.array::<HEAD>();
    let Ok(content) = Inline::new(&head, Some(input.rest()), Bytes::new(size), PLACE) else { return };
    let mut out = [0; 40];
    let len = content.read_at(Bytes::new(size), Bytes::new(at), &mut out);
    assert_eq!(len as u64, size.saturating_sub(at).min(40));
    assert_eq!(content.content(Bytes::new(size)).len() as u64, size);
    let _ = content.parent();
    let mut reached = 0;
    for entry in content.dir_entries().take(1000) {
        let Ok(entry) = entry else { break };
        assert!(entry.at >= reached, "entries go backwards");
        reached = entry.at + 1;
        assert!(!entry.name.is_empty() && !entry.name.contains(&b'/') && !entry.name.contains(&0));
    }
}
