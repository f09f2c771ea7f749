//! Names in FAT: each has eight letters and three, and where that is not the name itself, a long one before
//! it.
//!
//! Facts: Microsoft's "FAT: General Overview of On-Disk Format" 1.03, on long directory entries.

use std::collections::{BTreeSet, HashMap};

/// Characters of a long name in one entry.
const PART: usize = 13;
/// The most characters of a name.
const LONG_MAX: usize = 255;

/// A name of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Name {
    pub(super) short: [u8; 11],
    /// The long name, if it needs one.
    pub(super) long: Vec<u16>,
}

impl Name {
    /// Entries that it takes.
    pub(super) fn entries(&self) -> usize {
        1 + self.long.len().div_ceil(PART)
    }

    /// The entries of the long name, in their order on disk.
    pub(super) fn long_entries(&self) -> Vec<[u8; 32]> {
        let sum = self.short.iter().fold(0_u8, |sum, byte| sum.rotate_right(1).wrapping_add(*byte));
        let count = self.long.len().div_ceil(PART);
        let part = |nr: usize| {
            let at = |place: usize| match nr * PART + place {
                place if place < self.long.len() => self.long[place],
                place if place == self.long.len() => 0,
                _ => 0xffff,
            };
            let mut entry = [0; 32];
            entry[0] = u8::try_from(nr + 1).unwrap_or_default() | if nr + 1 == count { 0x40 } else { 0 };
            entry[11] = 0x0f;
            entry[13] = sum;
            let places = (1..11).step_by(2).chain((14..26).step_by(2)).chain((28..32).step_by(2));
            for (place, to) in places.enumerate() {
                entry[to..to + 2].copy_from_slice(&at(place).to_le_bytes());
            }
            entry
        };
        (0..count).rev().map(part).collect()
    }
}

/// Gives the names of a directory their short ones.
///
/// # Errors
/// With the index of a name that FAT can't have, and why.
pub(super) fn short_names(names: &[&[u8]]) -> Result<Vec<Name>, (usize, String)> {
    let mut texts = Vec::with_capacity(names.len());
    let mut folded: HashMap<String, usize> = HashMap::new();
    for (at, name) in names.iter().enumerate() {
        let text = std::str::from_utf8(name).map_err(|_| (at, "the name is no UTF-8".to_owned()))?;
        check(text).map_err(|reason| (at, reason.to_owned()))?;
        if let Some(other) = folded.insert(text.to_uppercase(), at) {
            let other = String::from_utf8_lossy(names[other]);
            return Err((at, format!("in FAT it is the same name as {other:?}")));
        }
        texts.push(text);
    }
    // Those that are short names as they stand come first, so that none of the made ones is another's.
    let mut made: Vec<Option<[u8; 11]>> = texts.iter().map(|text| plain(text)).collect();
    let mut taken: BTreeSet<[u8; 11]> = made.iter().flatten().copied().collect();
    for (at, text) in texts.iter().enumerate() {
        if made[at].is_none() {
            let short =
                with_number(text, &taken).ok_or_else(|| (at, "no short name is left for it".to_owned()))?;
            taken.insert(short);
            made[at] = Some(short);
        }
    }
    let name = |(text, short): (&&str, Option<[u8; 11]>)| {
        let short = short.unwrap_or([b' '; 11]);
        let is_itself = shown(&short) == **text;
        Name { short, long: if is_itself { Vec::new() } else { text.encode_utf16().collect() } }
    };
    Ok(texts.iter().zip(made).map(name).collect())
}

fn check(text: &str) -> Result<(), &'static str> {
    if text.ends_with(['.', ' ']) || text.starts_with(' ') {
        return Err("a name in FAT begins with no space, and ends with no space or dot");
    }
    if text.contains(|c: char| c.is_control() || "\"*/:<>?\\|".contains(c)) {
        return Err("the name has a character that FAT has not");
    }
    if text.encode_utf16().count() > LONG_MAX {
        return Err("the name is too long for FAT");
    }
    Ok(())
}

fn is_short(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'()-@^_`{}~".contains(&byte)
}

/// Stem and ending, in capital letters, padded.
fn joined(stem: &[u8], ending: &[u8]) -> [u8; 11] {
    let mut short = [b' '; 11];
    short[..stem.len()].copy_from_slice(stem);
    short[8..8 + ending.len()].copy_from_slice(ending);
    short.make_ascii_uppercase();
    short
}

/// The short name of one that has the form of it, in letters of any case.
fn plain(text: &str) -> Option<[u8; 11]> {
    let (stem, ending) = text.rsplit_once('.').unwrap_or((text, ""));
    let fits =
        (1..=8).contains(&stem.len()) && ending.len() <= 3 && (ending.is_empty() != text.contains('.'));
    let good = |part: &str| part.bytes().all(is_short);
    (fits && good(stem) && good(ending)).then(|| joined(stem.as_bytes(), ending.as_bytes()))
}

/// A short name that ends with a number that is free.
fn with_number(text: &str, taken: &BTreeSet<[u8; 11]>) -> Option<[u8; 11]> {
    let trimmed = text.trim_start_matches('.');
    let (stem, ending) = trimmed.rsplit_once('.').unwrap_or((trimmed, ""));
    let letters = |part: &str, len: usize| -> Vec<u8> {
        let kept = part.chars().filter(|c| *c != ' ' && *c != '.');
        let letter = |c: char| u8::try_from(c).ok().filter(|byte| is_short(*byte)).unwrap_or(b'_');
        kept.map(letter).take(len).collect()
    };
    let (stem, ending) = (letters(stem, 6), letters(ending, 3));
    (1..=999_999_u32).find_map(|number| {
        let tail = format!("~{number}");
        let mut short: Vec<u8> = stem.iter().copied().take(8 - tail.len()).collect();
        short.extend(tail.bytes());
        let short = joined(&short, &ending);
        (!taken.contains(&short)).then_some(short)
    })
}

/// A short name as it is read.
fn shown(short: &[u8; 11]) -> String {
    let text = |part: &[u8]| String::from_utf8_lossy(part).trim_end().to_owned();
    let (stem, ending) = (text(&short[..8]), text(&short[8..]));
    if ending.is_empty() { stem } else { format!("{stem}.{ending}") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test that cannot continue fails

    use super::*;

    fn shorts(names: &[&str]) -> Vec<String> {
        let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        let made = short_names(&names).unwrap();
        made.iter()
            .map(|name| format!("{}{}", shown(&name.short), if name.long.is_empty() { "" } else { "+" }))
            .collect()
    }

    #[test]
    fn short_names_are_those_of_windows() {
        assert_eq!(shorts(&["BOOTX64.EFI", "bootx64.cfg", "EFI"]), ["BOOTX64.EFI", "BOOTX64.CFG+", "EFI"]);
        assert_eq!(
            shorts(&["a long name.text", "a.b.c", ".hidden"]),
            ["ALONGN~1.TEX+", "AB~1.C+", "HIDDEN~1+"]
        );
        // A name that looks like one that is made.
        assert_eq!(shorts(&["ABCDEF one.txt", "abcdef~1.txt"]), ["ABCDEF~2.TXT+", "ABCDEF~1.TXT+"]);
        assert_eq!(shorts(&["\u{e4}.txt"]), ["_~1.TXT+"]);
        let many: Vec<String> = (0..12).map(|n| format!("a longer name {n}.txt")).collect();
        let many = shorts(&many.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!((many[8].as_str(), many[9].as_str()), ("ALONGE~9.TXT+", "ALONG~10.TXT+"));
    }

    #[test]
    fn long_names_lie_in_pieces_of_thirteen() {
        let made = short_names(&[b"thirteen char"]).unwrap();
        let entries = made[0].long_entries();
        assert_eq!((entries.len(), made[0].entries()), (1, 2));
        assert_eq!((entries[0][0], entries[0][11], &entries[0][28..32]), (0x41, 0x0f, b"a\0r\0".as_slice()));
        let made = short_names(&[b"fourteen chars"]).unwrap();
        let entries = made[0].long_entries();
        assert_eq!((entries[0][0], entries[1][0]), (0x42, 1));
        assert_eq!(&entries[0][1..7], b"s\0\0\0\xff\xff");
    }
}
