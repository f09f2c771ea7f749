//! Link counts: how many names each inode has.

use crate::error::Error;
use crate::know::work::Work;
use hectare_check::What;
use hectare_ext4::error::Place;
use hectare_ext4::feature::RoCompat;
use hectare_units::{InodeNr, low16};

/// The most links a directory counts; with more it counts 1 (`dir_nlink`).
const LINKS_MAX: u32 = 65_000;

impl Work<'_> {
    /// Sets every link count to what was found.
    pub(crate) fn mend_links(&mut self) -> Result<(), Error> {
        let many = self.sb.features().ro_compat.contains(RoCompat::DIR_NLINK);
        self.count_subdirectories()?;
        let mut next = 0;
        while let Some((nr, info)) = self.inodes.first_from(next)? {
            let Some(after) = nr.checked_add(1) else { break };
            next = after;
            if info.hidden {
                continue;
            }
            let names = info.refs.max(u32::from(info.holds_value));
            let count = if info.is_directory() { info.subdirectories.saturating_add(2) } else { names };
            let over = info.is_directory() && many && count > LINKS_MAX;
            let count = if over { 1 } else { count };
            let Some(mut slot) = self.slot(InodeNr::new(nr))? else { continue };
            let stored = u32::from(slot.view().links());
            if stored != count {
                let text = format!("it counted {stored} links, {count} names lead to it");
                self.mended(What::LinkCount, Place::Inode(slot.nr), text);
                slot.raw().i_links_count = low16(u64::from(count.min(65_535))).into();
                self.put_slot(&mut slot)?;
            }
        }
        Ok(())
    }

    /// Counts in every directory how many others it is the parent of.
    fn count_subdirectories(&mut self) -> Result<(), Error> {
        let mut next = 0;
        while let Some((nr, info)) = self.inodes.first_from(next)? {
            if info.is_directory() && nr != InodeNr::ROOT.get() && !info.hidden {
                self.inodes.change(info.parent, |parent| {
                    parent.subdirectories = parent.subdirectories.saturating_add(1);
                })?;
            }
            let Some(after) = nr.checked_add(1) else { break };
            next = after;
        }
        Ok(())
    }
}
