//! This build has no object stores: their addresses are known, and refused by name.

use crate::failure::{Failure, Outcome};
use crate::name::shown;
use hectare_device::Device;
use hectare_device::os::OsStrExt;
use hectare_units::Bytes;
use std::path::Path;
use std::sync::Arc;

/// What to do about it.
pub(crate) const REASON: &str =
    "this program was built without object stores: install a package of it, or build with --features store";
/// No manifests are written.
pub(crate) const MANIFEST: Option<u32> = None;
const SCHEMES: [&str; 6] = ["s3://", "gs://", "az://", "file+store://", "https://", "http://"];

/// There are none.
#[derive(clap::Args, Clone, Default)]
pub(crate) struct StoreArguments {}

impl StoreArguments {
    #[allow(clippy::unused_self)] // as in a build with object stores
    pub(crate) fn apply(self) {}
}

/// Whether an image is named by an address in an object store.
pub(crate) fn is_address(image: &Path) -> bool {
    SCHEMES.iter().any(|scheme| image.as_os_str().as_bytes().starts_with(scheme.as_bytes()))
}

/// Opening it says that there is none.
pub(crate) fn is_there(_: &Path) -> bool {
    true
}

/// There is no such option.
#[allow(clippy::unnecessary_wraps)] // as in a build with object stores
pub(crate) fn refuse_cache_file() -> Outcome {
    Ok(())
}

fn absent(image: &Path) -> Failure {
    let scheme = shown(image.as_os_str().as_bytes()).split("://").next().unwrap_or_default().to_owned();
    Failure::of(format_args!("{scheme}://..."), REASON)
}

pub(crate) fn create(image: &Path, _: Bytes) -> Outcome {
    Err(absent(image))
}

pub(crate) fn open(image: &Path, _: bool) -> Outcome<Arc<dyn Device>> {
    Err(absent(image))
}

/// There are none.
pub(crate) fn print_costs() {}
