//! Making volumes: empty ones, and those of directories, archives and container images.

use crate::failure::{Failure, Outcome};
use crate::watched::watched;
use hectare::Watch;
use hectare::build::{Excludes, Image, Reference, Size};
use hectare::mkfs::{Format, FsType};
use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What a volume is to be, as `mkfs` and `build` take it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Wanted {
    fs_type: String,
    label: Vec<u8>,
    uuid: Option<[u8; 16]>,
    block_size: Option<u32>,
    features: Option<String>,
    reserved_percent: Option<f64>,
    root_owner: Option<(u32, u32)>,
    replace: bool,
}

impl Wanted {
    fn format(&self) -> Outcome<Format> {
        let kind = FsType::by_name(&self.fs_type).map_err(|error| Failure::Value(error.to_string()))?;
        let mut format = Format::new().fs_type(kind).label(&self.label).replace(self.replace);
        if let Some(uuid) = self.uuid {
            format = format.uuid(uuid);
        }
        if let Some(bytes) = self.block_size {
            let known = hectare::inode::BlockSize::from_bytes(bytes.into());
            let wrong =
                || Failure::Value(format!("block_size: {bytes} is no power of two from 1024 to 65536"));
            format = format.block_size(known.ok_or_else(wrong)?);
        }
        if let Some(features) = &self.features {
            format = format.features(features);
        }
        if let Some(percent) = self.reserved_percent {
            format = format.reserved_percent(percent);
        }
        if let Some((uid, gid)) = self.root_owner {
            format = format.root_owner(uid, gid);
        }
        Ok(format)
    }
}

/// Makes an empty volume of `size` bytes in a new file.
#[pyfunction]
#[expect(clippy::needless_pass_by_value)] // what Python's arguments become
pub(crate) fn mkfs(
    py: Python<'_>,
    image: PathBuf,
    size: u64,
    wanted: Wanted,
    progress: Option<Py<PyAny>>,
) -> PyResult<()> {
    let make = |watch: &Watch| -> Outcome<()> { Ok(wanted.format()?.watch(watch).create(&image, size)?) };
    let done: Outcome<()> = watched(py, progress.as_ref(), make)?;
    done.map_err(|failure| failure.about(image.as_os_str().as_encoded_bytes()))
}

/// What an image is made of.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Content {
    sources: Vec<OsString>,
    exclude: Vec<Vec<u8>>,
    owner: Option<(u32, u32)>,
    source_date_epoch: Option<i64>,
    /// `min`, `ample`, `exactly` or `free`, and bytes for the last two.
    size: (String, u64),
}

/// Size, free bytes, the totals of the content by their order in `BuildReport`, and warnings.
type Built = (u64, u64, (u64, u64, u64, u64, u64, u64), Vec<String>);

/// Makes an image of sources in a new file.
#[pyfunction]
#[expect(clippy::needless_pass_by_value)] // what Python's arguments become
pub(crate) fn build(
    py: Python<'_>,
    image: PathBuf,
    content: Content,
    wanted: Wanted,
    progress: Option<Py<PyAny>>,
) -> PyResult<Built> {
    let built = watched(py, progress.as_ref(), |watch| make(&image, &content, &wanted, watch))?;
    built.map_err(|failure| failure.about(image.as_os_str().as_encoded_bytes()))
}

fn make(path: &Path, content: &Content, wanted: &Wanted, watch: &Watch) -> Outcome<Built> {
    let mut format = wanted.format()?;
    if wanted.reserved_percent.is_none() {
        // As `hectare build`: what is built has its content already.
        format = format.reserved_percent(0.0);
    }
    let mut excludes = Excludes::default();
    for pattern in &content.exclude {
        excludes.add(pattern).map_err(|error| Failure::Value(error.to_string()))?;
    }
    let size = match (content.size.0.as_str(), content.size.1) {
        ("min", _) => Size::Minimal,
        ("exactly", bytes) => Size::Exactly(bytes),
        ("free", bytes) => Size::Free(bytes),
        _ => Size::Ample,
    };
    let mut image = Image::new().format(format).size(size).excludes(excludes).replace(wanted.replace);
    for source in &content.sources {
        let container = Reference::parse(source).map_err(|error| Failure::Value(error.to_string()))?;
        image = match container {
            Some(reference) => image.container(reference),
            None if Path::new(source).is_dir() => image.folder(source),
            None => image.archive(source),
        };
    }
    if let Some((uid, gid)) = content.owner {
        image = image.owner(uid, gid);
    }
    if let Some(epoch) = content.source_date_epoch {
        image = image.source_date_epoch(epoch);
    }
    let built = image.watch(watch).create(path)?;
    let has = built.totals;
    let totals = (has.files, has.directories, has.symlinks, has.special, has.names, has.data.get());
    Ok((built.size, built.free, totals, built.warnings))
}

/// Bytes of a size with a suffix, as the command line takes it.
#[pyfunction]
pub(crate) fn parse_size(text: &str) -> PyResult<u64> {
    let parsed = hectare_mkfs::parse_size(text, 1, None);
    parsed.map_err(|error| Failure::Value(format!("size '{text}': {error}")).plain())
}

/// What the environment says of the time in images.
#[pyfunction]
pub(crate) fn source_date_epoch() -> PyResult<Option<i64>> {
    hectare_mkfs::source_date_epoch().map_err(|error| Failure::Value(error.to_string()).plain())
}
