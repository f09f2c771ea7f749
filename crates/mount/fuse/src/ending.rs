//! The signals that end a server.
//!
//! One that was ignored when the program began stays ignored: nohup(1), and shells that start jobs in the
//! background, ask for that.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::c_int;
use std::mem::MaybeUninit;

/// The signals that end a server: TERM, INT and HUP, but for those that the process ignores.
#[must_use]
pub fn ending_signals() -> Vec<c_int> {
    [SIGTERM, SIGINT, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal)).collect()
}

fn is_ignored(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action only the one that holds is stored, for which there is room; it is read only
    // if that has succeeded.
    #[allow(unsafe_code)]
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}
