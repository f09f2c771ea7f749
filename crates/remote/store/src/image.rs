//! An object that is an image, for reading: by ranges, with a bounded cache and read-ahead.
//!
//! Invariant: all bytes come from one version of the object. Each request has the version as its condition
//! (`If-Match`), and each answer's version and length are compared. Servers with weak ETags or dates only
//! are asked without a condition, and compared.
//!
//! Hazards: a server that ignores ranges would send the whole image each time, and one that names no
//! version could change it unnoticed; both are refused when the image is opened.

use crate::bucket::{Bucket, Failure};
use crate::cache::Cache;
use crate::codec::sum;
use crate::cost::add;
use crate::manifest::ObjectId;
use crate::{Cost, Error as StoreError, Options, runtime};
use bytes::Bytes as Data;
use futures_util::{StreamExt, TryStreamExt, stream};
use hectare_device::{Device, Error, Operation, Reason, Result, Span, check_change, check_range};
use hectare_units::{Bytes, index_of, u64_of};
use object_store::{Error as LibraryError, ObjectMeta};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// What is fetched at a time.
const BLOCK: u64 = 256 << 10;
/// The most blocks that are fetched ahead of a sequential read.
const AHEAD: u64 = 16;

/// An image in an object store or on a web server.
pub struct ImageDevice {
    name: String,
    object: Arc<Object>,
    /// Where the last read ended, and how far is read ahead.
    read_end: AtomicU64,
    ahead: AtomicU64,
    /// The most blocks that are read ahead.
    ahead_max: u64,
    notes: Vec<String>,
}

/// One version of an object.
struct Object {
    bucket: Arc<Bucket>,
    meta: ObjectMeta,
    blocks: Cache<u64, Data>,
    /// Set when another version was seen.
    changed: OnceLock<StoreError>,
}

impl ImageDevice {
    /// Opens the object of a prefix.
    ///
    /// # Errors
    /// If there is none, its server has no ranges or names no version, or the store fails.
    pub fn open(bucket: Arc<Bucket>, options: &Options) -> crate::Result<Self> {
        let name = bucket.name().to_owned();
        let meta = runtime::wait(bucket.head(""))?;
        let meta = meta.ok_or_else(|| StoreError::Missing("there is no such object".to_owned()))?;
        // The library has 1970 where the server gives no date.
        if meta.e_tag.is_none() && meta.last_modified.timestamp() == 0 {
            return Err(StoreError::Remote(
                "the server names no version of the file (ETag or Last-Modified): a change while it is read \
                 could not be noticed; copy the file"
                    .to_owned(),
            ));
        }
        keep(&bucket, &meta, options)?;
        let notes = bucket.cache_note().into_iter().collect();
        let blocks = Cache::new(index_of(options.cache.get()));
        let object = Arc::new(Object { bucket, meta, blocks, changed: OnceLock::new() });
        if object.meta.size > 0 {
            // Whether there are ranges at all; it is needed anyway.
            runtime::wait(object.block(0))?;
        }
        // What is fetched ahead must not drive out what was fetched ahead.
        let ahead_max = (options.cache.get() / BLOCK / 4).min(AHEAD);
        Ok(Self { name, object, read_end: AtomicU64::new(0), ahead: AtomicU64::new(0), ahead_max, notes })
    }

    /// What the user should know of the opening, each a line.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What was asked of the store so far.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.object.bucket.cost()
    }

    /// The object, to ask for costs when the device is gone.
    #[must_use]
    pub fn bucket(&self) -> &Arc<Bucket> {
        &self.object.bucket
    }

    fn fail(&self, operation: Operation, span: Option<Span>, reason: Reason) -> Error {
        Error::new(&self.name, operation, span, reason)
    }

    /// Fetches what follows, the further the longer reading has been going that way.
    fn read_ahead(&self, at: u64, end: u64) {
        if self.read_end.swap(end, Ordering::Relaxed) != at {
            self.ahead.store(0, Ordering::Relaxed);
            return;
        }
        let ahead = (self.ahead.load(Ordering::Relaxed) * 2 + 1).min(self.ahead_max);
        self.ahead.store(ahead, Ordering::Relaxed);
        let first = end.div_ceil(BLOCK);
        for block in first..(first + ahead).min(self.object.meta.size.div_ceil(BLOCK)) {
            if !self.object.blocks.has(block) {
                let object = Arc::clone(&self.object);
                // A reader that needs it meets the same error.
                let _ = runtime::spawn(async move {
                    let _ = object.block(block).await;
                });
            }
        }
    }

    async fn fill(&self, at: u64, buf: &mut [u8]) -> crate::Result<()> {
        let (first, last) = (at / BLOCK, (at + u64_of(buf.len())).div_ceil(BLOCK));
        let fetched = stream::iter(first..last).map(|block| self.object.block(block));
        let mut fetched = fetched.buffered(self.object.bucket.parallel);
        let (mut skip, mut rest) = (index_of(at % BLOCK), buf);
        while let Some(block) = fetched.try_next().await? {
            let bytes = &block[skip..];
            let len = bytes.len().min(rest.len());
            let (part, after) = rest.split_at_mut(len);
            part.copy_from_slice(&bytes[..len]);
            (skip, rest) = (0, after);
        }
        debug_assert!(rest.is_empty(), "blocks have the length that the object has");
        Ok(())
    }
}

/// Uses the cache file for the blocks of one version of an image. Without a strong ETag nothing proves that
/// it is the same one later.
fn keep(bucket: &Bucket, meta: &ObjectMeta, options: &Options) -> crate::Result<()> {
    let Some(tag) = strong_tag(meta) else {
        if options.cache_file.is_some() {
            bucket.leave_cache("the store names no version (strong ETag), so the cache file is not used");
        }
        return Ok(());
    };
    bucket.keep(options, &format!("image of {} bytes, version {tag}", meta.size), BLOCK)
}

/// The version that proves that the bytes are the same.
fn strong_tag(meta: &ObjectMeta) -> Option<&str> {
    meta.e_tag.as_deref().filter(|tag| !tag.starts_with("W/"))
}

impl Object {
    /// The version that can be a condition: a strong ETag.
    fn condition(&self) -> Option<&str> {
        strong_tag(&self.meta)
    }

    async fn block(&self, block: u64) -> crate::Result<Arc<Data>> {
        if let Some(error) = self.changed.get() {
            return Err(error.clone());
        }
        let got = self.blocks.get(block, async {
            let start = block * BLOCK;
            let range = start..(start + BLOCK).min(self.meta.size);
            let want = index_of(range.end - range.start);
            let (kept, id) = (self.bucket.kept.get(), ObjectId { session: 0, number: block });
            if let Some(bytes) = kept.and_then(|kept| kept.get(id, range.end - range.start, None)) {
                add(&self.bucket.counts.kept, 1);
                return Ok((bytes, want));
            }
            match self.bucket.get_range(range, self.condition()).await {
                Ok((meta, bytes)) if self.is_same(&meta) && bytes.len() == want => {
                    if let Some(kept) = kept {
                        kept.put(id, &bytes, sum(&bytes));
                    }
                    Ok((bytes, want))
                }
                Ok(_) => Err(self.changed()),
                Err(Failure::Final(LibraryError::Precondition { .. } | LibraryError::NotFound { .. })) => {
                    Err(self.changed())
                }
                Err(Failure::Final(LibraryError::NotSupported { .. })) => Err(StoreError::Remote(
                    "the server sends no ranges of files (it ignores Range), so an image on it can't be \
                         read in parts; copy the file"
                        .to_owned(),
                )),
                Err(failure) => Err(failure.error("read it")),
            }
        });
        got.await
    }

    fn is_same(&self, meta: &ObjectMeta) -> bool {
        let same_date = meta.e_tag.is_some() || meta.last_modified == self.meta.last_modified;
        meta.size == self.meta.size && meta.e_tag == self.meta.e_tag && same_date
    }

    /// Notes that all that was read so far is of a version that is gone.
    fn changed(&self) -> StoreError {
        let text = "it was changed or removed while it was read (it has another version than when it was \
                    opened): what was read so far is the old version; start again";
        self.changed.get_or_init(|| StoreError::Remote(text.to_owned())).clone()
    }
}

impl Device for ImageDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Bytes {
        Bytes::new(self.object.meta.size)
    }

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> Result<()> {
        let span = Span::new(at, Bytes::of(buf.len()));
        check_range(self, Operation::Read, span)?;
        if buf.is_empty() {
            return Ok(());
        }
        self.read_ahead(at.get(), at.get() + u64_of(buf.len()));
        let filled = runtime::wait(self.fill(at.get(), buf));
        filled.map_err(|error| self.fail(Operation::Read, Some(span), error.reason()))
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> Result<()> {
        check_change(self, Operation::Write, Span::new(at, Bytes::of(data.len())))
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn zero(&self, at: Bytes, len: Bytes) -> Result<()> {
        check_change(self, Operation::Zero, Span::new(at, len))
    }

    fn discard(&self, at: Bytes, len: Bytes) -> Result<()> {
        check_change(self, Operation::Discard, Span::new(at, len))
    }

    fn resize(&self, len: Bytes) -> Result<()> {
        Err(self.fail(Operation::Resize, Some(Span::new(Bytes::ZERO, len)), Reason::ReadOnly))
    }

    fn is_zeroed(&self) -> bool {
        false
    }

    fn is_read_only(&self) -> bool {
        true
    }
}
