//! Breaks every checksum in turn: an error that names the structure, no panic, and the other files are still
//! readable.

use crate::common::{in_memory, in_memory_with, pattern, try_entries_of};
use hectare_engine::{Creation, Error, NewNode, OpenOptions, Volume, XattrHow};
use hectare_oracle::skip;
use hectare_units::{BlockNr, GroupNr, InodeNr};

const BLOCK: usize = 1024;

/// A volume with one of each structure, and their locations.
pub(crate) struct Specimen {
    bytes: Vec<u8>,
    pub(crate) fragmented: InodeNr,
    pub(crate) indexed: InodeNr,
    pub(crate) attributes: InodeNr,
}

pub(crate) fn specimen(args: &[&str]) -> Result<Specimen, hectare_oracle::Skip> {
    let held = in_memory(&crate::common::format_bytes(args, "32M")?);
    let v = &held.volume;
    let c = Creation::default();
    v.write_file("plain", &pattern(1, 0, 5000), c).unwrap();
    let file = v.create_file("fragmented", c).unwrap();
    for n in 0..600 {
        file.write_all_at(n * 2 * BLOCK as u64, &[7; BLOCK]).unwrap();
    }
    let indexed = v.create_dir("indexed", c).unwrap();
    // More than one node of leaves, so that there are nodes below the root.
    for n in 0..1500 {
        v.create(indexed, format!("{n:04}-{}", "n".repeat(230)).as_bytes(), NewNode::Fifo, c).unwrap();
    }
    let attributes = v.make("attributes", NewNode::File, c).unwrap();
    v.set_xattr(attributes, "user.large", &[1; 700], XattrHow::Either).unwrap();
    let fragmented = file.inode();
    drop(file);
    held.volume.close().unwrap();
    crate::common::assert_clean_bytes(&held.device.to_vec());
    Ok(Specimen { bytes: held.device.to_vec(), fragmented, indexed, attributes })
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

impl Specimen {
    fn volume(&self) -> Volume {
        in_memory_with(&self.bytes, OpenOptions::read_only()).unwrap().volume
    }

    /// A word of its bytes.
    pub(crate) fn word(&self, at: usize) -> u32 {
        word(&self.bytes, at)
    }

    /// The attribute block of the file that has one.
    pub(crate) fn attribute_block(&self) -> usize {
        word(&self.bytes, self.inode_at(self.attributes) + 0x68) as usize
    }

    /// Where an inode's slot lies.
    pub(crate) fn inode_at(&self, nr: InodeNr) -> usize {
        let volume = self.volume();
        let geometry = volume.superblock().geometry();
        let (group, index) = geometry.inode_slot(nr).unwrap();
        let desc = self.desc_at(group);
        word(&self.bytes, desc + 8) as usize * BLOCK + (index * geometry.inode_size) as usize
    }

    pub(crate) fn desc_at(&self, group: GroupNr) -> usize {
        let volume = self.volume();
        let geometry = volume.superblock().geometry();
        let (per, size) = (geometry.descs_per_block(), geometry.desc_size);
        let block: BlockNr = geometry.desc_block(group.get() / per);
        block.get() as usize * BLOCK + (group.get() % per * size) as usize
    }

    /// The block of a file or directory's first extent-tree leaf, or its block 0 if the root holds the
    /// extents.
    pub(crate) fn first_child(&self, nr: InodeNr) -> usize {
        let root = self.inode_at(nr) + 40;
        let depth = u16::from_le_bytes(self.bytes[root + 6..root + 8].try_into().unwrap());
        let leaf = if depth > 0 { word(&self.bytes, root + 16) } else { word(&self.bytes, root + 20) };
        leaf as usize * BLOCK
    }

    fn depth(&self, nr: InodeNr) -> u8 {
        self.bytes[self.inode_at(nr) + 46]
    }

    /// A block of a file, by its extents in the root or one level below.
    pub(crate) fn block_of(&self, nr: InodeNr, logical: u32) -> usize {
        let root = self.inode_at(nr) + 40;
        let node = if self.depth(nr) == 0 { root } else { self.first_child(nr) };
        let entries = usize::from(self.bytes[node + 2]) | usize::from(self.bytes[node + 3]) << 8;
        for at in (0..entries).map(|n| node + 12 + 12 * n) {
            let (first, len) =
                (word(&self.bytes, at), u32::from(self.bytes[at + 4]) | u32::from(self.bytes[at + 5]) << 8);
            if (first..first + len).contains(&logical) {
                return (word(&self.bytes, at + 8) + logical - first) as usize * BLOCK;
            }
        }
        panic!("block {logical} of inode {nr} is not mapped there");
    }

    /// The volume with one bit of a byte flipped.
    pub(crate) fn broken(&self, at: usize) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes[at] ^= 0x10;
        bytes
    }
}

#[track_caller]
fn names_it<T>(result: Result<T, Error>, words: &[&str]) {
    let error = result.err().expect("a broken checksum went unnoticed");
    let text = error.to_string();
    assert!(matches!(error, Error::Corrupt(_)), "{text}");
    assert!(words.iter().all(|word| text.contains(word)), "{text:?} should say {words:?}");
    assert_eq!(text.lines().count(), 1);
}

/// The undamaged files are still readable.
fn others_are_read(volume: &Volume) {
    assert!(volume.read("plain").unwrap() == pattern(1, 0, 5000));
    assert!(volume.read_dir("/").unwrap().len() >= 5);
}

fn open_broken(bytes: &[u8]) -> Volume {
    in_memory_with(bytes, OpenOptions::read_only()).unwrap().volume
}

const ARGS: [&str; 6] = ["-t", "ext4", "-b", "1024", "-O", "^has_journal"];

macro_rules! specimen {
    ($test:literal) => {
        match specimen(&ARGS) {
            Ok(specimen) => specimen,
            Err(reason) => skip!($test, reason),
        }
    };
}

#[test]
fn a_wrong_superblock_or_descriptor_is_named() {
    let s = specimen!("checksums::a_wrong_superblock");
    for at in [1024 + 1020, 1024 + 0x78, 1024 + 0x108] {
        names_it(
            in_memory_with(&s.broken(at), OpenOptions::read_only()).map(drop),
            &["superblock", "checksum"],
        );
        names_it(
            in_memory_with(&s.broken(at), OpenOptions::default()).map(drop),
            &["superblock", "checksum"],
        );
    }
    for at in [0x1e, 0x18, 0x12] {
        let bytes = s.broken(s.desc_at(GroupNr::new(1)) + at);
        let volume = open_broken(&bytes);
        let per_group = volume.superblock().geometry().inodes_per_group;
        let result = volume.stat(InodeNr::new(per_group + 1));
        names_it(result, &["group descriptor", "group 1", "checksum"]);
        others_are_read(&volume);
        let _ = volume.statfs().unwrap();
        let _ = try_entries_of(&volume);
    }
}

#[test]
fn a_wrong_bitmap_is_named_when_it_is_needed() {
    let s = specimen!("checksums::a_wrong_bitmap");
    let desc = s.desc_at(GroupNr::new(0));
    let (blocks, inodes) = (word(&s.bytes, desc) as usize * BLOCK, word(&s.bytes, desc + 4) as usize * BLOCK);
    let held = in_memory(&s.broken(blocks + 500));
    others_are_read(&held.volume);
    // Other groups serve as long as they can.
    let file = held.volume.create_file("needy", Creation::default()).unwrap();
    names_it(file.allocate(0, 1 << 30, false), &["block bitmap", "group 0", "checksum"]);
    drop(file);
    let held = in_memory(&s.broken(inodes + 100));
    others_are_read(&held.volume);
    let refused = held.volume.make("new", NewNode::File, Creation::default());
    names_it(refused, &["inode bitmap", "group 0", "checksum"]);
    assert!(held.volume.lookup(InodeNr::ROOT, b"new").is_err());
}

#[test]
fn a_wrong_inode_is_named() {
    let s = specimen!("checksums::a_wrong_inode");
    for at in [0x7c, 4, 0x30, 0x82, 200] {
        let volume = open_broken(&s.broken(s.inode_at(s.attributes) + at));
        names_it(volume.stat(s.attributes), &["inode", &s.attributes.to_string(), "checksum"]);
        others_are_read(&volume);
    }
}

#[test]
fn a_wrong_extent_node_is_named() {
    let s = specimen!("checksums::a_wrong_extent_node");
    assert!(s.depth(s.fragmented) > 0);
    let node = s.first_child(s.fragmented);
    for at in [4, 100, 1020] {
        let volume = open_broken(&s.broken(node + at));
        let block = (node / BLOCK).to_string();
        names_it(volume.read("fragmented"), &["extent", &block]);
        others_are_read(&volume);
        let held = in_memory(&s.broken(node + at));
        names_it(held.volume.write_file("fragmented", b"x", Creation::default()), &["extent", &block]);
    }
}

#[test]
fn a_wrong_directory_block_is_named() {
    let s = specimen!("checksums::a_wrong_directory_block");
    let indexed = s.indexed.to_string();
    let volume = s.volume();
    let blocks = u32::try_from(volume.stat(s.indexed).unwrap().size).unwrap() / BLOCK as u32;
    // The root, a node below it and a leaf.
    let shape = |n: u32| {
        let at = s.block_of(s.indexed, n);
        let empty = word(&s.bytes, at) == 0 && word(&s.bytes, at + 4) & 0xffff == BLOCK as u32;
        if n == 0 {
            "root"
        } else if empty {
            "node"
        } else {
            "leaf"
        }
    };
    for wanted in ["root", "node", "leaf"] {
        let Some(block) = (0..blocks.min(300)).find(|n| shape(*n) == wanted) else {
            panic!("there is no {wanted}")
        };
        for at in [50, 1020] {
            let volume = open_broken(&s.broken(s.block_of(s.indexed, block) + at));
            names_it(volume.list(s.indexed), &["directory", &indexed]);
            others_are_read(&volume);
        }
    }
}

#[test]
fn a_wrong_attribute_block_is_named() {
    let s = specimen!("checksums::a_wrong_attribute_block");
    let block = s.attribute_block();
    assert!(block > 0);
    for at in [16, 600] {
        let held = in_memory(&s.broken(block * BLOCK + at));
        let volume = &held.volume;
        names_it(volume.list_xattrs(s.attributes), &["attribute", &block.to_string(), "checksum"]);
        names_it(volume.get_xattr(s.attributes, "user.large"), &["attribute"]);
        names_it(volume.set_xattr(s.attributes, "user.b", b"1", XattrHow::Either), &["attribute"]);
        names_it(volume.remove_file("attributes"), &["attribute"]);
        assert_eq!(volume.stat(s.attributes).unwrap().links, 1);
        others_are_read(volume);
    }
}
