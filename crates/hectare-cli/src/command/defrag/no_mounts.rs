//! Mounts on a host that has none: no path is taken for one, so nothing here is ever called.

use super::Mover;
use super::pack::Move;
use super::whole::Space;
use crate::failure::{Failure, LeftOut, Outcome};
use crate::name::shown;
use hectare_device::os::OsStrExt;
use hectare_ext4::extent::Extent;
use hectare_units::InodeNr;
use std::ops::Range;
use std::path::Path;

fn refused(top: &Path) -> Failure {
    Failure::of(shown(top.as_os_str().as_bytes()), "this host has no mounts")
}

pub(super) fn gather_below(top: &Path, _: &mut Mover<'_>) -> Outcome {
    Err(refused(top))
}

/// There is none.
pub(super) enum Mount {}

impl Mount {
    pub(super) fn of(top: &Path) -> Outcome<Self> {
        Err(refused(top))
    }

    pub(super) const fn has_clusters(&self) -> bool {
        match *self {}
    }

    pub(super) fn movable(&self, _: &LeftOut) -> Outcome<Vec<(InodeNr, Extent)>> {
        match *self {}
    }
}

impl Space for Mount {
    fn name(&self) -> String {
        match *self {}
    }

    fn block_bytes(&self) -> u64 {
        match *self {}
    }

    fn free_runs(&self, _: &LeftOut) -> Outcome<Vec<Range<u64>>> {
        match *self {}
    }

    fn move_extent(&self, _: &Move, _: &LeftOut) -> Outcome<bool> {
        match *self {}
    }

    fn settle(&self) -> Outcome {
        match *self {}
    }
}
