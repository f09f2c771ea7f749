//! Which container image is meant, as written on a command line.
//!
//! The forms are those of skopeo and podman. A file may have a colon in its name, so the first colon before
//! which something exists ends the path.

use crate::error::{Error, ShownPath};
use crate::source::digest::Digest;
use hectare_device::os::{OsStrExt, path_of};
use std::ffi::OsStr;
use std::path::PathBuf;

/// Where an image is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Transport {
    Directory,
    OciArchive,
    DockerArchive,
}

/// Which of several images.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Pick {
    Tag(String),
    Digest(Digest),
}

/// A container image: where it is, and which of those there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reference {
    pub(super) transport: Transport,
    pub(super) path: PathBuf,
    pub(super) pick: Option<Pick>,
}

impl Reference {
    /// Reads `oci:DIR`, `oci-archive:FILE` or `docker-archive:FILE`, each with `:TAG` or `@DIGEST` behind it
    /// if need be; `None` for anything that begins otherwise.
    ///
    /// # Errors
    /// If a digest has no meaning, or if the image is where it can't be read: in a registry or a daemon.
    pub fn parse(argument: &OsStr) -> Result<Option<Self>, Error> {
        let bytes = argument.as_bytes();
        let refused = |reason: String| Error::Refused { path: ShownPath::new(bytes), reason: reason.into() };
        let elsewhere = ["docker-daemon:", "docker://", "containers-storage:", "podman:", "registry:"];
        if elsewhere.iter().any(|start| bytes.starts_with(start.as_bytes())) {
            let reason = "only images in files are read: save it first, as with `docker save`, `podman \
                          save` or `skopeo copy ... oci-archive:FILE`";
            return Err(refused(reason.to_owned()));
        }
        let transports = [
            ("oci:", Transport::Directory),
            ("oci-archive:", Transport::OciArchive),
            ("docker-archive:", Transport::DockerArchive),
        ];
        let found = transports
            .iter()
            .find_map(|(start, transport)| Some((*transport, bytes.strip_prefix(start.as_bytes())?)));
        let Some((transport, rest)) = found else { return Ok(None) };
        let (path, pick) = split(rest);
        let pick = pick.map(|(separator, text)| pick_of(separator, text)).transpose().map_err(refused)?;
        Ok(Some(Self { transport, path, pick }))
    }

    /// The only image in a layout.
    pub(crate) const fn directory(path: PathBuf) -> Self {
        Self { transport: Transport::Directory, path, pick: None }
    }
}

fn pick_of(separator: u8, text: &[u8]) -> Result<Pick, String> {
    let text = std::str::from_utf8(text).map_err(|_| "the tag is not text".to_owned())?;
    match separator {
        b'@' => Digest::parse(text).map(Pick::Digest),
        _ if text.is_empty() => Err("the tag is empty".to_owned()),
        _ => Ok(Pick::Tag(text.to_owned())),
    }
}

/// The path, and what follows it with its separator.
fn split(text: &[u8]) -> (PathBuf, Option<(u8, &[u8])>) {
    if path_of(text).exists() {
        return (path_of(text), None);
    }
    let separators = text.iter().enumerate().filter(|(_, byte)| matches!(byte, b':' | b'@'));
    for (at, separator) in separators {
        if path_of(&text[..at]).exists() {
            return (path_of(&text[..at]), Some((*separator, &text[at + 1..])));
        }
    }
    (path_of(text), None)
}

/// A name of an image without what it may lack: Docker's own registry and library, and the tag `latest`.
pub(super) fn normal(name: &str) -> &str {
    let name = name.strip_prefix("docker.io/").unwrap_or(name);
    let name = name.strip_prefix("library/").unwrap_or(name);
    name.strip_suffix(":latest").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_path_ends_where_something_exists() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a:b")).unwrap();
        let parse = |text: String| Reference::parse(OsStr::new(&text)).unwrap().unwrap();
        let top = dir.path().display();
        let with_tag = parse(format!("oci:{top}/a:b:v1"));
        assert_eq!(
            (with_tag.path, with_tag.pick),
            (dir.path().join("a:b"), Some(Pick::Tag("v1".to_owned())))
        );
        assert_eq!(parse(format!("oci:{top}/a:b")).pick, None);
        let digest = format!("sha256:{}", "00".repeat(32));
        assert!(matches!(parse(format!("oci:{top}/a:b@{digest}")).pick, Some(Pick::Digest(_))));
        assert_eq!(parse(format!("docker-archive:{top}/none:x")).pick, None);
        for wrong in ["docker://x", &format!("oci:{top}/a:b@x"), &format!("oci:{top}/a:b:")] {
            assert!(Reference::parse(OsStr::new(wrong)).is_err(), "{wrong}");
        }
        assert!(Reference::parse(OsStr::new("./oci:x")).unwrap().is_none());
    }

    #[test]
    fn names_are_compared_without_what_docker_adds() {
        for name in ["alpine", "alpine:latest", "library/alpine", "docker.io/library/alpine:latest"] {
            assert_eq!(normal(name), "alpine");
        }
        assert_eq!(normal("quay.io/a/b:1"), "quay.io/a/b:1");
    }
}
