//! Decodes the names and values of extended attributes in pax records.

/// A name in which GNU tar wrote `=` as `%3D` and `%` as `%25`.
pub(super) fn keyword(name: &[u8]) -> Vec<u8> {
    unescape(name, |byte| matches!(byte, b'=' | b'%'))
}

/// A name in which libarchive wrote any byte as `%XX`.
pub(super) fn percent(name: &[u8]) -> Vec<u8> {
    unescape(name, |_| true)
}

fn unescape(mut rest: &[u8], wanted: impl Fn(u8) -> bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(rest.len());
    while let [first, tail @ ..] = rest {
        let escaped = match rest {
            [b'%', high, low, ..] => hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        match escaped {
            Some(byte) if wanted(byte) => {
                out.push(byte);
                rest = &rest[3..];
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// The bytes behind base64 (RFC 4648, with or without padding); `None` if it isn't.
pub(super) fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let end = text.iter().position(|byte| *byte == b'=').unwrap_or(text.len());
    let (digits, padding) = text.split_at(end);
    if padding.len() > 2 || padding.iter().any(|byte| *byte != b'=') || digits.len() % 4 == 1 {
        return None;
    }
    let mut out = Vec::with_capacity(digits.len() * 3 / 4);
    for group in digits.chunks(4) {
        let mut bits = 0u32;
        for place in 0..4 {
            bits = bits << 6 | group.get(place).map_or(Some(0), |digit| base64_digit(*digit))?;
        }
        let [_, bytes @ ..] = bits.to_be_bytes();
        out.extend_from_slice(&bytes[..group.len() - 1]);
    }
    Some(out)
}

fn base64_digit(digit: u8) -> Option<u32> {
    Some(u32::from(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_has_its_known_values() {
        for (text, bytes) in
            [("", ""), ("Zg", "f"), ("Zg==", "f"), ("Zm8", "fo"), ("Zm9v", "foo"), ("Zm9vYg", "foob")]
        {
            assert_eq!(base64(text.as_bytes()).as_deref(), Some(bytes.as_bytes()), "{text}");
        }
        for text in ["Z", "Zm9v!", "Zg===", "Zg=x"] {
            assert_eq!(base64(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn names_are_unescaped() {
        assert_eq!(percent(b"user.a%20b%zz%4"), b"user.a b%zz%4");
        assert_eq!(keyword(b"user.a%3Db%20%25"), b"user.a=b%20%");
    }
}
