//! Reads some blocks from elsewhere: their newest content is on another device, or at another place of the
//! same. This is how a volume is read whose journal was not replayed, without replaying it and without
//! keeping its content in memory.
//!
//! It is read-only: a change would have to be distinguished from what lies elsewhere. To change the view,
//! lay an [`OverlayDevice`](crate::OverlayDevice) over it.
//!
//! Hazards:
//! - *Both devices must not change.* Every read goes to them again.
//! - *Memory.* A block that lies elsewhere takes some 40 bytes, whatever its length.

use crate::device::{check_range, of_inner};
use crate::{Device, Error, Operation, Reason, Result, Span};
use hectare_units::{BlockNr, BlockSize, Bytes, index_of, u64_of};
use std::collections::BTreeMap;

/// Where the content of a block lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elsewhere {
    /// Its offset on the other device.
    pub at: Bytes,
    /// What its first bytes are in truth, where the other device has something else for them.
    pub head: Option<[u8; 4]>,
}

/// A device of which some blocks are read from another, and none can be written.
pub struct ElsewhereDevice<D, S> {
    inner: D,
    source: S,
    block_size: BlockSize,
    blocks: BTreeMap<BlockNr, Elsewhere>,
}

impl<D: Device, S: Device> ElsewhereDevice<D, S> {
    /// Reads `blocks` of `inner` from `source`.
    #[must_use]
    pub fn new(inner: D, source: S, block_size: BlockSize, blocks: BTreeMap<BlockNr, Elsewhere>) -> Self {
        Self { inner, source, block_size, blocks }
    }

    fn refuse(&self, operation: Operation, span: Span) -> Error {
        Error::new(self.name(), operation, Some(span), Reason::ReadOnly)
    }
}

impl<D: Device, S: Device> Device for ElsewhereDevice<D, S> {
    of_inner!(name, len, alignment);

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        check_range(self, Operation::Read, Span::new(at, Bytes::of(buf.len())))?;
        let (shift, size) = (self.block_size.shift(), self.block_size.len());
        let end = at.get() + u64_of(buf.len());
        let numbers = BlockNr::new(at.get() >> shift)..BlockNr::new(end.div_ceil(u64_of(size)));
        let mut done = 0;
        for (nr, place) in self.blocks.range(numbers) {
            let block = nr.offset(self.block_size).get();
            // The requested part of the block, in it and in the buffer.
            let (from, to) = (block.max(at.get()), (block + u64_of(size)).min(end));
            let (skip, target) = (index_of(from - block), index_of(from - at.get())..index_of(to - at.get()));
            self.inner.read_at(at + Bytes::of(done), &mut buf[done..target.start])?;
            done = target.end;
            let out = &mut buf[target];
            self.source.read_at(place.at + Bytes::of(skip), out)?;
            let head = place.head.iter().flatten().skip(skip);
            out.iter_mut().zip(head).for_each(|(byte, true_byte)| *byte = *true_byte);
        }
        if done == buf.len() { Ok(()) } else { self.inner.read_at(at + Bytes::of(done), &mut buf[done..]) }
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        Err(self.refuse(Operation::Write, Span::new(at, Bytes::of(data.len()))))
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        Err(self.refuse(Operation::Zero, Span::new(at, len)))
    }

    fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
        Err(self.refuse(Operation::Discard, Span::new(at, len)))
    }

    fn resize(&self, len: Bytes) -> Result<()> {
        Err(self.refuse(Operation::Resize, Span::new(Bytes::ZERO, len)))
    }

    fn is_zeroed(&self) -> bool {
        false
    }

    fn is_read_only(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;
    use proptest::prelude::*;

    const SIZE: usize = 1024;
    const BLOCKS: usize = 8;

    fn bytes(salt: usize) -> Vec<u8> {
        (0..SIZE * BLOCKS).map(|i| u8::try_from((i * 7 + i / SIZE + salt) % 251).unwrap()).collect()
    }

    proptest! {
        #[test]
        fn every_range_reads_as_if_the_blocks_had_been_copied(
            places in prop::collection::btree_map(0..BLOCKS, (0..BLOCKS, any::<bool>()), 0..BLOCKS),
            from in 0..SIZE * BLOCKS,
            len in 0..SIZE * BLOCKS,
        ) {
            let (mut expected, source) = (bytes(0), bytes(100));
            let head = [1, 2, 3, 4];
            let mut blocks = BTreeMap::new();
            for (nr, (at, patched)) in &places {
                let target = &mut expected[nr * SIZE..][..SIZE];
                target.copy_from_slice(&source[at * SIZE..][..SIZE]);
                if *patched {
                    target[..4].copy_from_slice(&head);
                }
                let place = Elsewhere { at: Bytes::of(at * SIZE), head: patched.then_some(head) };
                blocks.insert(BlockNr::new(u64_of(*nr)), place);
            }
            let inner = MemoryDevice::from_bytes(&bytes(0));
            let device =
                ElsewhereDevice::new(inner, MemoryDevice::from_bytes(&source), BlockSize::KIB1, blocks);
            let len = len.min(SIZE * BLOCKS - from);
            let mut read = vec![0; len];
            device.read_at(Bytes::of(from), &mut read).unwrap();
            prop_assert_eq!(&read, &expected[from..from + len]);
            prop_assert!(device.read_at(Bytes::of(SIZE * BLOCKS), &mut [0]).is_err());
            prop_assert!(device.write_at(Bytes::ZERO, &[0]).is_err() && device.is_read_only());
        }
    }
}
