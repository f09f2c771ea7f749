//! Writes that are durable when they return, without a flush of everything else.
//!
//! `RWF_DSYNC` makes one `pwritev2` behave as on a file opened with `O_DSYNC`: the host writes these bytes
//! through and, past its page cache, to a disk that can, as one forced write instead of a flush of the disk's
//! whole cache. Where the host or the shape of the request doesn't allow it, it is a write and a flush.

use super::direct::Direct;
use super::{FileDevice, advance};
use crate::scratch::with_scratch;
use crate::{Operation, Result, Span};
use hectare_units::{index_of, u64_of};
use rustix::io::{Errno, ReadWriteFlags};
use std::io::IoSlice;
use std::sync::atomic::Ordering;

impl FileDevice {
    /// Writes durably in one operation of the host; false if it has to be done the other way, in which case
    /// nothing may rely on what the range holds.
    pub(super) fn write_through(&self, span: Span, parts: &[IoSlice<'_>]) -> Result<bool> {
        // In memory there is nothing to be made durable, and writers pass a gate.
        if self.gate.is_some() || self.no_dsync.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let written = match &self.direct {
            None => self.write_synced(span, parts),
            Some(direct) if direct.takes(span, parts) => self.write_synced(span, parts),
            Some(direct) if direct.takes_gathered(span) => with_scratch(|scratch| {
                let whole = &mut scratch[..index_of(span.len.get())];
                let mut rest = &mut *whole;
                for part in parts {
                    let (target, after) = rest.split_at_mut(part.len());
                    target.copy_from_slice(part);
                    rest = after;
                }
                self.write_synced(span, &[IoSlice::new(whole)])
            }),
            Some(_) => return Ok(false),
        };
        match written {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.no_dsync.store(true, Ordering::Relaxed);
                Ok(false)
            }
            Err(errno) => Err(self.fail_errno(Operation::Write, span)(errno)),
        }
    }

    fn write_synced(&self, span: Span, parts: &[IoSlice<'_>]) -> rustix::io::Result<()> {
        let _whole_units = self.direct.as_ref().map(Direct::share);
        let mut done = 0;
        while u64_of(done) < span.len.get() {
            let (first, skip) = advance(parts, done);
            let mut advanced = None;
            let rest = super::batch(&parts[first..], skip, &mut advanced);
            let at = span.at.get() + u64_of(done);
            match rustix::io::pwritev2(&self.file, rest, at, ReadWriteFlags::DSYNC) {
                Ok(0) => return Err(Errno::IO),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Device, FileOptions, Overwrite};
    use hectare_units::Bytes;
    use std::io::IoSlice;
    use std::sync::atomic::Ordering;

    #[test]
    fn durable_writes_arrive_in_every_shape() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        for direct in [false, true] {
            let path = dir.path().join(format!("direct {direct}.img"));
            let options = FileOptions::new().direct(direct);
            let Ok(device) = options.create(&path, Bytes::mib(4), Overwrite::Refuse) else {
                eprintln!("skipped: no direct I/O here");
                continue;
            };
            let data: Vec<u8> = (0..2_200_000_u32).map(|n| n.to_le_bytes()[1] ^ n.to_le_bytes()[0]).collect();
            // Whole units, in odd parts, too long to join, and no units at all; many parts.
            for (at, len, part_len) in [
                (4096, 8192, 8192),
                (8192, 12_288, 1000),
                (4096, 2_097_152, 500_000),
                (777, 5, 2),
                (0, 409_600, 512),
            ] {
                let parts: Vec<_> = data[at..at + len].chunks(part_len).map(IoSlice::new).collect();
                device.zero(Bytes::ZERO, Bytes::mib(4)).unwrap();
                device.write_durable(Bytes::of(at), &parts).unwrap();
                let mut found = vec![0xee; 4 << 20];
                device.read_at(Bytes::ZERO, &mut found).unwrap();
                assert!(found[at..at + len] == data[at..at + len], "{direct} {at} {len}");
                assert!(found[..at].iter().chain(&found[at + len..]).all(|byte| *byte == 0));
            }
            assert!(!device.no_dsync.load(Ordering::Relaxed), "this kernel can");
            assert!(device.unsynced_dir.lock().is_none());
            device.write_durable(Bytes::mib(4), &[IoSlice::new(b"x")]).unwrap_err();
        }
    }
}
