//! A volume and its journal, which may lie on a disk of its own.
//!
//! The recorder sees one device: the volume, and behind it the journal's disk, if there is one. So both are
//! cut off at the same moment. But each is flushed separately: that one of them has kept its writes implies
//! nothing for the other.

use super::format::Format;
use crate::error::{Error, Result};
use hectare_device::{Device, RecordDevice, SliceDevice};
use hectare_engine::{JournalDevice, OpenOptions, Volume};
use hectare_ext4::feature::{Compat, Incompat};
use hectare_ext4::superblock::{MAGIC, SIZE, SuperBlock};
use hectare_journal::format::JournalSuperblock;
use hectare_units::{BlockSize, Bytes, GroupNr, index_of, low32};
use std::sync::Arc;

/// Where a volume's superblock lies, and that of an external journal's device.
const SUPERBLOCK_AT: Bytes = Bytes::new(1024);
/// The identity of the journal's device.
const UUID: [u8; 16] = [0x33; 16];

/// The content of a volume's disks.
pub struct Image {
    /// The volume.
    pub volume: Vec<u8>,
    /// The journal's device, if the journal is not in the volume.
    pub journal: Option<Vec<u8>>,
}

/// The disks of a volume.
#[derive(Clone)]
pub(super) struct Parts {
    pub(super) volume: Arc<dyn Device>,
    pub(super) journal: Option<Arc<dyn Device>>,
}

impl Parts {
    /// Those of a volume of a format; the device has both.
    pub(super) fn of(format: Format, device: &Arc<dyn Device>) -> Result<Self> {
        Self::cut(format, device, |at, len| {
            Ok(Arc::new(SliceDevice::new(Arc::clone(device), at, len)?) as Arc<dyn Device>)
        })
    }

    /// The same, where everything is recorded.
    pub(super) fn recorded<D>(format: Format, recorder: &Arc<RecordDevice<D>>) -> Result<Self>
    where
        D: Device + Clone + 'static,
    {
        let whole: Arc<dyn Device> = Arc::clone(recorder) as Arc<dyn Device>;
        Self::cut(format, &whole, |at, len| Ok(Arc::new(recorder.part(at, len)?) as Arc<dyn Device>))
    }

    fn cut(
        format: Format,
        whole: &Arc<dyn Device>,
        part: impl Fn(Bytes, Bytes) -> hectare_device::Result<Arc<dyn Device>>,
    ) -> Result<Self> {
        let told = |error| Error::at(format!("volume {}", format.name), error);
        let (len, journal) = (format.len(), format.journal_len());
        if journal == Bytes::ZERO {
            return Ok(Self { volume: Arc::clone(whole), journal: None });
        }
        let volume = part(Bytes::ZERO, len).map_err(told)?;
        Ok(Self { volume, journal: Some(part(len, journal).map_err(told)?) })
    }

    /// Opens the volume.
    pub(super) fn open(&self, options: OpenOptions) -> hectare_engine::Result<Volume> {
        let journal = self.journal.clone().map(JournalDevice);
        Volume::open(Arc::clone(&self.volume), OpenOptions { journal, ..options })
    }

    /// The bytes of both.
    pub(super) fn image(&self) -> hectare_device::Result<Image> {
        let bytes = |device: &Arc<dyn Device>| {
            let mut bytes = vec![0; index_of(device.len().get())];
            device.read_at(Bytes::ZERO, &mut bytes).map(|()| bytes)
        };
        Ok(Image { volume: bytes(&self.volume)?, journal: self.journal.as_ref().map(bytes).transpose()? })
    }

    /// Gives a volume that was made without a journal one on the other disk, if there is one.
    pub(super) fn join(&self, block_size: BlockSize) -> std::result::Result<(), String> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let mut bytes = [0; SIZE];
        self.volume.read_at(SUPERBLOCK_AT, &mut bytes).map_err(|error| error.to_string())?;
        let sb = SuperBlock::parse(&bytes, self.volume.len()).map_err(|error| error.to_string())?;
        let mut raw = *sb.raw();
        raw.s_feature_compat.set(raw.s_feature_compat.get() | Compat::HAS_JOURNAL.bits());
        raw.s_journal_dev.set(1);
        raw.s_journal_uuid = UUID;
        let joined = SuperBlock::from_raw(raw).map_err(|error| error.to_string())?;
        let (header, log) = fresh(block_size, journal.len(), &sb.uuid());
        let log_at = Bytes::new(log_block(block_size) << block_size.shift());
        [
            self.volume.write_at(SUPERBLOCK_AT, &joined.render(GroupNr::new(0))),
            journal.write_at(SUPERBLOCK_AT, &header),
            journal.write_at(log_at, &log),
        ]
        .into_iter()
        .collect::<hectare_device::Result<()>>()
        .map_err(|error| error.to_string())
    }
}

/// The log's superblock lies in the block after that of the device's.
fn log_block(block_size: BlockSize) -> u64 {
    (SUPERBLOCK_AT.get() >> block_size.shift()) + 1
}

/// The two superblocks of an external journal that was never used: that of a device with nothing but a
/// journal, and the log's.
fn fresh(block_size: BlockSize, len: Bytes, user: &[u8; 16]) -> ([u8; SIZE], Vec<u8>) {
    let blocks = low32(len.get() >> block_size.shift());
    let mut header = [0; SIZE];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0x04, &blocks.to_le_bytes());
    put(0x14, &low32(log_block(block_size) - 1).to_le_bytes()); // the first block
    put(0x18, &(block_size.shift() - 10).to_le_bytes());
    put(0x1c, &(block_size.shift() - 10).to_le_bytes());
    put(0x38, &MAGIC.to_le_bytes());
    put(0x3a, &1u16.to_le_bytes()); // cleanly unmounted
    put(0x4c, &1u32.to_le_bytes()); // the revision with features
    put(0x60, &Incompat::JOURNAL_DEV.bits().to_le_bytes());
    put(0x68, &UUID);
    let mut log = JournalSuperblock::new(block_size, blocks, 0, UUID).render();
    // Its first block, and its one user.
    log[0x14..0x18].copy_from_slice(&low32(log_block(block_size) + 1).to_be_bytes());
    log[0x100..0x110].copy_from_slice(user);
    (header, log.to_vec())
}
