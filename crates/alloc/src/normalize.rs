//! How far beyond a request a file's space is preallocated: the kernel's table of windows.
//!
//! A file that is written piece by piece would get its space piece by piece, between that of others. So a
//! request is widened to a window of the file, whose length grows with the file and whose start is aligned in
//! the file, before space is looked for; what the request does not need is kept for the next ones.
//! Pure arithmetic: nothing here knows what is free.
//!
//! Source of the table: ext4's request normalisation (Linux 6.18), with its quirk that blocks of 4 KiB give
//! every file beyond 8 MiB windows of 8 MiB, however long the request.

use std::ops::Range;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Files up to this size get one window from their start, of the next power of two.
const WHOLE_FILE_MAX: u64 = MIB;
/// The shortest window.
const WINDOW_MIN: u64 = 16 * KIB;

/// The window, in bytes of the file, for a request of the bytes `request` of a file that will be `size` bytes
/// long. It contains the start of the request, but for long requests not all of it.
pub(crate) fn window(request: &Range<u64>, size: u64, block_bytes: u64) -> Range<u64> {
    let size = size.max(request.end);
    let aligned = |len: u64| {
        let start = request.start / len * len;
        start..start.saturating_add(len)
    };
    let len = request.end - request.start;
    if size <= WHOLE_FILE_MAX {
        0..size.next_power_of_two().max(WINDOW_MIN)
    } else if size <= 4 * MIB || block_bytes <= KIB {
        aligned(2 * MIB)
    } else if size <= 8 * MIB || block_bytes <= 2 * KIB {
        aligned(4 * MIB)
    } else if len <= 8 * MIB || block_bytes <= 4 * KIB {
        aligned(8 * MIB)
    } else {
        request.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(request: Range<u64>, size: u64, block: u64) -> Range<u64> {
        window(&request, size, block)
    }

    #[test]
    fn small_files_get_one_window_from_their_start() {
        assert_eq!(windows(0..1, 0, 4096), 0..16 * KIB);
        assert_eq!(windows(0..17 * KIB, 0, 4096), 0..32 * KIB);
        assert_eq!(windows(100 * KIB..104 * KIB, 600 * KIB, 4096), 0..MIB);
    }

    #[test]
    fn windows_of_larger_files_are_aligned_in_the_file() {
        assert_eq!(windows(3 * MIB..3 * MIB + 4096, 0, 4096), 2 * MIB..4 * MIB);
        assert_eq!(windows(5 * MIB..5 * MIB + 4096, 0, 4096), 4 * MIB..8 * MIB);
        assert_eq!(windows(9 * MIB..9 * MIB + 4096, 0, 4096), 8 * MIB..16 * MIB);
        assert_eq!(windows(9 * MIB..9 * MIB + 1024, 0, 1024), 8 * MIB..10 * MIB);
    }

    #[test]
    fn long_requests_are_left_as_they_are_with_large_blocks_only() {
        let request = 24 * MIB..40 * MIB;
        assert_eq!(windows(request.clone(), 0, 4096), 24 * MIB..32 * MIB);
        assert_eq!(windows(request.clone(), 0, 65536), request);
    }
}
