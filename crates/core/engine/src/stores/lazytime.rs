//! Defers the time stamps of overwrites: the times reach the inode later.
//!
//! An overwrite changes only a file's times. Stamping the inode at once would take a handle and the inode's
//! data lock exclusively, which is more work than the write. So the time is kept in one word beside the inode
//! ([`Mark`]); the next change of the inode under a handle, or the commit that renders it, moves it there
//! first.
//!
//! A time fits one word because the format's range is 34 bits of seconds, and nanoseconds take 30.

use hectare_ext4::inode::Inode;
use hectare_ext4::time::{SECONDS_MAX, SECONDS_MIN, Timestamp};
use hectare_units::low32;
use std::sync::atomic::{AtomicU64, Ordering};

const NANOSECOND_BITS: u32 = 30;

/// A time still to be moved into an inode, or none.
#[derive(Default)]
pub(crate) struct Mark(AtomicU64);

impl Mark {
    /// Sets the pending time; returns whether it changed. Of two, the later one stays.
    pub(crate) fn set(&self, now: Timestamp) -> bool {
        let now = encode(now);
        // Reading first keeps the line shared between cores: the clock ticks rarely.
        self.0.load(Ordering::Acquire) != now && self.0.fetch_max(now, Ordering::AcqRel) < now
    }

    /// The pending time.
    pub(crate) fn get(&self) -> Option<Timestamp> {
        decode(self.0.load(Ordering::Acquire))
    }

    /// Moves the pending time into the inode, whose data lock is held exclusively.
    pub(crate) fn bring_into(&self, inode: &mut Inode) {
        if self.0.load(Ordering::Acquire) == 0 {
            return;
        }
        if let Some(time) = decode(self.0.swap(0, Ordering::AcqRel)) {
            stamp(inode, time);
        }
    }

    /// Stamps a copy of the inode with the pending time, which stays pending.
    pub(crate) fn show_in(&self, copy: &mut Inode) {
        if let Some(time) = self.get() {
            stamp(copy, time);
        }
    }
}

fn stamp(inode: &mut Inode, time: Timestamp) {
    inode.mtime = time;
    inode.ctime = time;
    inode.version = inode.version.wrapping_add(1);
}

/// A time as a word that is not 0; later times are larger.
fn encode(time: Timestamp) -> u64 {
    let seconds = time.seconds.clamp(SECONDS_MIN, SECONDS_MAX).abs_diff(SECONDS_MIN);
    ((seconds << NANOSECOND_BITS) | u64::from(time.nanoseconds.min(999_999_999))).max(1)
}

fn decode(word: u64) -> Option<Timestamp> {
    let seconds = i64::try_from(word >> NANOSECOND_BITS).ok()?.checked_add(SECONDS_MIN)?;
    let nanoseconds = low32(word & ((1 << NANOSECOND_BITS) - 1));
    (word != 0).then_some(Timestamp { seconds, nanoseconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_holds_every_time_of_the_format() {
        for seconds in [SECONDS_MIN, -1, 0, 1, 1_800_000_000, SECONDS_MAX] {
            for nanoseconds in [1, 999_999_999] {
                let time = Timestamp { seconds, nanoseconds };
                assert_eq!(decode(encode(time)), Some(time));
            }
        }
        assert_eq!(decode(0), None);
        assert_eq!(
            decode(encode(Timestamp::from_seconds(i64::MAX))),
            Some(Timestamp::from_seconds(SECONDS_MAX))
        );
    }

    #[test]
    fn the_later_of_two_marks_stays() {
        let mark = Mark::default();
        let time = |n| Timestamp { seconds: 5, nanoseconds: n };
        assert!(mark.set(time(7)));
        assert!(!mark.set(time(7)) && !mark.set(time(3)));
        assert_eq!(mark.get(), Some(time(7)));
        assert!(mark.set(time(8)));
        assert_eq!(mark.get(), Some(time(8)));
    }
}
