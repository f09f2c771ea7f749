//! Checking volumes.

#![allow(unsafe_code)] // names that C calls, and calls of C

use crate::device::{device, hectare_device};
use crate::failure::{Failure, guard, status};
use crate::memory::{host_path, place, put, put_options, read_options};
use crate::progress::watch;
use hectare::check::{self, Report};
use hectare::device::{Device, FileOptions};
use std::ffi::{CString, c_char, c_int, c_void};
use std::num::NonZeroUsize;

/// What hectare_check_with() returns: nothing is wrong, and all was judged.
pub const HECTARE_SOUND: c_int = 0;
/// What hectare_check_with() returns: something is wrong.
pub const HECTARE_UNSOUND: c_int = 1;
/// What hectare_check_with() returns: nothing that was judged is wrong, but something was not judged.
pub const HECTARE_UNJUDGED: c_int = 2;

/// For `found` of hectare_check_options: the line is about something that is wrong.
pub const HECTARE_FOUND_PROBLEM: u32 = 0;
/// For `found` of hectare_check_options: the line names something that could not be judged.
pub const HECTARE_FOUND_UNJUDGED: u32 = 1;
/// For `found` of hectare_check_options: the line is about something that is no problem, since it is put
/// right whenever the volume is opened for writing.
pub const HECTARE_FOUND_NOTE: u32 = 2;

type Found = extern "C" fn(user: *mut c_void, what: u32, line: *const c_char);

/// How a volume is checked. hectare_check_defaults() sets it up; then change what is to differ.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct hectare_check_options {
    /// sizeof(hectare_check_options): another size is another interface, and refused.
    pub struct_size: usize,
    /// How many problems `found` is called with, the first ones; all are counted. 1000, unless changed.
    pub problems_max: u32,
    /// Threads that read the volume; 0: one for each processor.
    pub threads: u32,
    /// Not 0: a journal that must be replayed, as after a crash, is no problem.
    pub allow_recovery: c_int,
    /// Not 0: inodes that wait for their removal, as after a crash, are no problem.
    pub allow_orphans: c_int,
    /// Called with `user` and each finding in a line, after the check, by the thread that checks: `what` is
    /// HECTARE_FOUND_PROBLEM, HECTARE_FOUND_UNJUDGED or HECTARE_FOUND_NOTE; more may come. The line is gone
    /// when it returns. NULL: none.
    pub found: Option<extern "C" fn(user: *mut c_void, what: u32, line: *const c_char)>,
    /// As in hectare_build_options, without the call at the beginning; a check that finds something
    /// may go through its steps anew. A call that was cancelled fails with ECANCELED. NULL: none.
    pub progress: Option<extern "C" fn(user: *mut c_void, done: u64, total: u64) -> c_int>,
    /// What `found` and `progress` are called with.
    pub user: *mut c_void,
}

/// What a check counted.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(non_camel_case_types)]
pub struct hectare_check_counts {
    /// Problems, with those that `found` was not called with.
    pub problems: u64,
    /// Things that were not judged.
    pub unjudged: u64,
    /// Notes.
    pub notes: u64,
    /// Inodes in use, the reserved ones included.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
}

impl hectare_check_options {
    const fn defaults() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            problems_max: 1000,
            threads: 0,
            allow_recovery: 0,
            allow_orphans: 0,
            found: None,
            progress: None,
            user: std::ptr::null_mut(),
        }
    }

    fn check(&self, device: &dyn Device, to: *mut hectare_check_counts) -> Result<c_int, Failure> {
        if !to.is_null() {
            place(to)?; // before the work, which would be for nothing
        }
        let threads = usize::try_from(self.threads).unwrap_or(usize::MAX);
        let by_processors = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let options = check::Options {
            allow_orphans: self.allow_orphans != 0,
            allow_recovery: self.allow_recovery != 0,
            problems_max: usize::try_from(self.problems_max).unwrap_or(usize::MAX),
            threads: NonZeroUsize::new(threads).unwrap_or_else(by_processors),
        };
        let report = check::check_device_watched(device, &options, &watch(self.progress, self.user))?;
        if let Some(found) = self.found {
            self.report_findings(found, &report);
        }
        if !to.is_null() {
            put(to, counts(&report))?;
        }
        Ok(match (report.is_clean(), report.unchecked.is_empty()) {
            (false, _) => HECTARE_UNSOUND,
            (true, false) => HECTARE_UNJUDGED,
            (true, true) => HECTARE_SOUND,
        })
    }

    fn report_findings(&self, found: Found, report: &Report) {
        let one = |what, text: &dyn std::fmt::Display| found(self.user, what, line(text).as_ptr());
        report.problems.iter().for_each(|problem| one(HECTARE_FOUND_PROBLEM, problem));
        report.unchecked.iter().for_each(|what| one(HECTARE_FOUND_UNJUDGED, what));
        report.notes.iter().for_each(|note| one(HECTARE_FOUND_NOTE, note));
    }
}

fn counts(report: &Report) -> hectare_check_counts {
    let count = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
    hectare_check_counts {
        problems: report.problem_count,
        unjudged: count(report.unchecked.len()),
        notes: count(report.notes.len()),
        inodes: report.counts.inodes_used.into(),
        directories: report.counts.directories.into(),
    }
}

/// Text as a line of C's.
fn line(text: &dyn std::fmt::Display) -> CString {
    CString::new(text.to_string().replace('\0', "?")).unwrap_or_default()
}

/// Checks the volume in a file, without changing it, and calls `problem` (which may be NULL) with `user` and
/// each of the first 1000 problems in a line, which is gone when it returns. Returns how many there are. 0 is
/// no problem in what could be judged: whether that was all, hectare_check_with() says. A broken volume is no
/// error; EBUSY says that the file is open for writing.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_check(
    image: *const c_char,
    problem: Option<extern "C" fn(user: *mut c_void, line: *const c_char)>,
    user: *mut c_void,
) -> i64 {
    guard(-1, || {
        let report = check::check(host_path(image, "the image's path")?)?;
        if let Some(problem) = problem {
            report.problems.iter().for_each(|found| problem(user, line(found).as_ptr()));
        }
        Ok(i64::try_from(report.problem_count).unwrap_or(i64::MAX))
    })
}

/// Sets options to what hectare_check_with() does with NULL. `size` is sizeof(hectare_check_options).
#[unsafe(no_mangle)]
pub extern "C" fn hectare_check_defaults(to: *mut hectare_check_options, size: usize) -> c_int {
    status(|| put_options(to, size, hectare_check_options::defaults()))
}

/// Checks the volume in a file or on a block device, without changing it. Returns HECTARE_SOUND,
/// HECTARE_UNSOUND or HECTARE_UNJUDGED, or -1 if it can't be checked. `options` and `to` may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_check_with(
    image: *const c_char,
    options: *const hectare_check_options,
    to: *mut hectare_check_counts,
) -> c_int {
    guard(-1, || {
        let options = read_options(options, hectare_check_options::defaults())?;
        let device = FileOptions::new().open(host_path(image, "the image's path")?);
        options.check(&device.map_err(hectare::Error::from)?, to)
    })
}

/// hectare_check_with() for storage of the caller's, which is released afterwards. `write` is not called. The
/// volume must not be open meanwhile.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_check_device(
    from: *const hectare_device,
    options: *const hectare_check_options,
    to: *mut hectare_check_counts,
) -> c_int {
    guard(-1, || {
        let device = device(from)?;
        read_options(options, hectare_check_options::defaults())?.check(&device, to)
    })
}
