//! Where one size class ends and the next begins, as a list that can be given: `128K,8M`.
//!
//! A bound belongs to the class below it. Sizes above every bound are the last class, so there is one class
//! more than there are bounds. Bounds rise, and are whole clusters of the volume they are used on
//! ([`SizeClasses::check`]); the default's are for any volume.

use super::Class;
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The bounds of the size classes, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SizeClasses {
    bounds: [u64; Self::BOUNDS_MAX],
    many: u8,
}

/// A list of bounds that can't be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadClasses {
    /// It has none, or too many.
    #[error("{0} bounds of size classes: there may be 1 to 8, as in 128K,8M")]
    Number(usize),
    /// One is no size.
    #[error("'{0}' is no bound of size classes: a number of bytes with K, M, G or T behind it is meant")]
    Form(String),
    /// They don't rise.
    #[error(
        "the bounds of size classes {before} and {bound} do not rise",
        before = Size(*before), bound = Size(*bound)
    )]
    Order {
        /// One.
        before: u64,
        /// The one behind it, which is not larger.
        bound: u64,
    },
    /// One is not a number of whole clusters.
    #[error(
        "the bound of size classes {bound} is not a multiple of the volume's clusters of {cluster}",
        bound = Size(*bound), cluster = Size(*cluster)
    )]
    Cluster {
        /// The bound.
        bound: u64,
        /// Bytes of a cluster.
        cluster: u64,
    },
}

/// A size as it is given.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
        let (shift, unit) =
            units.into_iter().find(|(shift, _)| self.0.trailing_zeros() >= *shift).unwrap_or((0, ""));
        write!(f, "{}{unit}", self.0 >> shift)
    }
}

fn size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()?.to_ascii_uppercase() {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        b'T' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    // A number may not begin with a sign.
    let bare = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse::<u64>().ok().filter(|n| bare && *n > 0)?.checked_mul(1 << shift)
}

impl SizeClasses {
    /// The most bounds.
    pub const BOUNDS_MAX: usize = 8;

    /// Classes with these bounds, in bytes.
    ///
    /// # Errors
    /// If there are none or too many, or they don't rise from 1 on.
    pub fn new(bounds: &[u64]) -> Result<Self, BadClasses> {
        if !(1..=Self::BOUNDS_MAX).contains(&bounds.len()) {
            return Err(BadClasses::Number(bounds.len()));
        }
        let before = std::iter::once(0).chain(bounds.iter().copied());
        if let Some((before, bound)) = before.zip(bounds.iter().copied()).find(|(a, b)| a >= b) {
            return Err(BadClasses::Order { before, bound });
        }
        let mut all = [0; Self::BOUNDS_MAX];
        all[..bounds.len()].copy_from_slice(bounds);
        Ok(Self { bounds: all, many: hectare_units::low8(hectare_units::u64_of(bounds.len())) })
    }

    /// The bounds, in bytes, rising.
    #[must_use]
    pub fn bounds(&self) -> &[u64] {
        &self.bounds[..usize::from(self.many)]
    }

    /// How many classes there are.
    pub(crate) fn count(&self) -> usize {
        usize::from(self.many) + 1
    }

    /// The class of an allocation of `bytes` bytes.
    pub(crate) fn of(&self, bytes: u64) -> Class {
        let below = self.bounds().iter().filter(|bound| bytes > **bound).count();
        Class(hectare_units::low8(hectare_units::u64_of(below)))
    }

    /// Checks that they can be used on a volume with clusters of `cluster_bytes` bytes.
    ///
    /// # Errors
    /// The first bound that is not a number of whole clusters.
    pub fn check(&self, cluster_bytes: u64) -> Result<(), BadClasses> {
        let odd = |bound: &&u64| !bound.is_multiple_of(cluster_bytes.max(1));
        match self.bounds().iter().find(odd) {
            Some(bound) if *self != Self::default() => {
                Err(BadClasses::Cluster { bound: *bound, cluster: cluster_bytes })
            }
            _ => Ok(()),
        }
    }
}

impl Default for SizeClasses {
    /// Up to 128 KiB, up to 8 MiB, and more. Source: btrfs.
    fn default() -> Self {
        Self { bounds: [128 << 10, 8 << 20, 0, 0, 0, 0, 0, 0], many: 2 }
    }
}

impl FromStr for SizeClasses {
    type Err = BadClasses;

    /// As in `128K,8M`, or with colons for lists of mount options.
    fn from_str(text: &str) -> Result<Self, BadClasses> {
        let bound = |word: &str| size(word).ok_or_else(|| BadClasses::Form(word.to_owned()));
        let bounds = text.split([',', ':']).map(bound).collect::<Result<Vec<_>, _>>()?;
        Self::new(&bounds)
    }
}

impl fmt::Display for SizeClasses {
    /// As it can be parsed again, with colons.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, bound) in self.bounds().iter().enumerate() {
            write!(f, "{}{}", if at > 0 { ":" } else { "" }, Size(*bound))?;
        }
        Ok(())
    }
}

impl Serialize for SizeClasses {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.bounds())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class_of(classes: &str, bytes: u64) -> usize {
        classes.parse::<SizeClasses>().unwrap().of(bytes).index()
    }

    #[test]
    fn the_bounds_belong_to_the_lower_class() {
        for (bytes, class) in
            [(1, 0), (128 << 10, 0), ((128 << 10) + 1, 1), (8 << 20, 1), ((8 << 20) + 1, 2), (u64::MAX, 2)]
        {
            assert_eq!(SizeClasses::default().of(bytes).index(), class, "{bytes}");
        }
        assert_eq!((class_of("4K", 4096), class_of("4K", 4097)), (0, 1));
        assert_eq!(class_of("1,2,3,4,5,6,7,8", 9), 8);
    }

    #[test]
    fn lists_are_read_and_written() {
        for (text, shown) in [("128K,8M", "128K:8M"), ("65536", "64K"), ("12k:1536K:3g", "12K:1536K:3G")] {
            let classes: SizeClasses = text.parse().unwrap();
            assert_eq!(classes.to_string(), shown);
            assert_eq!(shown.parse(), Ok(classes));
        }
        assert_eq!("128K,8M".parse(), Ok(SizeClasses::default()));
        assert_eq!(serde_json::to_string(&SizeClasses::default()).unwrap(), "[131072,8388608]");
    }

    #[test]
    fn bad_lists_are_refused_in_one_line() {
        for (text, part) in [
            ("", "'' is no bound"),
            ("128K,", "'' is no bound"),
            ("128X", "'128X' is no bound"),
            ("+4K", "'+4K' is no bound"),
            ("0", "'0' is no bound"),
            ("99999999999T", "is no bound"),
            ("K", "'K' is no bound"),
            ("\u{e9}", "is no bound"),
            ("8M,128K", "8M and 128K do not rise"),
            ("8M,8M", "8M and 8M do not rise"),
            ("1,2,3,4,5,6,7,8,9", "9 bounds of size classes: there may be 1 to 8"),
        ] {
            let error = text.parse::<SizeClasses>().unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains('\n'), "{text}: {error}");
        }
    }

    #[test]
    fn bounds_are_whole_clusters_but_the_defaults() {
        let classes: SizeClasses = "96K,1M".parse().unwrap();
        classes.check(32 << 10).unwrap();
        let error = classes.check(64 << 10).unwrap_err().to_string();
        assert_eq!(error, "the bound of size classes 96K is not a multiple of the volume's clusters of 64K");
        SizeClasses::default().check(1 << 20).unwrap();
    }
}
