//! Writes file data to the device, and decides what an I/O error there means.
//!
//! The write returns the error to its caller; for buffered bytes, fsync or close of the file reports it
//! ([`crate::data::append`]). The volume stays in use, since its metadata is unchanged. `data_err=abort`
//! ([`OpenOptions::data_errors_abort`](crate::OpenOptions)) is for users who want no file used any more once
//! one has lost bytes: the first such error then ends all changes, as a failed write of metadata always does.

use crate::error::Result;
use crate::state::Core;
use hectare_units::Bytes;
use std::io::IoSlice;

/// Writes bytes of a file to their blocks.
pub(crate) fn write_data(core: &Core, at: Bytes, data: &[u8]) -> Result<()> {
    data_written(core, core.state.device.write_at(at, data))
}

/// Writes bytes of a file, in parts that follow each other, to their blocks.
pub(crate) fn write_data_parts(core: &Core, at: Bytes, parts: &[IoSlice<'_>]) -> Result<()> {
    data_written(core, core.state.device.write_all_at(at, parts))
}

/// Zeros bytes of a file.
pub(crate) fn zero_data(core: &Core, at: Bytes, len: Bytes) -> Result<()> {
    data_written(core, core.state.device.zero(at, len))
}

fn data_written(core: &Core, result: hectare_device::Result<()>) -> Result<()> {
    result.map_err(|error| {
        if core.state.data_errors_abort {
            core.journal.abort(&error);
        }
        error.into()
    })
}
