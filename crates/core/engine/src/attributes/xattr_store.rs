//! Stores extended attributes: lays them out in the inode and its attribute block, inside a transaction.
//!
//! Attributes lie in the inode's slot, in one attribute block, or both. An attribute block may be shared by
//! inodes with equal attributes; it is never changed while shared: the changing inode leaves it (one
//! reference less) and gets a block of its own. A value that fits neither goes to an inode of its own, where
//! the volume has such (`ea_inode`, [`crate::attributes::value_inodes`]).
//!
//! A change is planned before its transaction ([`Plan`]), which it needs room in, and stored as a whole or
//! not at all ([`store`]). Afterwards, without a handle, the values that it replaced are freed
//! ([`crate::attributes::freeing::free_dropped`]).

use crate::attributes::value_inodes::{self, Owner, Uses};
use crate::attributes::xattr_read;
use crate::error::{Error, Result};
use crate::space::piece::Room;
use crate::space::reserve;
use crate::state::Core;
use crate::state::attributes::{ValueAt, ValuesOutside};
use crate::stores::inode_cache::CachedInode;
use crate::stores::orphans::ORPHAN_CREDITS;
use crate::stores::quotas::Claim;
use hectare_ext4::feature::Incompat;
use hectare_ext4::inode::{Inode, Kind as FileKind};
use hectare_ext4::xattr::{self, Attr, Index, Name, SetError, Value};
use hectare_journal::Handle;
use hectare_units::{Clusters, InodeNr, u64_of};
use std::sync::Arc;

/// Attributes that are to be stored, in place of those that an inode has.
#[derive(Default)]
pub(crate) struct Plan {
    attrs: Vec<Attr>,
    /// Which of them have values to be put into inodes of their own.
    spilled: Vec<usize>,
    before: ValuesOutside,
    /// Where a block may come from.
    room: Option<Room>,
}

impl Plan {
    /// Plans the attributes of an inode that has others, or none.
    ///
    /// # Errors
    /// If they don't fit, or the present ones can't be replaced.
    pub(crate) fn new(core: &Core, nr: InodeNr, data: &Inode, attrs: Vec<Attr>) -> Result<Self> {
        let before = core.state.attributes(nr, data)?;
        let values = core.state.values_outside(nr, data)?;
        value_inodes::check_countable(core, Owner::of(nr, data), data, &values)?;
        let spilled = spilled(core, data, &before, &attrs)?;
        // Removing one, or repeating a mode in an ACL, must not fail for lack of space.
        let room = if bytes_of(&attrs) <= bytes_of(&before) { Room::Kept } else { Room::Open };
        Ok(Self { attrs, spilled, before: values, room: Some(room) })
    }

    /// Plans the attributes of an inode that is still to be made.
    ///
    /// # Errors
    /// If they don't fit.
    pub(crate) fn first(core: &Core, data: &Inode, attrs: Vec<Attr>) -> Result<Self> {
        let spilled = spilled(core, data, &[], &attrs)?;
        Ok(Self { attrs, spilled, before: ValuesOutside::default(), room: Some(Room::Open) })
    }

    /// Whether there is nothing to store.
    pub(crate) fn is_empty(&self) -> bool {
        self.attrs.is_empty()
    }

    /// The lengths of the values that go to inodes of their own.
    fn spilled_lens(&self) -> impl Iterator<Item = u64> {
        self.spilled.iter().map(|i| stored_len(&self.attrs[*i]))
    }

    /// Claims from the quotas of the inode's owners what those values will count for.
    fn claim(&self, core: &Core, inode: &CachedInode) -> Result<Option<Claim>> {
        let clusters = self.spilled_lens().map(|len| value_inodes::clusters(core, len)).sum();
        core.state.claim_values(inode.nr(), &inode.get(), Clusters::new(clusters), self.spilled.len())
    }

    /// The blocks that storing dirties beside the inode and its attribute block.
    pub(crate) fn credits(&self, core: &Core) -> u32 {
        let made = self.spilled_lens().map(|len| value_inodes::make_credits(core, len));
        let counted = self.before.all().map(|_| 1 + ORPHAN_CREDITS);
        made.chain(counted).fold(0, u32::saturating_add)
    }
}

/// Which values have to go to inodes of their own, of those that are not stored yet.
fn spilled(core: &Core, data: &Inode, before: &[Attr], attrs: &[Attr]) -> Result<Vec<usize>> {
    if !core.state.incompat(Incompat::EA_INODE) {
        return Ok(Vec::new());
    }
    let is_new = |attr: &Attr| !before.contains(attr);
    let too_long = |attr: &&Attr| is_new(attr) && stored_len(attr) > value_inodes::VALUE_MAX;
    let size = core.state.geometry().block_size;
    match xattr::spilled(attrs, is_new, data.xattr_area().len(), size) {
        Ok(spilled) if attrs.iter().find(too_long).is_none() => Ok(spilled),
        _ => Err(Error::AttributeTooLarge),
    }
}

fn stored_len(attr: &Attr) -> u64 {
    if let Value::Inline(bytes) = &attr.value { u64_of(bytes.len()) } else { 0 }
}

/// Stores what was planned; nothing is changed if that fails.
pub(crate) fn store(
    core: &Core,
    handle: &mut Handle<'_>,
    inode: &Arc<CachedInode>,
    plan: Plan,
) -> Result<()> {
    let _quota = plan.claim(core, inode)?;
    let Plan { mut attrs, spilled, before, room } = plan;
    if !attrs.is_empty() {
        core.state.bring_attributes();
    }
    let mut uses = Uses::of(before.own());
    let stored = uses
        .place(core, handle, inode, (&mut attrs, &spilled))
        .and_then(|()| uses.cover(core, handle, &attrs))
        .and_then(|()| {
            let mut data = inode.edit(handle, &core.state.inodes);
            let room = room.unwrap_or(Room::Open);
            let old_block = lay_attributes_out(core, handle, inode.nr(), &mut data, (&attrs, room))?;
            let after: Vec<ValueAt> = attrs.iter().filter_map(outside).collect();
            let (less, more) =
                (value_inodes::sectors(core, before.all()), value_inodes::sectors(core, after.iter()));
            data.sectors = data.sectors.saturating_sub(less) + more;
            core.state.count_inodes(inode.nr(), &data, after.len(), before.all().count());
            Ok(old_block)
        });
    match stored {
        Ok(OldBlock::Ended) if before.block_is_shared => {
            // Its other users have left since: its entries were this inode's in the end.
            uses.add(before.in_block.iter());
            uses.settle(core, handle)
        }
        Ok(_) => uses.settle(core, handle),
        Err(error) => uses.undo(core, handle).and(Err(error)),
    }
}

fn outside(attr: &Attr) -> Option<ValueAt> {
    match attr.value {
        Value::Inode { inode, size, hash } => Some(ValueAt { inode, size, hash }),
        Value::Inline(_) => None,
    }
}

/// What became of an attribute block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OldBlock {
    /// There was none, or others have it now.
    Left,
    /// It was freed or has other content: nobody else used it.
    Ended,
}

/// Lays attributes out whose values have their places, with a block from `room` if one is needed.
pub(crate) fn lay_attributes_out(
    core: &Core,
    handle: &mut Handle<'_>,
    nr: InodeNr,
    data: &mut Inode,
    (attrs, room): (&[Attr], Room),
) -> Result<OldBlock> {
    let size = core.state.geometry().block_size;
    let placed =
        xattr::layout(attrs, data.xattr_area().len(), Some(size)).map_err(|_| Error::AttributeTooLarge)?;
    let old_block = store_attribute_block(core, handle, nr, data, (placed.block, room))?;
    data.xattr_area_mut().copy_from_slice(&placed.inode_area);
    Ok(old_block)
}

fn store_attribute_block(
    core: &Core,
    handle: &mut Handle<'_>,
    nr: InodeNr,
    data: &mut Inode,
    (content, room): (Option<Vec<u8>>, Room),
) -> Result<OldBlock> {
    let Some(content) = content else { return leave_attribute_block(core, handle, data) };
    let kind = core.state.xattr_kind();
    if let Some(old) = data.file_acl {
        let block = core.state.xattr_block(old)?;
        if xattr::refcount(&block.bytes()) == Some(1) {
            core.state.blocks.edit(handle, &block, kind, |bytes| bytes.copy_from_slice(&content));
            return Ok(OldBlock::Ended);
        }
    }
    let goal = core.state.geometry().first_block(core.state.groups.slot(nr)?.0);
    let quota = match room {
        Room::Open => core.state.claim_clusters(nr, data, Clusters::ONE)?.1,
        Room::Kept => None,
    };
    let (new, sectors) = reserve::allocate_metadata(core, handle, goal, room)?;
    if let Some(claim) = quota {
        claim.settle(nr);
    }
    let old_block = leave_attribute_block(core, handle, data)?;
    let block = core.state.blocks.fresh(new, kind);
    core.state.blocks.edit(handle, &block, kind, |bytes| bytes.copy_from_slice(&content));
    data.file_acl = Some(new);
    data.sectors += sectors;
    Ok(old_block)
}

/// Changes the attribute block of an inode, if it has one.
pub(crate) fn edit_attribute_block(
    core: &Core,
    handle: &mut Handle<'_>,
    data: &Inode,
    change: impl FnOnce(&mut [u8]),
) -> Result<()> {
    let Some(nr) = data.file_acl else { return Ok(()) };
    let block = core.state.xattr_block(nr)?;
    core.state.blocks.edit(handle, &block, core.state.xattr_kind(), change);
    Ok(())
}

/// Leaves an inode's attribute block to those that share it; does nothing if nobody does any more. Returns
/// whether it was shared.
pub(crate) fn leave_shared_block(core: &Core, handle: &mut Handle<'_>, data: &mut Inode) -> Result<bool> {
    let mut shared = false;
    // At once: of two that leave, the second has the block alone.
    edit_attribute_block(core, handle, data, |bytes| {
        let count = xattr::refcount(bytes).unwrap_or(1);
        shared = count > 1;
        xattr::set_refcount(bytes, if shared { count - 1 } else { count });
    })?;
    if shared {
        data.file_acl = None;
        let sectors = u64::from(core.state.geometry().cluster_blocks());
        let sectors = sectors << (core.state.geometry().block_size.shift() - 9);
        data.sectors = data.sectors.saturating_sub(sectors);
    }
    Ok(shared)
}

/// Releases an inode's attribute block: one reference less, or freed with the last.
pub(crate) fn leave_attribute_block(
    core: &Core,
    handle: &mut Handle<'_>,
    data: &mut Inode,
) -> Result<OldBlock> {
    if leave_shared_block(core, handle, data)? {
        return Ok(OldBlock::Left);
    }
    let Some(nr) = data.file_acl.take() else { return Ok(OldBlock::Left) };
    let sectors = reserve::free_metadata(core, handle, nr)?;
    data.sectors = data.sectors.saturating_sub(sectors);
    Ok(OldBlock::Ended)
}

/// What a new inode inherits from its directory's default ACL: its mode, and its attributes. Without one its mode
/// is the wanted one, without the bits of the umask.
pub(crate) fn inherited_acl(
    core: &Core,
    parent: InodeNr,
    parent_data: &Inode,
    (mode, umask): (u16, u16),
) -> Result<(u16, Vec<Attr>)> {
    let attrs = core.state.attributes(parent, parent_data)?;
    let Some(default) = attrs.iter().find(|attr| attr.name.index() == Index::ACL_DEFAULT) else {
        return Ok((mode & !umask, Vec::new()));
    };
    let acl = xattr_read::acl_of(core, Owner::of(parent, parent_data), default)?;
    let inherited = acl.inherit(mode);
    let mut own = Vec::new();
    if let Some(access) = inherited.access
        && let Some(name) = Name::stored(Index::ACL_ACCESS, b"")
    {
        own.push(Attr::new(name, access.to_disk()));
    }
    if FileKind::of_mode(mode) == Some(FileKind::Directory) {
        own.push(Attr::new(default.name.clone(), acl.to_disk()));
    }
    Ok((inherited.mode, own))
}

/// The plan for an access ACL after `chmod`; `None` if there is none.
pub(crate) fn plan_chmod(core: &Core, nr: InodeNr, data: &Inode, mode: u16) -> Result<Option<Plan>> {
    let mut attrs = core.state.attributes(nr, data)?;
    let Some(attr) = attrs.iter().position(|attr| attr.name.index() == Index::ACL_ACCESS) else {
        return Ok(None);
    };
    let attr = &mut attrs[attr];
    let mut acl = xattr_read::acl_of(core, Owner::of(nr, data), attr)?;
    acl.chmod(mode);
    attr.value = Value::Inline(acl.to_disk());
    Plan::new(core, nr, data, attrs).map(Some)
}

pub(crate) fn remove_if_there(attrs: &mut Vec<Attr>, name: &Name) -> Result<()> {
    attrs.retain(|attr| attr.name != *name);
    Ok(())
}

/// Bytes of names and values.
fn bytes_of(attrs: &[Attr]) -> usize {
    attrs.iter().map(|attr| attr.name.suffix().len() + usize::try_from(stored_len(attr)).unwrap_or(0)).sum()
}

pub(crate) fn set_error(error: SetError) -> Error {
    match error {
        SetError::Exists => Error::Exists,
        SetError::Missing => Error::NoAttribute,
    }
}
