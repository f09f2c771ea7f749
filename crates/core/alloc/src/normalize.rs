//! How far beyond a request a file's space is preallocated: the kernel's table of windows.
//!
//! A file that is written piece by piece would get its space piece by piece, between that of others. So
//! before the search a request is widened to a window of the file, whose length grows with the file and
//! whose start is aligned in the file; what the request does not need is kept for the next ones. Pure
//! arithmetic: nothing here knows what is free. Only the end of a window is returned: unlike the kernel's,
//! ours begin with the request, so that nothing is kept for what the file already has.
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

/// Where the window ends, in bytes of the file, for a request of the bytes `request` of a file that will be
/// `size` bytes long. For long requests that may be before the request's own end.
pub(crate) fn window_end(request: &Range<u64>, size: u64, block_bytes: u64) -> u64 {
    let size = size.max(request.end);
    let aligned = |len: u64| (request.start / len * len).saturating_add(len);
    let len = request.end - request.start;
    if size <= WHOLE_FILE_MAX {
        size.next_power_of_two().max(WINDOW_MIN)
    } else if size <= 4 * MIB || block_bytes <= KIB {
        aligned(2 * MIB)
    } else if size <= 8 * MIB || block_bytes <= 2 * KIB {
        aligned(4 * MIB)
    } else if len <= 8 * MIB || block_bytes <= 4 * KIB {
        aligned(8 * MIB)
    } else {
        request.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_get_one_window_from_their_start() {
        assert_eq!(window_end(&(0..1), 0, 4096), 16 * KIB);
        assert_eq!(window_end(&(0..17 * KIB), 0, 4096), 32 * KIB);
        assert_eq!(window_end(&(100 * KIB..104 * KIB), 600 * KIB, 4096), MIB);
    }

    #[test]
    fn windows_of_larger_files_are_aligned_in_the_file() {
        let end = |start: u64, block| window_end(&(start..start + block), 0, block);
        assert_eq!(end(3 * MIB, 4096), 4 * MIB);
        assert_eq!(end(5 * MIB, 4096), 8 * MIB);
        assert_eq!(window_end(&(MIB..MIB + 4096), 6 * MIB, 4096), 4 * MIB, "a hole of a file of 6 MiB");
        assert_eq!(end(9 * MIB, 4096), 16 * MIB);
        assert_eq!(end(9 * MIB, 1024), 10 * MIB);
    }

    #[test]
    fn long_requests_are_left_as_they_are_with_large_blocks_only() {
        let request = 24 * MIB..40 * MIB;
        assert_eq!(window_end(&request, 0, 4096), 32 * MIB);
        assert_eq!(window_end(&request, 0, 65536), 40 * MIB);
    }
}
