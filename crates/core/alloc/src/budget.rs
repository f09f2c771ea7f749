//! What a run is paid from: the available clusters above a floor, or a claim made earlier.

use crate::counters::Counters;

/// Where the clusters of a request come from.
pub(crate) enum Budget<'a> {
    /// Available clusters, leaving `floor` of them.
    Available {
        /// What must be left.
        floor: u64,
    },
    /// The clusters left in a claim.
    Claimed(&'a mut u64),
}

impl Budget<'_> {
    /// What could be paid now.
    pub(crate) fn holds(&self, counters: &Counters) -> u64 {
        match self {
            Self::Available { floor } => counters.spendable(*floor),
            Self::Claimed(left) => **left,
        }
    }

    /// Pays for up to `most` clusters but no fewer than `least`.
    pub(crate) fn pay(&mut self, counters: &Counters, most: u64, least: u64) -> Option<u64> {
        match self {
            Self::Available { floor } => counters.take(most, least, *floor),
            Self::Claimed(left) => {
                let paid = most.min(**left);
                if paid < least {
                    return None;
                }
                **left -= paid;
                counters.spend_claim(paid);
                Some(paid)
            }
        }
    }
}
