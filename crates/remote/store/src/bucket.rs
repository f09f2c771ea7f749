//! A prefix of a store: named objects, with requests that are bounded in time and number, repeated when
//! that can help, and counted.
//!
//! Hazard: an answer can be lost. A plain put is repeated without harm, as each object has one content. A
//! conditional put whose answer was lost fails when it is repeated, by its own doing; so whenever one
//! fails, the object is read and compared with what was to be put ([`Bucket::put_if`]). Whatever is put by
//! condition is different each time.

use crate::cache_file::{CacheFile, Wanted};
use crate::cost::{Counts, add};
use crate::error::without_secrets;
use crate::{Address, Cost, Error, Options, Result};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use hectare_device::Clock;
use hectare_units::u64_of;
use object_store::path::Path;
use object_store::{
    Error as StoreError, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    UpdateVersion,
};
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// The first pause before a request is repeated; each is twice the last.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(5);
/// Slower transfers than this many bytes in a second count as no answer.
const SLOWEST: u64 = 32 << 10;

/// A prefix of a store.
pub struct Bucket {
    store: Arc<dyn ObjectStore>,
    root: Path,
    name: String,
    turns: Semaphore,
    attempt: Duration,
    patience: Duration,
    clock: Clock,
    pub(crate) parallel: usize,
    pub(crate) counts: Counts,
    /// Set once it is known what is opened.
    pub(crate) kept: OnceLock<CacheFile>,
    /// Set once the cache file was opened, or left: what the user should know of that.
    cache_note: OnceLock<Option<String>>,
}

/// An object as it was read.
pub(crate) struct Object {
    pub(crate) bytes: Bytes,
    pub(crate) version: UpdateVersion,
    /// When it was put, by the store's clock.
    pub(crate) modified: SystemTime,
}

/// How a conditional put ended.
pub(crate) enum Swapped {
    /// It is done; the new version.
    Done(UpdateVersion),
    /// Another version is there, or none.
    Other(Option<Object>),
}

impl Bucket {
    /// The prefix that an address names.
    ///
    /// # Errors
    /// If the store can't be used as the environment has it.
    pub fn connect(address: &Address, options: &Options) -> Result<Self> {
        let store = crate::connect::connect(address, options)?;
        Self::new(store, &address.path, &address.to_string(), options)
    }

    /// A prefix of a store that is at hand; `name` is for messages.
    ///
    /// # Errors
    /// If the prefix is no path of objects.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: &str, name: &str, options: &Options) -> Result<Self> {
        let root = Path::parse(prefix);
        Ok(Self {
            store,
            root: root.map_err(|_| Error::Address("its path can't be one of objects"))?,
            name: name.to_owned(),
            turns: Semaphore::new(options.parallel.max(1)),
            attempt: options.attempt,
            patience: options.patience,
            clock: options.clock,
            parallel: options.parallel.max(1),
            counts: Counts::default(),
            kept: OnceLock::new(),
            cache_note: OnceLock::new(),
        })
    }

    /// What messages call it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What was asked of the store so far.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.counts.now()
    }

    /// Uses the cache file of the options, if there is one, for what has this identity and is at most
    /// `room` bytes long. Only the first call does something.
    pub(crate) fn keep(&self, options: &Options, identity: &str, room: u64) -> Result<()> {
        let Some((path, size)) = options.cache_file.as_ref().filter(|_| self.cache_note.get().is_none())
        else {
            return Ok(());
        };
        let identity = format!("{}\n{identity}", self.name);
        let (file, note) = CacheFile::open(&Wanted { path, size: *size, identity: &identity, room })?;
        if let Some(file) = file {
            let _ = self.kept.set(file);
        }
        let _ = self.cache_note.set(note);
        Ok(())
    }

    /// Does without the cache file, for this reason.
    pub(crate) fn leave_cache(&self, why: &str) {
        let _ = self.cache_note.set(Some(why.to_owned()));
    }

    /// What the user should know of the cache file.
    pub(crate) fn cache_note(&self) -> Option<String> {
        self.cache_note.get().cloned().flatten()
    }

    /// The path of an object; an empty name is the prefix itself.
    fn path(&self, name: &str) -> Path {
        let parts = self.root.parts().map(|part| part.as_ref().to_owned());
        Path::from_iter(parts.chain(name.split('/').filter(|part| !part.is_empty()).map(str::to_owned)))
    }

    /// Makes a request until it succeeds, can't succeed, or time is up. `len` is how many bytes it moves.
    async fn attempts<T, F>(
        &self,
        what: &str,
        count: &AtomicU64,
        len: u64,
        mut request: impl FnMut() -> F,
    ) -> std::result::Result<T, Failure>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let limit = self.attempt + Duration::from_secs(len / SLOWEST);
        let started = self.clock.now();
        let (mut pause, mut tries) = (FIRST_PAUSE, 0_u32);
        loop {
            tries += 1;
            let asked = {
                let _turn = self.turns.acquire().await;
                add(count, 1);
                timeout(limit, request()).await
            };
            let why = match asked {
                Ok(Ok(done)) => return Ok(done),
                Ok(Err(error)) if is_final(&error) => return Err(Failure::Final(error)),
                Ok(Err(error)) => without_secrets(&error.to_string()),
                Err(_) => format!("no answer within {} s", limit.as_secs_f32()),
            };
            // One that had no answer may have taken all the time: it is tried again all the same.
            let tried = self.clock.now().saturating_sub(started);
            let is_over = tried + pause > self.patience;
            if self.patience.is_zero() || (is_over && tries > 1) {
                let tried = tried.as_secs_f32();
                return Err(Failure::Gone(format!("can't {what}, tried for {tried:.1} s: {why}")));
            }
            log::debug!("{}: {what}: {why}; trying again", self.name);
            add(&self.counts.retries, 1);
            sleep(self.clock.real(pause.mul_f64(0.5 + jitter()))).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    /// Reads an object of at most `max` bytes; `None` if there is none.
    pub(crate) async fn get(&self, name: &str, max: u64) -> Result<Option<Object>> {
        let (path, what) = (self.path(name), format!("read {name}"));
        let request = || async {
            let result = in_time(self.attempt, self.store.get_opts(&path, GetOptions::new())).await?;
            if result.meta.size > max {
                return Ok(Err(result.meta.size));
            }
            let meta = result.meta.clone();
            // How long it may take is known only now.
            let limit = self.attempt + Duration::from_secs(meta.size / SLOWEST);
            Ok(Ok((meta, in_time(limit, result.bytes()).await?)))
        };
        match self.attempts(&what, &self.counts.gets, max, request).await {
            Ok(Ok((meta, bytes))) => {
                add(&self.counts.received, u64_of(bytes.len()));
                let version = UpdateVersion { e_tag: meta.e_tag, version: meta.version };
                Ok(Some(Object { bytes, version, modified: meta.last_modified.into() }))
            }
            Ok(Err(size)) => {
                Err(Error::Damaged(format!("its object {name} has {size} bytes, more than {max}")))
            }
            Err(Failure::Final(StoreError::NotFound { .. })) => Ok(None),
            Err(failure) => Err(failure.error(&what)),
        }
    }

    /// The properties of an object; `None` if there is none.
    pub(crate) async fn head(&self, name: &str) -> Result<Option<ObjectMeta>> {
        let (path, what) = (self.path(name), format!("ask about {name}"));
        let request = || self.store.head(&path);
        match self.attempts(&what, &self.counts.gets, 0, request).await {
            Ok(meta) => Ok(Some(meta)),
            Err(Failure::Final(StoreError::NotFound { .. })) => Ok(None),
            Err(failure) => Err(failure.error(&what)),
        }
    }

    /// Reads a range of the object at the prefix itself, of a given version, with its properties.
    pub(crate) async fn get_range(
        &self,
        range: Range<u64>,
        if_match: Option<&str>,
    ) -> std::result::Result<(ObjectMeta, Bytes), Failure> {
        let (path, len) = (self.path(""), range.end - range.start);
        let what = format!("read {len} bytes at byte {}", range.start);
        let request = || async {
            let options = GetOptions {
                range: Some(GetRange::Bounded(range.clone())),
                if_match: if_match.map(str::to_owned),
                ..GetOptions::new()
            };
            let result = self.store.get_opts(&path, options).await?;
            let meta = result.meta.clone();
            Ok((meta, result.bytes().await?))
        };
        let (meta, bytes) = self.attempts(&what, &self.counts.gets, len, request).await?;
        add(&self.counts.received, u64_of(bytes.len()));
        Ok((meta, bytes))
    }

    /// Puts an object whose name nothing else ever had, or has.
    pub(crate) async fn put(&self, name: &str, bytes: Bytes) -> Result<()> {
        let (path, what, len) = (self.path(name), format!("write {name}"), u64_of(bytes.len()));
        let request = || {
            add(&self.counts.sent, len);
            self.store.put_opts(&path, bytes.clone().into(), PutOptions::from(PutMode::Overwrite))
        };
        let put = self.attempts(&what, &self.counts.puts, len, request).await;
        put.map(|_| ()).map_err(|failure| failure.error(&what))
    }

    /// Puts an object if the version that is there is the expected one; `None`: if there is none.
    ///
    /// Is right about what happened, or an error: after that it is unknown.
    pub(crate) async fn put_if(
        &self,
        name: &str,
        bytes: Bytes,
        expected: Option<&UpdateVersion>,
    ) -> Result<Swapped> {
        if let Some(version) = self.put_once(name, bytes.clone(), expected).await? {
            return Ok(Swapped::Done(version));
        }
        let there = self.get(name, crate::manifest::MANIFEST_MAX).await?;
        Ok(match there {
            Some(object) if object.bytes == bytes => Swapped::Done(object.version),
            other => Swapped::Other(other),
        })
    }

    /// Likewise, without looking what is there if the condition does not hold (`None`).
    pub(crate) async fn put_once(
        &self,
        name: &str,
        bytes: Bytes,
        expected: Option<&UpdateVersion>,
    ) -> Result<Option<UpdateVersion>> {
        let (path, what, len) = (self.path(name), format!("replace {name}"), u64_of(bytes.len()));
        let mode = expected.map_or(PutMode::Create, |version| PutMode::Update(version.clone()));
        let request = || {
            add(&self.counts.sent, len);
            self.store.put_opts(&path, bytes.clone().into(), PutOptions::from(mode.clone()))
        };
        match self.attempts(&what, &self.counts.puts, len, request).await {
            Ok(done) => Ok(Some(UpdateVersion { e_tag: done.e_tag, version: done.version })),
            Err(Failure::Final(
                StoreError::Precondition { .. }
                | StoreError::AlreadyExists { .. }
                | StoreError::NotModified { .. },
            )) => Ok(None),
            Err(failure) => Err(failure.error(&what)),
        }
    }

    /// Deletes objects, as far as that works; returns how many could not be deleted.
    pub(crate) async fn delete(&self, names: impl IntoIterator<Item = String>) -> u64 {
        let paths: Vec<_> = names.into_iter().map(|name| Ok(self.path(&name))).collect();
        if paths.is_empty() {
            return 0;
        }
        let (count, limit) = (u64_of(paths.len()), self.attempt + Duration::from_millis(u64_of(paths.len())));
        add(&self.counts.deletes, count);
        let _turn = self.turns.acquire().await;
        let gone =
            |result: &object_store::Result<Path>| matches!(result, Ok(_) | Err(StoreError::NotFound { .. }));
        let deleted = self.store.delete_stream(stream::iter(paths).boxed());
        let deleted = timeout(limit, deleted.collect::<Vec<_>>()).await.unwrap_or_default();
        count.saturating_sub(u64_of(deleted.iter().filter(|result| gone(result)).count()))
    }

    /// The objects below a name, each with its length; only those behind `after`, if given.
    pub(crate) async fn list(&self, below: &str, after: Option<&str>) -> Result<Vec<(String, u64)>> {
        let (path, what) = (self.path(below), format!("list {below}"));
        let after = after.map(|name| self.path(name));
        let skip = self.root.as_ref().len() + usize::from(!self.root.as_ref().is_empty());
        let request = || {
            let list = match &after {
                Some(after) => self.store.list_with_offset(Some(&path), after),
                None => self.store.list(Some(&path)),
            };
            let name = |meta: ObjectMeta| {
                (meta.location.as_ref().get(skip..).unwrap_or_default().to_owned(), meta.size)
            };
            list.map_ok(name).try_collect::<Vec<_>>()
        };
        // A long listing takes its time: a thousand names are a page.
        let listed = self.attempts(&what, &self.counts.lists, SLOWEST * 3600, request).await;
        let listed = match listed {
            Err(Failure::Final(StoreError::NotFound { .. })) => Vec::new(),
            listed => listed.map_err(|failure| failure.error(&what))?,
        };
        add(&self.counts.lists, u64_of(listed.len()) / 1000);
        Ok(listed)
    }
}

/// Why a request has failed for good.
pub(crate) enum Failure {
    /// The store's answer can't change.
    Final(StoreError),
    /// There was no usable answer.
    Gone(String),
}

impl Failure {
    pub(crate) fn error(self, what: &str) -> Error {
        Error::Remote(match self {
            Self::Final(error) => format!("can't {what}: {}", without_secrets(&error.to_string())),
            Self::Gone(text) => text,
        })
    }
}

/// Whether asking again can't help.
fn is_final(error: &StoreError) -> bool {
    match error {
        StoreError::Generic { .. } => {
            // The library keeps the status to itself; a request that is wrong stays wrong.
            let text = error.to_string();
            let wrong = ["400", "401", "403", "405", "411", "413", "414", "416", "501"];
            let status = |code: &&str| text.contains(&format!("status code: {code}"));
            wrong.iter().any(status)
        }
        StoreError::JoinError { .. } => false,
        _ => true,
    }
}

/// A step of a request, ended after a time.
async fn in_time<T>(
    limit: Duration,
    step: impl Future<Output = object_store::Result<T>>,
) -> object_store::Result<T> {
    timeout(limit, step).await.unwrap_or_else(|_| {
        let source = format!("no answer within {} s", limit.as_secs_f32()).into();
        Err(StoreError::Generic { store: "store", source })
    })
}

/// Between 0 and 1.
fn jitter() -> f64 {
    let random = uuid::Uuid::new_v4().as_u128() & 0xffff;
    f64::from(u32::try_from(random).unwrap_or(0)) / 65536.0
}
