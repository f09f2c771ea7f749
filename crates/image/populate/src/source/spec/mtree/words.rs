//! The words of an mtree line, and the escapes in them.
//!
//! Escapes are those of vis(3) as mtree uses it (octal, and one letter for a control byte), and libarchive's:
//! `\ooo`, `\a \b \f \n \r \s \t \v \0 \\ \#`. Others are refused: a name is never guessed.

pub(super) use crate::source::spec::lines::{shown, words};

/// The bytes that a word stands for.
pub(super) fn unescape(word: &[u8]) -> Result<Vec<u8>, String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(word.len()), word);
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (byte, len) = escape(rest).ok_or_else(|| format!("an unknown escape in {}", shown(word)))?;
        if byte == 0 {
            return Err(format!("a NUL byte in {}", shown(word)));
        }
        bytes.push(byte);
        rest = &rest[len..];
    }
    Ok(bytes)
}

/// The byte that an escape stands for, and its length without the backslash.
fn escape(text: &[u8]) -> Option<(u8, usize)> {
    if let [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] = text {
        return Some(((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), 3));
    }
    let byte = match text.first()? {
        b'a' => 7,
        b'b' => 8,
        b't' => b'\t',
        b'n' => b'\n',
        b'v' => 11,
        b'f' => 12,
        b'r' => b'\r',
        b's' => b' ',
        b'0' => 0,
        plain @ (b'\\' | b'#' | b'=' | b'"') => *plain,
        _ => return None,
    };
    Some((byte, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_bytes_and_unknown_ones_are_refused() {
        let bytes = |word: &str| unescape(word.as_bytes());
        assert_eq!(bytes("a\\040b\\sc\\\\\\#\\377\\t"), Ok(b"a b c\\#\xff\t".to_vec()));
        for wrong in ["\\", "a\\q", "\\400", "\\^C", "\\M-a", "\\0", "\\000"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
