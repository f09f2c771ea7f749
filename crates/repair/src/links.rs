//! Link counts: how many names each inode has.

use crate::report::Error;
use crate::work::Work;
use hectare_check::What;
use hectare_ext4::error::Place;
use hectare_ext4::feature::RoCompat;
use hectare_ext4::inode::Kind;
use hectare_units::{InodeNr, low16};
use std::collections::BTreeMap;

/// The most links a directory counts; with more it counts 1 (`dir_nlink`).
const LINKS_MAX: u32 = 65_000;

impl Work<'_> {
    /// Sets every link count to what was found.
    pub(crate) fn mend_links(&mut self) -> Result<(), Error> {
        let many = self.sb.features().ro_compat.contains(RoCompat::DIR_NLINK);
        let mut children: BTreeMap<u32, u32> = BTreeMap::new();
        for (nr, info) in &self.inodes {
            if info.kind == Kind::Directory && *nr != InodeNr::ROOT.get() && !info.hidden {
                *children.entry(info.parent).or_default() += 1;
            }
        }
        let numbers: Vec<u32> = self.inodes.keys().copied().collect();
        for nr in numbers {
            let Some(info) = self.inodes.get(&nr).copied().filter(|info| !info.hidden && !info.holds_value)
            else {
                continue;
            };
            let count = match info.kind {
                Kind::Directory => 2 + children.get(&nr).copied().unwrap_or(0),
                _ => info.refs,
            };
            let over = info.kind == Kind::Directory && many && count > LINKS_MAX;
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
}
