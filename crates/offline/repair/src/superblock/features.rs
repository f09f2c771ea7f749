//! Features that a volume uses and does not have: they are set, since what uses them is sound.

use crate::know::work::Work;
use hectare_check::What;
use hectare_ext4::error::Place;
use hectare_ext4::feature::{Compat, Incompat, RoCompat};

/// A feature, by its set.
#[derive(Clone, Copy)]
pub(crate) enum Feature {
    Compat(Compat),
    Incompat(Incompat),
    RoCompat(RoCompat),
}

impl Work<'_> {
    /// Sets a feature, and says why.
    pub(crate) fn set_feature(&mut self, feature: Feature, why: &str) {
        self.mended(What::Superblock, Place::Volume, why);
        self.edit_superblock(|raw| {
            if raw.s_rev_level.get() == 0 {
                // Only revision 1 has features; what else it adds are the values that 0 implies.
                raw.s_rev_level = 1.into();
                raw.s_first_ino = 11.into();
                raw.s_inode_size = 128.into();
            }
            let (set, bits) = match feature {
                Feature::Compat(feature) => (&mut raw.s_feature_compat, feature.bits()),
                Feature::Incompat(feature) => (&mut raw.s_feature_incompat, feature.bits()),
                Feature::RoCompat(feature) => (&mut raw.s_feature_ro_compat, feature.bits()),
            };
            *set = (set.get() | bits).into();
        });
    }
}
