//! The asynchronous runtime that the client library needs: one for the process, made on first use.
//! Everything above blocks.

use std::sync::LazyLock;
use tokio::runtime::{Builder, Runtime};

static RUNTIME: LazyLock<Result<Runtime, String>> = LazyLock::new(|| {
    let built =
        Builder::new_multi_thread().worker_threads(2).thread_name("object store").enable_all().build();
    built.map_err(|error| format!("no threads for requests to object stores: {error}"))
});

/// Waits for a future.
pub(crate) fn wait<T>(future: impl Future<Output = crate::Result<T>>) -> crate::Result<T> {
    match &*RUNTIME {
        Ok(runtime) => runtime.block_on(future),
        Err(reason) => Err(crate::Error::Remote(reason.clone())),
    }
}

/// Runs a future beside everything else.
pub(crate) fn spawn(
    future: impl Future<Output = ()> + Send + 'static,
) -> Option<tokio::task::JoinHandle<()>> {
    RUNTIME.as_ref().ok().map(|runtime| runtime.spawn(future))
}
