//! Reads and changes the extended attributes of an inode in use.
//!
//! Attributes lie in the inode's slot, in one attribute block, or both. A change reads all of them, changes
//! the list and lays it out anew. An attribute block may be shared by inodes with equal attributes; it is
//! never changed while shared: the changing inode leaves it (one reference less) and gets a block of its own.

mod grow;

use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::map::MAP_CREDITS;
use crate::permission::{SET_GID, keeps_set_gid};
use crate::space::Room;
use crate::stores::block_cache::{Block, Kind};
use crate::stores::fs_errors::Watched;
use crate::stores::inode_cache::CachedInode;
use crate::volume::Volume;
use hectare_ext4::acl::{self, Acl};
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::inode::{Inode, InodeFlags, Kind as FileKind};
use hectare_ext4::xattr::{self, Area, Attr, How, Index, Name, NameError, SetError, Value};
use hectare_journal::Handle;
use hectare_units::{BlockNr, Bytes, InodeNr, index_of, memory, u64_of};
use std::sync::Arc;

/// The most bytes of a value in an inode of its own, as the kernel limits it.
const EA_INODE_MAX: u64 = 64 << 10;

/// The most bytes that the values of one inode may have together in a request for all: some hundred values of
/// the largest size, where a block of 4 KiB has room for two hundred small ones. One value of 64 KiB may
/// appear under each of thousands of names.
const VALUES_MAX: Bytes = Bytes::mib(64);

impl Volume {
    fn xattr_kind(&self) -> Kind {
        Kind::Xattr(self.sb.seed())
    }

    fn xattr_block(&self, nr: BlockNr) -> Result<Arc<Block>> {
        self.blocks.load(nr, self.xattr_kind(), Place::Block(nr))
    }

    /// Every attribute of an inode, as stored.
    pub(crate) fn attributes(&self, nr: InodeNr, inode: &Inode) -> Result<Vec<Attr>> {
        self.read_attributes(nr, inode).watched(&self.findings)
    }

    fn read_attributes(&self, nr: InodeNr, inode: &Inode) -> Result<Vec<Attr>> {
        let place = Place::Inode(nr);
        let in_inode = Area::in_inode(inode.xattr_area(), place)?;
        let block = inode.file_acl.map(|nr| self.xattr_block(nr)).transpose()?;
        let bytes = block.as_ref().map(|block| block.bytes());
        let in_block = match (&bytes, &block) {
            (Some(bytes), Some(block)) => Some(Area::in_block(bytes, Place::Block(block.nr()))?),
            _ => None,
        };
        Ok(xattr::collect(in_inode, in_block))
    }

    /// The part of an inline file that lies in its attribute.
    pub(crate) fn inline_tail(&self, nr: InodeNr, inode: &Inode) -> Result<Option<Vec<u8>>> {
        let attrs = self.attributes(nr, inode)?;
        match xattr::find(&attrs, &Name::inline_data()).map(|attr| &attr.value) {
            Some(Value::Inline(bytes)) => Ok(Some(bytes.clone())),
            Some(Value::Inode { .. }) => {
                Err(Corrupt::new("inline data", Place::Inode(nr), "it lies in another inode").into())
            }
            None => Ok(None),
        }
    }

    /// A value, wherever it lies.
    fn value(&self, owner: InodeNr, attr: &Attr) -> Result<Vec<u8>> {
        match &attr.value {
            Value::Inline(bytes) => Ok(bytes.clone()),
            Value::Inode { inode, size, .. } => {
                let bad = |what| Corrupt::new("extended attribute", Place::Inode(owner), what);
                let size = u64::from(*size);
                if *inode == owner {
                    return Err(bad("its value lies in the inode itself").into());
                }
                let holder = self.inode(*inode)?;
                let data = holder.get();
                if !data.flags.contains(InodeFlags::EA_INODE) || data.size != size || size > EA_INODE_MAX {
                    return Err(bad("the inode that should hold its value is of another size or kind").into());
                }
                drop(data);
                let mut bytes = memory::filled(0, index_of(size))?;
                self.read_locked(&holder, 0, &mut bytes)?;
                Ok(bytes)
            }
        }
    }

    /// A value by its full name (`user.comment`).
    pub(crate) fn get_attribute(&self, inode: &CachedInode, name: &[u8]) -> Result<Vec<u8>> {
        let name = parse_name(name)?;
        let _operation = inode.lock().read();
        inode.check_alive()?;
        let attrs = self.attributes(inode.nr(), &inode.get())?;
        let attr = xattr::find(&attrs, &name).ok_or(Error::NoAttribute)?;
        let value = self.value(inode.nr(), attr).watched(&self.findings)?;
        Ok(acl::to_shown(&name, &value, Place::Inode(inode.nr()))?.into_owned())
    }

    /// The full names and the values of an inode's attributes, which are read and parsed once.
    pub(crate) fn all_attributes(&self, inode: &CachedInode) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let _operation = inode.lock().read();
        inode.check_alive()?;
        let attrs = self.attributes(inode.nr(), &inode.get())?;
        let hidden = Name::inline_data();
        let shown = attrs.iter().filter(|attr| attr.name != hidden);
        // By their declared sizes, before any is read; a value of another size is refused when it is.
        let total: u64 = shown.clone().map(|attr| stored_len(&attr.value)).sum();
        if Bytes::new(total) > VALUES_MAX {
            let (nr, most) = (inode.nr(), VALUES_MAX.get() >> 20);
            let what = format!("the attributes of inode {nr} have {total} bytes, and {most} MiB are read");
            return Err(Error::Unsupported(what));
        }
        let mut all = Vec::new();
        for attr in shown {
            let Some(full) = attr.name.full() else { continue };
            let value = self.value(inode.nr(), attr).watched(&self.findings)?;
            all.push((full, acl::to_shown(&attr.name, &value, Place::Inode(inode.nr()))?.into_owned()));
        }
        Ok(all)
    }

    /// The full names of an inode's attributes; inline data and names without a known prefix are left out.
    pub(crate) fn list_attributes(&self, inode: &CachedInode) -> Result<Vec<Vec<u8>>> {
        let _operation = inode.lock().read();
        inode.check_alive()?;
        let attrs = self.attributes(inode.nr(), &inode.get())?;
        let hidden = Name::inline_data();
        Ok(attrs.iter().filter(|attr| attr.name != hidden).filter_map(|attr| attr.name.full()).collect())
    }

    /// Sets an attribute, for a user if there is one, whose permission is checked. An access ACL sets the
    /// mode's permissions as well.
    pub(crate) fn set_attribute(
        &self,
        inode: &Arc<CachedInode>,
        name: &[u8],
        value: &[u8],
        how: How,
        caller: Option<&Caller<'_>>,
    ) -> Result<()> {
        let name = parse_name(name)?;
        check_outside(&name)?;
        let stored =
            acl::to_stored(&name, value).map_err(|_| Error::Invalid("this is no valid POSIX ACL"))?;
        self.retry(|| {
            let _operation = inode.lock().write();
            self.check_changeable(inode)?;
            self.change_attributes(inode, |data, attrs| {
                caller
                    .map_or(Ok(()), |caller| self.check_changes_attribute(inode.nr(), data, &name, caller))?;
                let Some(stored) = &stored else { return remove_if_there(attrs, &name) };
                if name.index() == Index::ACL_ACCESS {
                    let acl = Acl::from_xattr(value).ok().flatten();
                    let acl = acl.ok_or(Error::Invalid("this is no valid POSIX ACL"))?;
                    data.mode = acl.apply_to(data.mode);
                    if caller.is_some_and(|caller| !keeps_set_gid(caller, data.gid)) {
                        data.mode &= !SET_GID;
                    }
                    if acl.to_mode().is_some() {
                        return remove_if_there(attrs, &name);
                    }
                }
                if name.index() == Index::ACL_DEFAULT && data.kind() != Some(FileKind::Directory) {
                    return Err(Error::PermissionDenied); // like the kernel, where it means that there is none
                }
                xattr::set(attrs, &name, stored, how).map_err(set_error)
            })
        })?;
        self.sync_if_asked(inode)
    }

    /// Removes an attribute, for a user if there is one.
    pub(crate) fn remove_attribute(
        &self,
        inode: &Arc<CachedInode>,
        name: &[u8],
        caller: Option<&Caller<'_>>,
    ) -> Result<()> {
        let name = parse_name(name)?;
        check_outside(&name)?;
        self.retry(|| {
            let _operation = inode.lock().write();
            self.check_changeable(inode)?;
            self.change_attributes(inode, |data, attrs| {
                caller
                    .map_or(Ok(()), |caller| self.check_changes_attribute(inode.nr(), data, &name, caller))?;
                // Having no ACL means no more than the mode, which is always consistent.
                if matches!(name.index(), Index::ACL_ACCESS | Index::ACL_DEFAULT) {
                    return remove_if_there(attrs, &name);
                }
                xattr::remove(attrs, &name).map(drop).map_err(set_error)
            })
        })?;
        self.sync_if_asked(inode)
    }

    /// Removes an attribute, whatever the flags of the inode: as part of another, permitted change. The
    /// caller holds the operation lock.
    pub(crate) fn remove_attribute_locked(&self, inode: &Arc<CachedInode>, name: &Name) -> Result<()> {
        self.change_attributes(inode, |_, attrs| remove_if_there(attrs, name))
    }

    /// Whether an inode has an attribute.
    pub(crate) fn has_attribute(&self, nr: InodeNr, data: &Inode, name: &Name) -> Result<bool> {
        Ok(xattr::find(&self.attributes(nr, data)?, name).is_some())
    }

    /// The access ACL, where it differs from the mode.
    pub(crate) fn access_acl(&self, nr: InodeNr, data: &Inode) -> Result<Option<Acl>> {
        let attrs = self.attributes(nr, data)?;
        attrs
            .iter()
            .find(|attr| attr.name.index() == Index::ACL_ACCESS)
            .map(|attr| self.acl_of(nr, attr))
            .transpose()
    }

    /// Whether a directory has a default ACL.
    pub(crate) fn has_default_acl(&self, nr: InodeNr, data: &Inode) -> Result<bool> {
        Ok(self.attributes(nr, data)?.iter().any(|attr| attr.name.index() == Index::ACL_DEFAULT))
    }

    fn acl_of(&self, nr: InodeNr, attr: &Attr) -> Result<Acl> {
        let bad = |e: acl::Invalid| Corrupt::new("access control list", Place::Inode(nr), e.to_string());
        Ok(Acl::from_disk(&self.value(nr, attr)?).map_err(bad)?)
    }

    /// Changes the attributes of an inode, whose operation lock the caller holds and which it may change.
    fn change_attributes(
        &self,
        inode: &Arc<CachedInode>,
        change: impl FnOnce(&mut Inode, &mut Vec<Attr>) -> Result<()>,
    ) -> Result<()> {
        let mut attrs = self.attributes(inode.nr(), &inode.get())?;
        let mut changed = inode.get().clone();
        change(&mut changed, &mut attrs)?;
        let mut handle = self.start(MAP_CREDITS)?;
        let now = self.now();
        let mut data = inode.edit(&mut handle, &self.inodes);
        self.store_attributes(&mut handle, inode.nr(), &mut data, &attrs)?;
        self.grow_extra(&mut handle, inode.nr(), &mut data)?;
        data.mode = changed.mode;
        data.ctime = now;
        Ok(())
    }

    /// Lays out the attributes of an inode anew. Nothing is changed if they don't fit.
    pub(crate) fn store_attributes(
        &self,
        handle: &mut Handle<'_>,
        nr: InodeNr,
        data: &mut Inode,
        attrs: &[Attr],
    ) -> Result<()> {
        let before = self.attributes(nr, data)?;
        self.refuse_values_elsewhere(nr, &before)?;
        // Removing one, or repeating a mode in an ACL, must not fail for lack of space.
        let room = if bytes_of(attrs) <= bytes_of(&before) { Room::Kept } else { Room::Open };
        self.lay_attributes_out(handle, nr, data, (attrs, room))
    }

    /// Lays out attributes whose values all lie here, with a block from `room` if one is needed.
    fn lay_attributes_out(
        &self,
        handle: &mut Handle<'_>,
        nr: InodeNr,
        data: &mut Inode,
        (attrs, room): (&[Attr], Room),
    ) -> Result<()> {
        let size = self.geometry().block_size;
        let placed = xattr::layout(attrs, data.xattr_area().len(), Some(size))
            .map_err(|_| Error::AttributeTooLarge)?;
        self.store_attribute_block(handle, nr, data, (placed.block, room))?;
        data.xattr_area_mut().copy_from_slice(&placed.inode_area);
        Ok(())
    }

    /// Returns an error, by name, for changing or removing attributes with values in inodes of their own.
    pub(crate) fn refuse_values_elsewhere(&self, nr: InodeNr, attrs: &[Attr]) -> Result<()> {
        if !attrs.iter().any(|attr| matches!(attr.value, Value::Inode { .. })) {
            return Ok(());
        }
        Err(Error::Unsupported(format!(
            "inode {nr} has attribute values in inodes of their own (ea_inode): they can be read, but not \
             changed yet"
        )))
    }

    fn store_attribute_block(
        &self,
        handle: &mut Handle<'_>,
        nr: InodeNr,
        data: &mut Inode,
        (content, room): (Option<Vec<u8>>, Room),
    ) -> Result<()> {
        let Some(content) = content else { return self.leave_attribute_block(handle, data) };
        let kind = self.xattr_kind();
        if let Some(old) = data.file_acl {
            let block = self.xattr_block(old)?;
            if xattr::refcount(&block.bytes()) == Some(1) {
                self.blocks.edit(handle, &block, kind, |bytes| bytes.copy_from_slice(&content));
                return Ok(());
            }
        }
        let goal = self.geometry().first_block(self.groups.slot(nr)?.0);
        let (new, sectors) = self.allocate_metadata(handle, goal, room)?;
        self.leave_attribute_block(handle, data)?;
        let block = self.blocks.fresh(new, kind);
        self.blocks.edit(handle, &block, kind, |bytes| bytes.copy_from_slice(&content));
        data.file_acl = Some(new);
        data.sectors += sectors;
        Ok(())
    }

    /// Releases an inode's attribute block: one reference less, or freed with the last.
    pub(crate) fn leave_attribute_block(&self, handle: &mut Handle<'_>, data: &mut Inode) -> Result<()> {
        let Some(nr) = data.file_acl.take() else { return Ok(()) };
        let block = self.xattr_block(nr)?;
        let count = xattr::refcount(&block.bytes()).unwrap_or(1);
        let sectors = if count > 1 {
            let edit = |bytes: &mut [u8]| xattr::set_refcount(bytes, count - 1);
            self.blocks.edit(handle, &block, self.xattr_kind(), edit);
            u64::from(self.geometry().cluster_blocks()) << (self.geometry().block_size.shift() - 9)
        } else {
            self.free_metadata(handle, nr)?
        };
        data.sectors = data.sectors.saturating_sub(sectors);
        Ok(())
    }

    /// What a new inode inherits from its directory's default ACL: its mode, and its attributes.
    pub(crate) fn inherited_acl(
        &self,
        parent: InodeNr,
        parent_data: &Inode,
        mode: u16,
    ) -> Result<(u16, Vec<Attr>)> {
        let attrs = self.attributes(parent, parent_data)?;
        let Some(default) = attrs.iter().find(|attr| attr.name.index() == Index::ACL_DEFAULT) else {
            return Ok((mode, Vec::new()));
        };
        let acl = self.acl_of(parent, default)?;
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

    /// An access ACL after `chmod`.
    pub(crate) fn chmod_acl(
        &self,
        handle: &mut Handle<'_>,
        nr: InodeNr,
        data: &mut Inode,
        mode: u16,
    ) -> Result<()> {
        let mut attrs = self.attributes(nr, data)?;
        let Some(attr) = attrs.iter().position(|attr| attr.name.index() == Index::ACL_ACCESS) else {
            return Ok(());
        };
        self.refuse_values_elsewhere(nr, &attrs)?;
        let attr = &mut attrs[attr];
        let mut acl = self.acl_of(nr, attr)?;
        acl.chmod(mode);
        attr.value = Value::Inline(acl.to_disk());
        self.store_attributes(handle, nr, data, &attrs)
    }
}

/// The declared size of a value.
fn stored_len(value: &Value) -> u64 {
    match value {
        Value::Inline(bytes) => u64_of(bytes.len()),
        Value::Inode { size, .. } => u64::from(*size),
    }
}

pub(crate) fn parse_name(name: &[u8]) -> Result<Name> {
    Name::parse(name).map_err(|error| match error {
        NameError::Prefix => Error::Unsupported(
            "attribute names begin with user., trusted., security. or system.posix_acl_".into(),
        ),
        NameError::Length | NameError::Malformed => Error::Invalid("this is no attribute name"),
    })
}

/// Returns an error for attributes that are not for programs: `system.` belongs to the format, except ACLs.
pub(crate) fn check_outside(name: &Name) -> Result<()> {
    match name.index() {
        Index::USER | Index::TRUSTED | Index::SECURITY | Index::ACL_ACCESS | Index::ACL_DEFAULT => Ok(()),
        _ => Err(Error::Unsupported("attributes of this kind are not for programs".into())),
    }
}

fn remove_if_there(attrs: &mut Vec<Attr>, name: &Name) -> Result<()> {
    attrs.retain(|attr| attr.name != *name);
    Ok(())
}

/// Bytes of names and values.
fn bytes_of(attrs: &[Attr]) -> usize {
    let value = |attr: &Attr| if let Value::Inline(bytes) = &attr.value { bytes.len() } else { 0 };
    attrs.iter().map(|attr| attr.name.suffix().len() + value(attr)).sum()
}

fn set_error(error: SetError) -> Error {
    match error {
        SetError::Exists => Error::Exists,
        SetError::Missing => Error::NoAttribute,
    }
}
