//! Frees inodes without links: their content, their attribute block, and the users they are of values in
//! inodes of their own (`ea_inode`), each of which is freed likewise with its last.
//!
//! An inode of little content and no such values is freed in one transaction. Any other is an orphan by then,
//! and loses its values and its content in as many transactions as that takes, each of which leaves what the
//! next opening of the volume could continue with.

use crate::attributes::value_inodes::{self, Owner};
use crate::attributes::xattr_store;
use crate::data::truncate;
use crate::error::Result;
use crate::space::{ialloc, reserve};
use crate::state::Core;
use crate::state::attributes::ValuesOutside;
use crate::stores::inode_cache::CachedInode;
use crate::stores::orphans::ORPHAN_CREDITS;
use hectare_ext4::feature::Incompat;
use hectare_ext4::inode::Inode;
use hectare_ext4::xattr;
use hectare_journal::Handle;
use hectare_units::{InodeNr, usize_of};
use std::sync::Arc;

/// Blocks that freeing an inode without content dirties: itself, its bitmap and descriptor, and the attribute
/// block, or that one's bitmap and descriptor.
const FREE_CREDITS: u32 = 8;

/// Blocks that dropping an inode dirties at most if none of its content is freed with it.
pub(crate) const DROP_CREDITS: u32 = FREE_CREDITS + ORPHAN_CREDITS;

/// Values that one transaction lets go.
const VALUES_STEP: u32 = 16;

/// Blocks that one of them dirties.
const VALUE_CREDITS: u32 = 1 + ORPHAN_CREDITS;

/// Blocks that freeing all of an inode's content dirties, if it has few enough of them, and no values in
/// inodes of their own, to be freed in one transaction with other changes.
pub(crate) fn at_once(core: &Core, nr: InodeNr, data: &Inode) -> Result<Option<u32>> {
    if values_left(core, nr, data)?.is_some() {
        return Ok(None);
    }
    truncate::unmap_at_once(core, nr, data, 0)
}

/// Frees an inode without links and all its content. The caller holds its operation lock.
pub(crate) fn delete(core: &Core, inode: &Arc<CachedInode>) -> Result<()> {
    reserve::discard_window(core, inode);
    let_values_go(core, inode)?;
    let at_once = truncate::unmap_at_once(core, inode.nr(), &inode.get(), 0)?;
    if at_once.is_none() {
        truncate::unmap(core, inode, 0)?;
    }
    let mut handle = core.start(DROP_CREDITS + at_once.unwrap_or(0))?;
    free_whole(core, &mut handle, inode)?;
    handle.stop();
    core.relieve_frees()
}

/// Frees an inode with little or no content, in one transaction.
pub(crate) fn free_whole(core: &Core, handle: &mut Handle<'_>, inode: &Arc<CachedInode>) -> Result<()> {
    let mut data = inode.edit(handle, &core.state.inodes);
    truncate::unmap_all(core, handle, inode.nr(), &mut data, 0)?;
    xattr_store::leave_attribute_block(core, handle, &mut data)?;
    drop(data);
    core.state.remove_orphan(handle, inode.nr());
    ialloc::free_inode(core, handle, inode)
}

/// Frees the inodes of values that no attribute uses any more. Called without a handle, and with no locks but
/// the operation locks of inodes that have names.
pub(crate) fn free_dropped(core: &Core) -> Result<()> {
    if !core.state.incompat(Incompat::EA_INODE) {
        return Ok(());
    }
    let dropped = core.state.values.lock().take_dropped();
    dropped.iter().try_for_each(|value| {
        let _operation = value.lock().write();
        delete(core, value)
    })
}

/// Runs a change, and then frees the values that it has left without users: whatever became of it, since
/// undoing one leaves such, too. Called as [`free_dropped`].
pub(crate) fn with_dropped<T>(core: &Core, change: impl FnOnce() -> Result<T>) -> Result<T> {
    let changed = change();
    let freed = free_dropped(core);
    changed.and_then(|value| freed.map(|()| value))
}

/// The values of an inode that lie in inodes of their own; `None` if it has none.
fn values_left(core: &Core, nr: InodeNr, data: &Inode) -> Result<Option<ValuesOutside>> {
    if !core.state.incompat(Incompat::EA_INODE) {
        return Ok(None);
    }
    Ok(Some(core.state.values_outside(nr, data)?).filter(|values| !values.is_empty()))
}

/// Lets all values of an inode go that lie in inodes of their own, and frees those that nobody else uses.
fn let_values_go(core: &Core, inode: &Arc<CachedInode>) -> Result<()> {
    let left = || values_left(core, inode.nr(), &inode.get());
    while let Some(values) = left()? {
        let mut handle = core.start(VALUES_STEP * VALUE_CREDITS + FREE_CREDITS)?;
        let_some_go(core, &mut handle, inode, &values, usize_of(VALUES_STEP))?;
        handle.stop();
        free_dropped(core)?;
    }
    Ok(())
}

/// Lets up to `max` values of an inode go, or the block of attributes that it shares with others.
fn let_some_go(
    core: &Core,
    handle: &mut Handle<'_>,
    inode: &Arc<CachedInode>,
    values: &ValuesOutside,
    max: usize,
) -> Result<()> {
    let owner = Owner::of(inode.nr(), &inode.get());
    let (from_block, list) = (values.in_inode.is_empty(), values.in_inode.iter().chain(&values.in_block));
    if from_block && values.block_is_shared {
        let mut data = inode.edit(handle, &core.state.inodes);
        // Else nobody shares it by now: its entries are this inode's, and are let go one by one.
        if xattr_store::leave_shared_block(core, handle, &mut data)? {
            core.state.count_inodes(inode.nr(), &data, 0, values.in_block.len());
        }
        return Ok(());
    }
    let len = if from_block { values.in_block.len() } else { values.in_inode.len() };
    // All of them are there before the first is let go.
    let step = len.min(max);
    let holders: Vec<_> =
        list.take(step).map(|at| value_inodes::holder(core, owner, at)).collect::<Result<_>>()?;
    let mut data = inode.edit(handle, &core.state.inodes);
    if from_block {
        xattr_store::edit_attribute_block(core, handle, &data, |bytes| {
            xattr::detach_in_block(bytes, step);
        })?;
    } else {
        xattr::detach_in_inode(data.xattr_area_mut(), step);
    }
    core.state.count_inodes(inode.nr(), &data, 0, step);
    drop(data);
    holders.iter().for_each(|holder| value_inodes::let_go(core, handle, holder));
    Ok(())
}

/// Lets all values of an inode go in an open transaction: of one that was made in it, or has few.
pub(crate) fn let_values_go_at_once(
    core: &Core,
    handle: &mut Handle<'_>,
    inode: &Arc<CachedInode>,
) -> Result<()> {
    let left = || values_left(core, inode.nr(), &inode.get());
    while let Some(values) = left()? {
        let_some_go(core, handle, inode, &values, usize::MAX)?;
    }
    Ok(())
}
