//! What all addresses of images on servers have in common: a scheme, `%XX` for bytes that have a meaning in
//! addresses, and no user in what is shown.

/// Whether a text begins with one of these schemes (each with its `://`): so it is meant as an address, right or
/// wrong.
#[must_use]
pub fn is_meant(text: &[u8], schemes: &[&str]) -> bool {
    schemes.iter().any(|scheme| text.starts_with(scheme.as_bytes()))
}

/// The bytes of a text with every `%XX` replaced by its byte; `None` if a % is not followed by two hexadecimal
/// digits, or they are zeros: no name has that byte.
#[must_use]
pub fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let value = u8::try_from(digit(bytes.next())? * 16 + digit(bytes.next())?).ok()?;
        out.push((value != 0).then_some(value)?);
    }
    Some(out)
}

/// Bytes with all but letters, digits and `-._~/` as `%XX`.
#[must_use]
pub fn encoded(bytes: &[u8]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let one = |byte: &u8| if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") };
    bytes.iter().map(one).collect()
}

/// An address without the user and the password that it may have, for messages.
#[must_use]
pub fn without_user(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    match rest.rsplit_once('@') {
        Some((_, rest)) => format!("{scheme}://...@{rest}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_decoded_as_they_were_encoded() {
        let all: Vec<u8> = (1..=255).collect();
        assert_eq!(decoded(&encoded(&all)).unwrap(), all);
        assert_eq!(encoded(b"a/b c%"), "a/b%20c%25");
        assert_eq!(decoded("%e4%C4x").unwrap(), [0xe4, 0xc4, b'x']);
        for wrong in ["%", "%1", "%0", "%00", "%g0", "a%%20"] {
            assert_eq!(decoded(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_user_is_not_shown() {
        assert_eq!(without_user("nbd://me:pw@h/x"), "nbd://...@h/x");
        assert_eq!(without_user("nbd://me:p@w@h/x"), "nbd://...@h/x");
        assert_eq!(without_user("disk@home.img"), "disk@home.img");
        assert!(is_meant(b"nbd://h", &["s3://", "nbd://"]) && !is_meant(b"nbd:/h", &["nbd://"]));
    }
}
