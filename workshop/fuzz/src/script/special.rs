//! Operations that only some volumes are for: ranges of files, maps exchanged, folded names, projects,
//! limits.

use super::{COMMON, Run};
use hectare_engine::{Caller, FallocateMode, InodeFlags, QuotaKind, QuotaLimits, Result};
use std::ops::RangeInclusive;

/// How many kinds there are.
pub(super) const KINDS: u8 = 14;
/// Those of them that change ranges of files.
pub(super) const RANGES: RangeInclusive<u8> = COMMON..=COMMON + 3;
/// Those of them that may write data before they fail.
pub(super) const WRITES: RangeInclusive<u8> = COMMON + 8..=COMMON + 9;

/// A flag that is set or cleared.
const FLAGS: [InodeFlags; 8] = [
    InodeFlags::EXTENTS,
    InodeFlags::EXTENTS,
    InodeFlags::CASEFOLD,
    InodeFlags::PROJINHERIT,
    InodeFlags::JOURNAL_DATA,
    InodeFlags::APPEND,
    InodeFlags::IMMUTABLE,
    InodeFlags::NODUMP,
];
/// Bytes of the block that ranges are multiples of, or nearly.
const UNIT: u64 = 512;

impl Run<'_, '_> {
    pub(super) fn special(&mut self, what: u8) -> Result<()> {
        match what - COMMON {
            0..=3 => self.fallocate()?,
            4 | 5 => {
                let nr = self.volume.resolve(self.path(), false)?;
                let flags = self.volume.inode_flags(nr)? ^ *self.input.pick(&FLAGS);
                self.volume.set_inode_flags(nr, flags, &Caller::ROOT)?;
            }
            6 => {
                let nr = self.volume.resolve(self.path(), false)?;
                self.volume.set_project(nr, u32::from(self.input.byte()), &Caller::ROOT)?;
            }
            7 => {
                let kind = *self.input.pick(&QuotaKind::ALL);
                let id = u32::from(self.input.byte() % 4) * 70_000;
                let limits = QuotaLimits {
                    space_hard: Some(u64::from(self.input.byte()) << 10),
                    inodes_hard: Some(u64::from(self.input.byte())),
                    ..QuotaLimits::default()
                };
                self.volume.set_quota(kind, id, &limits)?;
            }
            8 => {
                let (at, to, len) = (self.input.word(), self.input.word(), self.input.word());
                if let [from, .., target] = &self.open[..] {
                    from.copy_range(at.into(), target, to.into(), len.into())?;
                }
            }
            9 => {
                let len = usize::from(self.input.word()) % 3000;
                if let Some(file) = self.open.last() {
                    file.write_at(file.metadata()?.size, &vec![b'a'; len])?;
                }
            }
            10 => {
                let at = u64::from(self.input.byte()) * UNIT;
                if let Some(file) = self.open.last() {
                    file.seek_data(at)?;
                    file.seek_hole(at)?;
                    file.extents()?;
                }
            }
            11 => {
                if let Some(file) = self.open.last() {
                    file.sync()?;
                }
            }
            12 => {
                self.volume.read_link(self.path())?;
            }
            _ => {
                let file = self.volume.create_nameless(
                    self.volume.resolve(self.path(), true)?,
                    self.creation(),
                    false,
                )?;
                self.keep(file);
            }
        }
        Ok(())
    }

    fn fallocate(&mut self) -> Result<()> {
        let keep_size = self.input.byte() & 1 == 0;
        let modes = [
            FallocateMode::PunchHole,
            FallocateMode::Allocate { keep_size },
            FallocateMode::ZeroRange { keep_size },
            FallocateMode::CollapseRange,
            FallocateMode::InsertRange,
            FallocateMode::PunchHole,
        ];
        let mode = *self.input.pick(&modes);
        let far = if self.input.byte() & 7 == 7 { 1 << 10 } else { 1 };
        let at = u64::from(self.input.byte()) * UNIT * far;
        let len = (1 + u64::from(self.input.byte())) * UNIT;
        let uneven = u64::from(self.input.byte() & 1);
        if let Some(file) = self.open.last() {
            file.fallocate(mode, at + uneven, len)?;
        }
        Ok(())
    }
}
