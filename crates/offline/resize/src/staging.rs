//! A device with changed blocks in memory, of the volume's own block size.
//!
//! [`hectare_device::OverlayDevice`] keeps pages of 4 KiB. Where blocks are smaller, a page would hold
//! neighbours of a changed block as they were then, and hide what is written to them on the device later:
//! data that moves. Here a changed block hides nothing but itself.
//!
//! Hazards: flushing makes nothing durable. A clone has the same blocks, and copies no bytes.

use hectare_device::{Device, Result};
use hectare_units::{BlockNr, BlockSize, Bytes, index_of};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The changed blocks.
type Changed = BTreeMap<u64, Arc<[u8]>>;

/// A device with changes that are kept in memory.
pub(crate) struct Staging {
    disk: Arc<dyn Device>,
    size: BlockSize,
    changed: RwLock<Changed>,
}

impl Staging {
    /// No changes yet, of blocks of this size.
    pub(crate) fn new(disk: Arc<dyn Device>, size: BlockSize) -> Self {
        Self { disk, size, changed: RwLock::default() }
    }

    /// A block to be changed: as it is on the device, where that matters.
    fn below(&self, nr: BlockNr, reads: bool) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.size.len()];
        if reads {
            self.disk.read_at(nr.offset(self.size), &mut bytes)?;
        }
        Ok(bytes)
    }

    fn held(&self, block: u64) -> Option<Arc<[u8]>> {
        let changed = self.changed.read();
        changed.get(&block).cloned()
    }
}

/// The blocks that `after` has otherwise than `before`, from which it was cloned and changed.
pub(crate) fn newer(after: &Staging, before: Option<&Staging>) -> Vec<(BlockNr, Arc<[u8]>)> {
    let known = before.map(|before| before.changed.read());
    let after = after.changed.read();
    let is_old = |nr: &u64, bytes| {
        known.as_ref().and_then(|known| known.get(nr)).is_some_and(|old| Arc::ptr_eq(old, bytes))
    };
    let newer = after.iter().filter(|(nr, bytes)| !is_old(nr, bytes));
    newer.map(|(nr, bytes)| (BlockNr::new(*nr), Arc::clone(bytes))).collect()
}

impl Device for Staging {
    fn name(&self) -> &str {
        self.disk.name()
    }

    fn len(&self) -> Bytes {
        self.disk.len()
    }

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        self.disk.read_at(at, buf)?;
        let len = self.size.bytes().get();
        let end = at.get() + Bytes::of(buf.len()).get();
        let changed = self.changed.read();
        for (nr, bytes) in changed.range(at.get() / len..end.div_ceil(len)) {
            let (start, stop) = ((nr * len).max(at.get()), ((nr + 1) * len).min(end));
            let from = &bytes[index_of(start - nr * len)..index_of(stop - nr * len)];
            buf[index_of(start - at.get())..index_of(stop - at.get())].copy_from_slice(from);
        }
        Ok(())
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            let here = at + Bytes::of(done);
            let (nr, within) = (self.size.block_at(here), self.size.within(here));
            let some = (self.size.len() - within).min(data.len() - done);
            let mut block = match self.held(nr.get()) {
                Some(bytes) => bytes.to_vec(),
                None => self.below(nr, some < self.size.len())?,
            };
            block[within..within + some].copy_from_slice(&data[done..done + some]);
            self.changed.write().insert(nr.get(), Arc::from(block));
            done += some;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        self.write_at(at, &vec![0; index_of(len.get())])
    }

    fn discard(&self, _: Bytes, _: Bytes) -> Result<()> {
        Ok(())
    }

    fn resize(&self, _: Bytes) -> Result<()> {
        Ok(())
    }

    fn is_zeroed(&self) -> bool {
        false
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

impl Clone for Staging {
    fn clone(&self) -> Self {
        let changed = self.changed.read().clone();
        Self { disk: Arc::clone(&self.disk), size: self.size, changed: RwLock::new(changed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_device::MemoryDevice;

    #[test]
    fn a_changed_block_hides_nothing_beside_it() {
        let disk: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&[1; 8192]));
        let staged = Staging::new(Arc::clone(&disk), BlockSize::KIB1);
        staged.write_at(Bytes::new(1500), &[2; 600]).unwrap();
        disk.write_at(Bytes::new(3072), &[3; 1024]).unwrap();
        let mut found = vec![0; 3000];
        staged.read_at(Bytes::new(1096), &mut found).unwrap();
        let expected = [vec![1; 404], vec![2; 600], vec![1; 972], vec![3; 1024]].concat();
        assert!(found == expected);
        let blocks = |newer: &[(BlockNr, _)]| newer.iter().map(|(nr, _)| nr.get()).collect::<Vec<u64>>();
        assert_eq!(blocks(&newer(&staged, None)), [1, 2]);
        let earlier = staged.clone();
        staged.write_at(Bytes::new(2048), &[4; 10]).unwrap();
        assert_eq!(blocks(&newer(&staged, Some(&earlier))), [2]);
    }
}
