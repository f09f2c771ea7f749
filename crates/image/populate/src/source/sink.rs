//! What takes bytes as they come: here, or on a thread beside.
//!
//! Unpacking, hashing and writing an archive take one processor each for most of their time. A [`Sink`] with
//! a thread lets the caller go on while its bytes are hashed or written; a few buffers go round between the
//! two, so neither runs far ahead of the other.
//!
//! Invariant: the bytes arrive in order, all of them before [`finish`](Sink::finish) returns, unless the
//! taker wants no more.

use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

/// Bytes of a buffer.
pub(super) const BUFFER_LEN: usize = 128 << 10;
/// Buffers between two threads: 512 KiB, a millisecond's work.
const BUFFERS: usize = 4;

/// Takes some bytes; false if it wants no more.
type Take<T> = fn(&mut T, &[u8]) -> bool;

/// Takes bytes, and gives a result in the end.
pub(super) enum Sink<'scope, T> {
    /// On the caller's thread.
    Here { state: T, take: Take<T>, buffer: Vec<u8> },
    /// On a thread of its own.
    Beside {
        full: SyncSender<Vec<u8>>,
        /// Buffers to be filled again.
        empty: Receiver<Vec<u8>>,
        thread: ScopedJoinHandle<'scope, T>,
    },
}

impl<'scope, T: Send + 'scope> Sink<'scope, T> {
    /// Bytes go to `take`, with the state; on a thread of its own where a scope for it is given.
    pub(super) fn new(scope: Option<&'scope Scope<'scope, '_>>, mut state: T, take: Take<T>) -> Self {
        let Some(scope) = scope else { return Self::Here { state, take, buffer: vec![0; BUFFER_LEN] } };
        let (full, filled) = sync_channel::<Vec<u8>>(BUFFERS);
        let (give_back, empty) = sync_channel(BUFFERS);
        for _ in 0..BUFFERS {
            let _ = give_back.send(vec![0; BUFFER_LEN]); // there is room for as many
        }
        let thread = scope.spawn(move || {
            for buffer in filled {
                if !take(&mut state, &buffer) {
                    break;
                }
                // The other side may have ended.
                let _ = give_back.send(buffer);
            }
            state
        });
        Self::Beside { full, empty, thread }
    }

    /// A buffer of [`BUFFER_LEN`] bytes to fill.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        let mut buffer = match self {
            Self::Here { buffer, .. } => std::mem::take(buffer),
            Self::Beside { empty, .. } => empty.recv().unwrap_or_default(),
        };
        buffer.resize(BUFFER_LEN, 0);
        buffer
    }

    /// Passes on the first `len` bytes of a buffer; false if no more are wanted.
    pub(super) fn pass(&mut self, mut full_buffer: Vec<u8>, len: usize) -> bool {
        full_buffer.truncate(len);
        match self {
            Self::Here { state, take, buffer } => {
                let more = take(state, &full_buffer);
                *buffer = full_buffer;
                more
            }
            Self::Beside { full, .. } => full.send(full_buffer).is_ok(),
        }
    }

    /// Passes on bytes that lie elsewhere.
    pub(super) fn copy(&mut self, bytes: &[u8]) {
        if let Self::Here { state, take, .. } = self {
            take(state, bytes);
            return;
        }
        for part in bytes.chunks(BUFFER_LEN) {
            let mut buffer = self.buffer();
            buffer[..part.len()].copy_from_slice(part);
            if !self.pass(buffer, part.len()) {
                return;
            }
        }
    }

    /// The state after all bytes were taken.
    pub(super) fn finish(self) -> T {
        match self {
            Self::Here { state, .. } => state,
            Self::Beside { full, thread, .. } => {
                drop(full);
                thread.join().unwrap_or_else(|panic| resume_unwind(panic))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(state: &mut Vec<u8>, bytes: &[u8]) -> bool {
        state.extend_from_slice(bytes);
        state.len() < 3 << 20
    }

    /// What is taken of these bytes, passed on in parts.
    fn taken(beside: bool, bytes: &[u8]) -> Vec<u8> {
        std::thread::scope(|scope| {
            let mut sink = Sink::new(beside.then_some(scope), Vec::new(), collect);
            for (at, part) in bytes.chunks(77_777).enumerate() {
                if at % 3 == 0 {
                    sink.copy(part);
                    continue;
                }
                let mut buffer = sink.buffer();
                buffer[..part.len()].copy_from_slice(part);
                if !sink.pass(buffer, part.len()) {
                    break;
                }
            }
            sink.copy(&[]);
            sink.finish()
        })
    }

    #[test]
    fn bytes_arrive_in_order_wherever_they_are_taken() {
        let bytes: Vec<u8> = (0..2_u32 << 20).map(|n| (n / 251).to_le_bytes()[0]).collect();
        for beside in [false, true] {
            assert!(taken(beside, &bytes) == bytes, "{beside}");
            assert!(taken(beside, &bytes[..10]) == bytes[..10], "{beside}");
        }
    }

    #[test]
    fn a_taker_that_wants_no_more_ends_the_passing() {
        let bytes = vec![1; 16 << 20];
        for beside in [false, true] {
            assert!((3 << 20..4 << 20).contains(&taken(beside, &bytes).len()), "{beside}");
        }
    }
}
