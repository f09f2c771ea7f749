//! Small volumes on a store of the test's choice.

use futures_util::TryStreamExt;
use hectare_device::Device;
use hectare_store::{Bucket, Options, StoreDevice, create};
use hectare_units::{Bytes, index_of};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const CHUNK: Bytes = Bytes::kib(16);
pub(crate) const PREFIX: &str = "some/volume";

/// Options for a volume whose local log lies in a directory. The lease outlasts every test.
pub(crate) fn options(logs: &std::path::Path) -> Options {
    Options {
        write: true,
        log: Some(logs.to_owned()),
        lease: Duration::from_secs(3600),
        ..Options::default()
    }
}

/// Likewise, without patches: each flush puts whole chunks.
pub(crate) fn whole(logs: &std::path::Path) -> Options {
    Options { patches: Bytes::ZERO, ..options(logs) }
}

/// Likewise, without patience: the first request that fails is the last.
pub(crate) fn impatient(logs: &std::path::Path) -> Options {
    Options { patience: Duration::ZERO, parallel: 1, ..options(logs) }
}

pub(crate) fn bucket(store: &Arc<dyn ObjectStore>, options: &Options) -> Arc<Bucket> {
    Arc::new(Bucket::new(Arc::clone(store), PREFIX, "store://test", options).unwrap())
}

/// A new volume.
pub(crate) fn made(store: &Arc<dyn ObjectStore>, len: Bytes, options: &Options) -> StoreDevice {
    create(&bucket(store, options), len, CHUNK).unwrap();
    opened(store, options).unwrap()
}

pub(crate) fn opened(store: &Arc<dyn ObjectStore>, options: &Options) -> hectare_store::Result<StoreDevice> {
    StoreDevice::open(bucket(store, options), options)
}

/// What a new reader finds in the store.
pub(crate) fn stored(store: &Arc<dyn ObjectStore>) -> Vec<u8> {
    let options = Options { write: false, ..Options::default() };
    content(&opened(store, &options).unwrap())
}

pub(crate) fn content(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0xee; index_of(device.len().get())];
    device.read_at(Bytes::ZERO, &mut bytes).unwrap();
    bytes
}

/// The names of all objects of the volume.
pub(crate) fn objects(store: &Arc<dyn ObjectStore>) -> Vec<String> {
    let listed = store.list(None).map_ok(|meta| meta.location.to_string()).try_collect::<Vec<_>>();
    let mut names = wait(listed).unwrap();
    names.retain(|name| name.contains("/objects/"));
    names.sort();
    names
}

/// Waits for requests to a store.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// A store with the same objects.
pub(crate) fn copied(store: &Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
    let copy: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    wait(async {
        let metas: Vec<_> = store.list(None).try_collect().await.unwrap();
        for meta in metas {
            let bytes = store.get(&meta.location).await.unwrap().bytes().await.unwrap();
            copy.put(&meta.location, bytes.into()).await.unwrap();
        }
    });
    copy
}

/// The lease of a writer that crashed has ended, and it was taken over: what else would take an hour.
pub(crate) fn release(store: &Arc<dyn ObjectStore>) {
    let path = Path::from(format!("{PREFIX}/lock"));
    wait(async {
        let bytes = store.get(&path).await.unwrap().bytes().await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        store.put(&path, text.replace("held", "released").into_bytes().into()).await.unwrap();
    });
}
