//! Numbers that name things: groups, inodes, transactions.

use std::fmt;

macro_rules! id32 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(u32);

        impl $name {
            /// Wraps a raw number.
            #[must_use]
            pub const fn new(n: u32) -> Self {
                Self(n)
            }
            /// The raw number.
            #[must_use]
            pub const fn get(self) -> u32 {
                self.0
            }
            /// The number as an index.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id32! {
    /// A block group, counted from 0. ext4 has at most 2^32 - 1 of them.
    GroupNr
}
id32! {
    /// An inode number, counted from 1 as on disk. 0 means "none" on disk and is never a valid inode.
    InodeNr
}
id32! {
    /// A transaction of the journal. Ids wrap; compare them with [`TxnId::is_after`].
    #[derive(Default)]
    TxnId
}

impl GroupNr {
    /// The group after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl InodeNr {
    /// The root directory of every ext4 volume.
    pub const ROOT: Self = Self(2);

    /// A number read from disk where 0 means "none".
    #[must_use]
    pub const fn from_disk(n: u32) -> Option<Self> {
        if n == 0 { None } else { Some(Self(n)) }
    }
}

impl TxnId {
    /// The transaction that follows this one, wrapping.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Whether this id was assigned after `other`, in the wrapping order of jbd2.
    #[must_use]
    pub const fn is_after(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() > 0
    }
}

/// The number that stands for no user, group or project: `chown` leaves an owner as it is for it.
pub const NO_OWNER: u32 = u32::MAX;

/// The number of a user, group or project from its decimal digits: not [`NO_OWNER`].
#[must_use]
pub fn owner_number(text: &[u8]) -> Option<u32> {
    let text = str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    text.parse().ok().filter(|number| *number != NO_OWNER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transaction_ids_compare_across_the_wrap() {
        let last = TxnId::new(u32::MAX);
        assert!(last.next().is_after(last));
        assert!(!last.is_after(last.next()));
        assert!(!last.is_after(last));
    }

    #[test]
    fn zero_is_no_inode() {
        assert_eq!(InodeNr::from_disk(0), None);
        assert_eq!(InodeNr::from_disk(2), Some(InodeNr::ROOT));
    }

    #[test]
    fn owners_are_digits_and_not_the_highest_number() {
        assert_eq!(
            [&b"0"[..], b"007", b"4294967294"].map(owner_number),
            [Some(0), Some(7), Some(u32::MAX - 1)]
        );
        for wrong in [&b""[..], b"+7", b"-1", b" 7", b"x", b"\xff", b"4294967295", b"4294967296"] {
            assert_eq!(owner_number(wrong), None, "{wrong:?}");
        }
    }
}
