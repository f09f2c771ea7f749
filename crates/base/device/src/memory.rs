//! A device in memory, for tests and for images small enough to hold whole.
//!
//! The bytes lie in chunks of 64 KiB, each behind its own lock, so that threads working in different chunks
//! do not wait for each other; a chunk that was never written costs no memory. The table of chunks is
//! allocated whole (0.02 % of the length): beyond some hundred gigabytes use
//! [`SparseDevice`](crate::SparseDevice).
//!
//! Hazard: an operation over several chunks takes their locks one after the other, so readers racing with a
//! writer may see part of the write, as with any disk.

use crate::device::check_fits;
use crate::os::Errno;
use crate::{Device, Error, Extent, Operation, Result, Span};
use hectare_units::{Bytes, index_of, u64_of};
use parking_lot::{RwLock, RwLockReadGuard};

const NAME: &str = "memory device";

const CHUNK_LEN: usize = 1 << 16;

type Chunk = RwLock<Option<Box<[u8]>>>;

/// Bytes in memory.
pub struct MemoryDevice {
    state: RwLock<State>,
    zeroed: bool,
}

struct State {
    chunks: Vec<Chunk>,
    len: Bytes,
}

fn chunk_count(len: Bytes) -> usize {
    index_of(len.get().div_ceil(u64_of(CHUNK_LEN)))
}

impl MemoryDevice {
    /// A device of `len` zeros.
    ///
    /// # Panics
    /// If the table of its chunks does not fit the address space.
    #[must_use]
    pub fn new(len: Bytes) -> Self {
        let chunks = std::iter::repeat_with(Chunk::default).take(chunk_count(len)).collect();
        Self { state: RwLock::new(State { chunks, len }), zeroed: true }
    }

    /// A device that holds these bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let whole = |part: &[u8]| {
            let mut chunk = vec![0; CHUNK_LEN].into_boxed_slice();
            chunk[..part.len()].copy_from_slice(part);
            RwLock::new(Some(chunk))
        };
        let chunks = bytes.chunks(CHUNK_LEN).map(whole).collect();
        Self { state: RwLock::new(State { chunks, len: Bytes::of(bytes.len()) }), zeroed: false }
    }

    /// A copy of all its bytes.
    ///
    /// # Panics
    /// If they do not fit the address space.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let state = self.state.read();
        let mut bytes = vec![0; index_of(state.len.get())];
        state.read(Bytes::ZERO, &mut bytes);
        bytes
    }

    /// The state with its length held still, once the range is known to lie inside it.
    fn within(&self, operation: Operation, span: Span) -> Result<RwLockReadGuard<'_, State>> {
        let state = self.state.read();
        check_fits(NAME, state.len, operation, span)?;
        Ok(state)
    }
}

impl State {
    fn read(&self, at: Bytes, buf: &mut [u8]) {
        for piece in Span::new(at, Bytes::of(buf.len())).chunks(CHUNK_LEN) {
            let target = &mut buf[piece.of_data];
            match &*self.chunks[index_of(piece.chunk)].read() {
                Some(chunk) => target.copy_from_slice(&chunk[piece.within]),
                None => target.fill(0),
            }
        }
    }

    fn write(&self, at: Bytes, data: &[u8]) {
        for piece in Span::new(at, Bytes::of(data.len())).chunks(CHUNK_LEN) {
            let mut chunk = self.chunks[index_of(piece.chunk)].write();
            let chunk = chunk.get_or_insert_with(|| vec![0; CHUNK_LEN].into_boxed_slice());
            chunk[piece.within].copy_from_slice(&data[piece.of_data]);
        }
    }

    fn extent_at(&self, span: Span) -> Extent {
        let mut extent = Extent::data(Bytes::ZERO);
        for piece in span.pieces(u64_of(CHUNK_LEN)) {
            let is_zero = self.chunks[index_of(piece.at.get() / u64_of(CHUNK_LEN))].read().is_none();
            if extent.len > Bytes::ZERO && is_zero != extent.is_zero {
                break;
            }
            extent = Extent { len: extent.len + piece.len, is_zero };
        }
        extent
    }

    fn zero(&self, span: Span) {
        for piece in span.chunks(CHUNK_LEN) {
            let mut chunk = self.chunks[index_of(piece.chunk)].write();
            if piece.within.len() == CHUNK_LEN {
                *chunk = None;
            } else if let Some(chunk) = &mut *chunk {
                chunk[piece.within].fill(0);
            }
        }
    }

    /// What lies beyond the end inside the last chunk is always zero, so that growing reveals zeros.
    fn resize(&mut self, len: Bytes) -> std::result::Result<(), Errno> {
        if len < self.len {
            let kept = Bytes::new(len.get().next_multiple_of(u64_of(CHUNK_LEN))).min(self.len);
            self.zero(Span::new(len, kept - len));
        }
        let count = chunk_count(len);
        let more = count.saturating_sub(self.chunks.len());
        self.chunks.try_reserve_exact(more).map_err(|_| Errno::NOMEM)?;
        self.chunks.resize_with(count, Chunk::default);
        self.len = len;
        Ok(())
    }
}

impl Device for MemoryDevice {
    fn name(&self) -> &'static str {
        NAME
    }

    fn len(&self) -> Bytes {
        self.state.read().len
    }

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        self.within(Operation::Read, Span::new(at, Bytes::of(buf.len())))?.read(at, buf);
        Ok(())
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        self.within(Operation::Write, Span::new(at, Bytes::of(data.len())))?.write(at, data);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        let span = Span::new(at, len);
        self.within(Operation::Zero, span)?.zero(span);
        Ok(())
    }

    fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
        let span = Span::new(at, len);
        self.within(Operation::Discard, span)?.zero(span);
        Ok(())
    }

    fn resize(&self, len: Bytes) -> Result<()> {
        let span = Span::new(Bytes::ZERO, len);
        let grown = self.state.write().resize(len);
        grown.map_err(|errno| Error::errno(NAME, Operation::Resize, Some(span), errno))
    }

    fn discards_to_zeros(&self) -> bool {
        true
    }

    fn is_zeroed(&self) -> bool {
        self.zeroed
    }

    fn extent_at(&self, at: Bytes, len: Bytes) -> Result<Extent> {
        let span = Span::new(at, len);
        Ok(self.within(Operation::Read, span)?.extent_at(span))
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_in_and_come_out() {
        let bytes: Vec<u8> = (0..200_000_u32).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
        let device = MemoryDevice::from_bytes(&bytes);
        assert!(!device.is_zeroed());
        assert!(device.to_vec() == bytes);
    }

    #[test]
    fn what_is_cut_off_does_not_come_back() {
        let device = MemoryDevice::new(Bytes::new(100_000));
        device.write_at(Bytes::ZERO, &[7; 100_000]).unwrap();
        device.resize(Bytes::new(50_000)).unwrap();
        device.resize(Bytes::new(100_000)).unwrap();
        let bytes = device.to_vec();
        assert!(bytes[..50_000].iter().all(|b| *b == 7) && bytes[50_000..].iter().all(|b| *b == 0));
    }
}
