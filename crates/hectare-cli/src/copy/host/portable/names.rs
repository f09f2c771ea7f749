//! Names that a host does not have, or takes for something else.
//!
//! A name of a volume is up to 255 bytes without `/` and NUL. Windows has names of Unicode, cuts dots and
//! spaces off their ends, and gives some of them to devices ("Naming Files, Paths, and Namespaces" of its
//! documentation); a colon in one opens a stream of another file, and a backslash leads into a directory.
//! macOS has Unicode, too.

use crate::copy::ends::Reason;
use hectare_device::os::os_string;
use std::fs::{self, Metadata};
use std::path::Path;

/// Characters with a meaning of their own on Windows.
const SPECIAL: &[u8] = b"<>:\"/\\|?*";
/// Names of devices there; COM and LPT have a digit more.
const DEVICES: [&str; 6] = ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"];
/// Digits that count as such there.
const SUPERSCRIPT: [&str; 3] = ["\u{b9}", "\u{b2}", "\u{b3}"];

/// Why no file of this host can have the name.
pub(super) fn refused(name: &[u8]) -> Option<Reason> {
    if !cfg!(target_os = "linux") && str::from_utf8(name).is_err() {
        return Some("the name is not UTF-8, and this host has no such names".to_owned());
    }
    let reason = if cfg!(windows) { by_windows(name) } else { None };
    reason.map(|reason| format!("{reason}; copy it by itself, under another name"))
}

/// Why Windows has no such name.
fn by_windows(name: &[u8]) -> Option<&'static str> {
    if name.iter().any(|byte| *byte < b' ' || SPECIAL.contains(byte)) {
        return Some("the name has a character that means something else on Windows");
    }
    if matches!(name.last(), Some(b'.' | b' ')) {
        return Some("the name ends with a dot or a space, which Windows cuts off");
    }
    let stem = name.split(|byte| *byte == b'.').next().unwrap_or_default().trim_ascii_end();
    let is = |device: &&str| stem.eq_ignore_ascii_case(device.as_bytes());
    (DEVICES.iter().any(is) || is_port(stem)).then_some("Windows has a device of that name")
}

/// COM or LPT with one digit, which may be superscript.
fn is_port(stem: &[u8]) -> bool {
    let Some((start, number)) = stem.split_at_checked(3) else { return false };
    let is_digit = match number {
        [digit] => digit.is_ascii_digit(),
        other => SUPERSCRIPT.iter().any(|digit| digit.as_bytes() == other),
    };
    is_digit && (start.eq_ignore_ascii_case(b"COM") || start.eq_ignore_ascii_case(b"LPT"))
}

/// Whether what is at a path has exactly this name: a host may take names for the same that differ in case
/// or form. A name that can't be read back counts as another.
pub(super) fn is_spelt(path: &Path, name: &[u8], there: &Metadata) -> bool {
    let Ok(name) = os_string(name) else { return false };
    if !there.is_symlink() {
        return fs::canonicalize(path).is_ok_and(|path| path.file_name() == Some(&name));
    }
    let entries = path.parent().and_then(|parent| fs::read_dir(parent).ok());
    entries.into_iter().flatten().flatten().any(|entry| entry.file_name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_another_meaning_are_refused() {
        for name in [
            "C:x",
            "a\\b",
            "a?",
            "a\tb",
            "a.",
            "a ",
            "nul",
            "NUL.txt",
            "Con",
            "aux .c",
            "com1",
            "LPT9.x",
            "COM\u{b2}",
            "conin$",
        ] {
            assert!(by_windows(name.as_bytes()).is_some(), "{name}");
        }
        for name in ["null", "com", "com10", "comx", "a.nul", ".bashrc", "a b", "a;b", "\u{e4}", "lpt\u{e4}"]
        {
            assert!(by_windows(name.as_bytes()).is_none(), "{name}");
        }
        assert!(refused(b"plain").is_none());
        assert_eq!(refused(b"\xff").is_some(), !cfg!(target_os = "linux"));
        assert_eq!(refused(b"NUL").is_some(), cfg!(windows));
    }

    #[test]
    fn a_name_is_spelt_as_it_is_listed() {
        let folder = tempfile::tempdir().unwrap();
        let path = fs::canonicalize(folder.path()).unwrap().join("Name");
        fs::write(&path, "x").unwrap();
        let there = fs::symlink_metadata(&path).unwrap();
        assert!(is_spelt(&path, b"Name", &there));
        assert!(!is_spelt(&path.with_file_name("name"), b"name", &there));
    }
}
