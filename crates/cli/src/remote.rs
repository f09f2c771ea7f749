//! Images on NBD servers: `nbd://HOST[:PORT]/EXPORT` and `nbd+unix:///EXPORT?socket=PATH` in the place of a
//! path.
//!
//! A server keeps nobody else from using an export: unlike files and block devices it has no locks that can
//! be taken here. So volumes on servers are made with multiple-mount protection (`mmp`), and one that is in use
//! is refused for writing, unless it is to be taken over.

use crate::failure::{Failure, Outcome, tell};
use crate::name::shown;
use crate::size_arg::parse_size;
use hectare_device::{CacheCounters, CacheDevice, CacheLimits, Device};
use hectare_engine::OpenOptions;
use hectare_ext4::feature::{Feature, Features, Incompat};
use hectare_mkfs::{FeatureEdit, FormatOptions, FsType};
use hectare_nbd::{Address, NbdDevice, Options};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long opening for writing waits so that two openers at the same moment see each other: more than a line
/// takes for two round trips.
const SETTLE: Duration = Duration::from_secs(1);

static TIMEOUT: OnceLock<Duration> = OnceLock::new();
static CACHE: OnceLock<Cache> = OnceLock::new();

/// The memory for what is read from and written to a server.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct Cache {
    /// For images on servers (nbd://...): memory for what was read and what is to be written; 0 for none
    #[arg(long = "cache", global = true, value_name = "SIZE", hide_short_help = true)]
    #[arg(value_parser = parse_size, default_value = "32M")]
    bytes: u64,
    /// For images on servers: print how many requests were made, and what the cache did, on standard error
    #[arg(long, global = true, hide_short_help = true)]
    remote_stats: bool,
}

impl Cache {
    /// Holds for all servers from here on.
    pub(crate) fn apply(self) {
        CACHE.get_or_init(|| self);
    }

    /// A device with the cache over it.
    fn over(self, device: NbdDevice) -> CacheDevice<NbdDevice> {
        let bytes = usize::try_from(self.bytes).unwrap_or(usize::MAX / 2);
        let cached = CacheDevice::new(device, CacheLimits::of(bytes));
        if !self.remote_stats {
            return cached;
        }
        cached.at_end(|device, counters| {
            let CacheCounters { hits, misses, fetched, buffered, written } = counters;
            tell(format_args!(
                "{}: {} requests, {} connections made again; cache: {hits} reads hit, {misses} missed, \
                 {fetched} bytes fetched; {buffered} writes became {written}",
                device.name(),
                device.requests(),
                device.reconnects()
            ));
        })
    }
}

/// How long a server may be away.
#[derive(clap::Args, Clone, Copy, Default)]
pub(crate) struct ReconnectTimeout {
    /// For images on servers (nbd://...): give up if a lost connection can't be made again within this many
    /// seconds [default: 60]
    #[arg(long, global = true, value_name = "SECONDS", hide_short_help = true)]
    #[arg(value_parser = clap::value_parser!(u64).range(..=86_400))]
    reconnect_timeout: Option<u64>,
}

impl ReconnectTimeout {
    /// Holds for all servers from here on.
    pub(crate) fn apply(self) {
        if let Some(seconds) = self.reconnect_timeout {
            TIMEOUT.get_or_init(|| Duration::from_secs(seconds));
        }
    }
}

/// Whether a volume that was left in use is to be taken.
#[derive(clap::Args, Clone, Copy, Default)]
pub(crate) struct Takeover {
    /// On a server (nbd://...): take a volume whose user is gone: one that does not renew its mark (MMP) while
    /// this waits, 22 seconds or more
    #[arg(long, hide_short_help = true)]
    takeover: bool,
}

impl Takeover {
    /// Sets how a volume that others may use is opened for writing.
    pub(crate) fn apply(self, image: &Path, options: &mut OpenOptions) {
        if is_address(image) {
            options.mmp_wait = self.takeover;
            options.mmp_settle = SETTLE;
        }
    }
}

/// Mentions that nothing keeps others from writing to a volume at the same time.
pub(crate) fn mention_unprotected(image: &Path, features: &Features) {
    if is_address(image) && !features.incompat.contains(Incompat::MMP) {
        let name = shown(image.as_os_str().as_bytes());
        tell(format_args!(
            "{name}: note: it lacks the feature mmp, so nothing keeps others from writing to it at the same \
             time; 'hectare tune -O mmp' adds it"
        ));
    }
}

/// What the features of a new volume begin with: protection, if it is an ext4 volume on a server.
pub(crate) fn first_features(image: &Path, options: &FormatOptions) -> Vec<FeatureEdit> {
    let is_meant = is_address(image) && options.fs_type == FsType::Ext4;
    let mmp = Feature::Incompat(Incompat::MMP);
    is_meant.then_some(FeatureEdit::On(mmp)).into_iter().collect()
}

/// Whether an image is named by the address of an export.
pub(crate) fn is_address(image: &Path) -> bool {
    Address::is_meant(image.as_os_str().as_bytes())
}

/// Where the image ends in an argument that begins with the address of an export: at the first colon after
/// the host and a slash. `None` if there is none.
pub(crate) fn end_of_address(argument: &[u8]) -> Option<usize> {
    let text = argument.windows(3).position(|part| part == b"://")? + 3;
    let slash = text + argument[text..].iter().position(|byte| *byte == b'/')?;
    Some(slash + argument[slash..].iter().position(|byte| *byte == b':')?)
}

/// The export that an image is, with a cache over it.
pub(crate) fn open(image: &Path, write: bool) -> Outcome<Arc<dyn Device>> {
    let device = connect(image, write)?;
    Ok(match CACHE.get() {
        Some(cache) => Arc::new(cache.over(device)),
        None => Arc::new(device),
    })
}

/// The export alone, for those that are not its only user.
pub(crate) fn open_shared(image: &Path, write: bool) -> Outcome<Arc<dyn Device>> {
    Ok(Arc::new(connect(image, write)?))
}

/// Connects to the export that an image is.
fn connect(image: &Path, write: bool) -> Outcome<NbdDevice> {
    let text = image.as_os_str().as_bytes();
    let address =
        Address::parse(text).map_err(|error| Failure::of(Address::without_secrets(&shown(text)), error))?;
    let default = Options::default();
    let reconnect_timeout = TIMEOUT.get().copied().unwrap_or(default.reconnect_timeout);
    let options = Options { write, reconnect_timeout, ..default };
    NbdDevice::open(&address, &options).map_err(|error| Failure::Line(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_on_a_server_ends_at_the_colon_after_its_address() {
        let end = |argument: &str| end_of_address(argument.as_bytes()).map(|at| argument[..at].to_owned());
        assert_eq!(end("nbd://h:1/x:/etc/a:b").as_deref(), Some("nbd://h:1/x"));
        assert_eq!(end("nbd://[::1]:1/:/etc").as_deref(), Some("nbd://[::1]:1/"));
        assert_eq!(end("nbd+unix:///x?socket=/run/s:a").as_deref(), Some("nbd+unix:///x?socket=/run/s"));
        assert_eq!(end("nbd://h:1/x"), None);
        assert_eq!(end("nbd://h:1"), None);
        assert!(is_address(Path::new("nbd://h")) && !is_address(Path::new("nbd.img")));
    }
}
