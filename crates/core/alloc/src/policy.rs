//! The policies a volume can be used with, put together from mechanisms by name.
//!
//! A policy is an order of search ([`Order`]) and a set of [mechanisms](crate::Mechanism). Six have names of
//! their own; any other is written as one of them with mechanisms put in and left out:
//! `mballoc,-best-avail,-skip-smaller`, `first-fit,+classes`. A colon separates as well as a comma, for lists
//! of mount options.
//!
//! A policy chooses where a request goes, and how much is kept for the next. Not its business: how much a
//! caller may take, what is reserved or being freed, discard, journalling; those belong to the layers above.

use crate::mechanism::{Mechanism, Mechanisms};
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The order in which groups and runs are tried.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Order {
    /// The criteria of the kernel's mballoc.
    Criteria,
    /// The first free run that is long enough, from the goal on.
    FirstFit,
    /// The shortest free run that is long enough, over all groups.
    BestFit,
}

/// How space is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Policy {
    pub(crate) order: Order,
    mechanisms: Mechanisms,
}

/// What the kernel keeps for files, and how its groups are locked: part of every policy with a name.
const KERNEL: Mechanisms = Mechanisms::of(&[
    Mechanism::TryLock,
    Mechanism::Peek,
    Mechanism::Contention,
    Mechanism::Windows,
    Mechanism::Locality,
]);

/// What first fit and best fit have.
const PLAIN: Mechanisms = KERNEL.with(Mechanism::Index).with(Mechanism::Goal);

impl Policy {
    /// Linux's ext4 (6.18) with `mb_optimize_scan`: five criteria over the group index.
    pub const MBALLOC: Self = Self::MBALLOC_LINEAR.with(Mechanism::Index).with(Mechanism::BestAvail);
    /// [`Self::MBALLOC`] without `mb_optimize_scan`: the criteria are tried over all groups in order.
    pub const MBALLOC_LINEAR: Self =
        Self { order: Order::Criteria, mechanisms: KERNEL.with(Mechanism::SkipSmaller) };
    /// First fit inside groups set apart by the size of requests, as btrfs does it.
    pub const SIZE_CLASS: Self = Self::FIRST_FIT.with(Mechanism::Classes).with(Mechanism::ClassIndex);
    /// The criteria of `mballoc` with chunks and splits, inside groups set apart by the size of requests,
    /// with room to grow. The default.
    pub const HYBRID: Self = Self::MBALLOC
        // Room keeps no windows of the kernel's kind.
        .without(Mechanism::Contention)
        .with(Mechanism::Goal)
        .with(Mechanism::Chunk)
        .with(Mechanism::Split)
        .with(Mechanism::Classes)
        .with(Mechanism::ClassIndex)
        .with(Mechanism::Room);
    /// The shortest free run that is long enough, over all groups.
    pub const BEST_FIT: Self = Self { order: Order::BestFit, mechanisms: PLAIN };
    /// The first free run that is long enough, from the goal on.
    pub const FIRST_FIT: Self = Self { order: Order::FirstFit, mechanisms: PLAIN };

    /// Those that have names of their own.
    pub const ALL: [Self; 6] = [
        Self::MBALLOC,
        Self::MBALLOC_LINEAR,
        Self::SIZE_CLASS,
        Self::HYBRID,
        Self::BEST_FIT,
        Self::FIRST_FIT,
    ];

    /// Their names, in the same order.
    pub const NAMES: [&'static str; 6] =
        ["mballoc", "mballoc-linear", "size-class", "hybrid", "best-fit", "first-fit"];

    /// Returns this policy with a mechanism.
    #[must_use]
    pub const fn with(self, mechanism: Mechanism) -> Self {
        Self { mechanisms: self.mechanisms.with(mechanism), ..self }
    }

    /// Returns this policy without a mechanism.
    #[must_use]
    pub const fn without(self, mechanism: Mechanism) -> Self {
        Self { mechanisms: self.mechanisms.without(mechanism), ..self }
    }

    /// Whether it has a mechanism.
    #[must_use]
    pub const fn has(self, mechanism: Mechanism) -> bool {
        self.mechanisms.has(mechanism)
    }

    /// Returns the policy with these mechanisms that takes the first run that will do.
    pub(crate) const fn first_fit(self) -> Self {
        Self { order: Order::FirstFit, ..self }
    }

    /// The policy with a name that is nearest, by its place in [`Policy::ALL`], and what differs.
    fn nearest(self) -> (usize, Vec<Mechanism>) {
        let differing = |policy: &Self| -> Vec<_> { self.mechanisms.differing(policy.mechanisms).collect() };
        let same_order = Self::ALL.iter().enumerate().filter(|(_, policy)| policy.order == self.order);
        same_order
            .map(|(at, policy)| (at, differing(policy)))
            .min_by_key(|(_, differing)| differing.len())
            .expect("every order has a policy with a name")
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::HYBRID
    }
}

impl fmt::Display for Policy {
    /// As it can be parsed again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, differing) = self.nearest();
        let mut name = Self::NAMES[at].to_owned();
        for mechanism in differing {
            name += if self.has(mechanism) { ",+" } else { ",-" };
            name += mechanism.name();
        }
        f.pad(&name)
    }
}

impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A policy can't be made of that text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UnknownPolicy {
    /// No policy has that name.
    #[error("there is no policy '{0}': it is one of {names}", names = Policy::NAMES.join(", "))]
    Policy(String),
    /// No mechanism has that name.
    #[error(
        "there is no mechanism '{name}' ('{nearest}' is the nearest): 'hectare-lab mechanisms' lists them"
    )]
    Mechanism {
        /// The name.
        name: String,
        /// The mechanism whose name is most like it.
        nearest: &'static str,
    },
    /// A word behind the name has neither sign.
    #[error("'{0}' after a policy: a mechanism is put in by +NAME and left out by -NAME")]
    NoSign(String),
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let mut words = text.split([',', ':']);
        let name = words.next().unwrap_or_default();
        let named = Self::NAMES.iter().position(|known| *known == name);
        let policy = Self::ALL[named.ok_or_else(|| UnknownPolicy::Policy(name.to_owned()))?];
        words.try_fold(policy, |policy, word| {
            let known = |name: &str| {
                Mechanism::named(name).ok_or_else(|| UnknownPolicy::Mechanism {
                    name: name.to_owned(),
                    nearest: nearest(Mechanism::LIST.iter().map(|about| about.name), name),
                })
            };
            match (word.strip_prefix('+'), word.strip_prefix('-')) {
                (Some(name), _) => Ok(policy.with(known(name)?)),
                (_, Some(name)) => Ok(policy.without(known(name)?)),
                _ => Err(UnknownPolicy::NoSign(word.to_owned())),
            }
        })
    }
}

/// The name that is most like one that is none.
pub(crate) fn nearest(names: impl Iterator<Item = &'static str>, name: &str) -> &'static str {
    names.min_by_key(|known| strsim::damerau_levenshtein(known, name)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_policies() {
        for (policy, name) in Policy::ALL.into_iter().zip(Policy::NAMES) {
            assert_eq!(name.parse(), Ok(policy));
            assert_eq!(policy.to_string(), name);
            assert_eq!(serde_json::to_string(&policy).unwrap(), format!("\"{name}\""));
        }
        let error = Policy::from_str("nextfit").unwrap_err().to_string();
        for name in Policy::NAMES {
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn a_policy_is_written_as_the_nearest_name_with_what_differs() {
        for (text, shown) in [
            ("mballoc,-best-avail:-try-lock", "mballoc,-best-avail,-try-lock"),
            ("mballoc,-best-avail,-index", "mballoc-linear"),
            ("mballoc-linear,+room", "mballoc-linear,+room"),
            ("first-fit,+classes,+class-index", "size-class"),
            ("first-fit,+classes", "size-class,-class-index"),
            ("hybrid,+room,-room", "hybrid,-room"),
        ] {
            let policy: Policy = text.parse().unwrap();
            assert_eq!(policy.to_string(), shown, "{text}");
            assert_eq!(shown.parse(), Ok(policy));
        }
    }

    #[test]
    fn what_is_no_mechanism_is_refused_with_the_nearest() {
        for (text, part) in [
            ("mballoc,-best-avial", "'best-avail' is the nearest"),
            ("mballoc,room", "put in by +NAME"),
            ("mballoc,", "put in by +NAME"),
            ("", "there is no policy ''"),
            ("+room", "there is no policy '+room'"),
        ] {
            let error = Policy::from_str(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
