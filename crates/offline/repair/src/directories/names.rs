//! Names of directories: which records name something, what is made of bytes that are no name, and which of
//! several entries keeps a name.
//!
//! What it is not: the order in which directories are gone through, and how they are written
//! ([`crate::directories`]).

use crate::directories::hashed_directory::is_hashed;
use crate::error::Error;
use crate::know::slot::Slot;
use crate::know::stored::Stored;
use crate::know::work::Work;
use hectare_ext4::casefold::{self, Folding};
use hectare_ext4::dir::Name;
use hectare_ext4::inode::{InodeFlags, Kind};
use hectare_units::{InodeNr, index_of};
use std::collections::{BTreeMap, BTreeSet};

/// The shortest ciphertext of a name.
const CIPHERTEXT_MIN: usize = 16;

/// The number that comes next for each start of names that got one before, and how many digits it has.
pub(crate) type Numbers = BTreeMap<(Vec<u8>, u32), u64>;

/// What happened to the entries of a directory.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) lost: Vec<String>,
    pub(crate) mended: Vec<String>,
}

impl Work<'_> {
    /// Why a record is no entry that can stay.
    pub(crate) fn why_no_entry(&self, slot: &Slot, entry: &Stored) -> Result<Option<String>, Error> {
        let reason = self.why_no_name(slot, entry)?;
        let info = self.inodes.get(entry.inode)?.filter(|info| info.is_directory());
        let elsewhere = info.is_some_and(|info| info.parent != slot.nr.get());
        let second = || format!("is a second name of directory {}", entry.inode);
        Ok(reason.or_else(|| elsewhere.then(second)))
    }

    /// Why a record names nothing, whichever name of a directory counts.
    pub(crate) fn why_no_name(&self, slot: &Slot, entry: &Stored) -> Result<Option<String>, Error> {
        let encrypted = slot.has(InodeFlags::ENCRYPT);
        if is_hashed(slot) && entry.hash.is_none() {
            return Ok(Some("has no hash".to_owned()));
        }
        if entry.name.is_empty() || matches!(&entry.name[..], b"." | b"..") {
            return Ok(Some("is no name".to_owned()));
        }
        if encrypted && entry.name.len() < CIPHERTEXT_MIN {
            return Ok(Some("is too short for an encrypted name".to_owned()));
        }
        let Some(info) = self.inodes.get(entry.inode)? else {
            return Ok(Some(format!("leads to inode {}, not in use", entry.inode)));
        };
        if info.hidden || entry.inode == InodeNr::ROOT.get() || entry.inode == slot.nr.get() {
            return Ok(Some(format!("leads to inode {}", entry.inode)));
        }
        let can_be = matches!(info.kind, Kind::File | Kind::Directory | Kind::Symlink);
        if !encrypted || !can_be {
            return Ok(None);
        }
        let Some(child) = self.slot(InodeNr::new(entry.inode))? else { return Ok(None) };
        if !child.has(InodeFlags::ENCRYPT) {
            return Ok(Some(format!("leads to inode {}, not encrypted", entry.inode)));
        }
        let policies = self.policy(&child).zip(self.policy(slot));
        let differ = policies.is_some_and(|(one, other)| one != other);
        Ok(differ.then(|| format!("leads to inode {}, of another policy", entry.inode)))
    }

    /// A name without the bytes that no name of this directory has.
    pub(crate) fn corrected(&self, slot: &Slot, name: &[u8], changes: &mut Changes) -> Vec<u8> {
        let is_wrong = |byte: &u8| matches!(byte, 0 | b'/');
        let is_no_name = !slot.has(InodeFlags::ENCRYPT) && name.iter().any(is_wrong);
        let mut new = name.to_vec();
        if is_no_name {
            new.iter_mut().filter(|byte| is_wrong(byte)).for_each(|byte| *byte = b'.');
        }
        let is_malformed = self.is_malformed(slot, &new);
        if is_malformed {
            new = new.utf8_chunks().fold(Vec::new(), |mut name, chunk| {
                name.extend(chunk.valid().as_bytes());
                name.extend(chunk.invalid().first().map(|_| b'.'));
                name
            });
        }
        if matches!(&new[..], b"." | b"..") {
            new = self.another_name(slot, &new, &BTreeMap::new(), &mut Numbers::new());
        }
        let (shown, now) = (name.escape_ascii(), new.escape_ascii());
        if is_no_name {
            changes.mended.push(format!("\"{shown}\" is no name: \"{now}\""));
        }
        if is_malformed {
            changes.mended.push(format!("\"{shown}\" is not of the encoding: \"{now}\""));
        }
        new
    }

    /// Gives each name to one entry: of several, to that of the highest inode, as e2fsck does. The others get
    /// another name each; encrypted ones, which can't be renamed without the key, are removed.
    pub(crate) fn distinct_names(
        &self,
        slot: &Slot,
        entries: Vec<Stored>,
        changes: &mut Changes,
    ) -> Vec<Stored> {
        let mut owners: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
        let mut is_twice = false;
        for entry in &entries {
            let owner = owners.entry(self.comparable(slot, &entry.name)).or_default();
            is_twice |= *owner != 0;
            *owner = entry.inode.max(*owner);
        }
        if !is_twice {
            return entries;
        }
        let mut seen = BTreeSet::new();
        let mut others = Vec::new();
        let mut kept = Vec::with_capacity(entries.len());
        for entry in entries {
            let key = self.comparable(slot, &entry.name);
            let shown = entry.name.escape_ascii();
            if owners.get(&key) != Some(&entry.inode) {
                others.push(entry);
            } else if seen.insert(key) {
                kept.push(entry);
            } else {
                changes.lost.push(format!("duplicate name \"{shown}\": removed"));
            }
        }
        others.sort_by_key(|entry| std::cmp::Reverse(entry.inode));
        let (mut taken, mut numbers) = (BTreeSet::new(), Numbers::new());
        for mut entry in others {
            let shown = entry.name.escape_ascii().to_string();
            let inode = entry.inode;
            if !taken.insert((self.comparable(slot, &entry.name), inode)) {
                changes.lost.push(format!("duplicate name \"{shown}\": removed"));
                continue;
            }
            if slot.has(InodeFlags::ENCRYPT) {
                changes.lost.push(format!("duplicate name \"{shown}\": the entry of inode {inode} removed"));
                continue;
            }
            entry.name = self.another_name(slot, &entry.name, &owners, &mut numbers);
            owners.insert(self.comparable(slot, &entry.name), inode);
            let now = entry.name.escape_ascii();
            changes.lost.push(format!("duplicate name \"{shown}\": renamed to \"{now}\""));
            kept.push(entry);
        }
        kept
    }

    /// What two names have in common that can't both be there.
    pub(crate) fn comparable(&self, slot: &Slot, name: &[u8]) -> Vec<u8> {
        let folds = slot.has(InodeFlags::CASEFOLD) && !slot.has(InodeFlags::ENCRYPT);
        let folded = if folds { casefold::fold(name) } else { None };
        folded.unwrap_or_else(|| name.to_vec())
    }

    /// Whether a directory takes only names of the encoding, and this is none.
    pub(crate) fn is_malformed(&self, slot: &Slot, name: &[u8]) -> bool {
        let folds = slot.has(InodeFlags::CASEFOLD) && !slot.has(InodeFlags::ENCRYPT);
        let folding = if folds { Folding::of(&self.sb).ok().flatten() } else { None };
        folding.is_some_and(|folding| folding.strict) && casefold::fold(name).is_none()
    }

    /// A name that is not there yet, made of one that is: it has a number, counts on from one that it has,
    /// and takes no more room in a record. `numbers` is for the next one.
    pub(crate) fn another_name(
        &self,
        slot: &Slot,
        name: &[u8],
        taken: &BTreeMap<Vec<u8>, u32>,
        numbers: &mut Numbers,
    ) -> Vec<u8> {
        let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let (stem, tail) = name.split_at(name.len() - digits);
        let counted = stem
            .strip_suffix(b"~")
            .zip(std::str::from_utf8(tail).ok().and_then(|tail| tail.parse::<u32>().ok()));
        let (stem, first) = counted.map_or((name, 0), |(stem, number)| (stem, number.saturating_add(1)));
        let room = name.len().next_multiple_of(4).min(Name::LEN_MAX);
        numbered(stem, room, first, numbers, |new| taken.contains_key(&self.comparable(slot, new)))
    }
}

/// A name with a number that is not taken. What is before the number is cut to fit, so names that differ only
/// there count on from each other's numbers.
fn numbered(
    stem: &[u8],
    room: usize,
    first: u32,
    numbers: &mut Numbers,
    is_taken: impl Fn(&[u8]) -> bool,
) -> Vec<u8> {
    let mut digits = first.checked_ilog10().unwrap_or(0) + 1;
    loop {
        let start = shortened(stem, room.saturating_sub(1 + index_of(u64::from(digits))));
        let least = if digits > 1 { 10u64.pow(digits - 1) } else { 0 };
        let number = numbers.entry((start.to_vec(), digits)).or_insert(least.max(first.into()));
        while *number < 10u64.pow(digits) {
            let new = [start, format!("~{number}").as_bytes()].concat();
            *number += 1;
            if !is_taken(&new) {
                return new;
            }
        }
        digits += 1;
    }
}

/// The start of a name, in whole characters if it has them.
fn shortened(name: &[u8], room: usize) -> &[u8] {
    let mut end = name.len().min(room);
    if let Ok(text) = std::str::from_utf8(name) {
        while !text.is_char_boundary(end) {
            end -= 1;
        }
    }
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::{Numbers, numbered};
    use std::cell::Cell;
    use std::collections::BTreeSet;

    /// Each tried all numbers of those before.
    #[test]
    fn regression_names_with_one_start_count_on() {
        let (tries, mut numbers, mut taken) = (Cell::new(0), Numbers::new(), BTreeSet::new());
        for nr in 0..3000u16 {
            let stem = [&b"start!"[..], &nr.to_be_bytes()].concat();
            let new = numbered(&stem, 8, 0, &mut numbers, |new| {
                tries.set(tries.get() + 1);
                taken.contains(new)
            });
            assert!(new.len() == 8 && taken.insert(new.clone()), "{new:?}");
        }
        assert!(tries.get() < 10_000, "{}", tries.get());
    }

    #[test]
    fn a_number_counts_on_from_one_that_a_name_has() {
        let mut numbers = Numbers::new();
        let names = [8, 8, 8].map(|first| numbered(b"name", 8, first, &mut numbers, |_| false));
        assert_eq!(names, [&b"name~8"[..], b"name~9", b"name~10"].map(<[u8]>::to_vec));
        let cut =
            ["\u{e4}\u{e4}", "aaaa"].map(|stem| numbered(stem.as_bytes(), 4, 0, &mut numbers, |_| false));
        assert_eq!(cut, ["\u{e4}~0", "aa~0"].map(|name| name.as_bytes().to_vec()));
    }
}
