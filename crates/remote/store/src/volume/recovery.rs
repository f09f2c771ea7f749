//! What an earlier process left in the local log is written again, if the volume's content is still the one
//! it was written on.
//!
//! That is more than was promised: only what was flushed is. What a crash left is a state that a disk could
//! be in as well, all writes up to some moment.

use super::StoreDevice;
use crate::write_log::{Change, Left};
use crate::{Error, Result};
use hectare_device::Device;
use hectare_device::os::FileExt;
use hectare_units::{Bytes, index_of};

impl StoreDevice {
    /// Writes what was left, and flushes it; then the old logs are removed.
    pub(super) fn recover(&mut self, left: Vec<Left>, content: u64) -> Result<()> {
        let mut content = content;
        let (mut bytes, mut outdated) = (0, 0);
        for log in &left {
            let sum = log.changes.iter().map(len_of).sum::<u64>();
            if log.between.base != content {
                outdated += sum;
                continue;
            }
            content = log.between.next;
            bytes += sum;
            self.zeroed &= log.changes.is_empty();
            for change in &log.changes {
                self.apply(log, *change).map_err(|error| Error::Log(error.to_string()))?;
            }
        }
        self.flush().map_err(|error| Error::Remote(error.to_string()))?;
        left.iter().for_each(Left::remove);
        if bytes > 0 {
            self.notes.push(format!(
                "{bytes} bytes that an earlier command wrote and did not flush were in the local log, and \
                 are \
                 in the volume now"
            ));
        }
        if outdated > 0 {
            self.notes.push(format!(
                "{outdated} bytes that an earlier command wrote and did not flush are dropped from the local \
                 log: they are in the volume already, or it was changed since"
            ));
        }
        Ok(())
    }

    fn apply(&self, log: &Left, change: Change) -> hectare_device::Result<()> {
        match change {
            Change::Write { at, len, from } => {
                let mut bytes = vec![0; index_of(len)];
                // It was whole a moment ago.
                if log.file.read_exact_at(&mut bytes, from).is_err() {
                    return Ok(());
                }
                self.write_at(Bytes::new(at), &bytes)
            }
            Change::Zero { at, len } => self.zero(Bytes::new(at), Bytes::new(len)),
            Change::Resize { len } => self.resize(Bytes::new(len)),
        }
    }
}

/// The bytes that a change was about; zeros count as none.
const fn len_of(change: &Change) -> u64 {
    match change {
        Change::Write { len, .. } => *len,
        Change::Zero { .. } | Change::Resize { .. } => 0,
    }
}
