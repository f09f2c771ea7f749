//! The inodes that hold attribute values (`ea_inode`): finds, makes and shares them, and counts their users.
//!
//! A value that finds no room beside its name lies in an inode without a name, which any number of attributes
//! may use. A user is an entry: one in an inode's slot, or one in an attribute block, which counts once
//! however many inodes share the block ([`ValuesOutside::own`]). With its last user an inode loses its link
//! and becomes an orphan, in the same transaction; it is freed afterwards ([`crate::attributes::freeing`]).
//!
//! A value is written to its blocks before they are mapped, like file data: no transaction that names it
//! commits before it is there. Its inode never changes but in its count.
//!
//! Invariant: a count changes under a handle and the lock of the index
//! ([`crate::stores::value_index`]), so that a value that is taken has other users at that moment.
//!
//! Lustre's older form of these inodes, without count and hash, is read and never changed.

use crate::data::{device, read, truncate};
use crate::error::{Error, Result};
use crate::space::ialloc;
use crate::space::map_edit::MapMut;
use crate::space::piece::{Use, cluster_sectors};
use crate::space::reserve;
use crate::state::Core;
use crate::state::attributes::{ValueAt, ValuesOutside};
use crate::stores::fs_errors::Watched;
use crate::stores::inode_cache::CachedInode;
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::extent::Progress;
use hectare_ext4::feature::Incompat;
use hectare_ext4::inode::{Inode, InodeFlags};
use hectare_ext4::xattr::{self, Attr, Name, Value};
use hectare_journal::Handle;
use hectare_units::{Clusters, InodeNr, LogicalBlock, index_of, low32, memory, u64_of, usize_of};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The longest value that can be set or read, as the kernel limits both.
pub(crate) const VALUE_MAX: u64 = 64 << 10;

/// Blocks that making an inode dirties: itself, its bitmap and descriptor, and a node of its map with the
/// same.
const MAKE_CREDITS: u32 = 8;

/// Blocks that each extent of a value dirties: a bitmap and a descriptor.
const PIECE_CREDITS: u32 = 2;

/// One more than the last file block.
const MAP_END: u64 = 1 << 32;

/// The inode with an attribute, as far as its values need it.
#[derive(Clone, Copy)]
pub(crate) struct Owner {
    pub(crate) nr: InodeNr,
    pub(crate) generation: u32,
}

impl Owner {
    pub(crate) fn of(nr: InodeNr, data: &Inode) -> Self {
        Self { nr, generation: data.generation }
    }
}

/// The clusters of a value of that length.
pub(crate) fn clusters(core: &Core, len: u64) -> u64 {
    len.div_ceil(core.state.geometry().cluster_bytes())
}

/// The blocks that making an inode for a value of that length may dirty.
pub(crate) fn make_credits(core: &Core, len: u64) -> u32 {
    MAKE_CREDITS + PIECE_CREDITS * low32(clusters(core, len))
}

/// The 512-byte sectors that values count for in the inodes that have them.
pub(crate) fn sectors<'a>(core: &Core, values: impl Iterator<Item = &'a ValueAt>) -> u64 {
    let all = values.map(|value| clusters(core, value.size.into())).sum();
    cluster_sectors(&core.state, Clusters::new(all))
}

/// The inode that holds a value, which is what the entry says.
///
/// # Errors
/// [`Error::Corrupt`], with that inode and what it lacks.
pub(crate) fn holder(core: &Core, owner: Owner, at: &ValueAt) -> Result<Arc<CachedInode>> {
    find_holder(core, owner, at).watched(&core.state.findings)
}

fn find_holder(core: &Core, owner: Owner, at: &ValueAt) -> Result<Arc<CachedInode>> {
    let bad = |what: String| Corrupt::new("extended attribute", Place::Inode(owner.nr), what);
    if at.inode == owner.nr {
        return Err(bad("its value lies in the inode itself".into()).into());
    }
    if core.state.is_special(at.inode) || at.inode == InodeNr::ROOT {
        let what = format!("its value lies in inode {}, which belongs to the format", at.inode);
        return Err(bad(what).into());
    }
    let holder = match core.state.inode(at.inode) {
        Err(Error::NotFound) => {
            return Err(bad(format!("its value lies in inode {}, which is free", at.inode)).into());
        }
        found => found?,
    };
    xattr::check_holder(&holder.get(), at.inode, at.size)?;
    Ok(holder)
}

/// The bytes of a value.
pub(crate) fn read_value(core: &Core, owner: Owner, name: &Name, at: &ValueAt) -> Result<Vec<u8>> {
    let holder = holder(core, owner, at)?;
    if u64::from(at.size) > VALUE_MAX {
        return Err(Error::Unsupported(format!(
            "attribute {name} of inode {} has {} bytes, and no more than {VALUE_MAX} are read",
            owner.nr, at.size
        )));
    }
    let bytes = content(core, &holder)?;
    let hash = {
        let data = holder.get();
        if xattr::is_lustre(&data, at.hash, owner.nr, owner.generation) {
            return Ok(bytes);
        }
        let entry = (name.suffix(), at.hash);
        xattr::check_value(&data, at.inode, entry, &bytes, &core.state.sb)
            .map_err(Error::from)
            .watched(&core.state.findings)?;
        xattr::stored_hash(&data)
    };
    // Not before the inode is let go: the index is locked first.
    core.state.values.lock().note(hash, at.inode);
    Ok(bytes)
}

/// All bytes of an inode that holds a value of at most [`VALUE_MAX`] bytes.
fn content(core: &Core, holder: &CachedInode) -> Result<Vec<u8>> {
    let size = holder.get().size;
    let mut bytes = memory::filled(0, index_of(size.min(VALUE_MAX)))?;
    read::read_locked(core, holder, 0, &mut bytes)?;
    Ok(bytes)
}

/// Checks that the users of an inode's values can be counted, and the values freed; before anything of its
/// attributes is changed.
///
/// # Errors
/// [`Error::Corrupt`] or [`Error::Unsupported`], with the inode that is not as it should be.
pub(crate) fn check_countable(core: &Core, owner: Owner, data: &Inode, values: &ValuesOutside) -> Result<()> {
    if values.is_empty() {
        return Ok(());
    }
    let bad = |what| Corrupt::new("extended attribute", Place::Inode(owner.nr), what);
    let refused = if !core.state.incompat(Incompat::EA_INODE) {
        Some("its value lies in an inode of its own, which this volume does not have (ea_inode)")
    } else if data.flags.contains(InodeFlags::EA_INODE) {
        Some("it belongs to an inode that holds an attribute's value itself")
    } else {
        None
    };
    if let Some(what) = refused {
        return Err(Error::from(bad(what))).watched(&core.state.findings);
    }
    values.all().try_for_each(|at| {
        let holder = holder(core, owner, at)?;
        let data = holder.get();
        if xattr::is_lustre(&data, at.hash, owner.nr, owner.generation) {
            return Err(Error::Unsupported(format!(
                "inode {} has an attribute whose value lies in inode {} in Lustre's format: it can be read, \
                 but not changed or removed",
                owner.nr, at.inode
            )));
        }
        if data.has_map() && !data.flags.contains(InodeFlags::EXTENTS) && data.sectors > 0 {
            core.state.check_file_writable(&data, at.inode)?;
        }
        if xattr::users(&data) == 0 {
            let what = format!("inode {} holds its value, but counts no users", at.inode);
            return Err(Error::from(Corrupt::new("extended attribute", Place::Inode(owner.nr), what)))
                .watched(&core.state.findings);
        }
        truncate::check_freeable(core, at.inode, &data, 0)
    })
}

/// The users of values that a change of one inode's attributes adds and removes.
///
/// A change first takes what it will need ([`Self::place`], [`Self::cover`]), then lays the attributes out,
/// and then lets go what is not needed any more ([`Self::settle`]); or, if it failed, what it took
/// ([`Self::undo`]).
#[derive(Default)]
pub(crate) struct Uses {
    /// Users that the inode has beyond those it needs; negative if it needs more.
    balance: BTreeMap<InodeNr, i64>,
    taken: Vec<Taken>,
}

/// A user that was added.
struct Taken {
    holder: Arc<CachedInode>,
    /// Whether the inode was made for it.
    made: bool,
}

impl Uses {
    /// Those that an inode has before the change.
    pub(crate) fn of<'a>(own: impl Iterator<Item = &'a ValueAt>) -> Self {
        let mut uses = Self::default();
        uses.add(own);
        uses
    }

    /// Adds users that turned out to be the inode's own.
    pub(crate) fn add<'a>(&mut self, own: impl Iterator<Item = &'a ValueAt>) {
        own.for_each(|at| *self.balance.entry(at.inode).or_default() += 1);
    }

    /// Puts the values of some attributes, by index, into inodes of their own.
    pub(crate) fn place(
        &mut self,
        core: &Core,
        handle: &mut Handle<'_>,
        owner: &CachedInode,
        (attrs, spilled): (&mut [Attr], &[usize]),
    ) -> Result<()> {
        for i in spilled {
            let attr = &mut attrs[*i];
            let Value::Inline(bytes) = &attr.value else { continue };
            let size = low32(u64_of(bytes.len()));
            let value_hash = xattr::inode_value_hash(core.state.sb.value_seed(), bytes);
            let (holder, made) = match take_equal(core, handle, value_hash, bytes)? {
                Some(holder) => (holder, false),
                None => (make(core, handle, owner, value_hash, bytes)?, true),
            };
            *self.balance.entry(holder.nr()).or_default() += 1;
            let hash = xattr::held_entry_hash(attr.name.suffix(), value_hash);
            attr.value = Value::Inode { inode: holder.nr(), size, hash };
            self.taken.push(Taken { holder, made });
        }
        Ok(())
    }

    /// Takes what the attributes need beyond what the inode has: those of a block that others use as well.
    pub(crate) fn cover(&mut self, core: &Core, handle: &mut Handle<'_>, attrs: &[Attr]) -> Result<()> {
        for attr in attrs {
            if let Value::Inode { inode, .. } = attr.value {
                *self.balance.entry(inode).or_default() -= 1;
            }
        }
        for (nr, balance) in &mut self.balance {
            while *balance < 0 {
                let holder = core.state.inode(*nr)?;
                if !take(core, handle, &holder) {
                    let what = "it has lost its last user while an attribute has it";
                    return Err(Corrupt::new("the attribute value", Place::Inode(*nr), what).into());
                }
                self.taken.push(Taken { holder, made: false });
                *balance += 1;
            }
        }
        Ok(())
    }

    /// Lets go what the inode does not need any more.
    pub(crate) fn settle(self, core: &Core, handle: &mut Handle<'_>) -> Result<()> {
        for (nr, balance) in self.balance {
            for _ in 0..balance {
                let_go(core, handle, &core.state.inode(nr)?);
            }
        }
        Ok(())
    }

    /// Lets go what was taken, the last first: so an inode that was made here and then taken again is unused
    /// when its making is undone.
    pub(crate) fn undo(self, core: &Core, handle: &mut Handle<'_>) -> Result<()> {
        self.taken.into_iter().rev().try_for_each(|Taken { holder, made }| {
            if made {
                return discard(core, handle, &holder);
            }
            let_go(core, handle, &holder);
            Ok(())
        })
    }
}

/// Adds a user to the inode that holds these bytes, if one is known.
fn take_equal(
    core: &Core,
    handle: &mut Handle<'_>,
    hash: u32,
    bytes: &[u8],
) -> Result<Option<Arc<CachedInode>>> {
    let known = core.state.values.lock().find(hash);
    let Some(holder) = known.and_then(|nr| core.state.inode(nr).ok()) else { return Ok(None) };
    let fits = {
        let data = holder.get();
        data.flags.contains(InodeFlags::EA_INODE)
            && data.size == u64_of(bytes.len())
            && xattr::stored_hash(&data) == hash
    };
    // Equal hashes are no equal values.
    if !fits || content(core, &holder)? != bytes {
        return Ok(None);
    }
    Ok(take(core, handle, &holder).then_some(holder))
}

/// Adds a user; returns whether the value has any others, without which it is being freed.
fn take(core: &Core, handle: &mut Handle<'_>, holder: &Arc<CachedInode>) -> bool {
    let _index = core.state.values.lock();
    let next = {
        let data = holder.get();
        (data.links > 0 && !holder.is_freed()).then(|| xattr::users(&data).checked_add(1)).flatten()
    };
    if let Some(users) = next {
        xattr::set_users(&mut holder.edit(handle, &core.state.inodes), users);
    }
    next.is_some()
}

/// Removes a user. With the last one the inode becomes an orphan, to be freed when no handle is open.
pub(crate) fn let_go(core: &Core, handle: &mut Handle<'_>, holder: &Arc<CachedInode>) {
    if remove_user(core, handle, holder) {
        // Before any thread can free it: else it would become an orphan after that.
        core.state.add_orphan(handle, holder);
        core.state.values.lock().drop_value(holder);
    }
}

/// Removes a user, and the link with the last one: nobody takes the inode any more then. Returns whether it was
/// that; not again where more users are removed than were counted.
fn remove_user(core: &Core, handle: &mut Handle<'_>, holder: &Arc<CachedInode>) -> bool {
    let mut index = core.state.values.lock();
    let mut data = holder.edit(handle, &core.state.inodes);
    if data.links == 0 {
        return false;
    }
    let users = xattr::users(&data).saturating_sub(1);
    xattr::set_users(&mut data, users);
    if users == 0 {
        data.links = 0;
        index.forget(xattr::stored_hash(&data), holder.nr());
    }
    users == 0
}

/// Makes an inode that holds these bytes, with one user.
fn make(
    core: &Core,
    handle: &mut Handle<'_>,
    owner: &CachedInode,
    hash: u32,
    bytes: &[u8],
) -> Result<Arc<CachedInode>> {
    let (now, generation) = (core.state.now(), core.state.arbitrary());
    let inode = xattr::new_holder(&owner.get(), hash, now, generation, &core.state.sb);
    let made = ialloc::new_inode(core, handle, owner.nr(), inode)?;
    if let Err(error) = fill(core, handle, &made, bytes) {
        discard(core, handle, &made)?;
        return Err(error);
    }
    core.state.values.lock().note(hash, made.nr());
    Ok(made)
}

/// Writes the bytes of a new inode to fresh space, and maps it.
fn fill(core: &Core, handle: &mut Handle<'_>, made: &Arc<CachedInode>, bytes: &[u8]) -> Result<()> {
    let (nr, size) = (made.nr(), core.state.geometry().block_size);
    let blocks = low32(u64_of(bytes.len().div_ceil(size.len())));
    let mut data = made.edit(handle, &core.state.inodes);
    let mut done = 0;
    while done < blocks {
        let at = LogicalBlock::new(done);
        let piece = reserve::reserve_for(core, nr, &data, at, blocks - done, Use::Names)?;
        let rest = &bytes[usize_of(done) * size.len()..];
        let len = usize_of(piece.extent.len) * size.len();
        let mut padded = rest[..len.min(rest.len())].to_vec();
        padded.resize(len, 0);
        device::write_data(core, piece.extent.physical.offset(size), &padded)?;
        core.state.count_written(len);
        done += MapMut { core, handle, nr, inode: &mut data }.publish(piece, false)?;
    }
    data.size = u64_of(bytes.len());
    Ok(())
}

/// Undoes the making of an inode in the same transaction; leaves it to those who have taken it since.
fn discard(core: &Core, handle: &mut Handle<'_>, made: &Arc<CachedInode>) -> Result<()> {
    if !remove_user(core, handle, made) {
        return Ok(());
    }
    let mut data = made.edit(handle, &core.state.inodes);
    let mut map = MapMut { core, handle, nr: made.nr(), inode: &mut data };
    while map.remove(LogicalBlock::ZERO, MAP_END)? == Progress::More {}
    drop(data);
    ialloc::free_inode(core, handle, made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::freeing::free_dropped;
    use crate::{Creation, OpenOptions, Overwrite, Volume};
    use hectare_device::MemoryDevice;
    use hectare_mkfs::{FormatOptions, parse_features};
    use hectare_units::Bytes;

    /// A volume with values in inodes of their own.
    fn volume() -> Volume {
        let features = parse_features("ea_inode").unwrap();
        let format = FormatOptions { features, ..FormatOptions::default() };
        let device = Arc::new(MemoryDevice::new(Bytes::mib(8)));
        Volume::format(device, &format, Overwrite::Refuse, OpenOptions::default()).unwrap()
    }

    /// What a change that gives a file a value uses then.
    fn placed(core: &Core, handle: &mut Handle<'_>, owner: &CachedInode) -> Uses {
        let name = Name::parse(b"user.v").expect("a name");
        let (mut attrs, mut uses) = ([Attr::new(name, vec![7; 9000])], Uses::default());
        uses.place(core, handle, owner, (&mut attrs, &[0])).unwrap();
        uses
    }

    /// Another thread could free it first, and then a freed inode was recorded as an orphan.
    #[test]
    fn regression_a_value_is_an_orphan_before_it_can_be_freed() {
        let volume = volume();
        let core = volume.core();
        volume.write_file("a", b"", Creation::default()).unwrap();
        let owner = core.state.inode(volume.resolve("a", false).unwrap()).unwrap();
        for _ in 0..500 {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut handle = core.start(100).unwrap();
                    let uses = placed(core, &mut handle, &owner);
                    let_go(core, &mut handle, &uses.taken[0].holder);
                    handle.stop();
                });
                let dropped = loop {
                    let dropped = core.state.values.lock().take_dropped();
                    if !dropped.is_empty() {
                        break dropped;
                    }
                };
                assert!(core.state.orphans.all().iter().any(|orphan| orphan.nr() == dropped[0].nr()));
                core.state.values.lock().drop_value(&dropped[0]);
            });
            free_dropped(core).unwrap();
        }
        volume.close().unwrap();
    }

    /// Two changes run at once, and the one that made the value fails.
    #[test]
    fn regression_a_value_that_others_have_taken_outlives_the_change_that_made_it() {
        let volume = volume();
        let core = volume.core();
        let owners = ["a", "b"].map(|name| {
            volume.write_file(name, b"", Creation::default()).unwrap();
            core.state.inode(volume.resolve(name, false).unwrap()).unwrap()
        });
        let mut handle = core.start(100).unwrap();
        let [mut first, mut second] = owners.map(|owner| placed(core, &mut handle, &owner));
        let holder = Arc::clone(&second.taken[0].holder);
        assert!(Arc::ptr_eq(&holder, &first.taken[0].holder));
        std::mem::take(&mut first).undo(core, &mut handle).unwrap();
        assert!(!holder.is_freed());
        assert_eq!((holder.get().links, xattr::users(&holder.get())), (1, 1));
        std::mem::take(&mut second).undo(core, &mut handle).unwrap();
        handle.stop();
        free_dropped(core).unwrap();
        assert!(holder.is_freed());
        volume.close().unwrap();
    }
}
