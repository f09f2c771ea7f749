//! How far long calls are: the function of the caller, and the name of the step that it is called for.
//!
//! The functions of all options have one shape; the name of the step, which they have no argument for, is given
//! by a call ([`hectare_progress_step`]), so that the shape stays.

#![allow(unsafe_code)] // names that C calls, and pointers of C

use hectare::{Progress, Watch};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::ControlFlow;

/// The caller's function: not 0 cancels.
pub(crate) type Callback = extern "C" fn(user: *mut c_void, done: u64, total: u64) -> c_int;

/// The caller's function, and what it is called with.
struct Observer {
    progress: Callback,
    user: *mut c_void,
}

// SAFETY: the header requires that the function can be called from any thread; the pointer is only passed on.
unsafe impl Send for Observer {}

thread_local! {
    /// The step that the function is called for which this thread is in.
    static STEP: Cell<&'static CStr> = const { Cell::new(c"") };
}

impl Observer {
    fn call(&self, now: Progress) -> ControlFlow<()> {
        // The function may make a long call of its own.
        let outer = STEP.replace(now.step.c_name());
        let answer = (self.progress)(self.user, now.done, now.total.unwrap_or(u64::MAX));
        STEP.set(outer);
        if answer == 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

/// What a long call is seen by.
pub(crate) fn watch(progress: Option<Callback>, user: *mut c_void) -> Watch {
    let Some(progress) = progress else { return Watch::default() };
    let observer = Observer { progress, user };
    Watch::new(move |now| observer.call(now))
}

/// In a function `progress`: the name of the step that it is called for; elsewhere "". Building has "sources"
/// (names, when all are read) and "data" (bytes of files); making a volume "discard" (bytes) and "structures"
/// (chunks of groups); checking "inodes" and "bitmaps" (groups) and "directories". "begin" is none of them
/// yet. The text is never freed. More names may come.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_progress_step() -> *const c_char {
    STEP.try_with(Cell::get).unwrap_or(c"").as_ptr()
}
