//! Makes the tables of case folding from the Unicode standard's files: `cargo xtask unicode [DIR]`.
//!
//! ext4 folds names as Unicode 12.1 says (`s_encoding` 1). The standard never changes decompositions,
//! combining classes and foldings of characters once they are assigned; so files of 12.1 or any later
//! version (`/usr/share/unicode`, Debian's package unicode-data) give the same tables, if everything that was
//! assigned later is left out. `DerivedAge.txt` says what that is.
//!
//! The table has the characters that are ignored (default ignorable ones, also those that are set aside for
//! later versions), and for each other one that is not its own folding what it becomes: folded (`C` and `F`
//! of `CaseFolding.txt`), decomposed, and without ignored ones (form NFDICF). Hangul syllables, whose
//! decomposition is arithmetic, are left out.

use hectare_tools::steps::{root, went_well};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

/// Where the table is kept.
pub(crate) const TABLE: &str = "crates/format/ext4/src/casefold/unicode_12_1.txt";
/// Where Debian keeps the standard's files.
pub(crate) const STANDARD: &str = "/usr/share/unicode";
/// The version of the table.
const VERSION: (u32, u32) = (12, 1);

/// The last code point.
const LAST: u32 = 0x10_ffff;

/// The job.
pub(crate) fn run(words: &[&str]) -> bool {
    let from = words.first().copied().unwrap_or(STANDARD);
    let written = table(Path::new(from))
        .map_err(|error| format!("{from}: {error}"))
        .and_then(|text| fs::write(root().join(TABLE), text).map_err(|error| format!("{TABLE}: {error}")));
    went_well("unicode", written)
}

/// The text of the table.
///
/// # Errors
/// The file that is missing, or the line that is none of the standard's.
pub(crate) fn table(folder: &Path) -> Result<String, String> {
    let later = later(folder)?;
    let is_later = |c: u32| later.iter().any(|range| range.contains(&c));
    let (mut folds, mut decompositions, mut classes) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for fields in lines(folder, "CaseFolding.txt", 3)? {
        if matches!(fields[1].as_str(), "C" | "F") {
            folds.insert(number(&fields[0])?, numbers(&fields[2])?);
        }
    }
    for fields in lines(folder, "UnicodeData.txt", 6)? {
        let c = number(&fields[0])?;
        if !fields[5].is_empty() && !fields[5].starts_with('<') {
            decompositions.insert(c, numbers(&fields[5])?);
        }
        if fields[3] != "0" {
            classes.insert(c, fields[3].clone());
        }
    }
    let mut ignorable = BTreeSet::new();
    for fields in lines(folder, "DerivedCoreProperties.txt", 2)? {
        if fields[1] == "Default_Ignorable_Code_Point" {
            ignorable.extend(range(&fields[0])?.filter(|c| !is_later(*c)));
        }
    }
    let mut text = String::from(
        "# Case folding of Unicode 12.1 (NFDICF), made by `cargo xtask unicode` from the standard's files.\n\
         # I: ignored, first and last. C: combining class of first to last. M: a character becomes these.\n",
    );
    for (first, last, _) in runs(|c| ignorable.contains(&c).then_some(())) {
        let _ = writeln!(text, "I {first:04X} {last:04X}");
    }
    for (first, last, class) in runs(|c| classes.get(&c).filter(|_| !is_later(c))) {
        let _ = writeln!(text, "C {first:04X} {last:04X} {class}");
    }
    let sources: BTreeSet<u32> = folds.keys().chain(decompositions.keys()).copied().collect();
    for c in sources.into_iter().filter(|c| !is_later(*c) && !ignorable.contains(c)) {
        let _ = write!(text, "M {c:04X}");
        for part in settled(c, &folds, &decompositions).into_iter().filter(|part| !ignorable.contains(part)) {
            let _ = write!(text, " {part:04X}");
        }
        text.push('\n');
    }
    Ok(text)
}

/// A character, folded and decomposed until neither changes it.
fn settled(c: u32, folds: &BTreeMap<u32, Vec<u32>>, decompositions: &BTreeMap<u32, Vec<u32>>) -> Vec<u32> {
    match folds.get(&c).or_else(|| decompositions.get(&c)) {
        Some(parts) => parts.iter().flat_map(|part| settled(*part, folds, decompositions)).collect(),
        None => vec![c],
    }
}

/// Runs of characters for which `value` says the same, and something: first, last, and what.
fn runs<T: PartialEq>(value: impl Fn(u32) -> Option<T>) -> Vec<(u32, u32, T)> {
    let (mut runs, mut c) = (Vec::new(), 0);
    while c <= LAST {
        let (first, now) = (c, value(c));
        c += 1;
        while c <= LAST && value(c) == now {
            c += 1;
        }
        runs.extend(now.map(|now| (first, c - 1, now)));
    }
    runs
}

/// The ranges of characters that came after 12.1.
fn later(folder: &Path) -> Result<Vec<RangeInclusive<u32>>, String> {
    let mut ranges = Vec::new();
    for fields in lines(folder, "DerivedAge.txt", 2)? {
        let (major, minor) = fields[1].split_once('.').ok_or("an age is no version")?;
        let version = (major.parse().map_err(|_| "an age is no version")?, minor.parse().unwrap_or(0));
        if version > VERSION {
            ranges.push(range(&fields[0])?);
        }
    }
    Ok(ranges)
}

/// The fields of each line of a file that is not only a comment: at least `least` of them.
fn lines(folder: &Path, name: &str, least: usize) -> Result<Vec<Vec<String>>, String> {
    let text = fs::read_to_string(folder.join(name)).map_err(|error| format!("{name}: {error}"))?;
    let mut all = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let fields: Vec<String> = line.split(';').map(|field| field.trim().to_owned()).collect();
        match fields.len() {
            _ if line.is_empty() => {}
            few if few < least => return Err(format!("{name}:{}: {few} fields, not {least}", at + 1)),
            _ => all.push(fields),
        }
    }
    Ok(all)
}

fn number(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 16).map_err(|_| format!("'{text}' is no code point"))
}

fn numbers(text: &str) -> Result<Vec<u32>, String> {
    text.split_whitespace().map(number).collect()
}

fn range(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    Ok(number(first)?..=number(last)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_what_the_standards_files_give() {
        let folder = Path::new(STANDARD);
        if !folder.join("UnicodeData.txt").exists() {
            let reason = "the package unicode-data is not installed";
            hectare_tools::skip!("unicode::the_table", reason);
        }
        let kept = fs::read_to_string(root().join(TABLE)).expect("the table is there");
        assert!(table(folder).expect("the standard's files") == kept, "run `cargo xtask unicode`");
    }

    #[test]
    fn a_line_with_too_few_fields_is_named() {
        let folder = tempfile::tempdir().expect("a directory");
        for name in ["DerivedAge.txt", "CaseFolding.txt"] {
            fs::write(folder.path().join(name), "# nothing\n").expect("it is written");
        }
        fs::write(folder.path().join("UnicodeData.txt"), "\n0041;A\n").expect("it is written");
        assert_eq!(table(folder.path()), Err("UnicodeData.txt:2: 2 fields, not 6".to_owned()));
    }
}
