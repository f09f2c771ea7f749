//! Reads names: finds them, lists them, and returns what they lead to.
//!
//! These operations take the operation lock of one inode, shared, and change nothing. A number that a name
//! led to a moment ago may belong to another inode now; so callers that continue with the result hold the
//! inode itself ([`Volume::lookup_inode`]), and see when it is freed.

use crate::directory::{DirRef, NameSpot};
use crate::encrypted_names;
use crate::error::{Error, Result};
use crate::namespace::{DirEntry, kind_of};
use crate::stat::Metadata;
use crate::stores::fs_errors::Watched;
use crate::stores::inode_cache::CachedInode;
use crate::volume::Volume;
use hectare_ext4::dir::{self, Cookie, EntryRef, FileType, Name, Search};
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::feature::Compat;
use hectare_ext4::inline::Inline;
use hectare_ext4::inode::{Inode, InodeFlags, Kind};
use hectare_units::InodeNr;
use std::ops::ControlFlow;
use std::sync::Arc;

impl Volume {
    /// Looks a name up; in an encrypted directory, by the text of a listing.
    ///
    /// # Errors
    /// [`Error::NotFound`], or the error of reading the directory.
    pub fn lookup(&self, parent: InodeNr, name: &[u8]) -> Result<InodeNr> {
        let dir = self.directory(parent)?;
        let stored = encrypted_names::stored(name, dir.get().flags)?;
        let _operation = dir.lock().read();
        self.lookup_locked(&dir, stored.name()?)?.ok_or(Error::NotFound)
    }

    /// The inode that a name leads to, held since it had the name: if it is freed from now on, that shows.
    pub(crate) fn lookup_inode(&self, dir: &CachedInode, name: &[u8]) -> Result<Arc<CachedInode>> {
        if dir.get().kind() != Some(Kind::Directory) {
            return Err(Error::NotADirectory);
        }
        let stored = encrypted_names::stored(name, dir.get().flags)?;
        let _operation = dir.lock().read();
        self.inode(self.lookup_locked(dir, stored.name()?)?.ok_or(Error::NotFound)?)
    }

    /// Looks a stored name up in a directory whose operation lock is held.
    pub(crate) fn lookup_locked(&self, dir: &CachedInode, name: Name<'_>) -> Result<Option<InodeNr>> {
        dir.check_alive()?;
        self.look_name_up(dir, name).watched(&self.findings)
    }

    fn look_name_up(&self, dir: &CachedInode, name: Name<'_>) -> Result<Option<InodeNr>> {
        let data = dir.get();
        let found = if data.flags.contains(InodeFlags::INLINE_DATA) {
            self.lookup_inline(dir, &data, name)?
        } else {
            let store = DirRef { volume: self, nr: dir.nr(), inode: &data };
            self.check_bounds(dir, &store)?;
            dir::lookup(&store, &store.format(), name)?.map(|found| found.inode)
        };
        found.map(|nr| self.check_named(dir, nr)).transpose()
    }

    /// The place for a name that isn't in a directory yet. The directory's operation lock is held, and it can
    /// be written to.
    ///
    /// # Errors
    /// [`Error::Exists`] if it is there.
    pub(crate) fn spot_locked(&self, dir: &CachedInode, name: Name<'_>) -> Result<NameSpot> {
        let data = dir.get();
        let store = DirRef { volume: self, nr: dir.nr(), inode: &data };
        self.check_bounds(dir, &store).watched(&self.findings)?;
        match dir::search(&store, &self.dir_format, name).watched(&self.findings)? {
            Search::Absent(spot) => Ok(spot),
            Search::Found(found) => self.check_named(dir, found.inode).and(Err(Error::Exists)),
        }
    }

    /// Checks a directory's map when its blocks are first read. No blocks are freed or added meanwhile: the
    /// caller holds the operation lock.
    fn check_bounds(&self, dir: &CachedInode, store: &DirRef<'_>) -> Result<()> {
        if !dir.is_bounded() {
            store.check_bounds()?;
            dir.set_bounded();
        }
        Ok(())
    }

    /// The inode that a name in `dir` leads to, if a name may.
    fn check_named(&self, dir: &CachedInode, nr: InodeNr) -> Result<InodeNr> {
        self.groups.slot(nr)?;
        if !self.is_special(nr) {
            return Ok(nr);
        }
        let what = format!("a name leads to inode {nr}, which belongs to the format");
        Err(Corrupt::new("the directory", Place::Inode(dir.nr()), what).into())
    }

    /// Whether an inode belongs to the format (the journal, the orphan file...), so that no name may lead to
    /// it.
    pub(crate) fn is_special(&self, nr: InodeNr) -> bool {
        let orphan_file = self.sb.features().compat.contains(Compat::ORPHAN_FILE)
            && nr.get() == self.sb.raw().s_orphan_file_inum.get();
        orphan_file || (nr != InodeNr::ROOT && nr < self.sb.first_inode())
    }

    fn lookup_inline(&self, dir: &CachedInode, data: &Inode, name: Name<'_>) -> Result<Option<InodeNr>> {
        let mut found = None;
        self.each_inline(dir, data, &mut |entry| {
            if entry.name == name.bytes() {
                found = Some(entry.inode);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// Visits the entries of an inline directory; cookies count them from 1.
    pub(crate) fn each_inline(
        &self,
        dir: &CachedInode,
        data: &Inode,
        visit: &mut dyn FnMut(EntryRef<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let tail = self.inline_tail(dir.nr(), data)?;
        let inline = Inline::new(&data.block, tail.as_deref(), data.bytes(), Place::Inode(dir.nr()))?;
        let entry = |name, inode, file_type, n| EntryRef { name, inode, file_type, next: Cookie::new(n) };
        if visit(entry(b".", dir.nr(), FileType::Directory, 1)).is_break()
            || visit(entry(b"..", inline.parent()?, FileType::Directory, 2)).is_break()
        {
            return Ok(());
        }
        for (n, found) in (3..).zip(inline.dir_entries()) {
            let found = found?;
            let file_type = FileType::from_code(found.file_type);
            if visit(entry(found.name, found.inode, file_type, n)).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Lists a directory from a cookie on (0: from the start), up to `max` entries, `.` and `..` included. A
    /// name that is there from the first call to the last is listed exactly once, whatever else changes. The
    /// names of an encrypted directory are listed as text that stands for the ciphertext (base64url, up to
    /// 340 bytes).
    ///
    /// # Errors
    /// [`Error::NotADirectory`], or the error of reading the directory.
    pub fn read_dir_at(&self, nr: InodeNr, from: Cookie, max: usize) -> Result<Vec<DirEntry>> {
        let dir = self.directory(nr)?;
        let _operation = dir.lock().read();
        dir.check_alive()?;
        let data = dir.get();
        let mut entries = Vec::new();
        let mut take = |entry: EntryRef<'_>| {
            if entries.len() == max {
                return ControlFlow::Break(());
            }
            entries.push(DirEntry {
                name: encrypted_names::shown(entry.name, data.flags),
                inode: entry.inode,
                kind: kind_of(entry.file_type),
                next: entry.next,
            });
            if entries.len() == max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        if data.flags.contains(InodeFlags::INLINE_DATA) {
            let listed = self.each_inline(&dir, &data, &mut |entry| {
                if entry.next <= from { ControlFlow::Continue(()) } else { take(entry) }
            });
            listed.watched(&self.findings)?;
        } else {
            let store = DirRef { volume: self, nr, inode: &data };
            self.check_bounds(&dir, &store).watched(&self.findings)?;
            dir::read_dir(&store, &store.format(), from, &mut take).watched(&self.findings)?;
        }
        Ok(entries)
    }

    /// The metadata of an inode.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such inode, or the error of reading it.
    pub fn stat(&self, nr: InodeNr) -> Result<Metadata> {
        self.stat_of(&*self.inode(nr)?)
    }

    pub(crate) fn stat_of(&self, inode: &CachedInode) -> Result<Metadata> {
        Metadata::of(self, inode)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is none, or the error of reading it.
    pub fn read_link_at(&self, nr: InodeNr) -> Result<Vec<u8>> {
        self.read_link_of(&*self.inode(nr)?)
    }

    pub(crate) fn read_link_of(&self, inode: &CachedInode) -> Result<Vec<u8>> {
        let nr = inode.nr();
        let _operation = inode.lock().read();
        inode.check_alive()?;
        let data = inode.get();
        if data.kind() != Some(Kind::Symlink) {
            return Err(Error::Invalid("not a symbolic link"));
        }
        if data.flags.contains(InodeFlags::ENCRYPT) {
            return Err(Error::Unsupported(format!("the target of inode {nr} is encrypted")));
        }
        let bad = |what| Corrupt::new("the symbolic link", Place::Inode(nr), what);
        if data.size == 0 || data.size > u64::from(self.geometry().block_size.get()) {
            return Err(bad("its target's length is impossible").into());
        }
        let mut target = vec![0; hectare_units::index_of(data.size)];
        if data.is_fast_symlink() {
            let len = target.len();
            target.copy_from_slice(&data.block[..len]);
        } else {
            drop(data);
            self.read_locked(inode, 0, &mut target)?;
        }
        Ok(target)
    }
}
