//! Volumes and images in object stores: `s3://BUCKET/PREFIX`, `gs://`, `az://`, `file+store:///DIRECTORY`,
//! and images at `https://HOST/PATH`, in the place of a path.
//!
//! Hazard: an address may have a password or a signature in it, which is refused; it is never shown.

use crate::failure::{Failure, Outcome, tell};
use crate::heading;
use crate::name::shown;
use crate::patience::{takes_over, timeout};
use crate::size_arg::parse_size;
use hectare_device::Device;
use hectare_device::os::OsStrExt;
use hectare_store::{Address, Bucket, Cost, DEFAULT_CHUNK, Opened, Options, kind_of};
use hectare_units::Bytes;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The version of the manifests that are written.
pub(crate) const MANIFEST: Option<u32> = Some(hectare_store::MANIFEST_VERSION);

static ARGUMENTS: OnceLock<StoreArguments> = OnceLock::new();
/// The stores that were used, for their costs at the end.
static USED: Mutex<Vec<Arc<Bucket>>> = Mutex::new(Vec::new());

/// How object stores are used.
#[derive(clap::Args, Clone, Default)]
#[command(next_help_heading = heading::SERVERS)]
pub(crate) struct StoreArguments {
    /// For volumes in object stores (s3://...): the directory for writes that are not flushed yet [default:
    /// hectare/store in the cache directory]
    #[arg(long, global = true, value_name = "DIR", hide_short_help = true)]
    store_log: Option<PathBuf>,
    /// For volumes in object stores that are made: the bytes of a chunk, 4K to 64M [default: 4M]
    #[arg(long, global = true, value_name = "SIZE", value_parser = parse_size, hide_short_help = true)]
    chunk_size: Option<u64>,
    /// For object stores: keep what is fetched in this file for later commands, at most SIZE of it
    /// [default: 1G]; what is in it is used only if the store still names it
    #[arg(long, global = true, value_name = "FILE[,SIZE]", value_parser = parse_cache_file)]
    #[arg(hide_short_help = true)]
    cache_file: Option<CacheFile>,
    /// For object stores: print at the end how many requests were made, and how many bytes went
    #[arg(long, global = true, hide_short_help = true)]
    store_stats: bool,
}

/// A cache file, and its most bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
struct CacheFile(PathBuf, u64);

/// What follows the last comma is a size, unless it can't be one.
fn parse_cache_file(text: &str) -> Result<CacheFile, String> {
    let sized = text.rsplit_once(',').and_then(|(path, size)| Some((path, parse_size(size).ok()?)));
    let (path, size) = sized.unwrap_or((text, 1 << 30));
    match path {
        "" => Err("it names no file".to_owned()),
        path => Ok(CacheFile(path.into(), size)),
    }
}

impl StoreArguments {
    /// Holds for all stores from here on.
    pub(crate) fn apply(self) {
        ARGUMENTS.get_or_init(|| self);
    }
}

/// Whether an image is named by an address in an object store.
pub(crate) fn is_address(image: &Path) -> bool {
    Address::is_meant(image.as_os_str().as_bytes())
}

/// Refuses the cache file for an export, of which nothing proves that it was not changed.
pub(crate) fn refuse_cache_file() -> Outcome {
    if ARGUMENTS.get().is_none_or(|arguments| arguments.cache_file.is_none()) {
        return Ok(());
    }
    Err(Failure::Usage(
        "--cache-file is for object stores: an NBD server has no number that changes with an export's \
         content, so what was kept could be out of date"
            .to_owned(),
    ))
}

/// How a store is used, as the command line has it.
pub(crate) fn options(write: bool) -> Options {
    let arguments = ARGUMENTS.get().cloned().unwrap_or_default();
    let default = Options::default();
    let patience = timeout().unwrap_or(default.patience);
    let cache_file = arguments.cache_file.map(|CacheFile(path, size)| (path, Bytes::new(size)));
    let (log, takeover) = (arguments.store_log, takes_over());
    Options { write, log, takeover, patience, cache_file, ..default }
}

/// The store of an address, and what it is called.
pub(crate) fn connect(image: &Path, options: &Options) -> Outcome<(Arc<Bucket>, Address)> {
    let text = image.as_os_str().as_bytes();
    let named = || shown(Address::without_secrets(&String::from_utf8_lossy(text)).as_bytes());
    let address = Address::parse(text).map_err(|error| Failure::of(named(), error))?;
    let bucket = Bucket::connect(&address, options).map_err(|error| Failure::of(&address, error))?;
    let bucket = Arc::new(bucket);
    USED.lock().push(Arc::clone(&bucket));
    Ok((bucket, address))
}

/// Whether there is something; what can't be asked is taken to be there, so that opening it says why.
pub(crate) fn is_there(image: &Path) -> bool {
    let missing = |(bucket, address): (Arc<Bucket>, Address)| matches!(kind_of(&bucket, &address), Ok(None));
    match connect(image, &options(false)) {
        Ok(connected) => !missing(connected),
        // A directory that is not there.
        Err(_) => Address::parse(image.as_os_str().as_bytes()).is_ok_and(|address| match address.place {
            hectare_store::Place::Directory(path) => path.exists(),
            _ => true,
        }),
    }
}

/// Makes a volume of zeros.
pub(crate) fn create(image: &Path, size: Bytes) -> Outcome {
    let (bucket, address) = connect(image, &Options { make_directory: true, ..options(true) })?;
    let chunk = ARGUMENTS.get().and_then(|arguments| arguments.chunk_size).map_or(DEFAULT_CHUNK, Bytes::new);
    hectare_store::create(&bucket, size, chunk).map_err(|error| Failure::of(address, error))
}

/// Opens a volume or an image.
pub(crate) fn open(image: &Path, write: bool) -> Outcome<Arc<dyn Device>> {
    let options = options(write);
    let (bucket, address) = connect(image, &options)?;
    let opened = hectare_store::open(bucket, &address, &options);
    let opened = opened.map_err(|error| Failure::Line(error.to_string()))?;
    let notes = match &opened {
        Opened::Volume(volume) => volume.notes(),
        Opened::Image(image) => image.notes(),
    };
    notes.iter().for_each(|note| tell(format_args!("{address}: note: {note}")));
    Ok(opened.into_device())
}

/// Prints what stores were asked for, if that is wanted.
pub(crate) fn print_costs() {
    if !ARGUMENTS.get().is_some_and(|arguments| arguments.store_stats) {
        return;
    }
    for bucket in USED.lock().drain(..).filter(|bucket| bucket.cost() != Cost::default()) {
        tell(format_args!("{}: {}", bucket.name(), bucket.cost()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_file_may_have_a_size() {
        let file = |path: &str, size| Ok(CacheFile(path.into(), size));
        assert_eq!(parse_cache_file("/a/b"), file("/a/b", 1 << 30));
        assert_eq!(parse_cache_file("/a/b,2M"), file("/a/b", 2 << 20));
        assert_eq!(parse_cache_file("/a,b/c"), file("/a,b/c", 1 << 30));
        assert!(parse_cache_file("").is_err() && parse_cache_file(",1M").is_err());
    }
}
