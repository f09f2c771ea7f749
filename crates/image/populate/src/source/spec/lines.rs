//! Cuts a specification into lines and words.
//!
//! Lines end with LF or CRLF, the last one also with the file. Numbers of lines count from 1.

use hectare_units::owner_number;

/// The lines of a text, with their numbers.
pub(crate) fn numbered(text: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let lines = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    (1..).zip(lines)
}

/// The words of a line, without the blanks between them.
pub(super) fn words(line: &[u8]) -> Vec<&[u8]> {
    line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty()).collect()
}

/// A number in some base, digits only.
pub(super) fn number(word: &[u8], radix: u32) -> Option<u64> {
    let digits = std::str::from_utf8(word).ok()?;
    if !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None; // a sign
    }
    u64::from_str_radix(digits, radix).ok()
}

/// A user's or group's number, or `root`.
pub(super) fn owner(word: &[u8]) -> Option<u32> {
    if word == b"root" { Some(0) } else { owner_number(word) }
}

/// Permissions in octal.
pub(super) fn mode(word: &[u8]) -> Option<u16> {
    number(word, 8)?.try_into().ok().filter(|mode| *mode <= 0o7777)
}

/// A word as shown in messages.
pub(super) fn shown(word: &[u8]) -> String {
    format!("`{}`", crate::error::ShownPath::new(&word[..word.len().min(80)]))
}

/// A path from the image's root, without slashes at its ends, double ones and `.`; `None` if it has a `..`.
pub(super) fn clean(path: &[u8]) -> Option<Vec<u8>> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    let names: Vec<&[u8]> = names.collect();
    (!names.contains(&b"..".as_slice())).then(|| names.join(&b'/'))
}
