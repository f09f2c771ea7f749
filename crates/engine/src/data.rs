//! Writing file data to the device, and what a failure of that means.
//!
//! Bytes that the device refuses are told to whoever writes them, or, where they had gathered, to whoever
//! syncs or closes the file ([`crate::delalloc`]); the volume goes on, since its metadata is what it was. Who
//! wants no file to be used any more once one has lost bytes opens the volume with `data_err=abort`
//! ([`OpenOptions::data_errors_abort`](crate::OpenOptions)): then the first such failure is the end of all
//! changes, as a failed write of metadata always is.

use crate::error::Result;
use crate::volume::Volume;
use hectare_units::Bytes;
use std::io::IoSlice;

impl Volume {
    /// Writes bytes of a file to their place.
    pub(crate) fn write_data(&self, at: Bytes, data: &[u8]) -> Result<()> {
        self.data_written(self.device.write_at(at, data))
    }

    /// Writes bytes of a file, in parts that follow each other, to their place.
    pub(crate) fn write_data_parts(&self, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
        self.data_written(self.device.write_all_at(at, parts))
    }

    /// Makes bytes of a file zeros.
    pub(crate) fn zero_data(&self, at: Bytes, len: Bytes) -> Result<()> {
        self.data_written(self.device.zero(at, len))
    }

    fn data_written(&self, result: hectare_device::Result<()>) -> Result<()> {
        result.map_err(|error| {
            if self.data_errors_abort {
                self.inner.journal.abort(&error);
            }
            error.into()
        })
    }
}
