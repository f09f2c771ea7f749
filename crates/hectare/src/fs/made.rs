//! What a new file or directory gets beside what is usual on its volume.

use crate::fs::metadata::mode_bits;
use hectare_engine::Creation;

/// The mode and the owner of what is made, where they are not the usual ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Made {
    pub(crate) mode: Option<u32>,
    pub(crate) owner: Option<(u32, u32)>,
}

impl Made {
    /// With what is usual for the rest.
    pub(crate) fn creation(self, usual: Creation) -> Creation {
        let (uid, gid) = self.owner.unwrap_or((usual.uid, usual.gid));
        let (permissions, umask) =
            self.mode.map_or((usual.permissions, usual.umask), |mode| (mode_bits(mode), 0));
        Creation { permissions, umask, uid, gid }
    }
}
