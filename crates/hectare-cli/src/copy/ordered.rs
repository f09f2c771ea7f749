//! Copies files in the order in which they lie on the origin's device, once all directories are there.
//!
//! An origin of which the whole tree is known before anything is copied ([`Origin::ORDERED`]) is read like
//! this: the walker makes directories, links and devices, and only notes files. The noted files are sorted
//! by where they begin, and several threads take them from the front, a *batch* at a time: small files that
//! lie within [`SPAN`] bytes, of which the origin reads all at once, or one large file. So the device is
//! read from its beginning to its end, in large pieces, while other threads make and write files.
//!
//! Directories get their final attributes after that, since making files changes their times.
//!
//! Memory: some hundred bytes for each file, without its name.

use super::ends::{Origin, Target};
use super::maker::{Maker, Spot};
use crate::failure::Outcome;
use crate::name::join;
use hectare_engine::Kind;
use parking_lot::Mutex;
use std::iter::Peekable;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::vec::IntoIter;

/// Bytes of the device that the files of a batch lie in at most; what origins read at once.
const SPAN: u64 = 1 << 20;
/// Files of a batch.
const BATCH_MAX: usize = 64;
/// Of a range that is read at once, one byte in so many at least has to be content.
const DENSE: u64 = 2;

/// A file to be copied later.
pub(super) struct Later<N, D> {
    pub(super) node: N,
    pub(super) dir: D,
    pub(super) name: Box<[u8]>,
    /// The paths of its directory.
    pub(super) from: Arc<[u8]>,
    pub(super) to: Arc<[u8]>,
    pub(super) there: Option<Kind>,
    /// Where it begins, and how many bytes of it follow there.
    pub(super) place: (u64, u64),
}

type Queue<N, D> = Mutex<Peekable<IntoIter<Later<N, D>>>>;

/// Copies them all.
pub(super) fn copy_all<O: Origin, T: Target>(
    maker: &Maker<'_, O, T>,
    mut files: Vec<Later<O::Node, T::Dir>>,
    threads: NonZeroUsize,
) -> Outcome {
    files.sort_by_key(|file| file.place);
    let queue = Mutex::new(files.into_iter().peekable());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.get()).map(|_| scope.spawn(|| work(maker, &queue))).collect();
        let ended = workers.into_iter().map(|worker| match worker.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ended.fold(Ok(()), Outcome::and)
    })
}

fn work<O: Origin, T: Target>(maker: &Maker<'_, O, T>, queue: &Queue<O::Node, T::Dir>) -> Outcome {
    let mut buffer = Vec::new();
    loop {
        let batch = next_batch(&mut queue.lock());
        if batch.is_empty() || maker.pool.has_failed() {
            return Ok(());
        }
        if let Some(range) = dense_range(&batch) {
            maker.origin.read_ahead(range);
        }
        for file in batch {
            if let Err(failure) = copy(maker, &file, &mut buffer) {
                maker.pool.stop();
                return Err(failure);
            }
        }
    }
}

/// The next files that lie within a span, or the next file.
fn next_batch<N, D>(files: &mut Peekable<IntoIter<Later<N, D>>>) -> Vec<Later<N, D>> {
    let mut batch: Vec<Later<N, D>> = Vec::new();
    let mut end = 0;
    while batch.len() < BATCH_MAX {
        let fits = |file: &Later<N, D>| {
            let (start, len) = file.place;
            end = start.saturating_add(len);
            batch.first().is_none_or(|first: &Later<N, D>| end.saturating_sub(first.place.0) <= SPAN)
        };
        let Some(file) = files.next_if(fits) else { break };
        batch.push(file);
    }
    batch
}

/// Where the files of a batch lie, if that is worth to be read at once.
fn dense_range<N, D>(batch: &[Later<N, D>]) -> Option<std::ops::Range<u64>> {
    let start = batch.iter().find(|file| file.place.1 > 0)?.place.0;
    let end = batch.iter().map(|file| file.place.0.saturating_add(file.place.1)).max()?;
    let content = batch.iter().fold(0_u64, |sum, file| sum.saturating_add(file.place.1));
    let len = end.saturating_sub(start);
    (batch.len() > 1 && len <= SPAN && content.saturating_mul(DENSE) >= len).then_some(start..end)
}

fn copy<O: Origin, T: Target>(
    maker: &Maker<'_, O, T>,
    file: &Later<O::Node, T::Dir>,
    buffer: &mut Vec<u8>,
) -> Outcome {
    let (from, to) = (join(&file.from, &file.name), join(&file.to, &file.name));
    let meta = match maker.meta(&file.node, false) {
        Ok(meta) => meta,
        Err(reason) => return maker.leave_out(&from, reason),
    };
    let spot = Spot { dir: &file.dir, name: &file.name, from: &from, to: &to, there: file.there };
    if let Some(job) = maker.job(&file.node, meta, &spot, false)? {
        maker.pool.copy(&job, buffer);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(places: &[(u64, u64)]) -> Vec<Later<(), ()>> {
        let (name, path): (Box<[u8]>, Arc<[u8]>) = (Box::default(), Arc::default());
        let file = |place: &(u64, u64)| Later {
            node: (),
            dir: (),
            name: name.clone(),
            from: Arc::clone(&path),
            to: Arc::clone(&path),
            there: None,
            place: *place,
        };
        places.iter().map(file).collect()
    }

    #[test]
    fn a_batch_is_what_lies_within_a_span() {
        let places =
            [(0, 0), (4096, 5), (8192, 900_000), (SPAN, 4096), (SPAN + 4096, SPAN * 3), (9 * SPAN, 1)];
        let mut rest = files(&places).into_iter().peekable();
        let mut batches = Vec::new();
        loop {
            let batch = next_batch(&mut rest);
            if batch.is_empty() {
                break;
            }
            batches.push((batch.len(), dense_range(&batch)));
        }
        assert_eq!(batches, [(3, Some(4096..908_192)), (1, None), (1, None), (1, None)]);
        let mut many = files(&vec![(0, 0); 100]).into_iter().peekable();
        assert_eq!((next_batch(&mut many).len(), next_batch(&mut many).len()), (64, 36));
        // A hole between two files that is larger than both.
        assert_eq!(dense_range(&files(&[(0, 4096), (100_000, 4096)])), None);
    }
}
