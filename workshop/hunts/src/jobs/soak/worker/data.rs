//! Operations on the bytes of a file: writing, truncating, reading, syncing.

use super::{BLOCK, FILE_MAX, WRITE_MAX, Worker};
use crate::jobs::soak::content::pattern;
use crate::jobs::soak::owned::{Owned, Step, told, verify, verify_holes};
use hectare_engine::OpenFile;
use hectare_units::{u64_of, usize_of};

impl Worker {
    /// Writes a version of its own.
    pub(super) fn write_to(&mut self, open: &OpenFile, file: &mut Owned, at: u64, len: u32) -> Step {
        let version = self.version();
        let mut data = std::mem::take(&mut self.buffer);
        let part = &mut data[..usize_of(len)];
        pattern(version, at, part);
        let result = open.write_at(at, part);
        self.buffer = data;
        if let Some(written) = self.unless_full("write", &file.path, result)? {
            file.content.write(at, u64_of(written), version);
        }
        Ok(())
    }

    /// Any bytes, anywhere.
    pub(super) fn write(&mut self) -> Step {
        self.with_open(|worker, open, file| {
            let len = 1 + worker.random.below32(WRITE_MAX);
            let at = worker.random.below32(FILE_MAX - len);
            worker.write_to(open, file, at.into(), len)
        })
    }

    /// A few small ones, which the engine buffers.
    pub(super) fn append(&mut self) -> Step {
        self.with_open(|worker, open, file| {
            for _ in 0..=worker.random.below32(8) {
                let len = 1 + worker.random.below32(BLOCK);
                if file.content.len() + u64::from(len) <= u64::from(FILE_MAX) {
                    worker.write_to(open, file, file.content.len(), len)?;
                }
            }
            Ok(())
        })
    }

    /// Whole blocks inside the file.
    pub(super) fn overwrite(&mut self) -> Step {
        self.with_open(|worker, open, file| {
            let blocks = u32::try_from(file.content.len() / u64::from(BLOCK)).unwrap_or(0);
            for _ in 0..worker.random.below32(8).min(blocks) {
                let at = u64::from(worker.random.below32(blocks)) * u64::from(BLOCK);
                worker.write_to(open, file, at, BLOCK)?;
            }
            Ok(())
        })
    }

    /// Shorter or longer.
    pub(super) fn truncate(&mut self) -> Step {
        self.with_open(|worker, open, file| {
            let len = if worker.odds(4) { 0 } else { worker.random.below32(FILE_MAX).into() };
            if worker.unless_full("truncate", &file.path, open.set_len(len))?.is_some() {
                file.content.set_len(len);
            }
            Ok(())
        })
    }

    pub(super) fn fsync(&mut self) -> Step {
        self.with_open(|_, open, file| told("fsync", &file.path, open.sync()))
    }

    pub(super) fn fdatasync(&mut self) -> Step {
        self.with_open(|_, open, file| told("fdatasync", &file.path, open.sync_data()))
    }

    pub(super) fn sync(&mut self) -> Step {
        told("sync", "/", self.volume.sync())
    }

    pub(super) fn read_back(&mut self) -> Step {
        self.with_open(|worker, open, file| verify(open, &file.content, &file.path, &mut worker.buffer))
    }

    /// Looks for data and holes from any byte on.
    pub(super) fn seek(&mut self) -> Step {
        self.with_open(|worker, open, file| {
            let size = u32::try_from(file.content.len()).unwrap_or(u32::MAX);
            let at = u64::from(worker.random.below32(size.max(1)));
            verify_holes(open, &file.content, &file.path, at)
        })
    }
}
