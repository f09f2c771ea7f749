//! The platform of an image, in the words that Go has for systems and processors.

use serde::Serialize;
use std::str::FromStr;

/// A system and a processor, as in `linux/arm64` or `linux/arm/v7`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Platform {
    architecture: String,
    os: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    variant: Option<String>,
}

/// A text that names no platform.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is not of the form OS/ARCH or OS/ARCH/VARIANT, as in linux/amd64")]
pub struct BadPlatform(String);

impl Platform {
    /// That of this program.
    #[must_use]
    pub fn host() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "x86" => "386",
            "aarch64" => "arm64",
            "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
            "powerpc64" => "ppc64",
            "loongarch64" => "loong64",
            same => same,
        };
        Self { architecture: architecture.to_owned(), os: std::env::consts::OS.to_owned(), variant: None }
    }
}

impl FromStr for Platform {
    type Err = BadPlatform;

    fn from_str(text: &str) -> Result<Self, BadPlatform> {
        let is_word = |word: &&str| {
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        let words: Vec<&str> = text.split('/').collect();
        let (os, architecture, variant) = match words[..] {
            [os, architecture] => (os, architecture, None),
            [os, architecture, variant] => (os, architecture, Some(variant)),
            _ => return Err(BadPlatform(text.to_owned())),
        };
        if ![Some(os), Some(architecture), variant].iter().flatten().all(is_word) {
            return Err(BadPlatform(text.to_owned()));
        }
        let variant = variant.map(str::to_owned);
        Ok(Self { architecture: architecture.to_owned(), os: os.to_owned(), variant })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_platform_is_two_or_three_words() {
        let arm: Platform = "linux/arm/v7".parse().unwrap();
        let json = serde_json::to_string(&arm).unwrap();
        assert_eq!(json, r#"{"architecture":"arm","os":"linux","variant":"v7"}"#);
        for text in ["linux", "linux/", "/amd64", "linux/amd64/", "Linux/AMD64", "a/b/c/d"] {
            assert!(text.parse::<Platform>().is_err(), "{text}");
        }
    }
}
