//! The book of one kind: the accounts of its ids, and where they lie in its file.

use super::account::{Account, Amount};
use crate::error::Result;
use crate::stores::block_cache::{BlockCache, Kind as BlockKind};
use hectare_ext4::error::Place;
use hectare_ext4::extent::Extent;
use hectare_ext4::quota::{BLOCK_BYTES, BlockIndex, Info, Kind, Record, Slot, hole};
use hectare_units::{BlockNr, BlockSize, InodeNr, low32, u64_of};
use std::collections::{HashMap, HashSet};

/// Where the blocks of a quota file lie: its extents, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pieces(pub(crate) Vec<Extent>);

impl Pieces {
    /// The block of the volume that holds a block of the tree, and where it begins in it; `None` in a hole.
    pub(crate) fn locate(&self, at: BlockIndex, size: BlockSize) -> Option<(BlockNr, usize)> {
        let (block, start) = at.in_file(size);
        let piece = self.0.partition_point(|piece| piece.logical <= block).checked_sub(1)?;
        Some((self.0[piece].block_of(block)?, start))
    }
}

/// The accounts of one kind.
pub(crate) struct Book {
    kind: Kind,
    inode: InodeNr,
    /// Whether limits are enforced, and grace periods run.
    enforced: bool,
    info: Info,
    info_dirty: bool,
    pieces: Pieces,
    accounts: HashMap<u32, Account>,
    dirty: HashSet<u32>,
    /// The leaves of those.
    dirty_leaves: HashSet<BlockIndex>,
    waiting: HashSet<u32>,
}

impl Book {
    /// The book of a file that has no records yet.
    pub(crate) fn new(kind: Kind, inode: InodeNr, info: Info, pieces: Pieces, enforced: bool) -> Self {
        Self {
            kind,
            inode,
            enforced,
            info,
            info_dirty: false,
            pieces,
            accounts: HashMap::new(),
            dirty: HashSet::new(),
            dirty_leaves: HashSet::new(),
            waiting: HashSet::new(),
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn inode(&self) -> InodeNr {
        self.inode
    }

    pub(crate) fn info(&self) -> Info {
        self.info
    }

    /// Adds a record as it was read.
    pub(crate) fn load(&mut self, id: u32, slot: Slot, record: Record) {
        self.accounts.insert(id, Account { record, claimed: Amount::default(), slot: Some(slot) });
    }

    /// Whether an id has a record in the file.
    pub(crate) fn has_place(&self, id: u32) -> bool {
        self.accounts.get(&id).is_some_and(|account| account.slot.is_some())
    }

    /// The ids that have an account and no record.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = u32> + '_ {
        self.waiting.iter().copied()
    }

    /// All records, in ascending order.
    pub(crate) fn records(&self) -> Vec<(u32, Record)> {
        let mut records: Vec<_> = self.accounts.iter().map(|(id, account)| (*id, account.record)).collect();
        records.sort_unstable_by_key(|(id, _)| *id);
        records
    }

    /// Changes what an id uses.
    pub(crate) fn change(&mut self, id: u32, now: u64, change: impl FnOnce(&mut Amount)) {
        let (enforced, info) = (self.enforced, self.info);
        let account = self.account(id);
        let mut used = account.used();
        change(&mut used);
        account.set_used(used);
        if enforced {
            account.time(&info, now);
        }
        self.mark(id);
    }

    /// Sets the limits of an id.
    pub(crate) fn set_limits(&mut self, id: u32, now: u64, change: impl FnOnce(&mut Record)) {
        let info = self.info;
        let account = self.account(id);
        change(&mut account.record);
        account.time(&info, now);
        self.mark(id);
    }

    /// Sets the grace periods, in seconds.
    pub(crate) fn set_grace(&mut self, space: Option<u32>, inodes: Option<u32>) {
        self.info.space_grace = space.unwrap_or(self.info.space_grace);
        self.info.inode_grace = inodes.unwrap_or(self.info.inode_grace);
        self.info_dirty = true;
    }

    /// How much more an id may use; all there is if limits are not enforced.
    pub(super) fn room(&self, id: u32, now: u64) -> Amount {
        let account = self.accounts.get(&id).filter(|_| self.enforced);
        account.map_or(Amount { space: u64::MAX, inodes: u64::MAX }, |account| account.room(now))
    }

    pub(super) fn claim(&mut self, id: u32, now: u64, amount: Amount) {
        let (enforced, info) = (self.enforced, self.info);
        let account = self.account(id);
        account.claimed.space = account.claimed.space.saturating_add(amount.space);
        account.claimed.inodes = account.claimed.inodes.saturating_add(amount.inodes);
        if enforced && account.time(&info, now) {
            self.mark(id);
        }
    }

    /// Gives a claim back: a grace period that it began is over with it.
    pub(super) fn release(&mut self, id: u32, now: u64, amount: Amount) {
        let (enforced, info) = (self.enforced, self.info);
        let account = self.account(id);
        account.claimed.space = account.claimed.space.saturating_sub(amount.space);
        account.claimed.inodes = account.claimed.inodes.saturating_sub(amount.inodes);
        if enforced && account.time(&info, now) {
            self.mark(id);
        }
    }

    fn account(&mut self, id: u32) -> &mut Account {
        self.accounts.entry(id).or_default()
    }

    fn mark(&mut self, id: u32) {
        self.dirty.insert(id);
        match self.accounts.get(&id).and_then(|account| account.slot) {
            Some(slot) => drop(self.dirty_leaves.insert(slot.leaf)),
            None => drop(self.waiting.insert(id)),
        }
    }

    pub(super) fn placed(&mut self, id: u32, slot: Slot, info: Info, pieces: Pieces) {
        let (space, inodes) = (self.info.space_grace, self.info.inode_grace);
        self.info = info;
        (self.info.space_grace, self.info.inode_grace) = (space, inodes);
        self.pieces = pieces;
        self.waiting.remove(&id);
        self.account(id).slot = Some(slot);
        self.mark(id);
    }

    pub(super) fn dirty_blocks(&self) -> u32 {
        low32(u64_of(self.dirty_leaves.len())) + u32::from(self.info_dirty)
    }

    /// Renders what has changed into the blocks of the file. Records without a place stay marked.
    pub(super) fn render(&mut self, blocks: &BlockCache, size: BlockSize) -> Result<()> {
        if std::mem::take(&mut self.info_dirty) {
            let (kind, info) = (self.kind, self.info);
            self.render_block(blocks, size, BlockIndex::HEADER, |bytes| info.render(kind, bytes))?;
        }
        let mut dirty: Vec<(Slot, u32)> = Vec::new();
        let accounts = &self.accounts;
        self.dirty.retain(|id| match accounts.get(id).and_then(|account| account.slot) {
            Some(slot) => {
                dirty.push((slot, *id));
                false
            }
            None => true,
        });
        self.dirty_leaves.clear();
        dirty.sort_unstable_by_key(|(slot, id)| (slot.leaf, *id));
        for in_leaf in dirty.chunk_by(|(a, _), (b, _)| a.leaf == b.leaf) {
            self.render_block(blocks, size, in_leaf[0].0.leaf, |bytes| {
                for (slot, id) in in_leaf {
                    self.accounts[id].record.render(*id, &mut bytes[slot.bytes()]);
                }
            })?;
        }
        Ok(())
    }

    fn render_block(
        &self,
        blocks: &BlockCache,
        size: BlockSize,
        at: BlockIndex,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        let (nr, start) = self.pieces.locate(at, size).ok_or_else(|| hole(self.kind, self.inode, at))?;
        let block = blocks.load(nr, BlockKind::Plain, Place::Inode(self.inode))?;
        blocks.render(&block, |bytes| change(&mut bytes[start..start + BLOCK_BYTES]));
        Ok(())
    }
}
