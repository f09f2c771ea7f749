//! Changes directories whose entries lie in the inode (`inline_data`), and brings them into blocks.
//!
//! A directory starts in its inode and leaves it with the first name that does not fit; it never comes back.
//! All changes are those of the inode, which the caller has for editing.

use crate::data::inline::take_out;
use crate::error::{Error, Result};
use crate::names::directory::DirMut;
use crate::space::map_edit::MapMut;
use crate::state::{Core, State};
use hectare_ext4::casefold;
use hectare_ext4::dir::{self, DirWrite, Entry, FileType, Insert, Name};
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::inline::{self, Inline, Rows};
use hectare_ext4::inode::{Inode, InodeFlags};
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
    let (mut rows, _) = open(&core.state, nr, data, None)?;
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
    let (mut rows, at) = open(&core.state, nr, data, Some(name))?;
    rows.remove(at.ok_or(Error::NotFound)?);
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
    let (mut rows, at) = open(&core.state, nr, data, Some(name))?;
    if name == Name::DOT_DOT {
        rows.set_parent(inode);
    } else {
        rows.replace(at.ok_or(Error::NotFound)?, inode, code(core, file_type));
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
fn open(state: &State, nr: InodeNr, data: &Inode, name: Option<Name<'_>>) -> Result<(Rows, Option<usize>)> {
    let tail = state.inline_tail(nr, data)?;
    let inline = Inline::new(&data.block, tail.as_deref(), data.bytes(), Place::Inode(nr))?;
    let folds = data.flags.contains(InodeFlags::CASEFOLD);
    let is = |name: Name<'_>, other: &[u8]| {
        other == name.bytes() || (folds && casefold::alike(other, name.bytes()))
    };
    let found = name.map(|name| inline.find(|other| is(name, other))).transpose()?.flatten();
    Ok((inline.rows()?, found.map(|entry| entry.at)))
}

/// Brings all entries into a block. Nothing is changed if there is no space for it.
fn leave(core: &Core, handle: &mut Handle<'_>, nr: InodeNr, data: &mut Inode) -> Result<()> {
    let tail = core.state.inline_tail(nr, data)?;
    let before = data.clone();
    let inline = Inline::new(&before.block, tail.as_deref(), before.bytes(), Place::Inode(nr))?;
    take_out(core, data, Place::Inode(nr))?;
    data.size = 0;
    let filled = fill_block(core, handle, nr, data, &inline);
    if filled.is_err() {
        let removed = MapMut { core, handle, nr, inode: data }.remove(LogicalBlock::ZERO, 1 << 32);
        *data = before;
        let _ = removed?;
    }
    filled
}

fn fill_block(
    core: &Core,
    handle: &mut Handle<'_>,
    nr: InodeNr,
    data: &mut Inode,
    inline: &Inline<'_>,
) -> Result<()> {
    let mut store = DirMut { core, handle, nr, inode: data };
    let (format, parent) = (store.format(), inline.parent()?);
    let at = store.append()?;
    store.edit(at, |block| dir::leaf::init_dots(block, &format, nr, parent))?;
    for entry in inline.dir_entries() {
        let entry = entry?;
        let name = Name::new(entry.name)
            .ok_or_else(|| Corrupt::new("inline directory", Place::Inode(nr), "a name in it is no name"))?;
        let file_type = FileType::from_code(entry.file_type);
        match dir::insert(&mut store, &format, &Entry { name, inode: entry.inode, file_type })? {
            Insert::Done => {}
            Insert::Exists | Insert::IndexFull => {
                return Err(Corrupt::new("inline directory", Place::Inode(nr), "it has a name twice").into());
            }
        }
    }
    Ok(())
}

/// The file type as stored.
fn code(core: &Core, file_type: FileType) -> u8 {
    if core.state.dir_format.filetype { file_type.code() } else { 0 }
}
