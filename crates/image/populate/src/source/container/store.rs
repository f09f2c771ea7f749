//! Where the files of an image are: below a directory, or in an archive.
//!
//! Hazard: their names come from the image. Nothing outside of the directory is opened, no link is followed,
//! and what is not a regular file is not waited for.

use super::description::Descriptor;
use super::{Kind, docker};
use crate::error::{Error, ShownPath};
use crate::handle::SourceHandle;
use crate::source::blob::Blob;
use crate::source::folder::timestamp;
use crate::source::tar::{self, Members};
use crate::time::PackedTime;
use hectare_device::os::{Errno, FileExt, OsStrExt, borrowed};
use hectare_host::{Folder, stat_open};
use hectare_units::{Bytes, index_of};
use serde::de::DeserializeOwned;
use std::io;
use std::path::Path;

/// The longest description (index, manifest, configuration) that is read; registries take at most 4 MiB.
const DESCRIPTION_MAX: u64 = 8 << 20;

/// The files of an image.
pub(super) enum Store {
    Directory { root: Folder, path: Box<[u8]> },
    Archive { archive: SourceHandle, members: Members },
}

impl Store {
    pub(super) fn directory(path: &Path) -> Result<Self, Error> {
        let bytes = path.as_os_str().as_bytes();
        let root = Folder::open(path)
            .map_err(|errno| Error::io(ShownPath::new(bytes), "open the directory", errno))?;
        Ok(Self::Directory { root, path: bytes.into() })
    }

    pub(super) fn archive(archive: SourceHandle) -> Result<Self, Error> {
        match tar::members(&archive)? {
            Some(members) => Ok(Self::Archive { archive, members }),
            None => Err(Error::Refused {
                path: archive.shown(&[]),
                reason: "it is a directory, not an archive".into(),
            }),
        }
    }

    /// The archive that it was made of.
    ///
    /// # Panics
    /// If it was made of a directory.
    pub(super) fn into_archive(self) -> SourceHandle {
        match self {
            Self::Archive { archive, .. } => archive,
            Self::Directory { .. } => unreachable!("only a store of an archive is turned back into one"),
        }
    }

    /// Its name in errors.
    pub(super) fn name(&self) -> &[u8] {
        match self {
            Self::Directory { path, .. } => path,
            Self::Archive { archive, .. } => archive.name(),
        }
    }

    pub(super) fn refused(&self, reason: impl Into<String>) -> Error {
        Error::Refused { path: ShownPath::new(self.name()), reason: reason.into().into() }
    }

    fn shown(&self, file: &[u8]) -> ShownPath {
        match self {
            Self::Directory { path, .. } => ShownPath::inside(path, b'/', file),
            Self::Archive { archive, .. } => archive.shown(file),
        }
    }

    /// How the image is stored, if this is one.
    pub(super) fn kind(&self) -> Option<Kind> {
        let text = |name: &[u8]| self.text(name).ok().flatten();
        let is_oci = text(b"oci-layout").is_some_and(|text| has(&text, b"imageLayoutVersion"))
            && text(b"index.json").is_some_and(|text| has(&text, b"manifests"));
        if is_oci {
            return Some(Kind::Oci);
        }
        let is_docker =
            text(docker::MANIFEST).is_some_and(|text| has(&text, b"\"Config\"") && has(&text, b"\"Layers\""));
        is_docker.then_some(Kind::Docker)
    }

    /// A file of the image; `None` if there is none.
    pub(super) fn blob(&self, path: &[u8]) -> Result<Option<Blob>, Error> {
        let failed = |cause: io::Error| Error::io(self.shown(path), "open", cause);
        let refused = |reason: &'static str| Error::Refused { path: self.shown(path), reason: reason.into() };
        let irregular = || refused("it is not a regular file");
        let (file, range) = match self {
            Self::Directory { root, .. } => {
                let file = match root.open_below(path) {
                    Ok(file) => file,
                    Err(Errno::NOENT) => return Ok(None),
                    Err(Errno::LOOP | Errno::NOTDIR | Errno::XDEV) => {
                        return Err(refused("a link, which may lead out of the image, is not followed"));
                    }
                    // A socket, and on other hosts than Linux what would make one wait.
                    Err(Errno::NXIO) => return Err(irregular()),
                    Err(errno) => return Err(failed(errno.into())),
                };
                let data = file.metadata().map_err(failed)?;
                if !data.is_file() {
                    return Err(irregular());
                }
                (file, 0..data.len())
            }
            Self::Archive { archive, members } => {
                let SourceHandle::Archive { file, .. } = archive else { return Ok(None) };
                let Some(range) = members.get(path) else { return Ok(None) };
                (file.try_clone().map_err(failed)?, range)
            }
        };
        let stat = stat_open(borrowed(&file)).map_err(|errno| failed(errno.into()))?;
        let mtime = PackedTime::new(timestamp(stat.mtime));
        Ok(Some(Blob { file, range, len: Bytes::new(stat.size), mtime }))
    }

    /// The bytes of a description; `None` if there is none.
    pub(super) fn text(&self, path: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let Some(blob) = self.blob(path)? else { return Ok(None) };
        if blob.len() > DESCRIPTION_MAX {
            let reason = format!("it has {} bytes, too many for a description of an image", blob.len());
            return Err(Error::Refused { path: self.shown(path), reason: reason.into() });
        }
        let mut text = vec![0; index_of(blob.len())];
        let failed = |cause| Error::io(self.shown(path), "read", cause);
        blob.file.read_exact_at(&mut text, blob.range.start).map_err(failed)?;
        Ok(Some(text))
    }

    /// A description that must be there.
    pub(super) fn json<T: DeserializeOwned>(&self, path: &[u8]) -> Result<T, Error> {
        let Some(text) = self.text(path)? else {
            let name = String::from_utf8_lossy(path);
            return Err(self.refused(format!("there is no {name}: it is not such an image")));
        };
        self.parse(path, &text)
    }

    /// The description that a descriptor stands for, compared with its length and digest.
    pub(super) fn described<T: DeserializeOwned>(&self, descriptor: &Descriptor) -> Result<T, Error> {
        let path = descriptor.digest.path().into_bytes();
        let refused = |reason| Error::Refused { path: self.shown(&path), reason };
        let text = self.text(&path)?.ok_or_else(|| refused("it is not in the image".into()))?;
        if super::length(text.len()) != descriptor.size {
            let reason =
                format!("it has {} bytes, not {} as its descriptor says", text.len(), descriptor.size);
            return Err(refused(reason.into()));
        }
        descriptor.digest.check(&text).map_err(refused)?;
        self.parse(&path, &text)
    }

    pub(super) fn parse<T: DeserializeOwned>(&self, path: &[u8], text: &[u8]) -> Result<T, Error> {
        serde_json::from_slice(text)
            .map_err(|error| Error::Refused { path: self.shown(path), reason: error.to_string().into() })
    }
}

fn has(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}
