//! Making empty images, and checking images. Those that are made of sources: [`crate::build`].

#![allow(unsafe_code)] // names that C calls

use crate::failure::{guard, status};
use crate::memory::{host_path, optional_text, utf8};
use hectare::{check, mkfs};
use std::ffi::{CString, c_char, c_int, c_void};

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
