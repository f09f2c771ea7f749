//! Directories in which case does not matter: e2fsck and debugfs agree with the hashes, and what is the same
//! name is one.

use crate::common::{InMemory, close_clean, format_bytes, in_memory};
use hectare_engine::{Caller, Creation, InodeFlags, NewNode, RenameMode, Volume};
use hectare_oracle::{skip, skip_part};
use hectare_units::{InodeNr, random};
use std::collections::BTreeMap;

const ROOT: InodeNr = InodeNr::ROOT;

fn folding(args: &[&str]) -> Option<InMemory> {
    let all = [&["-t", "ext4"], args].concat();
    let held = in_memory(&format_bytes(&all, "64M").ok()?);
    let dir = make(&held.volume, ROOT, b"d", NewNode::Directory).unwrap();
    set(&held.volume, dir, true).unwrap();
    Some(held)
}

fn make(volume: &Volume, dir: InodeNr, name: &[u8], node: NewNode<'_>) -> Result<InodeNr, i32> {
    volume.create(dir, name, node, Creation::default()).map_err(|error| error.errno())
}

fn set(volume: &Volume, dir: InodeNr, on: bool) -> hectare_engine::Result<()> {
    let mut flags = volume.inode_flags(dir)?;
    flags.set(InodeFlags::CASEFOLD, on);
    volume.set_inode_flags(dir, flags, &Caller::ROOT)
}

fn names(volume: &Volume, dir: InodeNr) -> Vec<Vec<u8>> {
    let mut names: Vec<_> = volume.list(dir).unwrap().into_iter().map(|entry| entry.name).collect();
    names.sort();
    names
}

const ENOTEMPTY: i32 = 39;
const EEXIST: i32 = 17;
const EINVAL: i32 = 22;

#[test]
fn thousands_of_names_are_found_in_any_case_and_hashed_as_e2fsck_hashes() {
    for (name, args) in [
        ("1k", &["-b", "1024", "-O", "casefold"][..]),
        ("no checksums", &["-b", "1024", "-O", "casefold,^metadata_csum"]),
        ("4k, quota", &["-b", "4096", "-O", "casefold,quota,project,large_dir"]),
        ("no index", &["-b", "1024", "-O", "casefold,^dir_index"]),
    ] {
        let Some(held) = folding(args) else {
            skip_part!(format!("casefold::thousands_of_names, {name}"), "mke2fs is not installed");
            continue;
        };
        let (volume, mut model, mut seed) = (&held.volume, BTreeMap::new(), 1_u64);
        let mut next = |below: u64| {
            seed = seed.wrapping_add(random::STEP);
            (random::mixed(seed) >> 7) % below
        };
        let dir = volume.lookup(ROOT, b"d").unwrap();
        let letters: Vec<char> =
            "aBcD\u{c4}\u{e9}\u{3a3}\u{df}\u{416}\u{10a0}\u{1e9e}\u{ac01}\u{301}".chars().collect();
        for _ in 0..if name == "no index" { 300 } else { 2500 } {
            let len = 1 + next(9);
            let spelled: String =
                (0..len).map(|_| letters[next(letters.len() as u64) as usize]).collect::<String>()
                    + &next(400).to_string();
            let key = spelled.to_lowercase().replace('\u{df}', "ss").replace('\u{3c2}', "\u{3c3}");
            if next(5) == 0 {
                // As it is spelled, or in capitals.
                let other = if next(2) == 0 { spelled.to_uppercase() } else { spelled };
                let gone = volume.unlink(dir, other.as_bytes()).is_ok();
                assert_eq!(gone, model.remove(&key).is_some(), "{name}: {other}");
                continue;
            }
            match make(volume, dir, spelled.as_bytes(), NewNode::File) {
                Ok(nr) => {
                    let before = model.insert(key, (nr, spelled.clone()));
                    assert!(before.is_none(), "{name}: {spelled}");
                }
                Err(errno) => {
                    assert!(errno == EEXIST && model.contains_key(&key), "{name}: {spelled} {errno}");
                }
            }
        }
        for (nr, spelled) in model.values() {
            for other in [spelled.clone(), spelled.to_lowercase(), spelled.to_uppercase()] {
                assert_eq!(volume.lookup(dir, other.as_bytes()).ok(), Some(*nr), "{name}: {other}");
            }
        }
        assert_eq!(names(volume, dir).len(), model.len(), "{name}");
        close_clean(&held);
    }
}

#[test]
fn one_name_has_one_spelling_which_a_rename_changes() {
    let Some(held) = folding(&["-b", "1024", "-O", "casefold"]) else {
        skip!("casefold::one_name_has_one_spelling", "mke2fs is not installed");
    };
    let volume = &held.volume;
    let dir = volume.lookup(ROOT, b"d").unwrap();
    let file = make(volume, dir, b"Readme", NewNode::File).unwrap();
    assert_eq!(make(volume, dir, b"README", NewNode::File), Err(EEXIST));
    assert_eq!(volume.link(file, dir, b"readme").unwrap_err().errno(), EEXIST);
    volume.rename(dir, b"readme", dir, b"README", RenameMode::Replace).unwrap();
    assert_eq!(names(volume, dir), [b"README"]);
    // Another name replaces it, and keeps the spelling that is there.
    make(volume, dir, b"new", NewNode::File).unwrap();
    volume.rename(dir, b"NEW", dir, b"ReadMe", RenameMode::Replace).unwrap();
    assert_eq!(names(volume, dir), [b"README"]);
    assert_ne!(volume.lookup(dir, b"readme").unwrap(), file);
    // Where case matters these are two.
    make(volume, ROOT, b"a", NewNode::File).unwrap();
    make(volume, ROOT, b"A", NewNode::File).unwrap();
    // What is not a name of text is itself only; and nothing is taken for a dot.
    make(volume, dir, b"x\xffA", NewNode::File).unwrap();
    make(volume, dir, b"x\xffa", NewNode::File).unwrap();
    assert_eq!(make(volume, dir, "\u{ad}.".as_bytes(), NewNode::File), Err(EEXIST));
    assert!(volume.lookup(dir, "\u{ad}.".as_bytes()).is_err());
    close_clean(&held);
}

#[test]
fn the_flag_is_for_empty_directories_and_those_in_them() {
    let Some(held) = folding(&["-b", "1024", "-O", "casefold"]) else {
        skip!("casefold::the_flag", "mke2fs is not installed");
    };
    let volume = &held.volume;
    let dir = volume.lookup(ROOT, b"d").unwrap();
    let below = make(volume, dir, b"Below", NewNode::Directory).unwrap();
    assert!(volume.inode_flags(below).unwrap().contains(InodeFlags::CASEFOLD));
    let file = make(volume, dir, b"file", NewNode::File).unwrap();
    assert!(!volume.inode_flags(file).unwrap().contains(InodeFlags::CASEFOLD));
    assert_eq!(set(volume, dir, false).unwrap_err().errno(), ENOTEMPTY);
    assert_eq!(set(volume, ROOT, true).unwrap_err().errno(), ENOTEMPTY);
    set(volume, below, false).unwrap();
    assert!(
        make(volume, below, b"a", NewNode::File).is_ok() && make(volume, below, b"A", NewNode::File).is_ok()
    );
    close_clean(&held);
    let plain = in_memory(&format_bytes(&["-t", "ext4"], "16M").unwrap());
    let dir = make(&plain.volume, ROOT, b"d", NewNode::Directory).unwrap();
    let refused = set(&plain.volume, dir, true).unwrap_err();
    assert!(refused.errno() == 95 && refused.to_string().contains("casefold"), "{refused}");
}

#[test]
fn a_strict_volume_has_text_only() {
    let Some(held) = folding(&["-b", "1024", "-E", "encoding=utf8,encoding_flags=strict"]) else {
        skip!("casefold::a_strict_volume", "mke2fs is not installed");
    };
    let volume = &held.volume;
    let dir = volume.lookup(ROOT, b"d").unwrap();
    assert_eq!(make(volume, dir, b"x\xff", NewNode::File), Err(EINVAL));
    assert_eq!(volume.lookup(dir, b"x\xff").unwrap_err().errno(), EINVAL);
    make(volume, dir, "\u{e9}".as_bytes(), NewNode::File).unwrap();
    assert_eq!(
        volume.rename(dir, "\u{c9}".as_bytes(), dir, b"\xc3", RenameMode::Replace).unwrap_err().errno(),
        EINVAL
    );
    make(volume, ROOT, b"x\xff", NewNode::File).unwrap();
    close_clean(&held);
}

#[test]
fn an_unknown_encoding_is_refused_by_name_where_it_matters() {
    let Some(held) = folding(&["-b", "1024", "-O", "casefold,^metadata_csum"]) else {
        skip!("casefold::an_unknown_encoding", "mke2fs is not installed");
    };
    let dir = held.volume.lookup(ROOT, b"d").unwrap();
    make(&held.volume, dir, b"File", NewNode::File).unwrap();
    held.volume.close().unwrap();
    let mut bytes = held.device.to_vec();
    bytes[1024 + 0x27c] = 9;
    let odd = in_memory(&bytes);
    let error = odd.volume.create(dir, b"a", NewNode::File, Creation::default()).unwrap_err();
    assert!(error.to_string().contains("encoding 9"), "{error}");
    assert!(odd.volume.lookup(dir, b"File").is_ok() && odd.volume.lookup(dir, b"file").is_err());
    make(&odd.volume, ROOT, b"a", NewNode::File).unwrap();
    odd.volume.close().unwrap();
}
