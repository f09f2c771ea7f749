//! Detects files that are no archive, and archives that are no tree of files.
//!
//! Both are refused by name with advice, instead of being packed as something else: a disk image begins with
//! zeros, as an empty archive does, and the archive of a container image holds its layers as blobs.

use super::cursor::Cursor;
use crate::error::{Error, ShownPath};
use hectare_device::FileDevice;
use hectare_probe::{What, probe};

/// Bytes that are read of a file that may describe a container image.
pub(crate) const DESCRIPTION_MAX: u64 = 64 << 10;

/// Refuses a file that does not begin with an archive's header; if it `may_be` an archive nevertheless, only
/// where the content is known.
pub(super) fn refuse(name: &[u8], may_be: bool, cursor: &Cursor) -> Result<(), Error> {
    let found = cursor.whole_file().and_then(|file| {
        let device = FileDevice::from_file(file, "source").ok()?;
        probe(&device).ok().flatten()
    });
    // A damaged archive is still best reported as such.
    let Some(found) = found.filter(|found| found.what != What::Tar) else {
        let reason = "it is not a tar archive: the first header's checksum is wrong";
        return if may_be { Ok(()) } else { Err(cursor.fault(cursor.start(), reason)) };
    };
    let packed = match found.what {
        What::Lz4 => Some("lz4"),
        What::Lzma => Some("lzma"),
        What::Lzop => Some("lzop"),
        _ => None,
    };
    if let Some(tool) = packed {
        let reason = format!("it is {found}: pipe it through `{tool} -dc` and use `-` as the source").into();
        return Err(Error::Refused { path: ShownPath::new(name), reason });
    }
    let advice = match found.what {
        What::Gzip | What::Zstd | What::Xz | What::Bzip2 => "it is packed twice: unpack it once before",
        What::Ext2 | What::Ext3 | What::Ext4 => {
            "make an archive of it with `hectare export IMAGE -o FILE.tar`, and use that"
        }
        _ => "unpack or mount it, and use the directory with its files",
    };
    let reason = format!("it is {found}, not a directory or a tar archive: {advice}").into();
    Err(Error::Refused { path: ShownPath::new(name), reason })
}

/// The kind of container image that a tree is, by the names at its root and the content of their files;
/// `read` gives the start of a file of that name.
pub(crate) fn container_image(read: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Option<&'static str> {
    let says = |name: &[u8], words: &[&str]| {
        read(name).is_some_and(|text| {
            words.iter().all(|word| text.windows(word.len()).any(|window| window == word.as_bytes()))
        })
    };
    if says(b"oci-layout", &["imageLayoutVersion"]) && says(b"index.json", &["manifests"]) {
        return Some("an OCI image layout");
    }
    if says(b"manifest.json", &["\"Config\"", "\"Layers\""]) {
        return Some("a Docker image archive");
    }
    (says(b"version", &["Directory Transport Version"]) && says(b"manifest.json", &["\"layers\""]))
        .then_some("a container image in a directory")
}

/// The refusal of a container image where it was not looked for.
pub(crate) fn is_container_image(path: ShownPath, kind: &str) -> Error {
    let reason = format!(
        "it is {kind}, whose layers are archives of their own: name it as oci:DIR, oci-archive:FILE or \
         docker-archive:FILE (to pack the archive itself, put it into a directory)"
    );
    Error::Refused { path, reason: reason.into() }
}
