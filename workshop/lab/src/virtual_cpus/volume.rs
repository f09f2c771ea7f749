//! The volumes of the experiment, worked out group by group.

use hectare_units::random::SplitMix64;
use hectare_units::{Clusters, GroupNr, usize_of};
use serde::Serialize;

/// Bytes of a block, which is a cluster.
pub(crate) const BLOCK: u32 = 4096;
/// Clusters of a group: 128 MiB.
const GROUP: u32 = 8 * BLOCK;
/// Groups: 64 GiB in all.
const GROUPS: u32 = 512;
/// The mean free run where most is in use: 256 KiB.
const MEAN_RUN: u64 = 64;

/// How full a volume is at the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fill {
    /// Nothing is in use.
    Fresh,
    /// 95 % of every group is in use, the rest in runs of all lengths, 256 KiB on average.
    Nearly,
}

impl Fill {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Fresh, Self::Nearly];

    /// In a few words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Nearly => "95 % full",
        }
    }
}

/// A volume of 512 groups of 128 MiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Volume(pub(crate) Fill);

impl Volume {
    pub(crate) const fn group_len(&self) -> u32 {
        GROUP
    }

    pub(crate) fn clusters(&self) -> Clusters {
        Clusters::new(u64::from(GROUP) * u64::from(GROUPS))
    }

    /// Free clusters of a group.
    pub(crate) fn free_in(&self, group: GroupNr) -> u32 {
        self.bitmap(group).iter().map(|word| word.count_zeros()).sum()
    }

    /// What is in use in a group, a bit each.
    pub(crate) fn bitmap(&self, group: GroupNr) -> Vec<u64> {
        let words = usize_of(GROUP / 64);
        if self.0 == Fill::Fresh {
            return vec![0; words];
        }
        let mut bitmap = vec![u64::MAX; words];
        let mut random = SplitMix64::new(u64::from(group.get()));
        let mut at = 0;
        loop {
            at += about(&mut random, 19 * MEAN_RUN);
            let end = at + about(&mut random, MEAN_RUN);
            if end >= u64::from(GROUP) {
                return bitmap;
            }
            for cluster in at..end {
                bitmap[hectare_units::index_of(cluster / 64)] &= !(1 << (cluster % 64));
            }
            at = end;
        }
    }
}

/// A length of at least 1 with that mean, each length from 1 to twice the mean as likely.
fn about(random: &mut SplitMix64, mean: u64) -> u64 {
    1 + random.below(2 * mean - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_as_full_as_they_say() {
        let share = |fill| {
            let volume = Volume(fill);
            let free: u64 = (0..GROUPS).map(|group| u64::from(volume.free_in(GroupNr::new(group)))).sum();
            free * 1000 / volume.clusters().get()
        };
        assert_eq!(share(Fill::Fresh), 1000);
        assert!((48..=52).contains(&share(Fill::Nearly)), "{}", share(Fill::Nearly));
    }
}
