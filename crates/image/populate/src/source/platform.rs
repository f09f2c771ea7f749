//! Platforms: for which machines an image is.
//!
//! Names are Go's (`amd64`, `arm64`), as everywhere in images; those that Linux uses are taken, too. (OCI
//! image index specification, "platform".)

use serde::{Deserialize, Serialize};
use std::fmt;

/// An operating system and a processor, as `OS/ARCHITECTURE[/VARIANT]`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize, Serialize)]
pub struct Platform {
    #[serde(default)]
    pub(super) os: String,
    #[serde(default)]
    architecture: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    variant: Option<String>,
}

impl Platform {
    /// Reads `OS/ARCHITECTURE[/VARIANT]`, or just an architecture, whose system is `linux` then.
    ///
    /// # Errors
    /// If it is neither, with the reason.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let (os, architecture, variant) = match parts[..] {
            [architecture] => ("linux", architecture, None),
            [os, architecture] => (os, architecture, None),
            [os, architecture, variant] => (os, architecture, Some(variant)),
            _ => ("", "", None),
        };
        // Names have no capitals, and images are compared by them.
        let is_part =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-');
        let is_word = |word: &str| !word.is_empty() && word.bytes().all(is_part);
        if !(is_word(os) && is_word(architecture) && variant.is_none_or(is_word)) {
            return Err(format!(
                "{text:?} is not a platform: give OS/ARCHITECTURE[/VARIANT], as linux/arm64"
            ));
        }
        Ok(Self::new(os, architecture, variant))
    }

    fn new(os: &str, architecture: &str, variant: Option<&str>) -> Self {
        let (architecture, implied) = match architecture {
            "x86_64" | "x86-64" => ("amd64", None),
            "aarch64" => ("arm64", None),
            "i386" | "i486" | "i586" | "i686" | "x86" => ("386", None),
            "armhf" => ("arm", Some("v7")),
            "armel" => ("arm", Some("v6")),
            "powerpc64le" => ("ppc64le", None),
            "powerpc64" => ("ppc64", None),
            "loongarch64" => ("loong64", None),
            other => (other, None),
        };
        let variant = variant.or(implied).map(str::to_owned);
        Self { os: os.to_owned(), architecture: architecture.to_owned(), variant }
    }

    /// This machine's.
    #[must_use]
    pub fn host() -> Self {
        let little = std::env::consts::ARCH == "powerpc64" && cfg!(target_endian = "little");
        Self::new("linux", if little { "powerpc64le" } else { std::env::consts::ARCH }, None)
    }

    pub(super) fn is_unknown(&self) -> bool {
        self.os == "unknown" || self.architecture == "unknown"
    }

    pub(super) fn is_given(&self) -> bool {
        !self.os.is_empty() && !self.architecture.is_empty()
    }

    /// The variant, or what its absence means. (OCI image index specification, table of variants.)
    fn level(&self) -> &str {
        match (self.variant.as_deref(), &*self.architecture) {
            (Some(variant), _) => variant,
            (None, "arm64") => "v8",
            (None, "arm") => "v7",
            (None, "amd64") => "v1",
            (None, _) => "",
        }
    }

    /// Whether an image for `self` is what `wanted` asks for.
    pub(super) fn serves(&self, wanted: &Self) -> bool {
        self.os == wanted.os && self.architecture == wanted.architecture && self.level() == wanted.level()
    }

    /// Whether it may be asked for by leaving the variant out.
    pub(super) fn is_of(&self, wanted: &Self) -> bool {
        self.os == wanted.os && self.architecture == wanted.architecture && wanted.variant.is_none()
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn platforms_are_compared_by_what_they_mean() {
        let platform = |text| Platform::parse(text).unwrap();
        assert!(platform("linux/arm64").serves(&platform("aarch64")));
        assert!(platform("linux/arm64/v8").serves(&platform("linux/arm64")));
        assert!(platform("linux/arm/v7").serves(&platform("armhf")));
        assert!(!platform("linux/arm/v6").serves(&platform("linux/arm")));
        assert!(platform("linux/arm/v6").is_of(&platform("linux/arm")));
        assert!(!platform("linux/amd64/v3").serves(&platform("linux/amd64")));
        assert!(!platform("windows/amd64").serves(&platform("linux/amd64")));
        assert_eq!(platform("x86_64").to_string(), "linux/amd64");
        for wrong in ["", "linux/", "/amd64", "linux/amd64/", "Linux/AMD64", "a/b/c/d", "linux/a b"] {
            assert!(Platform::parse(wrong).is_err(), "{wrong}");
        }
    }
}
