//! Names and content that are ciphertext: what encrypted files show without their key.
//!
//! An encrypted directory stores, for each name but `.` and `..`, ciphertext of 1 to 255 bytes. These may be
//! any, also `/` and NUL, so they can't be a component of a path. They are shown as text, base64url without
//! padding (RFC 4648, section 5), which uses letters, digits, `-` and `_`, and can be turned back into
//! exactly these bytes.
//!
//! Hazards: the text is longer than the bytes, up to 340, which is more than a name of a mounted volume can
//! have. Text that isn't what [`shown`] makes of some bytes (padding, stray last bits, the text of a dot)
//! names nothing, so that no entry has two names.
//!
//! What it is not: it has no keys and decrypts nothing. The names are not those that the kernel lists
//! without the key, which hold a hash and at most 149 bytes of ciphertext.

use crate::error::{Error, Result};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hectare_ext4::dir::Name;
use hectare_ext4::inode::{Inode, InodeFlags};
use hectare_units::InodeNr;

/// The longest text: that of 255 bytes.
const TEXT_MAX: usize = Name::LEN_MAX.div_ceil(3) * 4;

/// A name as a directory stores it, made from the requested one.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Stored<'a> {
    /// As requested.
    Plain(Name<'a>),
    /// Ciphertext, not yet known to be of a possible length.
    Ciphertext(Vec<u8>),
}

impl Stored<'_> {
    /// The name to look up.
    ///
    /// # Errors
    /// [`Error::NotFound`] if no directory can hold it.
    pub(crate) fn name(&self) -> Result<Name<'_>> {
        match self {
            Self::Plain(name) => Ok(*name),
            Self::Ciphertext(bytes) => Name::opaque(bytes).ok_or(Error::NotFound),
        }
    }
}

/// What to look up in a directory with these flags for the requested `name`.
///
/// # Errors
/// [`Error::NameTooLong`], or [`Error::NotFound`] if no directory can hold it.
pub(crate) fn stored(name: &[u8], flags: InodeFlags) -> Result<Stored<'_>> {
    if !flags.contains(InodeFlags::ENCRYPT) || is_dot(name) {
        return old_name(name).map(Stored::Plain);
    }
    if name.len() > TEXT_MAX {
        return Err(Error::NameTooLong);
    }
    match URL_SAFE_NO_PAD.decode(name) {
        Ok(bytes) if !is_dot(&bytes) => Ok(Stored::Ciphertext(bytes)),
        _ => Err(Error::NotFound),
    }
}

/// How a listing shows an entry's name in a directory with these flags.
pub(crate) fn shown(name: &[u8], flags: InodeFlags) -> Vec<u8> {
    if !flags.contains(InodeFlags::ENCRYPT) || is_dot(name) {
        return name.to_vec();
    }
    URL_SAFE_NO_PAD.encode(name).into_bytes()
}

/// Returns an error for the content of an encrypted inode, which would be ciphertext.
///
/// # Errors
/// [`Error::Unsupported`], which names the inode.
pub(crate) fn check_not_ciphertext(inode: &Inode, nr: InodeNr) -> Result<()> {
    if inode.flags.contains(InodeFlags::ENCRYPT) {
        let what = format!("inode {nr} is encrypted: its content can't be read without the key");
        return Err(Error::Unsupported(what));
    }
    Ok(())
}

/// A name that can be looked up, or the error.
pub(crate) fn old_name(name: &[u8]) -> Result<Name<'_>> {
    if name.len() > Name::LEN_MAX {
        return Err(Error::NameTooLong);
    }
    Name::new(name).ok_or(Error::NotFound)
}

fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // all of this is tests

    use super::*;

    const SECRET: InodeFlags = InodeFlags::ENCRYPT;

    #[test]
    fn ciphertext_comes_back_whatever_its_bytes() {
        for len in 1..=Name::LEN_MAX {
            let bytes: Vec<u8> = (0..len).map(|n| [0, b'/', 0xff, 0xfb][n % 4]).collect();
            let text = shown(&bytes, SECRET);
            assert!(text.len() <= TEXT_MAX && !text.iter().any(|byte| matches!(byte, 0 | b'/')));
            assert_eq!(stored(&text, SECRET).unwrap().name().unwrap().bytes(), bytes);
        }
    }

    #[test]
    fn dots_and_plain_directories_are_as_they_are() {
        for (name, flags) in [(&b"."[..], SECRET), (b"..", SECRET), (b"name", InodeFlags::empty())] {
            assert_eq!(shown(name, flags), name);
            assert_eq!(stored(name, flags).unwrap().name().unwrap().bytes(), name);
        }
    }

    #[test]
    fn text_that_stands_for_no_name_is_not_found() {
        // Not in the alphabet, padded, stray last bits, an impossible length, nothing, the dots.
        for text in [&b"a b!"[..], b"AA==", b"AB", b"A", b"", b"Lg", b"Li4"] {
            let found = stored(text, SECRET).and_then(|stored| stored.name().map(|_| ()));
            assert!(matches!(found, Err(Error::NotFound)), "{text:?}");
        }
        assert!(matches!(stored(&[b'A'; TEXT_MAX + 1], SECRET), Err(Error::NameTooLong)));
    }
}
