//! What is left of a volume: its inodes and blocks by their numbers. What can't be read is zeros.

use crate::places::{self, Table};
use crate::plausible::{self, Judged};
use crate::source::Source;
use hectare_ext4::dir::Format;
use hectare_ext4::extent::TreeGeometry;
use hectare_ext4::geometry::Geometry;
use hectare_ext4::superblock::SuperBlock;
use hectare_journal::recovery::LogMap;
use hectare_units::{BlockNr, InodeNr, usize_of};

/// What is left of a volume.
pub(crate) struct Volume {
    pub(crate) source: Source,
    pub(crate) sb: SuperBlock,
    /// The form of its directories.
    pub(crate) format: Format,
    /// Where the first inode table lies, if that is known without a descriptor.
    first_table: Option<BlockNr>,
    /// Where the inode tables lie, in the order of the disk.
    pub(crate) tables: Vec<Table>,
    /// The first block of the table of each group.
    table_of: Vec<BlockNr>,
    /// The log, wherever its blocks lie.
    pub(crate) log: Option<LogMap>,
    /// What is wrong with the volume as a whole.
    pub(crate) notes: Vec<String>,
}

impl Volume {
    pub(crate) fn new(
        source: Source,
        sb: SuperBlock,
        format: Format,
        first_table: Option<BlockNr>,
        notes: Vec<String>,
    ) -> Self {
        let (tables, table_of) = (Vec::new(), Vec::new());
        let mut volume = Self { source, sb, format, first_table, tables, table_of, log: None, notes };
        volume.find_tables();
        volume
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        self.sb.geometry()
    }

    pub(crate) fn tree(&self, nr: InodeNr) -> TreeGeometry {
        TreeGeometry::of(self.geometry(), nr)
    }

    /// Looks where the inode tables lie.
    pub(crate) fn find_tables(&mut self) {
        let (mut tables, notes) = places::tables(&self.source, &self.sb, self.first_table);
        self.table_of = tables.iter().map(|table| table.at).collect();
        tables.sort_by_key(|table| table.at);
        self.tables = tables;
        self.notes.extend(notes);
    }

    /// Where the slot of an inode lies, in bytes of the device.
    pub(crate) fn slot_at(&self, nr: InodeNr) -> Option<u64> {
        let (group, index) = self.geometry().inode_slot(nr)?;
        let table = self.table_of.get(group.index())?;
        let start = table.get().checked_mul(self.geometry().block_size.bytes().get())?;
        start.checked_add(u64::from(index) * u64::from(self.geometry().inode_size))
    }

    /// The inode in a slot.
    pub(crate) fn inode_at(&self, at: u64, nr: InodeNr) -> Option<Judged> {
        let mut slot = vec![0; usize_of(self.geometry().inode_size)];
        self.source.read_near(at, &mut slot);
        plausible::judge(&slot, nr, &self.sb)
    }

    /// An inode by its number.
    pub(crate) fn inode(&self, nr: InodeNr) -> Option<Judged> {
        self.inode_at(self.slot_at(nr)?, nr)
    }

    /// A block; bytes that can't be read are zeros.
    pub(crate) fn block(&self, nr: BlockNr) -> Vec<u8> {
        let size = self.geometry().block_size;
        let mut block = vec![0; size.len()];
        self.source.read(nr.offset(size).get(), &mut block);
        block
    }

    /// Blocks of the volume that the device has.
    pub(crate) fn blocks_there(&self) -> u64 {
        let size = self.geometry().block_size;
        self.geometry().blocks_count.get().min(self.source.len() >> size.shift())
    }
}
