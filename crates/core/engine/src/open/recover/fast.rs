//! Replays fast commits: the changes of a few fsyncs since the last full commit.
//!
//! The kernel (`fast_commit`) writes what an fsync changed as records about files and names, not as blocks.
//! They stand for a part of one transaction, the one after the last in the log, so they are turned into that
//! transaction. [`replay`] applies them to a volume whose changes stay in memory, which is enough for reading
//! only. For writing, the blocks that differ are logged as that very transaction (`make_full`): once its
//! commit block is there, the fast commits are older than the log and no longer count. So a crash at any
//! moment leaves either the fast commits or the full one, and nothing is applied twice.
//!
//! The meaning of the records (ext4's on-disk documentation, "fast commits", and the kernel's behaviour):
//! - INODE is the inode as on disk, except its map, its time of deletion (that links orphans) and its number
//!   of sectors; a directory, whose content is not logged, is recorded only if it is new. Content that lies
//!   in the inode is part of it.
//! - ADD_RANGE and DEL_RANGE give what a range of a file is mapped to now ([`space`]).
//! - CREAT, LINK and UNLINK are applied unless they were already; what they need and is missing was gone
//!   again by the time of a later record. An inode that loses its last name is freed: its opener is gone.
//!   Links are counted, but for files the count in an INODE record takes precedence.
//!
//! Where the kernel (6.18) loses what was synced, this applies what is meant: a LINK may come before the
//! first INODE of its inode (a file without a name that was given one); links and device numbers lie in the
//! inode without a map; making and removing a directory counts in its parent.
//!
//! Hazards: only a checksum protects records, so they may contain anything. Space named by any record must
//! not be given to a directory that grows meanwhile, so all of it is taken first.

mod map;
mod runs;
mod space;

use crate::attributes::freeing;
use crate::attributes::xattr_store::{self, Plan};
use crate::error::{Error, Result};
use crate::names::node::NewNode;
use crate::names::{create, lookup, remove};
use crate::open::{assemble, orphan_cleanup, quotas};
use crate::options::OpenOptions;
use crate::space::ialloc;
use crate::state::Core;
use crate::stores::block_cache::Kind as BlockKind;
use crate::stores::inode_cache::CachedInode;
use hectare_device::{Device, OverlayDevice};
use hectare_ext4::dir::Name;
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::extent::{self, Extent};
use hectare_ext4::geometry::Geometry;
use hectare_ext4::inode::{Inode, InodeFlags, Kind};
use hectare_ext4::superblock::SuperBlock;
use hectare_journal::format::{FastCommit, FastEntry, FastRecord};
use hectare_journal::{Handle, LoggedBlock};
use hectare_units::{BlockNr, InodeNr, usize_of};
use space::Space;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// More blocks than a log holds: nothing here is logged.
const CREDITS: u32 = 1 << 30;

/// A replay of fast commits.
struct Replay<'a, 'h> {
    core: &'a Core,
    handle: &'a mut Handle<'h>,
    space: Space,
    /// Names and ranges of inodes that don't exist yet, and may come in the same fast commit.
    waiting: HashMap<InodeNr, Vec<FastRecord>>,
}

impl<'a, 'h> Replay<'a, 'h> {
    fn new(core: &'a Core, handle: &'a mut Handle<'h>) -> Self {
        Self { core, handle, space: Space::default(), waiting: HashMap::new() }
    }

    fn run(mut self, commits: &[FastCommit]) -> Result<()> {
        self.claim(commits.iter().flat_map(|commit| &commit.records))?;
        for commit in commits {
            commit.records.iter().try_for_each(|record| self.record(record))?;
            self.waiting.clear();
        }
        self.settle()
    }

    fn record(&mut self, record: &FastRecord) -> Result<()> {
        let nr = record.inode();
        let found = self.existing(nr)?;
        match (record, found) {
            (FastRecord::Inode { raw, .. }, found) => self.put_inode(nr, raw, found),
            (FastRecord::AddRange { first, len, start, unwritten, .. }, Some(inode)) => {
                let (len, physical, unwritten) = ((*len).into(), *start, *unwritten);
                self.remap(&inode, *first, len, Some(Extent { logical: *first, len, physical, unwritten }))
            }
            (FastRecord::DelRange { first, len, .. }, Some(inode)) => self.remap(&inode, *first, *len, None),
            (FastRecord::Create(entry), Some(inode)) => self.create(entry, &inode),
            (FastRecord::Link(entry), Some(inode)) => self.link(entry, &inode),
            (FastRecord::Unlink(entry), Some(inode)) => self.unlink(entry, &inode),
            (FastRecord::Create(_), None) => Err(corrupt(nr, "it gets its first name, but was never made")),
            (FastRecord::Unlink(entry), None) => {
                let waiting = self.waiting.entry(nr).or_default();
                waiting.retain(|other| !matches!(other, FastRecord::Link(other) if other == entry));
                Ok(())
            }
            (record, None) => {
                self.waiting.entry(nr).or_default().push(record.clone());
                Ok(())
            }
        }
    }

    /// An inode that is in use, whether it has a name or not.
    fn existing(&self, nr: InodeNr) -> Result<Option<Arc<CachedInode>>> {
        if nr == InodeNr::ROOT || self.core.state.is_special(nr) {
            return Err(corrupt(nr, "the format keeps that number for itself"));
        }
        if !self.core.state.groups.inode_in_use(nr)? {
            return Ok(None);
        }
        let inode = self.core.state.inodes.load(nr, || self.core.state.read_slot(nr))?;
        let used = inode.get().kind().is_some();
        Ok(used.then_some(inode))
    }

    /// The directory of an entry, if it exists.
    fn parent(&self, entry: &FastEntry) -> Result<Option<Arc<CachedInode>>> {
        let dir = match self.core.state.directory(entry.parent) {
            Err(Error::NotFound) => return Ok(None),
            Err(Error::NotADirectory) => {
                return Err(corrupt(entry.parent, "it holds names, but is no directory"));
            }
            dir => dir?,
        };
        create::check_names_writable(self.core, dir.nr(), &dir.get())?;
        Ok(Some(dir))
    }

    /// Adds a name to its directory; returns whether it was not there yet.
    fn add_name(&mut self, entry: &FastEntry, inode: &CachedInode) -> Result<bool> {
        let kind = inode.get().kind().ok_or_else(|| corrupt(inode.nr(), "it gets a name, but is free"))?;
        let Some(dir) = self.parent(entry)? else { return Ok(false) };
        match create::add_name(self.core, self.handle, &dir, name(entry)?, entry.inode, kind) {
            Ok(()) => Ok(true),
            Err(Error::Exists) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn create(&mut self, entry: &FastEntry, inode: &Arc<CachedInode>) -> Result<()> {
        if inode.get().kind() == Some(Kind::Directory) {
            return self.create_directory(entry, inode);
        }
        self.add_name(entry, inode)?;
        inode.edit(self.handle, &self.core.state.inodes).links = 1;
        Ok(())
    }

    fn create_directory(&mut self, entry: &FastEntry, inode: &Arc<CachedInode>) -> Result<()> {
        create::check_names_writable(self.core, inode.nr(), &inode.get())?;
        if inode.get().size == 0 {
            create::fill_node(
                self.core,
                self.handle,
                inode,
                entry.parent,
                NewNode::Directory,
                Plan::default(),
            )?;
        }
        if self.add_name(entry, inode)?
            && let Some(dir) = self.parent(entry)?
        {
            create::change_subdirectories(self.core, self.handle, &dir, 1);
        }
        Ok(())
    }

    fn link(&mut self, entry: &FastEntry, inode: &Arc<CachedInode>) -> Result<()> {
        if inode.get().kind() == Some(Kind::Directory) {
            return Err(corrupt(entry.inode, "a directory gets a second name"));
        }
        if self.add_name(entry, inode)? {
            self.core.state.remove_orphan(self.handle, entry.inode);
            let mut data = inode.edit(self.handle, &self.core.state.inodes);
            data.links = data.links.saturating_add(1);
        }
        Ok(())
    }

    fn unlink(&mut self, entry: &FastEntry, victim: &Arc<CachedInode>) -> Result<()> {
        let Some(dir) = self.parent(entry)? else { return Ok(()) };
        let name = name(entry)?;
        if lookup::lookup_locked(self.core, &dir, name)? != Some(entry.inode) {
            return Ok(());
        }
        if victim.get().kind() == Some(Kind::Directory) {
            remove::check_empty(self.core, victim).map_err(|error| match error {
                Error::NotEmpty => corrupt(entry.inode, "a directory is removed that is not empty"),
                error => error,
            })?;
        }
        create::take_name(self.core, self.handle, &dir, name)?;
        remove::drop_link(self.core, self.handle, &dir, victim);
        if victim.get().links == 0 { self.free(victim) } else { Ok(()) }
    }

    /// Frees an inode that lost its last name, and all its content.
    fn free(&mut self, inode: &Arc<CachedInode>) -> Result<()> {
        remove::check_freeable(self.core, inode.nr(), &inode.get())?;
        freeing::let_values_go_at_once(self.core, self.handle, inode)?;
        let dropped = self.core.state.values.lock().take_dropped();
        dropped.iter().try_for_each(|value| self.free(value))?;
        self.give_up_space(inode)?;
        let mut data = inode.edit(self.handle, &self.core.state.inodes);
        xattr_store::leave_attribute_block(self.core, self.handle, &mut data)?;
        drop(data);
        self.core.state.remove_orphan(self.handle, inode.nr());
        ialloc::free_inode(self.core, self.handle, inode)
    }

    fn put_inode(&mut self, nr: InodeNr, raw: &[u8], found: Option<Arc<CachedInode>>) -> Result<()> {
        let new = self.merge(nr, raw, None)?;
        match found {
            Some(inode) if inode.get().generation == new.generation => return self.change_inode(&inode, raw),
            // Another inode had the number.
            Some(before) => self.free(&before)?,
            None => {}
        }
        let waiting = self.waiting.remove(&nr).unwrap_or_default();
        if new.links == 0 {
            return Ok(());
        }
        if new.kind().is_none() {
            return Err(corrupt(nr, "it has links, but is of no kind"));
        }
        let links = new.links;
        let inode = self.make_inode(nr, new)?;
        waiting.iter().try_for_each(|record| self.record(record))?;
        // Names that waited are counted already.
        inode.edit(self.handle, &self.core.state.inodes).links = links;
        Ok(())
    }

    fn change_inode(&mut self, inode: &Arc<CachedInode>, raw: &[u8]) -> Result<()> {
        let new = self.merge(inode.nr(), raw, Some(&inode.get()))?;
        if new.kind() != inode.get().kind() {
            return Err(corrupt(inode.nr(), "it becomes one of another kind"));
        }
        self.touch(inode)?;
        *inode.edit(self.handle, &self.core.state.inodes) = new;
        Ok(())
    }

    fn make_inode(&mut self, nr: InodeNr, new: Inode) -> Result<Arc<CachedInode>> {
        let home = self.core.state.inode_home(nr)?;
        if !self.core.state.groups.inode_in_use(nr)? {
            let unwritten = self.core.state.groups.take_number(nr, new.kind() == Some(Kind::Directory))?;
            self.clear_table(unwritten);
        }
        let inode = self.core.state.inodes.insert_new(nr, new, home);
        drop(inode.edit(self.handle, &self.core.state.inodes));
        self.touch(&inode)?;
        Ok(inode)
    }

    /// Zeroes blocks of the inode table.
    fn clear_table(&mut self, blocks: Range<BlockNr>) {
        for nr in blocks.start.get()..blocks.end.get() {
            let block = self.core.state.blocks.load_zeros(BlockNr::new(nr));
            self.core.state.blocks.edit(self.handle, &block, BlockKind::Plain, |bytes| bytes.fill(0));
        }
    }

    /// The inode of a record, with what only `found`, the current one, has: the map, the position among the
    /// orphans, the sectors; for a directory, everything that belongs to its content.
    fn merge(&self, nr: InodeNr, raw: &[u8], found: Option<&Inode>) -> Result<Inode> {
        let mut slot = vec![0; usize_of(self.core.state.geometry().inode_size)];
        if let Some(found) = found {
            found.render(&mut slot, nr, &self.core.state.sb);
        }
        let part = slot.get_mut(..raw.len());
        part.ok_or_else(|| corrupt(nr, "its record is longer than an inode"))?.copy_from_slice(raw);
        let mut new = Inode::parse_unsealed(&slot, nr, &self.core.state.sb)?;
        self.check_mapped(nr, &new)?;
        new.dtime = found.map_or(0, |found| found.dtime);
        new.sectors = found.map_or(0, |found| found.sectors);
        if new.flags.contains(InodeFlags::EXTENTS) {
            match found.filter(|found| found.flags.contains(InodeFlags::EXTENTS)) {
                Some(found) => new.block = found.block,
                None => extent::init_root(&mut new.block),
            }
        }
        if new.kind() == Some(Kind::Directory) {
            let index = found.is_some_and(|found| found.flags.contains(InodeFlags::INDEX));
            new.flags.set(InodeFlags::INDEX, index);
            new.size = found.map_or(0, |found| found.size);
            new.links = found.map_or(new.links, |found| found.links);
        }
        Ok(new)
    }

    /// Returns an error for an inode whose map lies in blocks that are not logged.
    fn check_mapped(&self, nr: InodeNr, data: &Inode) -> Result<()> {
        if data.has_map() && !data.flags.intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA) {
            let what = format!("the journal's fast commits change inode {nr}, which is mapped by blocks");
            return Err(Error::Unsupported(what));
        }
        if data.flags.contains(InodeFlags::VERITY) {
            let what = format!("the journal's fast commits change inode {nr}, which fs-verity seals");
            return Err(Error::Unsupported(what));
        }
        self.core.state.check_file_writable(data, nr)
    }
}

/// Applies fast commits to the volume on `device`, whose changes must stay in memory until all is done.
///
/// # Errors
/// If the records contradict the volume, or need what can't be written yet. The changes are then unusable.
pub(super) fn replay(
    device: Arc<dyn Device>,
    sb: SuperBlock,
    options: &OpenOptions,
    commits: &[FastCommit],
) -> Result<()> {
    let core = assemble::for_replay(device, sb, options)?;
    // Orphan cleanup reports their errors: not when reading.
    let _ = orphan_cleanup::load_orphans(&core);
    let mut handle = core.start(CREDITS)?;
    Replay::new(&core, &mut handle).run(commits)?;
    handle.stop();
    core.commit()?;
    recount(&core)?;
    core.commit()
}

/// Counts the quotas anew, of which fast commits say nothing. A quota file that can't be used keeps the volume
/// from being opened for writing, later.
fn recount(core: &Core) -> Result<()> {
    let Ok(Some(quotas)) = quotas::load(core) else { return Ok(()) };
    let quotas = Arc::new(quotas);
    core.state.inodes.count_in(Arc::clone(&quotas));
    quotas::recount(core, &quotas)
}

/// The blocks of a volume that an overlay has changed, in ascending order.
pub(super) fn changed_blocks<D: Device>(
    overlay: &OverlayDevice<D>,
    geometry: &Geometry,
) -> Result<Vec<LoggedBlock>> {
    let size = geometry.block_size;
    let mut numbers = BTreeSet::new();
    for span in overlay.changed() {
        let end = (span.at + span.len).get().div_ceil(size.bytes().get());
        numbers.extend((span.at.get() >> size.shift())..end.min(geometry.blocks_count.get()));
    }
    let mut below = vec![0; size.len()];
    let mut changed = Vec::new();
    for nr in numbers.into_iter().map(BlockNr::new) {
        let mut block = vec![0; size.len()];
        overlay.read_at(nr.offset(size), &mut block)?;
        overlay.inner().read_at(nr.offset(size), &mut below)?;
        if block != below {
            changed.push((nr, block.into()));
        }
    }
    Ok(changed)
}

fn name(entry: &FastEntry) -> Result<Name<'_>> {
    Name::new(&entry.name)
        .filter(|name| !name.is_dot())
        .ok_or_else(|| corrupt(entry.parent, "a name it gets or loses is none"))
}

fn corrupt(nr: InodeNr, what: &'static str) -> Error {
    Corrupt::new("the journal's fast commits", Place::Inode(nr), what).into()
}
