//! Images on NBD servers: `nbd://HOST[:PORT]/EXPORT` and `nbd+unix:///EXPORT?socket=PATH` in the place of a
//! path, with `nbds` through TLS; and in object stores ([`store`]).
//!
//! A server keeps nobody else from using an export: unlike files and block devices it has no locks that can
//! be taken here. So volumes on servers are made with multiple-mount protection (`mmp`), and one that is in use
//! is refused for writing, unless it is to be taken over.

use crate::failure::{Failure, Outcome, tell};
use crate::heading;
use crate::name::shown;
use crate::patience::{takes_over, timeout};
use crate::size_arg::parse_size;
use crate::store;
use hectare_device::os::OsStrExt;
use hectare_device::{CacheCounters, CacheDevice, CacheLimits, Device};
use hectare_engine::OpenOptions;
use hectare_ext4::feature::{Feature, Features, Incompat};
use hectare_mkfs::{FeatureEdit, FormatOptions, FsType};
use hectare_mmp::Options as Protection;
use hectare_nbd::{Address, NbdDevice, Options, Place, TlsClient, TlsServer};
use hectare_units::Bytes;
use std::ffi::OsString;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long opening for writing waits so that two openers at the same moment see each other: more than a line
/// takes for two round trips.
const SETTLE: Duration = Duration::from_secs(1);

static TLS: OnceLock<Tls> = OnceLock::new();
/// Whether the certificate is (also) that of a server.
static SERVES: AtomicBool = AtomicBool::new(false);
static CACHE: OnceLock<Cache> = OnceLock::new();

/// The memory for what is read from and written to a server.
#[derive(clap::Args, Clone, Copy)]
#[command(next_help_heading = heading::SERVERS)]
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

/// What this side of a connection with TLS shows and verifies.
#[derive(clap::Args, Clone, Default)]
#[command(next_help_heading = heading::SERVERS)]
pub(crate) struct Tls {
    /// For TLS (nbds://..., and serve): trust the authorities of this file (PEM) [default: the system's; serve asks
    /// its clients for certificates only if this is given]
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    tls_ca: Option<PathBuf>,
    /// For TLS: show this certificate, with those between it and its authority (PEM)
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    tls_cert: Option<PathBuf>,
    /// For TLS: the key of the certificate (PEM)
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    tls_key: Option<PathBuf>,
}

impl Tls {
    /// Holds for all connections from here on.
    pub(crate) fn apply(self) -> Outcome {
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            return Err(Failure::Usage("--tls-cert and --tls-key belong together".to_owned()));
        }
        let _ = TLS.set(self);
        Ok(())
    }

    fn is_given(&self) -> bool {
        self.tls_ca.is_some() || self.tls_cert.is_some()
    }

    fn identity(&self) -> Option<(&Path, &Path)> {
        self.tls_cert.as_deref().zip(self.tls_key.as_deref())
    }
}

/// What a server shows, if it is to speak TLS.
pub(crate) fn server_tls() -> Outcome<Option<TlsServer>> {
    SERVES.store(true, Ordering::Relaxed);
    let Some(tls) = TLS.get() else { return Ok(None) };
    let server =
        tls.identity().map(|(certificate, key)| TlsServer::new(certificate, key, tls.tls_ca.as_deref()));
    server.transpose().map_err(|error| Failure::of("TLS", error))
}

/// The arguments about servers, for another process.
pub(crate) fn arguments() -> Vec<OsString> {
    let mut arguments = Vec::new();
    if let Some(time) = timeout() {
        arguments.extend(["--reconnect-timeout".into(), time.as_secs().to_string().into()]);
    }
    let tls = TLS.get().cloned().unwrap_or_default();
    for (name, file) in [("--tls-ca", tls.tls_ca), ("--tls-cert", tls.tls_cert), ("--tls-key", tls.tls_key)] {
        arguments.extend(file.into_iter().flat_map(|file| [name.into(), file.into()]));
    }
    arguments
}

/// How a volume that others may use is taken for writing.
pub(crate) fn protection(image: &Path) -> Protection {
    match is_export(image) {
        true => Protection { waits: takes_over(), settle: SETTLE, ..Protection::default() },
        false => Protection::default(),
    }
}

/// Sets how a volume that others may use is opened for writing.
pub(crate) fn adapt_to_server(image: &Path, options: &mut OpenOptions) {
    let protection = protection(image);
    (options.mmp_wait, options.mmp_settle) = (protection.waits, protection.settle);
}

/// Mentions that nothing keeps others from writing to a volume at the same time.
pub(crate) fn mention_unprotected(image: &Path, features: &Features) {
    if is_export(image) && !features.incompat.contains(Incompat::MMP) {
        let name = shown(image.as_os_str().as_bytes());
        tell(format_args!(
            "{name}: note: it lacks the feature mmp, so nothing keeps others from writing to it at the same \
             time; 'hectare tune -O mmp' adds it"
        ));
    }
}

/// What the features of a new volume begin with: protection, if it is an ext4 volume on a server.
pub(crate) fn first_features(image: &Path, options: &FormatOptions) -> Vec<FeatureEdit> {
    let is_meant = is_export(image) && options.fs_type == FsType::Ext4;
    let mmp = Feature::Incompat(Incompat::MMP);
    is_meant.then_some(FeatureEdit::On(mmp)).into_iter().collect()
}

/// Whether an image is named by the address of an export, or of something in an object store.
pub(crate) fn is_address(image: &Path) -> bool {
    is_export(image) || store::is_address(image)
}

/// Whether an image is named by the address of an export. Object stores have locks of their own.
fn is_export(image: &Path) -> bool {
    Address::is_meant(image.as_os_str().as_bytes())
}

/// Whether something is there by an address. An export, and what can't be asked, is taken to be there: opening
/// it says more.
pub(crate) fn is_there(image: &Path) -> bool {
    !store::is_address(image) || store::is_there(image)
}

/// Makes an empty disk at an address where nothing is.
pub(crate) fn create(image: &Path, size: Bytes) -> Outcome {
    store::create(image, size)
}

/// Why what lies in an object store can't be mounted, and what to do.
pub(crate) fn why_not_mounted(image: &Path) -> Option<&'static str> {
    let why = "what is in an object store can't be mounted directly: run hectare serve IMAGE --nbd \
               unix:SOCKET, and mount that, nbd+unix:///?socket=SOCKET";
    store::is_address(image).then_some(why)
}

/// Where the image ends in an argument that begins with the address of an export: at the first colon after
/// the host and a slash. `None` if there is none.
pub(crate) fn end_of_address(argument: &[u8]) -> Option<usize> {
    let text = argument.windows(3).position(|part| part == b"://")? + 3;
    let slash = text + argument[text..].iter().position(|byte| *byte == b'/')?;
    Some(slash + argument[slash..].iter().position(|byte| *byte == b':')?)
}

/// Opens what an address names; an export with a cache over it.
pub(crate) fn open(image: &Path, write: bool) -> Outcome<Arc<dyn Device>> {
    if store::is_address(image) {
        return store::open(image, write);
    }
    let device = Export::of(image, write)?.connect()?;
    Ok(match CACHE.get() {
        Some(cache) => Arc::new(cache.over(device)),
        None => Arc::new(device),
    })
}

/// What an address names without a cache, for those that are not its only user.
pub(crate) fn open_shared(image: &Path, write: bool) -> Outcome<Arc<dyn Device>> {
    match store::is_address(image) {
        true => store::open(image, write),
        false => Ok(Arc::new(Export::of(image, write)?.connect()?)),
    }
}

/// An export with all that connecting to it needs: no file is opened and no name looked up after this.
pub(crate) struct Export {
    address: Address,
    options: Options,
}

impl Export {
    /// The export that an image is.
    pub(crate) fn of(image: &Path, write: bool) -> Outcome<Self> {
        store::refuse_cache_file()?;
        let text = image.as_os_str().as_bytes();
        let fail = |error: hectare_nbd::Error| Failure::of(shown(text), error);
        let address = Address::parse(text).map_err(fail)?;
        let given = TLS.get().cloned().unwrap_or_default();
        if address.tls.is_none() && given.is_given() && !SERVES.load(Ordering::Relaxed) {
            let reason = "the address is one without TLS, but --tls-ca or --tls-cert is given: write nbds://";
            return Err(Failure::of(shown(text), reason));
        }
        let tls = address.tls.is_some().then(|| TlsClient::new(given.tls_ca.as_deref(), given.identity()));
        let default = Options::default();
        let reconnect_timeout = timeout().unwrap_or(default.reconnect_timeout);
        let tls = tls.transpose().map_err(fail)?;
        Ok(Self { address, options: Options { write, reconnect_timeout, tls, ..default } })
    }

    /// The same one, with the place of the host looked up, and that of a socket independent of the working
    /// directory.
    pub(crate) fn looked_up(mut self) -> Outcome<Self> {
        let name = self.name();
        let fail = |error: std::io::Error| Failure::of(&name, hectare_nbd::Error::Io(error));
        match &mut self.address.place {
            Place::Tcp(host, port) => {
                self.options.addresses = (host.as_str(), *port).to_socket_addrs().map_err(fail)?.collect();
            }
            Place::Unix(path) => *path = std::path::absolute(&*path).map_err(fail)?,
        }
        Ok(self)
    }

    /// Its address, as it is shown.
    pub(crate) fn name(&self) -> String {
        self.address.to_string()
    }

    /// The port of the server, if it has one.
    pub(crate) const fn port(&self) -> Option<u16> {
        match self.address.place {
            Place::Tcp(_, port) => Some(port),
            Place::Unix(_) => None,
        }
    }

    /// Connects.
    pub(crate) fn connect(&self) -> Outcome<NbdDevice> {
        NbdDevice::open(&self.address, &self.options).map_err(|error| Failure::Line(error.to_string()))
    }
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
        assert!(is_address(Path::new("s3://b/x")) && is_address(Path::new("https://h/x.img")));
        assert_eq!(end("https://h:1/x.img:/etc").as_deref(), Some("https://h:1/x.img"));
        assert_eq!(end("file+store:///srv/v:/etc").as_deref(), Some("file+store:///srv/v"));
    }
}
