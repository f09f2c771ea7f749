//! Files with the same content, of which an image can store the blocks once.
//!
//! Whole files are compared, by their size, their holes and the SHA-256 of their data; nothing is compared
//! byte by byte afterwards, since no two inputs with one SHA-256 are known. Only files that have their size
//! in common with another one are read. Hard links are one file, and have nothing to do with this.
//!
//! Hazard: of equal files, only the first is read again when the image is written. That another one changes
//! in between is not seen; the image has what it was.

use crate::error::Error;
use crate::tree::{Duplicates, Kind, NodeId, Tree};
use hectare_device::Cancel;
use hectare_units::Bytes;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Files that a thread takes at a time.
const BATCH: usize = 64;
/// Bytes read at a time.
const PIECE: usize = 256 << 10;

type Sum = [u8; 32];

/// The equal files of a tree.
///
/// # Errors
/// If a file can't be read, or changed since it was scanned; if the caller wants no more.
pub(crate) fn find(tree: &Tree, threads: NonZeroUsize, cancel: &Cancel) -> Result<Duplicates, Error> {
    let candidates = candidates(tree);
    let sums = sums(tree, &candidates, threads, cancel)?;
    let (mut known, mut found) = (HashMap::new(), Duplicates::default());
    for ((id, size), sum) in candidates.into_iter().zip(sums) {
        let first = *known.entry((size, sum)).or_insert(id);
        if first != id {
            found.add(id, first);
        }
    }
    Ok(found)
}

/// Files with data and with a size that others have, too, in the order of the tree.
fn candidates(tree: &Tree) -> Vec<(NodeId, Bytes)> {
    let sized = |id: NodeId| match tree.kind(id) {
        Kind::File { size } => tree.segments(id).next().map(|_| (id, size)),
        _ => None,
    };
    let mut files: Vec<_> = tree.ids().filter_map(sized).collect();
    let mut counts: HashMap<Bytes, u32> = HashMap::new();
    for (_, size) in &files {
        *counts.entry(*size).or_default() += 1;
    }
    files.retain(|(_, size)| counts[size] > 1);
    files
}

/// The sums of files, in their order.
fn sums(
    tree: &Tree,
    files: &[(NodeId, Bytes)],
    threads: NonZeroUsize,
    cancel: &Cancel,
) -> Result<Vec<Sum>, Error> {
    let sums = Mutex::new(vec![Sum::default(); files.len()]);
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
    let work = || {
        let (mut opener, mut buffer) = (tree.opener(), vec![0; PIECE]);
        while failed.lock().is_none() {
            let start = next.fetch_add(BATCH, Ordering::Relaxed);
            let batch = files.iter().skip(start).take(BATCH);
            let found: Result<Vec<_>, _> =
                batch.map(|(id, _)| sum(tree, &mut opener, *id, &mut buffer, cancel)).collect();
            match found {
                Ok(found) if found.is_empty() => return,
                Ok(found) => sums.lock()[start..start + found.len()].copy_from_slice(&found),
                Err(error) => drop(failed.lock().get_or_insert(error)),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.get() {
            scope.spawn(work);
        }
        work();
    });
    match failed.into_inner() {
        Some(error) => Err(error),
        None => Ok(sums.into_inner()),
    }
}

/// The sum of a file's data and of where it lies in the file.
fn sum(
    tree: &Tree,
    opener: &mut crate::Opener<'_>,
    id: NodeId,
    buffer: &mut [u8],
    cancel: &Cancel,
) -> Result<Sum, Error> {
    Error::unless(cancel)?;
    let mut sum = Sha256::new();
    for segment in tree.segments(id) {
        sum.update(segment.at.get().to_le_bytes());
        sum.update(segment.len.get().to_le_bytes());
    }
    opener.open(id)?.read_data(buffer, &mut |_, data| sum.update(data))?;
    Ok(sum.finalize().into())
}
