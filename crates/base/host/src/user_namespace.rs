//! Owners that have no number in the user namespace of this process.
//!
//! In a user namespace the system reports one number for all owners outside of it (`overflowuid`, 65534),
//! which looks like an owner that exists. Where the namespace has that number itself, nothing shows which of the
//! two owns a file.

use std::fs;
use std::ops::Range;
use std::sync::OnceLock;

/// The numbers that stand for owners and groups outside of the namespace.
#[derive(Clone, Copy, Default)]
struct Outside {
    uid: Option<u32>,
    gid: Option<u32>,
}

/// Whether a reported owner and group are those of files whose owner or group has no number in this user
/// namespace. Not for what a program such as fakeroot reports.
#[must_use]
pub fn is_foreign_owner(uid: u32, gid: u32) -> bool {
    static FOUND: OnceLock<Outside> = OnceLock::new();
    let outside = FOUND.get_or_init(|| Outside {
        uid: overflow("/proc/sys/kernel/overflowuid", "/proc/self/uid_map"),
        gid: overflow("/proc/sys/kernel/overflowgid", "/proc/self/gid_map"),
    });
    outside.uid == Some(uid) || outside.gid == Some(gid)
}

/// The number in one file, unless the map in the other has it. Without `/proc` nothing is known.
fn overflow(number: &str, map: &str) -> Option<u32> {
    let number = fs::read_to_string(number).ok()?.trim().parse().ok()?;
    let map = fs::read_to_string(map).ok()?;
    (!ranges(&map).any(|range| range.contains(&u64::from(number)))).then_some(number)
}

/// The numbers inside that a map (inside, outside, count) has.
fn ranges(map: &str) -> impl Iterator<Item = Range<u64>> + '_ {
    map.lines().filter_map(|line| {
        let mut words = line.split_whitespace().map(str::parse::<u64>);
        let (start, count) = (words.next()?.ok()?, words.nth(1)?.ok()?);
        Some(start..start.saturating_add(count))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_read() {
        let of = |map| ranges(map).map(|range| (range.start, range.end)).collect::<Vec<_>>();
        assert_eq!(of("         0          0 4294967295\n"), [(0, 4_294_967_295)]);
        assert_eq!(of("0 1000 1\n1 100000 65536\n"), [(0, 1), (1, 65537)]);
        assert_eq!(of("1000"), []);
    }
}
