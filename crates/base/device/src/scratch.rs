//! Per-thread buffers for copying, aligned so that direct I/O takes them as they are.
//!
//! Each is 1 MiB: large enough that the cost of a system call vanishes beside the copy, small enough that a
//! hundred threads with two of them stay within a few hundred megabytes. A thread that uses two at once (a
//! copy through a layer that needs a buffer itself) gets two; they are kept for its next use.

use std::cell::RefCell;

/// How much a scratch buffer holds.
pub(crate) const SCRATCH_LEN: usize = 1 << 20;

/// What its start is a multiple of; no device asks direct I/O for more.
pub(crate) const SCRATCH_ALIGN: usize = 4096;

/// At most this many are kept by a thread between uses.
const KEPT_MAX: usize = 2;

thread_local! {
    static KEPT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` with a buffer of [`SCRATCH_LEN`] bytes whose content is whatever was left there.
pub(crate) fn with_scratch<T>(work: impl FnOnce(&mut [u8]) -> T) -> T {
    let kept = KEPT.with_borrow_mut(Vec::pop);
    let mut memory = kept.unwrap_or_else(|| vec![0; SCRATCH_LEN + SCRATCH_ALIGN]);
    let skip = memory.as_ptr().align_offset(SCRATCH_ALIGN);
    let result = work(&mut memory[skip..skip + SCRATCH_LEN]);
    KEPT.with_borrow_mut(|kept| {
        if kept.len() < KEPT_MAX {
            kept.push(memory);
        }
    });
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_uses_get_different_aligned_buffers() {
        with_scratch(|outer| {
            outer[0] = 1;
            with_scratch(|inner| inner[0] = 2);
            assert_eq!(outer[0], 1);
            assert_eq!(outer.as_ptr().align_offset(SCRATCH_ALIGN), 0);
            assert_eq!(outer.len(), SCRATCH_LEN);
        });
        assert_eq!(KEPT.with_borrow(Vec::len), 2);
    }
}
