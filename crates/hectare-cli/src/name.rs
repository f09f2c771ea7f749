//! Displays file names, which are bytes.
//!
//! On a terminal and in messages, a name that is not plain text (control characters, bytes that are not
//! UTF-8) is written as `$'...'`, which a shell reads back to the same bytes; a name can thus never move the
//! cursor. In a pipe names are written raw. In JSON a name that is UTF-8 is a string, any other is `{"hex":
//! "ff61"}`.

use hectare_units::hex;
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::borrow::Cow;
use std::fmt::Write;

/// The name as text on one line; of the address of an export without a password, which has no place there.
pub fn shown(name: &[u8]) -> String {
    if hectare_nbd::Address::is_meant(name) && name.contains(&b'@') {
        return hectare_nbd::Address::without_secrets(&escaped_or_plain(name));
    }
    escaped_or_plain(name)
}

fn escaped_or_plain(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(text) if !text.chars().any(needs_escape) => text.to_owned(),
        _ => escaped(name),
    }
}

/// Whether a character moves the cursor, or makes a text look like another one: controls (C0, DEL, C1),
/// bidirectional controls, separators of lines and paragraphs, and characters without width that no script
/// needs. The joiners U+200C and U+200D are parts of words.
fn needs_escape(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// JSON with the same meaning that shows nothing but what it says: such characters are written as `\uXXXX`.
/// Lines stay lines.
pub(crate) fn inert(json: &str) -> Cow<'_, str> {
    let is_raw = |c: char| needs_escape(c) && c != '\n';
    if !json.contains(is_raw) {
        return json.into();
    }
    json.chars()
        .fold(String::with_capacity(json.len()), |mut text, c| {
            if is_raw(c) {
                let _ = write!(text, "\\u{:04x}", u32::from(c)); // a string takes everything
            } else {
                text.push(c);
            }
            text
        })
        .into()
}

fn escaped(name: &[u8]) -> String {
    let mut text = String::from("$'");
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => text.push_str("\\n"),
                '\t' => text.push_str("\\t"),
                '\\' => text.push_str("\\\\"),
                '\'' => text.push_str("\\'"),
                c if needs_escape(c) => {
                    let mut bytes = [0; 4];
                    octal(&mut text, c.encode_utf8(&mut bytes).as_bytes());
                }
                c => text.push(c),
            }
        }
        octal(&mut text, chunk.invalid());
    }
    text.push('\'');
    text
}

fn octal(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(text, "\\{byte:03o}"); // a string takes everything
    }
}

/// A name in JSON.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JsonName(pub Vec<u8>);

impl Serialize for JsonName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("hex", &hex(&self.0))?;
                map.end()
            }
        }
    }
}

/// A path below a directory.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = dir.to_vec();
    if !path.is_empty() && !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// A path inside an image as it is printed: from the root.
pub(crate) fn absolute(path: &[u8]) -> Vec<u8> {
    if path.starts_with(b"/") { path.to_vec() } else { join(b"/", path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_are_quoted_and_plain_ones_are_not() {
        assert_eq!(shown("plain name \u{e9}".as_bytes()), "plain name \u{e9}");
        assert_eq!(shown(b"a\nb'\x1b[2J"), "$'a\\nb\\'\\033[2J'");
        assert_eq!(shown(b"\xffa"), "$'\\377a'");
        assert_eq!(shown("a\u{202e}b".as_bytes()), "$'a\\342\\200\\256b'");
    }

    /// What can move the cursor, reorder a line or hide in it.
    const HIDDEN: &str =
        "\u{1b}\u{7f}\u{85}\u{9b}\u{61c}\u{200b}\u{200e}\u{2028}\u{2029}\u{202e}\u{2060}\u{2066}\u{feff}";

    #[test]
    fn regression_characters_that_are_not_seen_are_quoted() {
        for c in HIDDEN.chars() {
            let name = format!("a{c}b");
            let quoted = shown(name.as_bytes());
            assert!(quoted.is_ascii() && quoted.starts_with("$'a\\"), "{:x}: {quoted}", u32::from(c));
        }
        let word = "\u{645}\u{6cc}\u{200c}\u{62e}"; // Persian, with a joiner that belongs to it
        assert_eq!(shown(word.as_bytes()), word);
    }

    #[test]
    fn regression_json_shows_no_hidden_characters() {
        let json = serde_json::to_string_pretty(&[HIDDEN, "\u{e9}\n"]).unwrap();
        let shown = inert(&json);
        assert!(!shown.contains(|c| needs_escape(c) && c != '\n'), "{shown:?}");
        assert!(shown.contains("\\u009b") && shown.contains('\u{e9}') && shown.lines().count() == 4);
        assert_eq!(serde_json::from_str::<Vec<String>>(&shown).unwrap(), [HIDDEN, "\u{e9}\n"]);
    }

    #[test]
    fn json_names_are_strings_or_hex() {
        assert_eq!(serde_json::to_string(&JsonName(b"a\"b".to_vec())).unwrap(), r#""a\"b""#);
        assert_eq!(serde_json::to_string(&JsonName(b"\xffa".to_vec())).unwrap(), r#"{"hex":"ff61"}"#);
    }
}
