//! The corpus of broken and odd images, which is not part of the project: its location and content.

use crate::Skip;
use std::io::Read;
use std::path::{Path, PathBuf};

/// How many images the corpus beside the project has.
const IMAGES: usize = 122;

/// The packed images, sorted by name: those of the directory that `HECTARE_CORPUS` names, or of the one
/// beside the project.
///
/// # Errors
/// A [`Skip`] if there is none.
///
/// # Panics
/// If the named directory can't be read or is empty, or if images of the one beside the project are missing.
pub fn corpus() -> Result<Vec<PathBuf>, Skip> {
    if let Some(named) = std::env::var_os("HECTARE_CORPUS") {
        let images = packed(Path::new(&named));
        assert!(!images.is_empty(), "{} has no image", named.display());
        return Ok(images);
    }
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus/e2fsprogs");
    if !beside.exists() {
        return Err(Skip::new("the corpus of broken images is not here (HECTARE_CORPUS)"));
    }
    let images = packed(&beside);
    assert_eq!(images.len(), IMAGES, "{}", beside.display());
    Ok(images)
}

fn packed(folder: &Path) -> Vec<PathBuf> {
    let fail = |error: std::io::Error| -> ! { panic!("{}: {error}", folder.display()) };
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| fail(error));
    let mut images: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap_or_else(|error| fail(error)).path())
        .filter(|path| path.to_string_lossy().ends_with(".img.gz"))
        .collect();
    images.sort();
    images
}

/// The bytes of a packed image.
///
/// # Panics
/// If it can't be read.
#[must_use]
pub fn unpacked(packed: &Path) -> Vec<u8> {
    let file = std::fs::File::open(packed).unwrap_or_else(|error| panic!("{}: {error}", packed.display()));
    let mut bytes = Vec::new();
    let read = flate2::read::MultiGzDecoder::new(file).read_to_end(&mut bytes);
    read.unwrap_or_else(|error| panic!("{}: {error}", packed.display()));
    bytes
}
