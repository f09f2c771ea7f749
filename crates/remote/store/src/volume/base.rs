//! What a manifest refers to: tables and chunks, fetched on demand and kept for a while.

use crate::bucket::Bucket;
use crate::cache::Cache;
use crate::fetch::fetch;
use crate::manifest::{Manifest, ObjectId, Slot, Table};
use crate::{Result, runtime};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use hectare_units::{index_of, u64_of};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of tables that are kept: for 1 TiB in chunks of 4 MiB, 8 MiB.
const TABLES_KEPT: usize = 32 << 20;
/// Bytes of chunks that are put or read at a time, unless two chunks are more.
const AT_ONCE: u64 = 64 << 20;
/// Chunks that are fetched ahead of a sequential read.
const AHEAD: u64 = 2;
/// Tables that are asked for an extent; what is beyond them counts as data.
const EXTENT_TABLES: usize = 64;

/// The objects of a volume.
pub(super) struct Base {
    pub(super) bucket: Arc<Bucket>,
    pub(super) chunks: Cache<ObjectId, Bytes>,
    pub(super) tables: Cache<ObjectId, Table>,
}

impl Base {
    pub(super) fn new(bucket: Arc<Bucket>, cache: usize) -> Self {
        Self { bucket, chunks: Cache::new(cache), tables: Cache::new(TABLES_KEPT) }
    }

    /// How many chunks are in work at a time: they are in memory.
    pub(super) fn width(&self, manifest: &Manifest) -> usize {
        let fit = index_of(AT_ONCE / manifest.chunk());
        self.bucket.parallel.min(fit.max(2))
    }

    /// A table of a manifest; `None` if it has no chunks.
    pub(super) async fn table(&self, manifest: &Manifest, index: u32) -> Result<Option<Arc<Table>>> {
        let Some(slot) = manifest.tables.get(&index) else { return Ok(None) };
        let load = async {
            let bytes = fetch(&self.bucket, *slot).await?;
            Ok((Table::parse(&bytes, manifest, index)?, bytes.len()))
        };
        self.tables.get(slot.id, load).await.map(Some)
    }

    async fn slot(&self, manifest: &Manifest, chunk: u64) -> Result<Option<Slot>> {
        let (table, place) = manifest.place(chunk);
        let table = self.table(manifest, table).await?;
        Ok(table.and_then(|table| table.chunks.get(&place).copied()))
    }

    /// A chunk without the zeros at its end; `None` if it is nothing but zeros.
    pub(super) async fn chunk(&self, manifest: &Manifest, chunk: u64) -> Result<Option<Arc<Bytes>>> {
        let Some(slot) = self.slot(manifest, chunk).await? else { return Ok(None) };
        let load = async {
            let bytes = fetch(&self.bucket, slot).await?;
            let len = bytes.len();
            Ok((bytes, len))
        };
        self.chunks.get(slot.id, load).await.map(Some)
    }

    /// Fills parts, each from a place on.
    pub(super) async fn read(&self, manifest: &Manifest, parts: Vec<(u64, &mut [u8])>) -> Result<()> {
        let size = manifest.chunk();
        let cut = parts.into_iter().flat_map(|(at, part)| pieces(at, part, size));
        let filled = stream::iter(cut).map(|(at, piece)| async move {
            let chunk = self.chunk(manifest, at / size).await?;
            let bytes = chunk.as_ref().map_or(&[][..], |chunk| &chunk[..]);
            let bytes = bytes.get(index_of(at % size)..).unwrap_or_default();
            let len = bytes.len().min(piece.len());
            piece[..len].copy_from_slice(&bytes[..len]);
            piece[len..].fill(0);
            Ok(())
        });
        filled.buffer_unordered(self.width(manifest)).try_collect().await
    }

    /// Fetches what follows a place, beside everything else.
    pub(super) fn read_ahead(self: &Arc<Self>, manifest: Arc<Manifest>, at: u64) {
        let first = at.div_ceil(manifest.chunk());
        let last = (first + AHEAD).min(manifest.len.div_ceil(manifest.chunk()));
        for chunk in first..last {
            let (base, manifest) = (Arc::clone(self), Arc::clone(&manifest));
            // Nobody waits for it; a reader that needs it meets the same error.
            let _ = runtime::spawn(async move {
                let _ = base.chunk(&manifest, chunk).await;
            });
        }
    }

    /// Whether a range begins with zeros, and where that ends.
    pub(super) async fn extent(&self, manifest: &Manifest, range: Range<u64>) -> Result<(bool, u64)> {
        let size = manifest.chunk();
        let (mut chunk, end) = (range.start / size, range.end.div_ceil(size));
        let is_zero = self.slot(manifest, chunk).await?.is_none();
        let mut looked = 0;
        while chunk < end && looked < EXTENT_TABLES {
            let (index, place) = manifest.place(chunk);
            let start = chunk - u64::from(place);
            let Some(table) = self.table(manifest, index).await? else {
                if !is_zero {
                    break;
                }
                let next = manifest.tables.range(index..).next();
                chunk = next.map_or(end, |(next, _)| u64::from(*next) << manifest.table_shift);
                continue;
            };
            looked += 1;
            let after = start + (1 << manifest.table_shift);
            let alike = (chunk..after.min(end))
                .take_while(|chunk| table.chunks.contains_key(&manifest.place(*chunk).1) != is_zero);
            let count = u64_of(alike.count());
            chunk += count;
            if chunk < after {
                break;
            }
        }
        Ok((is_zero, (chunk.saturating_mul(size)).clamp(range.start + 1, range.end)))
    }
}

/// Cuts a part at the borders of chunks.
fn pieces(at: u64, part: &mut [u8], size: u64) -> Vec<(u64, &mut [u8])> {
    let (mut at, mut rest, mut out) = (at, part, Vec::new());
    while !rest.is_empty() {
        let len = index_of((size - at % size).min(u64_of(rest.len())));
        let (piece, after) = rest.split_at_mut(len);
        out.push((at, piece));
        at += u64_of(len);
        rest = after;
    }
    out
}
