//! A store whose requests fail on demand: before they are done, after they are done, or without any answer.

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;

/// What happens to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// It is done.
    Done,
    /// It is not done, and fails.
    Refused,
    /// It is done, and fails all the same: its answer was lost.
    Lost,
    /// It is done, and has no answer.
    Silent,
    /// It is not done, and has no answer.
    Stuck,
}

/// A request: its number, its kind and the object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) number: u64,
    pub(crate) kind: &'static str,
    pub(crate) name: String,
}

type Rule = Box<dyn FnMut(&Request) -> Fate + Send>;

/// A store with a rule for what happens to requests.
pub(crate) struct FaultStore {
    inner: Arc<dyn ObjectStore>,
    rule: Mutex<Rule>,
    seen: Mutex<Vec<Request>>,
}

impl FaultStore {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>) -> Arc<Self> {
        Arc::new(Self { inner, rule: Mutex::new(Box::new(|_| Fate::Done)), seen: Mutex::default() })
    }

    /// From here on this rule holds, and requests are counted from 0.
    pub(crate) fn rule(&self, rule: impl FnMut(&Request) -> Fate + Send + 'static) {
        *self.rule.lock() = Box::new(rule);
        self.seen.lock().clear();
    }

    /// The requests since the rule was made.
    pub(crate) fn seen(&self) -> Vec<Request> {
        self.seen.lock().clone()
    }

    fn fate(&self, kind: &'static str, name: &Path) -> Fate {
        let mut seen = self.seen.lock();
        let request = Request { number: seen.len() as u64, kind, name: name.to_string() };
        let fate = (self.rule.lock())(&request);
        seen.push(request);
        fate
    }

    async fn run<T>(
        &self,
        kind: &'static str,
        name: &Path,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        match self.fate(kind, name) {
            Fate::Done => request.await,
            Fate::Refused => Err(broken()),
            Fate::Lost => {
                let _ = request.await;
                Err(broken())
            }
            Fate::Silent => {
                let _ = request.await;
                std::future::pending().await
            }
            Fate::Stuck => std::future::pending().await,
        }
    }
}

fn broken() -> Error {
    Error::Generic { store: "fault", source: "the line is broken (https://h/x?sig=hunter2)".into() }
}

impl fmt::Debug for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultStore")
    }
}

impl fmt::Display for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultStore")
    }
}

#[async_trait]
impl ObjectStore for FaultStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let kind = if opts.mode == PutMode::Overwrite { "put" } else { "swap" };
        self.run(kind, location, self.inner.put_opts(location, payload, opts)).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.run("get", location, self.inner.get_opts(location, options)).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let inner = Arc::clone(&self.inner);
        // One request for all of them, as stores have it.
        let fate = self.fate("delete", &Path::default());
        let deleted = locations.then(move |path| {
            let inner = Arc::clone(&inner);
            async move {
                let path = path?;
                if fate != Fate::Refused && fate != Fate::Stuck {
                    inner.delete(&path).await?;
                }
                if fate == Fate::Done { Ok(path) } else { Err(broken()) }
            }
        });
        deleted.boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.fate("list", &prefix.cloned().unwrap_or_default()) {
            Fate::Done => self.inner.list(prefix),
            _ => stream::iter([Err(broken())]).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
