//! Finds the windows in which a file has holes.
//!
//! Hazard: to find the next hole, the host scans every page up to there; on a full file that is all of it,
//! 14 ms for each GiB. So a file is surveyed once, from the start and only as far as it is used, and no
//! window is queried twice.

use super::mapping::{Mapping, WINDOW_LEN};
use super::{SPARSE, UNKNOWN, WHOLE};
use crate::Span;
use hectare_units::Bytes;
use rustix::fs::{SeekFrom, seek};
use std::fs::File;
use std::sync::atomic::Ordering;

/// How far a file has been looked through.
#[derive(Default)]
pub(super) struct Survey {
    /// A multiple of the window length; what lies before is known.
    cursor: u64,
}

impl Survey {
    /// Notes for all windows before `end` whether they have holes, unless more is known of them. Holes made
    /// meanwhile must be kept out.
    pub(super) fn advance(&mut self, file: &File, mapping: &Mapping, end: u64) {
        while self.cursor < end {
            // The file's own offset, which this changes, is not used elsewhere. A host that can't answer is
            // taken to have a hole right here.
            let hole = seek(file, SeekFrom::Hole(self.cursor)).unwrap_or(self.cursor);
            if hole >= mapping.len().get() {
                self.note(mapping, u64::MAX, WHOLE);
                return;
            }
            self.note(mapping, hole / WINDOW_LEN * WINDOW_LEN, WHOLE);
            let data = seek(file, SeekFrom::Data(hole)).unwrap_or(hole);
            let sparse_to = (data / WINDOW_LEN * WINDOW_LEN).max(self.cursor + WINDOW_LEN);
            self.note(mapping, sparse_to, SPARSE);
        }
    }

    fn note(&mut self, mapping: &Mapping, end: u64, finding: u8) {
        let span = Span::new(Bytes::new(self.cursor), Bytes::new(end - self.cursor));
        for state in mapping.windows_in(span).filter(|_| end > self.cursor) {
            // What another thread noted meanwhile takes precedence.
            let _ = state.compare_exchange(UNKNOWN, finding, Ordering::Relaxed, Ordering::Relaxed);
        }
        self.cursor = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn windows_with_holes_are_told_from_whole_ones() {
        let Ok(file) = tempfile::tempfile_in("/dev/shm") else {
            eprintln!("skipped: /dev/shm: no file there");
            return;
        };
        let len = 9 * WINDOW_LEN - 5000;
        file.set_len(len).unwrap();
        let full = vec![1; 2 << 20];
        for window in [0, 1, 6, 7] {
            file.write_all_at(&full, window * WINDOW_LEN).unwrap();
        }
        file.write_all_at(&full[5000..], 8 * WINDOW_LEN).unwrap();
        file.write_all_at(&full[..8192], 3 * WINDOW_LEN - 4096).unwrap();
        let mapping = Mapping::new(&file, Bytes::new(len), true);
        let states = || {
            let all = mapping.windows_in(Span::new(Bytes::ZERO, Bytes::new(len)));
            all.map(|state| state.load(Ordering::Relaxed)).collect::<Vec<_>>()
        };
        let mut survey = Survey::default();
        survey.advance(&file, &mapping, WINDOW_LEN);
        // The way to the first hole is known now, and where it is.
        assert_eq!(states()[..4], [WHOLE, WHOLE, SPARSE, UNKNOWN]);
        survey.advance(&file, &mapping, 4 * WINDOW_LEN);
        assert_eq!(states()[3..7], [SPARSE, SPARSE, SPARSE, UNKNOWN]);
        survey.advance(&file, &mapping, len);
        assert_eq!(states(), [WHOLE, WHOLE, SPARSE, SPARSE, SPARSE, SPARSE, WHOLE, WHOLE, WHOLE]);
        survey.advance(&file, &mapping, len);
    }
}
