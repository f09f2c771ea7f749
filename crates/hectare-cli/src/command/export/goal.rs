//! The outputs of `hectare export`: `tar:FILE`, `oci:DIR[:TAG]`, `-`, and what a plain name stands for.
//!
//! A name that stands for no known form is refused: a file of another form than its name says is found out
//! late.

use crate::failure::{Failure, Outcome};
use crate::name::shown;
use crate::os;
use hectare_device::os::{OsStrExt, path_of};
use hectare_export::Compression;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The forms of an output, for a refusal.
const FORMS: &str =
    "give tar:FILE, a FILE in .tar, .tar.gz, .tgz or .tar.zst, oci:DIR[:TAG], or - for standard output";
/// The tag of an image that is given none.
const LATEST: &str = "latest";
/// The longest tag (OCI distribution specification, "Pulling manifests").
const TAG_MAX: usize = 128;

/// Where an export goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Goal {
    Stdout,
    Tar(PathBuf),
    Oci { directory: PathBuf, tag: String },
}

impl Goal {
    pub(super) fn parse(text: &OsStr) -> Result<Self, String> {
        let bytes = text.as_bytes();
        if bytes == b"-" || bytes == b"tar:-" {
            return Ok(Self::Stdout);
        }
        if let Some(file) = bytes.strip_prefix(b"tar:") {
            return if file.is_empty() { Err(FORMS.to_owned()) } else { Ok(Self::Tar(path_of(file))) };
        }
        if let Some(place) = bytes.strip_prefix(b"oci:") {
            return Self::parse_oci(place)
                .map(|(directory, tag)| Self::Oci { directory: path_of(directory), tag });
        }
        match [b".tar".as_slice(), b".tar.gz", b".tgz", b".tar.zst", b".tzst"]
            .iter()
            .any(|end| bytes.ends_with(end))
        {
            true => Ok(Self::Tar(text.into())),
            false => Err(FORMS.to_owned()),
        }
    }

    /// The directory and the tag: what follows the last colon, if that is not in the directory's path.
    fn parse_oci(place: &[u8]) -> Result<(&[u8], String), String> {
        let drive = os::drive_len(&path_of(place));
        let colon = place.iter().rposition(|byte| *byte == b':').filter(|at| *at >= drive);
        let (directory, tag) = match colon.map(|at| (&place[..at], &place[at + 1..])) {
            Some((directory, tag)) if !tag.contains(&b'/') => (directory, tag),
            _ => (place, LATEST.as_bytes()),
        };
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let is_tag = tag.first().is_some_and(is_word)
            && tag.len() <= TAG_MAX
            && tag.iter().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'));
        match (directory.is_empty(), is_tag) {
            (true, _) => Err(FORMS.to_owned()),
            (false, false) => Err(format!(
                "'{}' is no tag: letters, digits, _ . and -, the first no . or -, {TAG_MAX} at most",
                shown(tag)
            )),
            (false, true) => Ok((directory, String::from_utf8_lossy(tag).into_owned())),
        }
    }
}

pub(super) fn parse_compression(text: &str) -> Result<Compression, String> {
    match text {
        "none" => Ok(Compression::None),
        "gzip" => Ok(Compression::Gzip),
        "zstd" => Ok(Compression::Zstd),
        _ => Err("none, gzip and zstd are known; for another one use -o - and a pipe".to_owned()),
    }
}

/// The compression that the name of a file stands for.
pub(super) fn compression_of(path: &Path) -> Outcome<Compression> {
    match path.extension().and_then(OsStr::to_str) {
        Some("gz" | "tgz") => Ok(Compression::Gzip),
        Some("zst" | "tzst") => Ok(Compression::Zstd),
        Some(other @ ("xz" | "bz2" | "lz4" | "Z")) => Err(Failure::Usage(format!(
            "nothing is compressed as .{other}: use -o - and a pipe, .tar.gz, .tar.zst, or --compression"
        ))),
        _ => Ok(Compression::None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_of_known_forms() {
        let oci =
            |directory: &str, tag: &str| Ok(Goal::Oci { directory: directory.into(), tag: tag.to_owned() });
        let of = |text: &str| Goal::parse(OsStr::new(text));
        assert_eq!(of("-"), Ok(Goal::Stdout));
        assert_eq!(of("tar:a"), Ok(Goal::Tar("a".into())));
        assert_eq!(of("a.tar.gz"), Ok(Goal::Tar("a.tar.gz".into())));
        assert_eq!(of("oci:a"), oci("a", "latest"));
        assert_eq!(of("oci:a:b:1.0"), oci("a:b", "1.0"));
        assert_eq!(of("oci:a:b/c"), oci("a:b/c", "latest"));
        assert_eq!(of("a.tar.zst"), Ok(Goal::Tar("a.tar.zst".into())));
        assert_eq!(of(r"oci:C:\a") == oci(r"C:\a", "latest"), cfg!(windows));
        for text in
            ["", "a", "a.zst", "a.tar.xz", "tar:", "oci:", "oci::a", "oci:a:", "oci:a:.b", "oci:a:b c"]
        {
            assert!(of(text).is_err(), "{text}");
        }
    }

    #[test]
    fn compression_follows_the_name() {
        assert_eq!(compression_of(Path::new("a.tar.gz")).ok(), Some(Compression::Gzip));
        assert_eq!(compression_of(Path::new("a.tar")).ok(), Some(Compression::None));
        assert_eq!(compression_of(Path::new("a.tar.zst")).ok(), Some(Compression::Zstd));
        assert!(compression_of(Path::new("a.tar.xz")).is_err());
    }
}
