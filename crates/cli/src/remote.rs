//! Images on NBD servers: `nbd://HOST[:PORT]/EXPORT` and `nbd+unix:///EXPORT?socket=PATH` in the place of a
//! path; and in object stores ([`store`]).
//!
//! A server keeps nobody else from using an export: unlike files and block devices it has no locks that can
//! be taken here.

use crate::failure::{Failure, Outcome};
use crate::name::shown;
use crate::store;
use hectare_device::Device;
use hectare_nbd::{Address, NbdDevice, Options};
use hectare_units::Bytes;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

static TIMEOUT: OnceLock<Duration> = OnceLock::new();

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

/// How long a server may be away, if the command line has it.
#[cfg_attr(not(feature = "store"), allow(dead_code))]
pub(crate) fn timeout() -> Option<Duration> {
    TIMEOUT.get().copied()
}

/// Whether an image is named by the address of an export, or of something in an object store.
pub(crate) fn is_address(image: &Path) -> bool {
    Address::is_meant(image.as_os_str().as_bytes()) || store::is_address(image)
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

/// Why it can't be mounted, and what to do.
pub(crate) fn why_not_mounted(image: &Path) -> &'static str {
    match store::is_address(image) {
        true => {
            "what is in an object store can't be mounted directly: run hectare serve IMAGE --nbd unix:SOCKET, \
             attach that with nbd-client or qemu-nbd -c, and mount the block device"
        }
        false => {
            "an export can't be mounted directly: attach it as a block device first, with nbd-client or \
             qemu-nbd -c for instance, and mount that"
        }
    }
}

/// Where the image ends in an argument that begins with the address of an export: at the first colon after
/// the host and a slash. `None` if there is none.
pub(crate) fn end_of_address(argument: &[u8]) -> Option<usize> {
    let text = argument.windows(3).position(|part| part == b"://")? + 3;
    let slash = text + argument[text..].iter().position(|byte| *byte == b'/')?;
    Some(slash + argument[slash..].iter().position(|byte| *byte == b':')?)
}

/// Opens what an address names.
pub(crate) fn open(image: &Path, write: bool) -> Outcome<Arc<dyn Device>> {
    match store::is_address(image) {
        true => store::open(image, write),
        false => Ok(Arc::new(export(image, write)?)),
    }
}

/// Connects to the export that an image is.
fn export(image: &Path, write: bool) -> Outcome<NbdDevice> {
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
        assert!(is_address(Path::new("s3://b/x")) && is_address(Path::new("https://h/x.img")));
        assert_eq!(end("https://h:1/x.img:/etc").as_deref(), Some("https://h:1/x.img"));
        assert_eq!(end("file+store:///srv/v:/etc").as_deref(), Some("file+store:///srv/v"));
    }
}
