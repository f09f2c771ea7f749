//! Names without regard to case (feature `casefold`): what two names that mean the same have in common.
//!
//! In a directory whose inode has the flag `CASEFOLD`, names are compared and hashed as [`fold`] makes them:
//! folded, decomposed and without default ignorable characters (Unicode's NFDICF), of Unicode 12.1, whatever
//! the standard has added since. What is stored, and listed, is the name as it was made.
//!
//! Bytes that are not UTF-8 have no such form: they are compared as they are, or refused where the volume asks
//! for valid names ([`Folding::strict`]). Characters that 12.1 does not have stand for themselves.
//!
//! Hazards: a changed table would make names unfindable on existing volumes, so the table is a file of its
//! own, pinned (`docs/decisions/0006-case-folding-by-a-pinned-table.md`). A name may fold to nothing, and
//! some fold to `.` or `..`: those of a directory are found by their exact names only.
//!
//! What it is not: the names of encrypted directories, which are folded before they are encrypted and need a
//! key even to be hashed.

use crate::error::Unsupported;
use crate::feature::Incompat;
use crate::superblock::{ENCODING_STRICT, ENCODING_UTF8_12_1, SuperBlock};
use std::ops::Range;
use std::sync::LazyLock;

/// How names are folded on a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Folding {
    /// Names that can't be folded are refused.
    pub strict: bool,
}

impl Folding {
    /// How a volume folds names; `None` if it has no directories that ignore case.
    ///
    /// # Errors
    /// [`Unsupported`] names an encoding that is not known.
    pub fn of(sb: &SuperBlock) -> Result<Option<Self>, Unsupported> {
        if !sb.features().incompat.contains(Incompat::CASEFOLD) {
            return Ok(None);
        }
        match sb.raw().s_encoding.get() {
            ENCODING_UTF8_12_1 => {
                Ok(Some(Self { strict: sb.raw().s_encoding_flags.get() & ENCODING_STRICT != 0 }))
            }
            other => Err(Unsupported(format!("names of encoding {other} (casefold) can't be compared"))),
        }
    }
}

/// The form that names have in common which differ in case or composition only; `None` if the bytes have
/// none.
#[must_use]
pub fn fold(name: &[u8]) -> Option<Vec<u8>> {
    if name.is_ascii() {
        return Some(name.to_ascii_lowercase());
    }
    let (table, mut parts) = (&*TABLE, Vec::with_capacity(name.len()));
    str::from_utf8(name).ok()?.chars().for_each(|c| table.put(c, &mut parts));
    // Marks are ordered by their classes, in runs between characters that are no marks.
    for run in parts.chunk_by_mut(|(_, before), (_, after)| *before != 0 && *after != 0) {
        run.sort_by_key(|(_, class)| *class);
    }
    Some(parts.into_iter().filter_map(|(c, _)| c).collect::<String>().into_bytes())
}

/// Whether two names are the same where case does not matter.
#[must_use]
pub fn alike(a: &[u8], b: &[u8]) -> bool {
    a == b || fold(a).is_some_and(|a| fold(b).is_some_and(|b| a == b))
}

/// Hangul syllables, and the first of each kind of their parts.
const SYLLABLES: Range<u32> = 0xac00..0xd7a4;
const LEADS: u32 = 0x1100;
const VOWELS: u32 = 0x1161;
const TRAILS: u32 = 0x11a7;
/// Vowels and, with none, trailing parts.
const VOWEL_COUNT: u32 = 21;
const TRAIL_COUNT: u32 = 28;

static TABLE: LazyLock<Table> = LazyLock::new(|| Table::parse(include_str!("casefold/unicode_12_1.txt")));

/// The table, sorted by characters.
#[derive(Default)]
struct Table {
    ignored: Vec<(u32, u32)>,
    classes: Vec<(u32, u32, u8)>,
    /// What characters become: where that is in `parts`.
    becomes: Vec<(u32, Range<usize>)>,
    parts: Vec<char>,
}

impl Table {
    /// # Panics
    /// If it is not what `xtask unicode` makes.
    fn parse(text: &str) -> Self {
        let mut table = Self::default();
        for line in text.lines() {
            let mut words = line.split(' ');
            let kind = words.next().unwrap_or_default();
            let number = |word: Option<&str>| {
                word.and_then(|word| u32::from_str_radix(word, 16).ok()).expect("a code point of the table")
            };
            match kind {
                "I" => table.ignored.push((number(words.next()), number(words.next()))),
                "C" => {
                    let (first, last) = (number(words.next()), number(words.next()));
                    let class =
                        words.next().and_then(|word| word.parse().ok()).expect("a class of the table");
                    table.classes.push((first, last, class));
                }
                "M" => {
                    let (c, start) = (number(words.next()), table.parts.len());
                    let parts = words.map(|word| char::from_u32(number(Some(word))).expect("a character"));
                    table.parts.extend(parts);
                    table.becomes.push((c, start..table.parts.len()));
                }
                _ => {}
            }
        }
        table
    }

    fn is_ignored(&self, c: char) -> bool {
        let at = self.ignored.partition_point(|(first, _)| *first <= u32::from(c));
        at.checked_sub(1).is_some_and(|at| u32::from(c) <= self.ignored[at].1)
    }

    fn class(&self, c: char) -> u8 {
        let at = self.classes.partition_point(|(first, _, _)| *first <= u32::from(c));
        let found = at.checked_sub(1).map(|at| self.classes[at]);
        found.filter(|(_, last, _)| u32::from(c) <= *last).map_or(0, |(_, _, class)| class)
    }

    /// Adds what a character becomes, with the classes. One that is ignored becomes nothing, but marks don't
    /// change places across it.
    fn put(&self, c: char, out: &mut Vec<(Option<char>, u8)>) {
        let code = u32::from(c);
        if self.is_ignored(c) {
            return out.push((None, 0));
        }
        if SYLLABLES.contains(&code) {
            return out.extend(syllable(code - SYLLABLES.start).map(|part| (Some(part), 0)));
        }
        match self.becomes.binary_search_by_key(&code, |(c, _)| *c) {
            Ok(at) => {
                let parts = &self.parts[self.becomes[at].1.clone()];
                out.extend(parts.iter().map(|part| (Some(*part), self.class(*part))));
            }
            Err(_) => out.push((Some(c), self.class(c))),
        }
    }
}

/// The parts of the n-th Hangul syllable.
fn syllable(n: u32) -> impl Iterator<Item = char> {
    let trail = n % TRAIL_COUNT;
    let parts = [
        Some(LEADS + n / (VOWEL_COUNT * TRAIL_COUNT)),
        Some(VOWELS + n / TRAIL_COUNT % VOWEL_COUNT),
        (trail > 0).then_some(TRAILS + trail),
    ];
    parts.into_iter().flatten().filter_map(char::from_u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(name: &str) -> Option<String> {
        fold(name.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn case_and_composition_make_no_difference() {
        for (a, b) in [
            ("README.txt", "readme.TXT"),
            ("Stra\u{df}e", "STRASSE"),
            ("\u{e9}t\u{e9}", "E\u{301}T\u{c9}"),
            ("\u{3a3}\u{3c2}", "\u{3c3}\u{3c3}"),
            ("a\u{ad}b", "AB"),
            ("\u{212b}", "\u{e5}"),
            ("\u{d55c}\u{ae00}", "\u{1112}\u{1161}\u{11ab}\u{1100}\u{1173}\u{11af}"),
            ("a\u{323}\u{302}", "A\u{302}\u{323}"),
            ("a\u{34f}\u{302}", "A\u{302}\u{34f}"),
        ] {
            assert!(alike(a.as_bytes(), b.as_bytes()), "{a} {b}");
        }
        for (a, b) in [
            ("a", "b"),
            ("i", "\u{131}"),
            ("e", "\u{e9}"),
            ("\u{fb01}x", "fj"),
            ("a\u{302}\u{34f}\u{323}", "a\u{323}\u{302}"),
        ] {
            assert!(!alike(a.as_bytes(), b.as_bytes()), "{a} {b}");
        }
        assert_eq!(folded("\u{ad}\u{200b}"), Some(String::new()));
        assert_eq!(folded("\u{fb01}"), Some("fi".to_owned()), "a full folding, not a compatible form");
    }

    #[test]
    fn what_is_no_text_has_no_form_and_what_came_later_stands_for_itself() {
        assert_eq!((fold(b"\xff"), fold(b"a\xc3"), fold(b"\xed\xa0\x80")), (None, None, None));
        // A capital letter of Unicode 13, and a mark.
        assert_eq!(folded("X\u{a7c7}\u{1abf}").as_deref(), Some("x\u{a7c7}\u{1abf}"));
        assert!(alike(b"\xff", b"\xff") && !alike(b"a\xff", b"A\xff"));
    }

    #[test]
    fn what_is_folded_is_its_own_folding() {
        for c in (0..0x11_0000).filter_map(char::from_u32) {
            let Some(once) = folded(&format!("x{c}")) else { continue };
            assert_eq!(folded(&once).as_deref(), Some(once.as_str()), "{:x}", u32::from(c));
        }
    }
}
