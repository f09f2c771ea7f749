//! Orphan cleanup: frees and truncates the orphans that the last user of a volume left.
//!
//! It has two steps. [`load_orphans`] finds and checks all of them, and changes nothing: a list that
//! loops, that names an inode not in use, or inodes that can't be changed yet, keeps the volume from being
//! opened for writing. [`process_orphans`] then frees those without a name and resumes truncating the
//! others, in transactions like any other, each of which removes the orphans it finished: a crash meanwhile
//! leaves the rest to the next opening.
//!
//! A volume need not have a journal to have orphans: it may have had one.

use crate::attributes::freeing;
use crate::data::truncate;
use crate::error::Result;
use crate::names::remove;
use crate::space::map::MapRef;
use crate::state::Core;
use crate::stores::inode_cache::CachedInode;
use crate::stores::orphan_file::{OrphanFile, Slot};
use crate::stores::orphans::{Cleaned, Member, Place as Noted, State};
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::feature::RoCompat;
use hectare_ext4::inode::InodeFlags;
use hectare_units::{BlockNr, Blocks, InodeNr, LogicalBlock, u64_of};
use std::ops::ControlFlow;
use std::sync::Arc;

/// The most blocks an orphan file may have: as large a file as any tool makes, with the smallest blocks.
const BLOCKS_MAX: u64 = 8192;

/// Finds the orphans that the volume names, and the orphan file. Called once, before anything is changed.
///
/// # Errors
/// [`Error::Corrupt`](crate::Error::Corrupt) or [`Error::Unsupported`](crate::Error::Unsupported), with
/// the inode that can't be cleaned up.
pub(crate) fn load_orphans(core: &Core) -> Result<()> {
    let mut state = State::default();
    load_list(core, &mut state)?;
    if let Some(nr) = core.state.sb.orphan_file_inode() {
        let mut file = find_orphan_file(core, nr)?;
        if core.state.sb.features().ro_compat.contains(RoCompat::ORPHAN_PRESENT) {
            for (slot, nr) in file.load_all(&core.state.blocks)? {
                load_slot(core, &mut state, slot, nr)?;
            }
        }
        state.file = Some(file);
    }
    // A crash without orphans may have left it set.
    let present = core.state.orphans.install(state);
    core.state.live_sb.lock().set_orphan_present(present);
    Ok(())
}

/// Finds the blocks of the orphan file, inode `nr`.
fn find_orphan_file(core: &Core, nr: InodeNr) -> Result<OrphanFile> {
    let bad = |what: &'static str| Corrupt::new("the orphan file", Place::Inode(nr), what);
    let inode = core.state.inode(nr)?;
    let data = inode.get();
    let blocks = data.size >> core.state.geometry().block_size.shift();
    if blocks > BLOCKS_MAX {
        return Err(bad("it is larger than any is made").into());
    }
    let map = MapRef { state: &core.state, nr, inode: &data };
    let mut unread: Vec<BlockNr> = Vec::new();
    let mut sound = true;
    map.for_each(LogicalBlock::ZERO, &mut |extent| {
        let next = u64_of(unread.len());
        sound &= !extent.unwritten && u64::from(extent.logical.get()) == next;
        let wanted = blocks.saturating_sub(next).min(extent.len.into());
        if wanted == 0 || !sound {
            return ControlFlow::Break(());
        }
        unread.extend((0..wanted).map(|step| extent.physical + Blocks::new(step)));
        ControlFlow::Continue(())
    })?;
    if !sound || u64_of(unread.len()) != blocks {
        return Err(bad("it has holes").into());
    }
    unread.reverse();
    Ok(OrphanFile::new(nr, data.seed(nr, &core.state.sb), unread))
}

fn load_list(core: &Core, state: &mut State) -> Result<()> {
    state.head = core.state.sb.last_orphan();
    let (mut before, mut next) = (None, state.head);
    while let Some(nr) = next {
        if state.has(nr) {
            return Err(corrupt(nr, "it comes twice").into());
        }
        let inode = orphan(core, nr)?;
        let after = InodeNr::from_disk(inode.get().dtime);
        state.insert(Member { inode, place: Noted::List { before, after } });
        (before, next) = (Some(nr), after);
    }
    Ok(())
}

fn load_slot(core: &Core, state: &mut State, slot: Slot, nr: InodeNr) -> Result<()> {
    if state.has(nr) {
        return Err(corrupt(nr, "it comes twice").into());
    }
    state.insert(Member { inode: orphan(core, nr)?, place: Noted::File(slot) });
    Ok(())
}

/// The inode of a recorded orphan, once it is known that it can be cleaned up.
fn orphan(core: &Core, nr: InodeNr) -> Result<Arc<CachedInode>> {
    if nr.get() < core.state.sb.first_inode().get() {
        return Err(corrupt(nr, "the format keeps that number for itself").into());
    }
    if !core.state.groups.inode_in_use(nr)? {
        return Err(corrupt(nr, "that number is free").into());
    }
    let inode = core.state.inodes.load(nr, || core.state.read_slot(nr))?;
    let data = inode.get();
    if data.kind().is_none() {
        return Err(corrupt(nr, "that inode was never used").into());
    }
    if data.links == 0 {
        remove::check_freeable(core, nr, &data)?;
    } else if !data.flags.intersects(InodeFlags::INLINE_DATA | InodeFlags::ENCRYPT) {
        core.state.check_file_writable(&data, nr)?;
    }
    drop(data);
    Ok(inode)
}

/// Frees the orphans without a name and truncates the others to their size.
///
/// # Errors
/// The first that can't be cleaned up; those before it are.
pub(crate) fn process_orphans(core: &Core) -> Result<Cleaned> {
    let mut cleaned = Cleaned::default();
    for inode in core.state.orphans.all() {
        let _operation = inode.lock().write();
        if inode.get().links == 0 {
            freeing::delete(core, &inode)?;
            cleaned.freed += 1;
        } else {
            let size = inode.get().size;
            truncate::clear_after(core, &inode, size)?;
            truncate::finish_cut(core, &inode)?;
            core.relieve_frees()?;
            cleaned.cut += 1;
        }
    }
    Ok(core.state.orphans.note_cleaned(cleaned))
}

fn corrupt(nr: InodeNr, what: &'static str) -> Corrupt {
    Corrupt::new("the list of orphans", Place::Inode(nr), what)
}
