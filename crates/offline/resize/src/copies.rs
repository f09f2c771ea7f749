//! Data that moves to clusters that are free: noted while a resize is staged, copied when it is sure to be
//! done.
//!
//! What is noted costs nothing if the trial that noted it comes to nothing, and one that succeeds needs not
//! be made again. The copies are made in the order of their sources, neighbours as one, by several threads.
//!
//! Invariants: nothing that is copied to is copied from, or was copied to before; so their order is free.
//! Sources are in use and unchanged on the device until the first transaction is written.
//!
//! Hazard: until they are made, the device with the staged changes has old bytes where data will lie. What is
//! read before, by the check of the result, must be staged as well.

use crate::error::Result;
use hectare_device::{Device, Error};
use hectare_units::{BlockNr, BlockSize, Blocks, Bytes, index_of};
use parking_lot::Mutex;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Bytes that one thread copies at once.
const STEP: u64 = 1 << 20;
/// Threads at most.
const THREADS_MAX: usize = 4;
/// Copies of fewer bytes are made by one thread.
const SHARED_MIN: u64 = 16 << 20;

/// Blocks to be copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Copy {
    from: u64,
    to: u64,
    blocks: u64,
}

/// Bytes to be copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Piece {
    from: Bytes,
    to: Bytes,
    len: u64,
}

/// What is to be copied.
#[derive(Default)]
pub(crate) struct Copies(Vec<Copy>);

impl Copies {
    /// Notes that `blocks` blocks move.
    pub(crate) fn note(&mut self, from: BlockNr, to: BlockNr, blocks: u64) {
        let (from, to) = (from.get(), to.get());
        match self.0.last_mut() {
            Some(last) if last.from + last.blocks == from && last.to + last.blocks == to => {
                last.blocks += blocks;
            }
            _ => self.0.push(Copy { from, to, blocks }),
        }
    }

    /// Makes the copies; none is left afterwards.
    pub(crate) fn make(&mut self, disk: &dyn Device, size: BlockSize) -> Result<()> {
        let pieces = self.pieces(size);
        self.0.clear();
        let total: u64 = pieces.iter().map(|piece| piece.len).sum();
        let available = thread::available_parallelism().map_or(1, NonZero::get);
        let threads = if total < SHARED_MIN { 1 } else { available.min(THREADS_MAX) };
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
        let work = || {
            if let Err(error) = copy_from(&pieces, &next, disk) {
                // Nobody begins another piece.
                next.store(pieces.len(), Ordering::Relaxed);
                failed.lock().get_or_insert(error);
            }
        };
        thread::scope(|scope| {
            for _ in 1..threads {
                // Where there is no other thread, this one does it all.
                let _ = thread::Builder::new().name("hectare-copy".into()).spawn_scoped(scope, work);
            }
            work();
        });
        Ok(failed.into_inner().map_or(Ok(()), Err)?)
    }

    /// The copies by their sources, in pieces.
    fn pieces(&mut self, size: BlockSize) -> Vec<Piece> {
        self.0.sort_unstable_by_key(|copy| copy.from);
        self.0.dedup_by(|next, last| {
            let joins = last.from + last.blocks == next.from && last.to + last.blocks == next.to;
            if joins {
                last.blocks += next.blocks;
            }
            joins
        });
        let step = STEP >> size.shift();
        let mut pieces = Vec::new();
        for copy in &self.0 {
            for done in (0..copy.blocks).step_by(index_of(step)) {
                pieces.push(Piece {
                    from: BlockNr::new(copy.from + done).offset(size),
                    to: BlockNr::new(copy.to + done).offset(size),
                    len: Blocks::new(step.min(copy.blocks - done)).bytes(size).get(),
                });
            }
        }
        pieces
    }
}

/// Copies one piece after another, of those that no other thread has taken.
fn copy_from(pieces: &[Piece], next: &AtomicUsize, disk: &dyn Device) -> std::result::Result<(), Error> {
    while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
        disk.copy_within(piece.from, piece.to, Bytes::new(piece.len))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_device::MemoryDevice;
    use hectare_units::low32;

    /// Bytes that say which block they are of.
    fn content(blocks: u64) -> Vec<u8> {
        let words = (0..blocks).flat_map(|nr| std::iter::repeat_n(nr.to_le_bytes(), 128));
        words.flatten().collect()
    }

    #[test]
    fn all_of_it_arrives_by_one_thread_and_by_several() {
        for blocks in [10, 3000, 40_000] {
            let disk = MemoryDevice::from_bytes(&[content(blocks), vec![0; index_of(blocks << 10)]].concat());
            let mut copies = Copies::default();
            // Backwards and in parts of all lengths.
            let (mut end, mut len) = (blocks, 1);
            while end > 0 {
                let some = len.min(end);
                copies.note(BlockNr::new(end - some), BlockNr::new(blocks + end - some), some);
                (end, len) = (end - some, len % 1700 + 1);
            }
            assert_eq!(
                copies.pieces(BlockSize::KIB1).len(),
                hectare_units::usize_of(low32(blocks.div_ceil(1024)))
            );
            copies.make(&disk, BlockSize::KIB1).unwrap();
            let mut found = vec![0; index_of(blocks << 10)];
            disk.read_at(Blocks::new(blocks).bytes(BlockSize::KIB1), &mut found).unwrap();
            assert!(found == content(blocks));
            assert!(copies.0.is_empty());
        }
    }
}
