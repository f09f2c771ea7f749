//! The policies a volume can be used with, by name.
//!
//! A policy only chooses where a request goes: which passes are made over the groups, in which order, and
//! whether size classes filter them. Not its business: how much a caller may take, what is reserved or being
//! freed, discard, journalling; those lie above it.

use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// How space is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Multi-block allocation with five criteria over the group index, as Linux's ext4 does it.
    Mballoc,
    /// The same criteria, each tried over all groups in order, without the index.
    MballocLinear,
    /// First fit inside groups set apart by the size of requests, as btrfs does it.
    SizeClass,
    /// The criteria of `mballoc` inside groups set apart by the size of requests.
    #[default]
    Hybrid,
    /// The shortest free run that is long enough, over all groups.
    BestFit,
    /// The first free run that is long enough, from the goal on.
    FirstFit,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Mballoc, Self::MballocLinear, Self::SizeClass, Self::Hybrid, Self::BestFit, Self::FirstFit];

    /// Its name, as options give it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mballoc => "mballoc",
            Self::MballocLinear => "mballoc-linear",
            Self::SizeClass => "size-class",
            Self::Hybrid => "hybrid",
            Self::BestFit => "best-fit",
            Self::FirstFit => "first-fit",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A policy of that name does not exist.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "there is no policy '{0}': it is one of mballoc, mballoc-linear, size-class, hybrid, best-fit, first-fit"
)]
pub struct UnknownPolicy(String);

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL
            .into_iter()
            .find(|policy| policy.name() == name)
            .ok_or_else(|| UnknownPolicy(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_policies() {
        for policy in Policy::ALL {
            assert_eq!(policy.name().parse(), Ok(policy));
            assert_eq!(serde_json_name(policy), policy.name());
        }
        let error = Policy::from_str("nextfit").unwrap_err().to_string();
        for policy in Policy::ALL {
            assert!(error.contains(policy.name()), "{error}");
        }
    }

    /// The name serde gives a variant.
    fn serde_json_name(policy: Policy) -> String {
        serde_json::to_string(&policy).unwrap().trim_matches('"').to_owned()
    }
}
