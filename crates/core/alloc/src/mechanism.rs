//! The mechanisms that a policy is put together from, by name.
//!
//! Each can be switched on and off by itself, so that its benefit can be measured: `mballoc,-best-avail`
//! is the allocator before that criterion was added. [`Mechanism::LIST`] says of each what it does, where
//! the idea comes from, and where it is in the code.
//!
//! What it is not: the order of the search (criteria, first fit, best fit), of which a policy has exactly
//! one ([`crate::policy`]), nor a number that can be tuned ([`crate::Tunables`]).

use serde::Serialize;

/// A mechanism that a policy has or has not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// Groups are found by the index of largest chunks and average runs.
    Index,
    /// A goal that no group has on average is trimmed by powers of two.
    BestAvail,
    /// Runs shorter than the goal cost nothing where the average promises a longer one.
    SkipSmaller,
    /// The goal itself is tried before anything else, whatever it is the goal of.
    Goal,
    /// Groups whose lock is held are skipped.
    TryLock,
    /// Groups whose lock is held are skipped before anything else about them is checked.
    Peek,
    /// The goal's group is skipped as well if its lock is held.
    GoalTryLock,
    /// The rest of a closed file gets a window only while locks are contended.
    Contention,
    /// The length asked for is found by the largest chunk where averages hide it.
    Chunk,
    /// A request longer than every run gets the longest average run.
    Split,
    /// Groups are set apart by the size of requests.
    Classes,
    /// Groups of a size class are found by an index of their own.
    ClassIndex,
    /// A file that grows has space kept for what it will write next.
    Windows,
    /// Small files of a thread lie side by side.
    Locality,
    /// Windows and locality groups of up to a whole group, laid one after the other.
    Room,
}

/// The description of a mechanism.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct About {
    /// Which.
    pub mechanism: Mechanism,
    /// Its name, as `--policy` takes it.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub does: &'static str,
    /// Where the idea comes from.
    pub source: &'static str,
    /// Where it is in the code, from the root of the project.
    pub code: &'static str,
}

macro_rules! about {
    ($($mechanism:ident, $name:literal, $does:literal, $source:literal, $code:literal;)*) => {
        &[$(About {
            mechanism: Mechanism::$mechanism,
            name: $name,
            does: $does,
            source: $source,
            code: $code,
        },)*]
    };
}

impl Mechanism {
    /// All of them, with what they do.
    pub const LIST: &'static [About] = about! {
        Index, "index",
            "finds groups by their largest free chunk and average free run, not one after the other",
            "ext4 mb_optimize_scan", "crates/core/alloc/src/index.rs";
        BestAvail, "best-avail",
            "trims a goal that no group has on average by powers of two, not below what is asked",
            "ext4 CR_BEST_AVAIL_LEN", "crates/core/alloc/src/search/plan.rs";
        SkipSmaller, "skip-smaller",
            "passes over free runs shorter than the goal in CR_GOAL_LEN_FAST without counting them",
            "ext4 CR_GOAL_LEN_FAST", "crates/core/alloc/src/search/scan.rs";
        Goal, "goal",
            "tries each request's very goal first, not only the end of a file's last extent for a window",
            "Hectare", "crates/core/alloc/src/criteria.rs";
        TryLock, "try-lock",
            "passes by a group whose lock another request holds, but for the goal's and in CR_ANY_FREE",
            "ext4_try_lock_group", "crates/core/alloc/src/search.rs";
        Peek, "peek",
            "looks whether a group's lock is held before the group is chosen, and passes it by if so",
            "ext4_try_lock_group", "crates/core/alloc/src/search.rs";
        GoalTryLock, "goal-try-lock",
            "passes by the goal's group, too, if its lock is held",
            "Hectare", "crates/core/alloc/src/criteria.rs";
        Contention, "contention",
            "keeps no window for what is left of a closed file unless group locks are contended",
            "ext4 s_lock_busy", "crates/core/alloc/src/contention.rs";
        Chunk, "chunk",
            "finds what is asked by the largest free chunk of a group where its average is too short",
            "Hectare", "crates/core/alloc/src/criteria.rs";
        Split, "split",
            "gives a request longer than every free run the longest average run, for one run scanned",
            "Hectare", "crates/core/alloc/src/criteria.rs";
        Classes, "classes",
            "sets flex groups apart for requests of up to 128 KiB, up to 8 MiB, and more (--classes)",
            "btrfs block group size classes", "crates/core/alloc/src/size_class.rs";
        ClassIndex, "class-index",
            "finds the groups of a size class by a bit tree instead of passing over those of other classes",
            "Hectare", "crates/core/alloc/src/size_class.rs";
        Windows, "windows",
            "keeps the rest of a goal of 16 KiB to 8 MiB for the file that asked",
            "ext4 inode preallocation", "crates/core/alloc/src/normalize.rs";
        Locality, "locality",
            "serves the small files of a thread from shared space of 2 MiB",
            "ext4 locality group preallocation", "crates/core/alloc/src/prealloc.rs";
        Room, "room",
            "makes windows and the shared space up to a group long, each behind the last of its size",
            "Hectare", "crates/core/alloc/src/prealloc.rs";
    };

    /// Its description.
    #[must_use]
    pub fn about(self) -> &'static About {
        &Self::LIST[self as usize]
    }

    /// Its name, as `--policy` takes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.about().name
    }

    /// The mechanism of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::LIST.iter().find(|about| about.name == name).map(|about| about.mechanism)
    }
}

/// A set of mechanisms.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Mechanisms(u16);

impl Mechanisms {
    /// These mechanisms.
    #[must_use]
    pub const fn of(list: &[Mechanism]) -> Self {
        let (mut set, mut at) = (Self(0), 0);
        while at < list.len() {
            set = set.with(list[at]);
            at += 1;
        }
        set
    }

    /// Returns these mechanisms and one more.
    #[must_use]
    pub const fn with(self, mechanism: Mechanism) -> Self {
        Self(self.0 | 1 << mechanism as u16)
    }

    /// Returns these mechanisms without one.
    #[must_use]
    pub const fn without(self, mechanism: Mechanism) -> Self {
        Self(self.0 & !(1 << mechanism as u16))
    }

    /// Whether one is among them.
    #[must_use]
    pub const fn has(self, mechanism: Mechanism) -> bool {
        self.0 & 1 << mechanism as u16 != 0
    }

    /// Those that are in one of the two sets and not in the other, in the order of [`Mechanism::LIST`].
    pub fn differing(self, other: Self) -> impl Iterator<Item = Mechanism> {
        let differing = Self(self.0 ^ other.0);
        Mechanism::LIST.iter().map(|about| about.mechanism).filter(move |one| differing.has(*one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_the_order_of_the_mechanisms_and_names_each_once() {
        for (at, about) in Mechanism::LIST.iter().enumerate() {
            assert_eq!(about.mechanism as usize, at, "{}", about.name);
            assert_eq!(about.mechanism.name(), about.name);
            assert_eq!(Mechanism::named(about.name), Some(about.mechanism));
            assert_eq!(serde_json::to_string(&about.mechanism).unwrap(), format!("\"{}\"", about.name));
        }
        assert_eq!(Mechanism::named("guesswork"), None);
    }

    #[test]
    fn the_code_that_the_list_names_is_there() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");
        for about in Mechanism::LIST {
            assert!(std::path::Path::new(root).join(about.code).is_file(), "{}", about.code);
        }
    }

    #[test]
    fn sets_know_what_is_in_them() {
        let set = Mechanisms::of(&[Mechanism::Index, Mechanism::Room]);
        assert!(set.has(Mechanism::Room) && !set.has(Mechanism::Split));
        assert!(!set.without(Mechanism::Room).has(Mechanism::Room));
        let differing: Vec<_> = set.differing(Mechanisms::of(&[Mechanism::Split])).collect();
        assert_eq!(differing, [Mechanism::Index, Mechanism::Split, Mechanism::Room]);
    }
}
