//! Checking volumes.

#![allow(unsafe_code)] // names that C calls, and calls of C

use crate::failure::guard;
use crate::memory::host_path;
use hectare::check;
use std::ffi::{CString, c_char, c_void};

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
