//! The broken and odd images: our own, and a corpus that is not part of the project.

use crate::skip_part;
use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

/// How many images the corpus beside the project has.
const IMAGES: usize = 122;

/// The packed images, sorted by name: our own (`workshop/oracle/broken`), and those of the directory that
/// `HECTARE_CORPUS` names, or of the one beside the project. Where there is none, it is recorded that the
/// test leaves out a part.
///
/// # Panics
/// If a directory can't be read or is empty, if images of the one beside the project are missing, or if two
/// images have one name.
#[must_use]
pub fn corpus(test: &str) -> Vec<PathBuf> {
    let mut images = packed(&own());
    if let Some(named) = std::env::var_os("HECTARE_CORPUS") {
        images.extend(packed(Path::new(&named)));
    } else {
        let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus/e2fsprogs");
        if beside.exists() {
            let found = packed(&beside);
            assert_eq!(found.len(), IMAGES, "{}", beside.display());
            images.extend(found);
        } else {
            let reason = "the corpus of broken images is not here (HECTARE_CORPUS)";
            skip_part!(format!("{test}, images that are not ours"), reason);
        }
    }
    images.sort_by(|a, b| a.file_name().cmp(&b.file_name()));
    let names: BTreeSet<_> = images.iter().map(|image| image.file_name()).collect();
    assert_eq!(names.len(), images.len(), "two images have one name");
    images
}

/// Where our own images are.
fn own() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("broken")
}

fn packed(folder: &Path) -> Vec<PathBuf> {
    let fail = |error: std::io::Error| -> ! { panic!("{}: {error}", folder.display()) };
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| fail(error));
    let images: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap_or_else(|error| fail(error)).path())
        .filter(|path| path.to_string_lossy().ends_with(".img.gz"))
        .collect();
    assert!(!images.is_empty(), "{} has no image", folder.display());
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The most bytes that our images may take in the repository.
    const PACKED_MAX: u64 = 160_000;

    #[test]
    fn our_images_are_small_and_those_of_their_index() {
        let index = std::fs::read_to_string(own().join("INDEX.tsv")).unwrap();
        let listed: BTreeSet<String> =
            index.lines().skip(1).map(|line| line.split('\t').next().unwrap().to_owned()).collect();
        let images = packed(&own());
        let name = |image: &PathBuf| image.file_name().unwrap().to_string_lossy().replace(".img.gz", "");
        assert_eq!(images.iter().map(name).collect::<BTreeSet<_>>(), listed);
        assert!(listed.iter().all(|name| name.starts_with("own_")), "{listed:?}");
        let size: u64 = images.iter().map(|image| std::fs::metadata(image).unwrap().len()).sum();
        assert!(size <= PACKED_MAX, "{size}");
    }
}
