//! A volume and its journal, which may lie on a disk of its own.
//!
//! The recorder sees one device: the volume, and behind it the journal's disk, if there is one. So both are
//! cut off at the same moment. But each is flushed separately: that one of them has kept its writes implies
//! nothing for the other.

use hectare_device::{Device, RecordDevice, SliceDevice};
use hectare_engine::{JournalDevice, OpenOptions, Volume};
use hectare_mkfs::{FormatOptions, JournalDeviceId, join_journal, make_journal_device};
use hectare_tools::error::{Error, Result};
use hectare_units::{BlockSize, Bytes, index_of};
use std::sync::Arc;

/// The identity of the journal's device.
const UUID: [u8; 16] = [0x33; 16];

/// The content of a volume's disks.
pub struct Image {
    /// The volume.
    pub volume: Vec<u8>,
    /// The journal's device, if the journal is not in the volume.
    pub journal: Option<Vec<u8>>,
}

/// The sizes of a volume's disks.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    /// The name of the volume's format, for errors.
    pub(super) format: &'static str,
    pub(super) volume: Bytes,
    /// Zero if the journal is in the volume.
    pub(super) journal: Bytes,
}

/// The disks of a volume.
#[derive(Clone)]
pub(super) struct Parts {
    pub(super) volume: Arc<dyn Device>,
    pub(super) journal: Option<Arc<dyn Device>>,
}

impl Parts {
    /// Those of a volume; the device has both.
    pub(super) fn of(sizes: Sizes, device: &Arc<dyn Device>) -> Result<Self> {
        Self::cut(sizes, device, |at, len| {
            Ok(Arc::new(SliceDevice::new(Arc::clone(device), at, len)?) as Arc<dyn Device>)
        })
    }

    /// The same, where everything is recorded.
    pub(super) fn recorded<D>(sizes: Sizes, recorder: &Arc<RecordDevice<D>>) -> Result<Self>
    where
        D: Device + Clone + 'static,
    {
        let whole: Arc<dyn Device> = Arc::clone(recorder) as Arc<dyn Device>;
        Self::cut(sizes, &whole, |at, len| Ok(Arc::new(recorder.part(at, len)?) as Arc<dyn Device>))
    }

    fn cut(
        sizes: Sizes,
        whole: &Arc<dyn Device>,
        part: impl Fn(Bytes, Bytes) -> hectare_device::Result<Arc<dyn Device>>,
    ) -> Result<Self> {
        let told = |error| Error::at(format!("volume {}", sizes.format), error);
        let (len, journal) = (sizes.volume, sizes.journal);
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

    /// Makes the journal's device, if there is one.
    pub(super) fn make_journal(
        &self,
        options: &FormatOptions,
    ) -> hectare_mkfs::Result<Option<JournalDeviceId>> {
        let Some(journal) = &self.journal else { return Ok(None) };
        let options = FormatOptions { uuid: Some(UUID), ..options.clone() };
        let uuid = make_journal_device(&**journal, &options)?;
        Ok(Some(JournalDeviceId { uuid, number: 1 }))
    }

    /// Records the volume in the journal's device, if there is one.
    pub(super) fn join(&self, block_size: BlockSize, volume: [u8; 16]) -> hectare_mkfs::Result<()> {
        self.journal.as_ref().map_or(Ok(()), |journal| join_journal(&**journal, block_size, volume))
    }
}
