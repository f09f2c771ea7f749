//! A directory as a store: each object is a file. The library's own, with what it lacks: puts that depend on
//! the present version.
//!
//! Invariants: what was put is durable (file and directory are synced). Between the look at the version and
//! the put a lock is held (on the file `.hectare-swap`), so that of two puts that expect the same
//! version one fails, also across processes; over a network file system as far as that has `flock`.

use crate::{Error, Result};
use async_trait::async_trait;
use futures_util::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use std::fmt;
use std::fs::File;
use std::path::{Path as FilePath, PathBuf};

const NAME: &str = "directory";
const LOCK: &str = ".hectare-swap";

/// Objects as files of a directory.
#[derive(Debug)]
pub struct DirectoryStore {
    files: LocalFileSystem,
    lock: PathBuf,
}

impl DirectoryStore {
    /// Uses a directory, which is made if it is missing and `make` says so.
    ///
    /// # Errors
    /// If it is missing or can't be used.
    pub fn open(directory: &FilePath, make: bool) -> Result<Self> {
        let failed =
            |error: &dyn fmt::Display| Error::Remote(format!("the directory can't be used: {error}"));
        if make {
            std::fs::create_dir_all(directory).map_err(|error| failed(&error))?;
        }
        if !directory.is_dir() {
            return Err(Error::Missing("there is no such directory".to_owned()));
        }
        let files = LocalFileSystem::new_with_prefix(directory).map_err(|error| failed(&error))?;
        Ok(Self { files: files.with_fsync(true), lock: directory.join(LOCK) })
    }

    /// Keeps all other conditional puts out until the result is dropped.
    async fn alone(&self) -> object_store::Result<File> {
        let path = self.lock.clone();
        let locked = tokio::task::spawn_blocking(move || {
            let file = File::options().write(true).create(true).truncate(false).open(path)?;
            file.lock()?;
            Ok::<_, std::io::Error>(file)
        });
        let failed = |source| object_store::Error::Generic { store: NAME, source: Box::new(source) };
        locked.await?.map_err(failed)
    }
}

impl fmt::Display for DirectoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.files.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for DirectoryStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        mut opts: PutOptions,
    ) -> object_store::Result<PutResult> {
        let PutMode::Update(expected) = &opts.mode else {
            return self.files.put_opts(location, payload, opts).await;
        };
        let _alone = self.alone().await?;
        let missing = |error| match error {
            object_store::Error::NotFound { path, source } => {
                object_store::Error::Precondition { path, source }
            }
            other => other,
        };
        let there = self.files.head(location).await.map_err(missing)?;
        if there.e_tag.is_none() || there.e_tag != expected.e_tag {
            let source = "it is another version".into();
            return Err(object_store::Error::Precondition { path: location.to_string(), source });
        }
        opts.mode = PutMode::Overwrite;
        self.files.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.files.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        self.files.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.files.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.files.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.files.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.files.copy_opts(from, to, options).await
    }
}
