//! Creates and links names; with what all changes of names share.
//!
//! These are the operations a mount needs, on inode numbers; the path-level API builds on them. Each takes
//! the operation lock of the directory, then those of the inodes it names, then opens a transaction; it
//! checks everything it can before the first change. (Lookups are in [`crate::lookup`], removing in
//! [`crate::remove`], renaming in [`crate::rename`].)
//!
//! Link counts: a directory has 2 plus one for each subdirectory; with `dir_nlink` an indexed directory that
//! would pass 65,000 has 1 from then on, which means "unknown".

use crate::directory::{DIR_CREDITS, DirMut, NameSpot};
use crate::error::{Error, Result};
use crate::flags;
use crate::immutable::Deed;
use crate::map::{MAP_CREDITS, MapMut};
use crate::space::Use;
use crate::stores::inode_cache::CachedInode;
use crate::stores::orphans::ORPHAN_CREDITS;
use crate::volume::Volume;
use crate::volume::open::UNWRITTEN_FORM;
use hectare_ext4::dir::{self, Cookie, DirWrite, Entry, FileType, Insert, Name};
use hectare_ext4::extent;
use hectare_ext4::feature::{Incompat, RoCompat};
use hectare_ext4::inode::{BLOCK_BYTES, DeviceNumber, Inode, InodeFlags, Kind};
use hectare_ext4::xattr::Attr;
use hectare_journal::Handle;
use hectare_units::{InodeNr, LogicalBlock, u64_of};
use std::sync::Arc;

/// The most links an inode can have (`EXT4_LINK_MAX`).
pub const LINKS_MAX: u16 = 65_000;

/// Metadata blocks that making, linking or removing a name may dirty.
pub(crate) const NAME_CREDITS: u32 = 2 * DIR_CREDITS + 4 * MAP_CREDITS;

/// The owners and permissions of a new inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Creation {
    /// Permission, set-id and sticky bits (`0o7777`), the umask already applied.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group, unless the directory passes on its own (set-group-id).
    pub gid: u32,
}

impl Default for Creation {
    fn default() -> Self {
        Self { permissions: 0o755, uid: 0, gid: 0 }
    }
}

/// What to make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewNode<'a> {
    /// An empty file.
    File,
    /// An empty directory.
    Directory,
    /// A symbolic link to this target.
    Symlink(&'a [u8]),
    /// A character device.
    CharDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl NewNode<'_> {
    fn kind(&self) -> Kind {
        match self {
            Self::File => Kind::File,
            Self::Directory => Kind::Directory,
            Self::Symlink(_) => Kind::Symlink,
            Self::CharDevice(_) => Kind::CharDevice,
            Self::BlockDevice(_) => Kind::BlockDevice,
            Self::Fifo => Kind::Fifo,
            Self::Socket => Kind::Socket,
        }
    }
}

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    /// The name; any bytes but `/` and NUL. In an encrypted directory, base64url of the ciphertext.
    pub name: Vec<u8>,
    /// The inode it names.
    pub inode: InodeNr,
    /// What that is, if the volume's directories say so (`filetype`).
    pub kind: Option<Kind>,
    /// The cookie to continue from after this entry.
    pub next: Cookie,
}

pub(crate) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::Regular,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
    }
}

pub(crate) fn kind_of(file_type: FileType) -> Option<Kind> {
    Some(match file_type {
        FileType::Regular => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::CharDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::Unknown => return None,
    })
}

/// A valid new name, or the error.
pub(crate) fn new_name(name: &[u8]) -> Result<Name<'_>> {
    if name.len() > Name::LEN_MAX {
        return Err(Error::NameTooLong);
    }
    match Name::new(name) {
        Some(name) if !name.is_dot() => Ok(name),
        Some(_) => Err(Error::Exists),
        None => Err(Error::Invalid("a name has 1 to 255 bytes, none of them '/' or NUL")),
    }
}

/// A name that can be looked up, or the error.
pub(crate) fn old_name(name: &[u8]) -> Result<Name<'_>> {
    if name.len() > Name::LEN_MAX {
        return Err(Error::NameTooLong);
    }
    Name::new(name).ok_or(Error::NotFound)
}

impl Volume {
    /// Runs an operation, and again after a commit if the volume was full but space is pending. The operation
    /// must not hold a lock when it returns.
    pub(crate) fn retry<T>(&self, mut operation: impl FnMut() -> Result<T>) -> Result<T> {
        let seen = self.seen();
        let result = match operation() {
            Err(Error::NoSpace) if self.reclaim(seen)? => operation(),
            result => result,
        };
        self.relieve()?;
        result
    }

    /// The directory, not freed.
    pub(crate) fn directory(&self, nr: InodeNr) -> Result<Arc<CachedInode>> {
        let inode = self.inode(nr)?;
        if inode.get().kind() != Some(Kind::Directory) {
            return Err(Error::NotADirectory);
        }
        Ok(inode)
    }

    /// Returns an error for an inode that is freed, immutable or of a form that can't be written yet.
    pub(crate) fn check_changeable(&self, inode: &CachedInode) -> Result<()> {
        self.check_takes_changes()?;
        inode.check_alive()?;
        let flags = inode.get().flags;
        Deed::Alter.check(flags, inode.nr())
    }

    /// Returns an error for changes of names in a directory that is freed, forbids them or is of a form that
    /// can't be written yet. The caller holds its operation lock.
    pub(crate) fn check_directory_writable(&self, dir: &CachedInode, deed: Deed) -> Result<()> {
        self.check_takes_changes()?;
        let data = dir.get();
        if dir.is_freed() || data.links == 0 {
            return Err(Error::NotFound);
        }
        deed.check(data.flags, dir.nr())?;
        self.check_names_writable(dir.nr(), &data)
    }

    /// Returns an error for changes of names in a directory of a form that can't be written yet.
    pub(crate) fn check_names_writable(&self, nr: InodeNr, data: &Inode) -> Result<()> {
        if data.flags.contains(InodeFlags::CASEFOLD) {
            return Err(Error::Unsupported(format!("directory {nr} ignores case (casefold)")));
        }
        self.check_file_writable(data, nr)
    }

    /// Makes a file, directory, symbolic link, device, pipe or socket.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NameTooLong`], [`Error::NoSpace`], [`Error::NoInodes`],
    /// [`Error::TooManyLinks`]...
    pub fn create(
        &self,
        parent: InodeNr,
        name: &[u8],
        node: NewNode<'_>,
        creation: Creation,
    ) -> Result<InodeNr> {
        let name = new_name(name)?;
        self.check_makes_files()?;
        if let NewNode::Symlink(target) = node {
            self.check_target(target)?;
        }
        let dir = self.directory(parent)?;
        let made = self.retry(|| {
            let _operation = dir.lock().write();
            self.check_directory_writable(&dir, Deed::AddName)?;
            let spot = self.spot_locked(&dir, name)?;
            self.create_locked(&dir, name, spot, node, creation)
        })?;
        self.sync_names_if_asked(&[&dir])?;
        Ok(made)
    }

    /// Returns an error for making files on a volume whose files are mapped by blocks.
    pub(crate) fn check_makes_files(&self) -> Result<()> {
        if self.incompat(Incompat::EXTENTS) {
            return Ok(());
        }
        Err(Error::Unsupported(UNWRITTEN_FORM.into()))
    }

    fn check_target(&self, target: &[u8]) -> Result<()> {
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        if target.contains(&0) {
            return Err(Error::Invalid("a symbolic link's target holds no NUL"));
        }
        if target.len() >= self.geometry().block_size.len() {
            return Err(Error::NameTooLong);
        }
        Ok(())
    }

    pub(crate) fn create_locked(
        &self,
        dir: &Arc<CachedInode>,
        name: Name<'_>,
        spot: NameSpot,
        node: NewNode<'_>,
        creation: Creation,
    ) -> Result<InodeNr> {
        let kind = node.kind();
        if kind == Kind::Directory {
            self.check_subdirectory_fits(dir)?;
        }
        let prepared = self.prepare(dir, kind, creation)?;
        let mut handle = self.start(NAME_CREDITS)?;
        let new = self.make_node(&mut handle, dir.nr(), node, prepared)?;
        if let Err(error) = self.add_name_at(&mut handle, dir, name, spot, new.nr(), kind) {
            self.discard_new(&mut handle, &new)?;
            return Err(error);
        }
        if kind == Kind::Directory {
            self.change_subdirectories(&mut handle, dir, 1);
        }
        Ok(new.nr())
    }

    /// Makes an inode that has no name yet: to be named, or discarded, in the same transaction.
    pub(crate) fn make_node(
        &self,
        handle: &mut Handle<'_>,
        parent: InodeNr,
        node: NewNode<'_>,
        (inode, attrs): (Inode, Vec<Attr>),
    ) -> Result<Arc<CachedInode>> {
        let new = self.new_inode(handle, parent, inode)?;
        if let Err(error) = self.fill_node(handle, &new, parent, node, &attrs) {
            self.discard_new(handle, &new)?;
            return Err(error);
        }
        Ok(new)
    }

    /// The inode to be made, with what it inherits.
    pub(crate) fn prepare(
        &self,
        dir: &CachedInode,
        kind: Kind,
        creation: Creation,
    ) -> Result<(Inode, Vec<Attr>)> {
        let parent = dir.get();
        let wanted = kind.mode_bits() | (creation.permissions & 0o7777);
        let (mut mode, attrs) = if kind == Kind::Symlink {
            (kind.mode_bits() | 0o777, Vec::new())
        } else {
            self.inherited_acl(dir.nr(), &parent, wanted)?
        };
        let pass_group = parent.permissions() & 0o2000 != 0;
        if pass_group && kind == Kind::Directory {
            mode |= 0o2000;
        }
        let mut inode = Inode::new(mode, self.now(), 0, &self.sb);
        inode.uid = creation.uid;
        inode.gid = if pass_group { parent.gid } else { creation.gid };
        inode.flags = flags::inherited(parent.flags, kind);
        inode.projid = self.inherited_project(&parent);
        inode.links = 1;
        if matches!(kind, Kind::File | Kind::Directory) {
            inode.flags |= InodeFlags::EXTENTS;
            extent::init_root(&mut inode.block);
        }
        Ok((inode, attrs))
    }

    pub(crate) fn fill_node(
        &self,
        handle: &mut Handle<'_>,
        new: &Arc<CachedInode>,
        parent: InodeNr,
        node: NewNode<'_>,
        attrs: &[Attr],
    ) -> Result<()> {
        let mut data = new.edit(handle, &self.inodes);
        if !attrs.is_empty() {
            self.store_attributes(handle, new.nr(), &mut data, attrs)?;
        }
        match node {
            NewNode::Directory => {
                data.links = 2;
                let mut store = DirMut { volume: self, handle, nr: new.nr(), inode: &mut data };
                let at = store.append()?;
                let format = self.dir_format;
                store.edit(at, |block| dir::leaf::init_dots(block, &format, new.nr(), parent))
            }
            NewNode::Symlink(target) => self.fill_symlink(handle, new.nr(), &mut data, target),
            NewNode::CharDevice(number) | NewNode::BlockDevice(number) => {
                data.set_device_number(number);
                Ok(())
            }
            NewNode::File | NewNode::Fifo | NewNode::Socket => Ok(()),
        }
    }

    fn fill_symlink(
        &self,
        handle: &mut Handle<'_>,
        nr: InodeNr,
        data: &mut Inode,
        target: &[u8],
    ) -> Result<()> {
        data.size = u64_of(target.len());
        if target.len() < BLOCK_BYTES {
            data.block[..target.len()].copy_from_slice(target);
            return Ok(());
        }
        data.flags |= InodeFlags::EXTENTS;
        extent::init_root(&mut data.block);
        let piece = self.reserve_for(nr, data, LogicalBlock::ZERO, 1, Use::Names)?;
        let size = self.geometry().block_size;
        let mut block = vec![0; size.len()];
        block[..target.len()].copy_from_slice(target);
        self.write_data(piece.extent.physical.offset(size), &block)?;
        MapMut { volume: self, handle, nr, inode: data }.publish(piece, false)?;
        Ok(())
    }

    /// Adds a name to a directory, and stamps the directory.
    pub(crate) fn add_name(
        &self,
        handle: &mut Handle<'_>,
        dir: &Arc<CachedInode>,
        name: Name<'_>,
        inode: InodeNr,
        kind: Kind,
    ) -> Result<()> {
        let spot = self.spot_locked(dir, name)?;
        self.add_name_at(handle, dir, name, spot, inode, kind)
    }

    /// Adds a name where [`Volume::spot_locked`] found its place, and stamps the directory, whose operation
    /// lock has been held since.
    pub(crate) fn add_name_at(
        &self,
        handle: &mut Handle<'_>,
        dir: &Arc<CachedInode>,
        name: Name<'_>,
        spot: NameSpot,
        inode: InodeNr,
        kind: Kind,
    ) -> Result<()> {
        let mut data = dir.edit(handle, &self.inodes);
        let mut store = DirMut { volume: self, handle, nr: dir.nr(), inode: &mut data };
        let entry = Entry { name, inode, file_type: file_type(kind) };
        match dir::insert_at(&mut store, &self.dir_format, spot, &entry)? {
            Insert::Done => {}
            Insert::Exists => return Err(Error::Exists),
            Insert::IndexFull => return Err(Error::DirectoryFull),
        }
        self.stamp(&mut data);
        Ok(())
    }

    /// Removes a name from a directory, and stamps the directory.
    pub(crate) fn take_name(
        &self,
        handle: &mut Handle<'_>,
        dir: &Arc<CachedInode>,
        name: Name<'_>,
    ) -> Result<()> {
        let mut data = dir.edit(handle, &self.inodes);
        let mut store = DirMut { volume: self, handle, nr: dir.nr(), inode: &mut data };
        dir::remove(&mut store, &self.dir_format, name)?.ok_or(Error::NotFound)?;
        self.stamp(&mut data);
        Ok(())
    }

    /// Marks content and inode as changed now.
    pub(crate) fn stamp(&self, data: &mut Inode) {
        let now = self.now();
        data.mtime = now;
        data.ctime = now;
        data.version = data.version.wrapping_add(1);
    }

    /// Undoes the making of an inode that got no name. It has at most one block of content.
    pub(crate) fn discard_new(&self, handle: &mut Handle<'_>, new: &Arc<CachedInode>) -> Result<()> {
        let mut data = new.edit(handle, &self.inodes);
        self.leave_attribute_block(handle, &mut data)?;
        if data.flags.contains(InodeFlags::EXTENTS) {
            let mut map = MapMut { volume: self, handle, nr: new.nr(), inode: &mut data };
            let _ = map.remove(LogicalBlock::ZERO, 1 << 32)?;
        }
        drop(data);
        self.free_inode(handle, new)
    }

    /// Returns an error for another subdirectory where the link count can't hold it.
    pub(crate) fn check_subdirectory_fits(&self, dir: &CachedInode) -> Result<()> {
        let data = dir.get();
        let unlimited = self.sb.features().ro_compat.contains(RoCompat::DIR_NLINK) && self.dir_format.index;
        if data.links >= LINKS_MAX && !unlimited { Err(Error::TooManyLinks) } else { Ok(()) }
    }

    /// Counts one subdirectory more (1) or less (-1).
    pub(crate) fn change_subdirectories(&self, handle: &mut Handle<'_>, dir: &Arc<CachedInode>, by: i8) {
        let mut data = dir.edit(handle, &self.inodes);
        data.links = match (data.links, by) {
            (1, _) => 1, // beyond counting
            (links, 1) if links >= LINKS_MAX => 1,
            (links, 1) => links + 1,
            (links, _) => links.saturating_sub(1).max(2),
        };
    }

    /// Gives a file another name, or one that was made without a name its first.
    ///
    /// # Errors
    /// [`Error::LinkToDirectory`], [`Error::TooManyLinks`], [`Error::Exists`]...
    pub fn link(&self, inode: InodeNr, parent: InodeNr, name: &[u8]) -> Result<()> {
        let name = new_name(name)?;
        let dir = self.directory(parent)?;
        let target = self.inode(inode)?;
        let kind = target.get().kind().ok_or(Error::NotFound)?;
        if kind == Kind::Directory {
            return Err(Error::LinkToDirectory);
        }
        self.retry(|| {
            let _dir = dir.lock().write();
            self.check_directory_writable(&dir, Deed::AddName)?;
            let spot = self.spot_locked(&dir, name)?;
            let _file = target.lock().write();
            self.check_changeable(&target)?;
            self.check_same_project(&dir, &target)?;
            let links = target.get().links;
            if links == 0 && !target.is_linkable() {
                return Err(Error::NotFound);
            }
            if links >= LINKS_MAX {
                return Err(Error::TooManyLinks);
            }
            let mut handle = self.start(NAME_CREDITS + ORPHAN_CREDITS)?;
            self.add_name_at(&mut handle, &dir, name, spot, inode, kind)?;
            if links == 0 {
                self.remove_orphan(&mut handle, inode);
                self.nameless.lock().remove(&inode);
                target.set_linkable(false);
            }
            let mut data = target.edit(&mut handle, &self.inodes);
            data.links += 1;
            data.ctime = self.now();
            Ok(())
        })?;
        self.sync_names_if_asked(&[&dir])
    }
}
