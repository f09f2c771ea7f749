//! Making, building and checking images.

#![allow(unsafe_code)] // names that C calls

use crate::failure::{EINVAL, Failure, guard, status};
use crate::memory::{host_path, optional_text, texts, utf8};
use hectare::{Size, build, check, mkfs};
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::PathBuf;

/// For hectare_build: the smallest size that holds everything.
pub const HECTARE_SIZE_MINIMAL: u64 = 0;
/// For hectare_build: a tenth more than the smallest.
pub const HECTARE_SIZE_AMPLE: u64 = 1;

/// Makes an empty ext4 volume of `size` bytes in a new file. `label` and `features` (names of mke2fs,
/// separated by commas, `^` before what is left out) may be NULL. A file that is there is replaced if
/// `replace` is not 0.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_mkfs(
    image: *const c_char,
    size: u64,
    label: *const c_char,
    features: *const c_char,
    replace: c_int,
) -> c_int {
    status(|| {
        let mut format = mkfs::Format::new().replace(replace != 0);
        if let Some(label) = optional_text(label) {
            format = format.label(label);
        }
        if let Some(features) = optional_text(features) {
            format = format.features(utf8(features, "the list of features")?);
        }
        Ok(format.create(host_path(image, "the image's path")?, size)?)
    })
}

/// Makes an image of `count` sources, each a directory or a tar archive, in layers of which later ones win.
/// `size` is one of the constants, or bytes. With a `source_date_epoch` that is not negative the same
/// sources give the same image. A file that is there is replaced if `replace` is not 0. Returns the size in
/// bytes.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_build(
    sources: *const *const c_char,
    count: usize,
    image: *const c_char,
    size: u64,
    source_date_epoch: i64,
    replace: c_int,
) -> i64 {
    guard(-1, || {
        if count == 0 {
            return Err(Failure::new(EINVAL, "an image needs a source"));
        }
        let mut making = build::Image::new().replace(replace != 0).size(match size {
            HECTARE_SIZE_MINIMAL => Size::Minimal,
            HECTARE_SIZE_AMPLE => Size::Ample,
            bytes => Size::Exactly(bytes),
        });
        for source in texts(sources, count)? {
            let path = PathBuf::from(utf8(source, "a source's path")?);
            making = if path.is_dir() { making.folder(path) } else { making.archive(path) };
        }
        if source_date_epoch >= 0 {
            making = making.source_date_epoch(source_date_epoch);
        }
        let built = making.create(host_path(image, "the image's path")?)?;
        i64::try_from(built.size).map_err(|_| Failure::new(EINVAL, "the image is too large"))
    })
}

/// Checks the volume in a file, without changing it, and calls `problem` (which may be NULL) with `user`
/// and each problem in a line. Returns how many there are; 0 for a sound volume.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_check(
    image: *const c_char,
    problem: Option<extern "C" fn(user: *mut c_void, line: *const c_char)>,
    user: *mut c_void,
) -> i64 {
    guard(-1, || {
        let report = check::check(host_path(image, "the image's path")?)?;
        for found in problem.iter().flat_map(|call| report.problems.iter().map(move |found| (call, found))) {
            let line = CString::new(found.1.to_string().replace('\0', "?")).unwrap_or_default();
            found.0(user, line.as_ptr());
        }
        Ok(i64::try_from(report.problem_count).unwrap_or(i64::MAX))
    })
}
