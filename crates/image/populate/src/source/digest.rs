//! Digests: the names of blobs, and what their bytes are compared with.
//!
//! Invariant: a digest's text is an algorithm that is known and the right number of lower-case hexadecimal
//! digits, so it can be part of a path. (OCI image specification, "Descriptors: Digests".)

use hectare_units::hex;
use serde::Deserialize;
use sha2::Digest as _;
use std::borrow::Cow;
use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Algorithm {
    Sha256,
    Sha512,
}

/// The digest of some bytes.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Digest {
    algorithm: Algorithm,
    hex: Box<str>,
}

impl Digest {
    /// Reads the form `sha256:HEX`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (algorithm, hex) = text.split_once(':').ok_or_else(|| format!("{text:?} is not a digest"))?;
        let (algorithm, len) = match algorithm {
            "sha256" => (Algorithm::Sha256, 64),
            "sha512" => (Algorithm::Sha512, 128),
            _ => return Err(format!("the algorithm of the digest {text:?} is not known")),
        };
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        match hex.len() == len && hex.bytes().all(is_digit) {
            true => Ok(Self { algorithm, hex: hex.into() }),
            false => {
                Err(format!("{text:?} is not a digest: {len} lower-case hexadecimal digits must follow"))
            }
        }
    }

    /// The digest with this SHA-256 value, if it is one.
    pub(super) fn sha256(hex: &str) -> Option<Self> {
        Self::parse(&format!("sha256:{hex}")).ok()
    }

    /// Where its blob is in a layout. (OCI image layout specification, "Blobs".)
    pub(super) fn path(&self) -> String {
        format!("blobs/{}/{}", self.algorithm, self.hex)
    }

    pub(super) fn hasher(&self) -> Hasher {
        match self.algorithm {
            Algorithm::Sha256 => Hasher::Sha256(sha2::Sha256::new()),
            Algorithm::Sha512 => Hasher::Sha512(sha2::Sha512::new()),
        }
    }

    /// Compares it with that of some bytes.
    pub(super) fn check(&self, bytes: &[u8]) -> Result<(), Cow<'static, str>> {
        let mut hasher = self.hasher();
        hasher.update(bytes);
        self.compare(hasher, "its bytes")
    }

    fn compare(&self, hasher: Hasher, what: &str) -> Result<(), Cow<'static, str>> {
        let found = hasher.finish();
        match found == *self {
            true => Ok(()),
            false => Err(format!("the digest of {what} is {found}, not {self}: the image is damaged").into()),
        }
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        })
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm, self.hex)
    }
}

/// Computes a digest piece by piece.
#[derive(Clone, Debug)]
pub(crate) enum Hasher {
    Sha256(sha2::Sha256),
    Sha512(sha2::Sha512),
}

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
        }
    }

    fn finish(self) -> Digest {
        let (algorithm, hex) = match self {
            Self::Sha256(hasher) => (Algorithm::Sha256, hex(&hasher.finalize())),
            Self::Sha512(hasher) => (Algorithm::Sha512, hex(&hasher.finalize())),
        };
        Digest { algorithm, hex: hex.into() }
    }
}

/// What the bytes of a layer are compared with.
#[derive(Clone, Debug)]
pub(crate) struct LayerDigests {
    /// That of its blob, where the image gives one.
    pub(super) packed: Option<Digest>,
    /// That of the archive in it (`diff_id`).
    pub(super) plain: Digest,
}

impl LayerDigests {
    /// The digest that names the layer.
    pub(super) fn shown(&self) -> &Digest {
        self.packed.as_ref().unwrap_or(&self.plain)
    }

    /// What hashes the blob.
    pub(crate) fn packed_hasher(&self) -> Option<Hasher> {
        self.packed.as_ref().map(Digest::hasher)
    }

    /// What hashes the archive in a blob that is not compressed; `None` if that of the blob does.
    pub(crate) fn plain_hasher(&self) -> Option<Hasher> {
        let is_same = |packed: &Digest| packed.algorithm == self.plain.algorithm;
        (!self.packed.as_ref().is_some_and(is_same)).then(|| self.plain.hasher())
    }

    /// What hashes the archive in a blob that is compressed.
    pub(crate) fn unpacked_hasher(&self) -> Hasher {
        self.plain.hasher()
    }

    /// Compares the digests with those found; without one for the archive, it is the blob's.
    pub(crate) fn check(
        &self,
        packed: Option<Hasher>,
        plain: Option<Hasher>,
    ) -> Result<(), Cow<'static, str>> {
        let plain = plain.or_else(|| packed.clone());
        if let (Some(expected), Some(found)) = (&self.packed, packed) {
            expected.compare(found, "the blob")?;
        }
        match plain {
            Some(found) => self.plain.compare(found, "the unpacked layer"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn only_digests_of_the_right_form_are_read() {
        let right = format!("sha256:{}", "0a".repeat(32));
        assert_eq!(Digest::parse(&right).unwrap().to_string(), right);
        assert_eq!(Digest::parse(&right).unwrap().path(), right.replace("sha256:", "blobs/sha256/"));
        for wrong in [
            "sha256:../../../etc/passwd".to_owned(),
            right.to_uppercase(),
            right.replace("0a0", "0A0"),
            right[..70].to_owned(),
            right.replace("sha256", "md5"),
            "x".to_owned(),
            format!("sha512:{}", "0a".repeat(32)),
        ] {
            assert!(Digest::parse(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_digest_is_that_of_the_bytes() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        Digest::sha256(empty).unwrap().check(b"").unwrap();
        assert!(Digest::sha256(empty).unwrap().check(b"x").is_err());
    }
}
