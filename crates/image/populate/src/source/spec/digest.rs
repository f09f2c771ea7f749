//! Digests of file content that a specification gives.
//!
//! SHA-2 is checked. MD5, SHA-1, RIPEMD-160 and POSIX cksum, which nobody should rely on, are named in a
//! warning ([`UNCHECKED`]).

/// Keywords of digests that are not compared.
pub(super) const UNCHECKED: [&[u8]; 8] =
    [b"cksum", b"md5", b"md5digest", b"sha1", b"sha1digest", b"rmd160", b"rmd160digest", b"ripemd160digest"];

/// A kind of digest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::source) enum Digest {
    Sha256,
    Sha384,
    Sha512,
}

/// A digest and its value in hexadecimal digits.
pub(in crate::source) type DigestValue = (Digest, Box<[u8]>);

impl Digest {
    /// The digest that a keyword names.
    pub(super) fn of(keyword: &[u8]) -> Option<Self> {
        match keyword {
            b"sha256" | b"sha256digest" => Some(Self::Sha256),
            b"sha384" | b"sha384digest" => Some(Self::Sha384),
            b"sha512" | b"sha512digest" => Some(Self::Sha512),
            _ => None,
        }
    }

    /// The length of its value in hexadecimal digits.
    pub(super) const fn digits(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha384 => 96,
            Self::Sha512 => 128,
        }
    }

    pub(in crate::source) const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }
}
