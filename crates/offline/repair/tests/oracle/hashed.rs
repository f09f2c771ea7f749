//! Directories that are both encrypted and casefolded: their records hold hashes, which a repair keeps.

use crate::seal;
use crate::trial::{bytes_of, e2fsck, watched};
use hectare_device::MemoryDevice;
use hectare_ext4::xattr::{Attr, Index, Name, layout};
use hectare_oracle::{Skip, debugfs, debugfs_write, mke2fs, skip};
use hectare_repair::Staged;
use std::fs;
use std::path::Path;
use std::sync::Arc;

const BLOCK: usize = 4096;
/// Where an inode has its flags, and, after 32 bytes of extra fields, its attributes.
const FLAGS: usize = 0x20;
const ATTRIBUTES: usize = 160;
const INODE: usize = 256;

/// A record with a name of 16 bytes and a hash.
fn record(inode: u32, name: u8, len: usize) -> Vec<u8> {
    let mut bytes = inode.to_le_bytes().to_vec();
    bytes.extend(u16::try_from(len).unwrap().to_le_bytes());
    bytes.extend([16, 5]);
    bytes.extend([name; 16]);
    bytes.extend([name, 1, 2, 3, 4, 5, 6, 7]);
    bytes.resize(len, 0);
    bytes
}

/// A volume with such a directory, which names pipes; and the block it lies in.
fn volume(image: &Path) -> Result<(Vec<u8>, usize), Skip> {
    mke2fs(&["-t", "ext4", "-O", "casefold,encrypt", "-b", "4096"], image, "16M")?;
    debugfs_write(image, &["mkdir d", "mknod p13 p", "mknod p14 p", "mknod p15 p"])?;
    debugfs_write(image, &["unlink p13", "unlink p14", "unlink p15"])?;
    let number = |request: &str| -> Result<usize, Skip> {
        let out = debugfs(image, &[request])?;
        Ok(out.split_whitespace().find_map(|word| word.parse().ok()).unwrap())
    };
    let block = number("blocks d")?;
    let table = debugfs(image, &["imap d"])?;
    let words: Vec<&str> = table.split([' ', ',', '\n']).collect();
    let after = |word: &str| words[words.iter().position(|w| *w == word).unwrap() + 1];
    let within = usize::from_str_radix(after("offset").trim_start_matches("0x"), 16).unwrap();
    let slot = after("block").parse().unwrap_or_else(|_| number_after(&table)) * BLOCK + within;
    let mut bytes = fs::read(image).unwrap();
    let records = [record(13, b'a', 32), record(14, b'b', 32), record(15, b'c', BLOCK - 12 - 24 - 64)];
    bytes[block * BLOCK + 12 + 4..][..2].copy_from_slice(&12u16.to_le_bytes());
    bytes[block * BLOCK + 24..][..BLOCK - 12 - 24].copy_from_slice(&records.concat());
    let flags = u32::from_le_bytes(*bytes[slot + FLAGS..].first_chunk().unwrap()) | 0x4000_0800;
    bytes[slot + FLAGS..][..4].copy_from_slice(&flags.to_le_bytes());
    let context = Attr::new(Name::stored(Index::ENCRYPTION, b"c").unwrap(), [vec![2], vec![1; 39]].concat());
    let area = layout(&[context], INODE - ATTRIBUTES, None).unwrap().inode_area;
    bytes[slot + ATTRIBUTES..slot + INODE].copy_from_slice(&area);
    seal::seal(&mut bytes);
    Ok((bytes, block))
}

/// The first number behind the last word "block".
fn number_after(text: &str) -> usize {
    let rest = text.rsplit("block").next().unwrap();
    rest.split(|c: char| !c.is_ascii_digit()).find_map(|word| word.parse().ok()).unwrap()
}

#[test]
fn records_keep_their_hashes() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let (mut bytes, block) = match volume(&image) {
        Ok(made) => made,
        Err(reason) => skip!("repair hashed::records_keep_their_hashes", reason),
    };
    // The second record's length is broken.
    bytes[block * BLOCK + 24 + 32 + 4] = 7;
    seal::seal(&mut bytes);
    fs::write(&image, &bytes).unwrap();
    assert!(e2fsck("-fn", &image).code != Some(0));
    let staged = Staged::new(Arc::new(MemoryDevice::from_bytes(&bytes)));
    let repaired = watched(staged.overlay()).unwrap();
    let after = bytes_of(&**staged.overlay());
    fs::write(&image, &after).unwrap();
    let said = e2fsck("-fn", &image);
    assert_eq!(said.code, Some(0), "{}\n{repaired:?}", said.out);
    for (inode, name) in [(13, b'a'), (15, b'c')] {
        let known = record(inode, name, 32);
        let is_it = |found: &[u8]| found[..4] == known[..4] && found[6..32] == known[6..];
        assert!(after.windows(32).any(is_it), "inode {inode} lost its name or its hash");
    }
}
