//! The directory of a layout: its blobs, and the index that gives them tags.
//!
//! A blob is named after its content and never changes. The index is replaced as a whole, last, so an image
//! is there completely or not at all; what the index says besides is kept. A layout that has no index yet is
//! what an interrupted export has begun, and is continued. A lock on the directory, where the
//! host has such locks, keeps two exports from losing each other's tag.
//!
//! What this is not: a garbage collector. Blobs of an image whose tag was given to another one stay
//! (`umoci gc` removes them).

use super::spec::{Descriptor, REF_NAME};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::file::NewFile;
use hectare_device::Overwrite;
use hectare_populate::Platform;
use serde::Serialize;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

const MARK: &str = "oci-layout";
const INDEX: &str = "index.json";
const BLOBS: &str = "blobs/sha256";
const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
/// The longest index that is read: a million images have 300 bytes each.
const INDEX_MAX: u64 = 512 << 20;

/// A layout that is being written.
pub(super) struct Layout {
    path: PathBuf,
    index: Value,
    /// What was made for it, to be removed if nothing comes of it.
    made: Vec<PathBuf>,
    _lock: File,
}

impl Layout {
    /// Opens the layout in a directory, or begins one in an empty or missing directory.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let mut made = Made::default();
        made.directory(path)?;
        let lock = File::open(path).map_err(|error| refuse(path, error))?;
        let _ = lock.lock(); // some network file systems lock no directories; there the caller takes care
        match path.join(MARK).try_exists().map_err(|error| refuse(&path.join(MARK), error))? {
            true => check_version(path)?,
            false => {
                refuse_occupied(path)?;
                made.mark(path)?;
            }
        }
        // One that can't be looked at is not absent: it would be replaced, with all its tags.
        let index = match fs::symlink_metadata(path.join(INDEX)) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                json!({ "schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [] })
            }
            _ => read_json(&path.join(INDEX))?,
        };
        if !index["manifests"].is_array() {
            return Err(refuse(&path.join(INDEX), "it has no list of manifests"));
        }
        made.directory(&path.join("blobs"))?;
        made.directory(&path.join(BLOBS))?;
        Ok(Self { path: path.to_owned(), index, made: std::mem::take(&mut made.0), _lock: lock })
    }

    /// Refuses a tag that an image has, unless that is to be replaced.
    pub(super) fn check_tag(&self, tag: &str, overwrite: Overwrite) -> Result<()> {
        if overwrite == Overwrite::Refuse && self.manifests().any(|manifest| has_tag(manifest, tag)) {
            let reason = format!("it has an image with the tag {tag}; use --force to replace it");
            return Err(refuse(&self.path, reason));
        }
        Ok(())
    }

    fn manifests(&self) -> impl Iterator<Item = &Value> {
        self.index["manifests"].as_array().into_iter().flatten()
    }

    /// A blob whose name is given when its content is known.
    pub(super) fn new_blob(&self) -> Result<NewFile> {
        Ok(NewFile::create(&self.path.join(BLOBS).join("layer"), Overwrite::Replace)?)
    }

    /// Adds a document as a blob.
    pub(super) fn add_json(&self, document: &impl Serialize) -> Result<Digest> {
        let bytes = serde_json::to_vec(document).map_err(|error| refuse(&self.path, error))?;
        let digest = Digest::of(&bytes);
        write(&self.path.join(BLOBS).join(&digest.hex), &bytes)?;
        Ok(digest)
    }

    /// Gives an image its tag, which makes it visible.
    pub(super) fn set_tag(&mut self, tag: &str, mut image: Descriptor, platform: &Platform) -> Result<()> {
        image.platform = Some(platform.clone());
        image.annotations.insert(REF_NAME, tag.to_owned());
        let image = serde_json::to_value(&image).map_err(|error| refuse(&self.path, error))?;
        if let Some(manifests) = self.index["manifests"].as_array_mut() {
            manifests.retain(|manifest| !has_tag(manifest, tag));
            manifests.push(image);
        }
        let index = serde_json::to_vec(&self.index).map_err(|error| refuse(&self.path, error))?;
        write(&self.path.join(INDEX), &index)?;
        self.made.clear();
        Ok(())
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        drop(Made(std::mem::take(&mut self.made)));
    }
}

/// A layout's mark and directories, that are removed again.
#[derive(Default)]
struct Made(Vec<PathBuf>);

impl Made {
    fn directory(&mut self, path: &Path) -> Result<()> {
        match fs::create_dir(path) {
            Ok(()) => self.0.push(path.to_owned()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(refuse(path, error)),
        }
        Ok(())
    }

    fn mark(&mut self, layout: &Path) -> Result<()> {
        let mark = layout.join(MARK);
        write(&mark, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        self.0.push(mark);
        Ok(())
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let remove =
            |path: &PathBuf| if path.ends_with(MARK) { fs::remove_file(path) } else { fs::remove_dir(path) };
        // A directory that has a blob by now stays, and the mark with it.
        let _ = self.0.iter().rev().try_for_each(remove);
    }
}

fn refuse(path: &Path, reason: impl ToString) -> Error {
    Error::Layout { place: path.display().to_string(), reason: reason.to_string() }
}

fn has_tag(manifest: &Value, tag: &str) -> bool {
    manifest["annotations"][REF_NAME] == tag
}

/// Refuses a directory that holds something else.
fn refuse_occupied(path: &Path) -> Result<()> {
    let mut entries = fs::read_dir(path).map_err(|error| refuse(path, error))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(refuse(path, "the directory is not empty, and is no OCI image layout")),
    }
}

fn check_version(path: &Path) -> Result<()> {
    let path = path.join(MARK);
    match read_json(&path)?["imageLayoutVersion"].as_str() {
        Some(version) if version.starts_with("1.") => Ok(()),
        Some(version) => Err(refuse(&path, format!("image layouts of version {version} are not known"))),
        None => Err(refuse(&path, "it has no version of an image layout")),
    }
}

fn read_json(path: &Path) -> Result<Value> {
    let len = fs::metadata(path).map_err(|error| refuse(path, error))?.len();
    if len > INDEX_MAX {
        return Err(refuse(path, "it is longer than 512 MiB"));
    }
    let text = fs::read(path).map_err(|error| refuse(path, error))?;
    serde_json::from_slice(&text).map_err(|error| refuse(path, error))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = NewFile::create(path, Overwrite::Replace)?;
    file.write_all(bytes)?;
    Ok(file.publish()?)
}
