//! Changes directories whose entries lie in the inode (`inline_data`), and brings them into blocks.
//!
//! A directory starts in its inode and leaves it with the first name that does not fit; it never comes back.
//! All changes are those of the inode, which the caller has for editing.

use crate::data::inline::take_out;
use crate::error::{Error, Result};
use crate::names::directory::{DirMut, DirRef};
use crate::space::map_edit::MapMut;
use crate::state::Core;
use hectare_ext4::dir::{self, DirWrite, Entry, FileType, Insert, Name};
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::inline::{self, Rows};
use hectare_ext4::inode::Inode;
use hectare_journal::Handle;
use hectare_units::{InodeNr, LogicalBlock};

/// Makes a new inode an empty directory with its entries in it; returns whether it has room for them.
pub(crate) fn make(nr: InodeNr, data: &mut Inode, parent: InodeNr) -> Result<bool> {
    Ok(inline::store(data, Rows::empty(parent).content(), Place::Inode(nr))?)
}

/// Adds a name that is not there; brings the directory into blocks if it has no room for it.
pub(crate) fn add(
    core: &Core,
    handle: &mut Handle<'_>,
    nr: InodeNr,
    data: &mut Inode,
    entry: &Entry<'_>,
) -> Result<Insert> {
    let mut rows = DirRef { state: &core.state, nr, inode: data }.inline_rows()?;
    rows.insert(entry.name.bytes(), entry.inode, code(core, entry.file_type));
    if inline::store(data, rows.content(), Place::Inode(nr))? {
        return Ok(Insert::Done);
    }
    leave(core, handle, nr, data)?;
    let mut store = DirMut { core, handle, nr, inode: data };
    let format = store.format();
    dir::insert(&mut store, &format, entry)
}

/// Removes a name.
pub(crate) fn take(core: &Core, nr: InodeNr, data: &mut Inode, name: Name<'_>) -> Result<()> {
    let (mut rows, at) = find(core, nr, data, name)?;
    rows.remove(at);
    put(nr, data, &rows)
}

/// Points a name, or "..", at another inode.
pub(crate) fn point(
    core: &Core,
    nr: InodeNr,
    data: &mut Inode,
    name: Name<'_>,
    (inode, file_type): (InodeNr, FileType),
) -> Result<()> {
    let mut rows;
    if name == Name::DOT_DOT {
        rows = DirRef { state: &core.state, nr, inode: data }.inline_rows()?;
        rows.set_parent(inode);
    } else {
        let at;
        (rows, at) = find(core, nr, data, name)?;
        rows.replace(at, inode, code(core, file_type));
    }
    put(nr, data, &rows)
}

fn put(nr: InodeNr, data: &mut Inode, rows: &Rows) -> Result<()> {
    if inline::store(data, rows.content(), Place::Inode(nr))? {
        return Ok(());
    }
    Err(Corrupt::new("inline directory", Place::Inode(nr), "it does not fit where it was").into())
}

/// The rows of a directory, and where a name stands in them.
fn find(core: &Core, nr: InodeNr, data: &Inode, name: Name<'_>) -> Result<(Rows, usize)> {
    let dir = DirRef { state: &core.state, nr, inode: data };
    let found = dir::lookup(&dir, &dir.format(), name)?.ok_or(Error::NotFound)?;
    let at = Rows::entry_at(found.at.offset).ok_or(Error::NotFound)?;
    Ok((dir.inline_rows()?, at))
}

/// Brings all entries into a block, where a listing that has begun goes on. Nothing is changed if there is no
/// space for it.
fn leave(core: &Core, handle: &mut Handle<'_>, nr: InodeNr, data: &mut Inode) -> Result<()> {
    let block = DirRef { state: &core.state, nr, inode: data }.inline_block()?;
    let before = data.clone();
    take_out(core, data, Place::Inode(nr))?;
    data.size = 0;
    let mut store = DirMut { core, handle, nr, inode: data };
    let filled = store.append().and_then(|at| store.edit(at, |bytes| bytes.copy_from_slice(&block)));
    if filled.is_err() {
        let removed = MapMut { core, handle, nr, inode: data }.remove(LogicalBlock::ZERO, 1 << 32);
        *data = before;
        let _ = removed?;
    }
    filled
}

/// The file type as stored.
fn code(core: &Core, file_type: FileType) -> u8 {
    if core.state.dir_format.filetype { file_type.code() } else { 0 }
}
