//! The first message, `INIT`: the features that the kernel offers, and those requested of it.
//!
//! Hazard: the second word of features is valid only if the kernel says so in the first (7.36), and the
//! answer has to say so, too.

use super::wire::{InitIn, InitOut};
use bitflags::bitflags;
use zerocopy::{FromBytes, FromZeros};

/// The version of FUSE's protocol, major and minor, unless the kernel's is older.
pub const VERSION: (u32, u32) = (7, 45);
/// The oldest minor version whose messages have the current layout (Linux 3.15).
const MINOR_MIN: u32 = 23;
/// The first minor version with `FUSE_NOTIFY_INC_EPOCH`.
const MINOR_DROPS_NAMES: u32 = 44;
/// The unit of the sizes of requests and answers.
const PAGE: u32 = 4096;

bitflags! {
    /// The features that a kernel may offer, and may be asked for.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) struct Features: u64 {
        /// Readahead sends more than one request at a time.
        const ASYNC_READ = 1 << 0;
        /// Opening may truncate a file.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// File handles outlive the kernel's inodes (NFS).
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes of more than a page.
        const BIG_WRITES = 1 << 5;
        /// The server applies the umask.
        const DONT_MASK = 1 << 6;
        /// `ioctl` on directories.
        const HAS_IOCTL_DIR = 1 << 11;
        /// Directories are listed with attributes.
        const DO_READDIRPLUS = 1 << 13;
        /// But only where that seems of use.
        const READDIRPLUS_AUTO = 1 << 14;
        /// The kernel buffers writes.
        const WRITEBACK_CACHE = 1 << 16;
        /// Files need not be opened (informs the server only).
        const NO_OPEN_SUPPORT = 1 << 17;
        /// Parallel lookups and listings of one directory.
        const PARALLEL_DIROPS = 1 << 18;
        /// ACLs are enforced.
        const POSIX_ACL = 1 << 20;
        /// Requests of more than 32 pages.
        const MAX_PAGES = 1 << 22;
        /// Link targets are cached.
        const CACHE_SYMLINKS = 1 << 23;
        /// Directories need not be opened (informs the server only).
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// Cached content is dropped only when the server says so.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// The server clears set-ID bits, when the kernel asks it to.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// `SETXATTR` has flags of its own.
        const SETXATTR_EXT = 1 << 29;
        /// There is a second word of features.
        const INIT_EXT = 1 << 30;
        /// All cached names can be dropped by one message. Offered by the version of the protocol: it is no
        /// bit of either word.
        const DROPS_NAMES = 1 << 63;
    }
}

/// The offer of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Offer {
    minor: u32,
    read_ahead: u32,
    pub(crate) features: Features,
}

/// The reason why a session can't begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NoSession {
    /// The message is too short.
    #[error("the kernel's INIT request is too short")]
    Short,
    /// The first request is not `INIT`.
    #[error("the first request is not INIT")]
    NoGreeting,
    /// The kernel is too old, or too new.
    #[error("the kernel speaks version {0}.{1} of FUSE; 7.{MINOR_MIN} and newer ones of 7 are known")]
    Version(u32, u32),
}

/// What the server requests of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    /// The features, as far as offered.
    pub(crate) features: Features,
    /// The largest read and write, in bytes.
    pub(crate) transfer_max: u32,
    /// The limit of requests in flight without a waiting caller (readahead, writeback).
    pub(crate) background_max: u16,
    /// The granularity of times in nanoseconds.
    pub(crate) time_step: u32,
}

impl Offer {
    /// Reads the body of the first message.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, NoSession> {
        let (init, rest) = InitIn::ref_from_prefix(body).map_err(|_| NoSession::Short)?;
        let (major, minor) = (init.major.get(), init.minor.get());
        if major != VERSION.0 || minor < MINOR_MIN {
            return Err(NoSession::Version(major, minor));
        }
        let first = Features::from_bits_truncate(init.flags.get().into());
        let second = rest.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
        let second = if first.contains(Features::INIT_EXT) { u64::from(second) << 32 } else { 0 };
        let mut features = first | Features::from_bits_truncate(second);
        features.set(Features::DROPS_NAMES, minor >= MINOR_DROPS_NAMES);
        Ok(Self { minor, read_ahead: init.max_readahead.get(), features })
    }

    /// The subset of `wanted` that the session has.
    pub(crate) fn agreed(&self, wanted: Features) -> Features {
        let always =
            Features::ASYNC_READ | Features::BIG_WRITES | Features::MAX_PAGES | Features::SETXATTR_EXT;
        self.features & (wanted | always | Features::INIT_EXT)
    }

    /// The answer that requests `wanted`.
    pub(crate) fn answer(&self, wanted: &Wanted) -> InitOut {
        let mut out = InitOut::new_zeroed();
        let features = self.agreed(wanted.features).bits();
        out.major.set(VERSION.0);
        out.minor.set(self.minor.min(VERSION.1));
        out.max_readahead.set(self.read_ahead.min(wanted.transfer_max));
        out.flags.set(hectare_units::low32(features));
        out.flags2.set(hectare_units::low32(features >> 32));
        out.max_background.set(wanted.background_max);
        out.congestion_threshold.set(wanted.background_max / 4 * 3);
        out.max_write.set(wanted.transfer_max);
        out.time_gran.set(wanted.time_step);
        out.max_pages.set(u16::try_from(wanted.transfer_max.div_ceil(PAGE)).unwrap_or(u16::MAX));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Wanted = Wanted {
        features: Features::WRITEBACK_CACHE.union(Features::POSIX_ACL),
        transfer_max: 1 << 20,
        background_max: 64,
        time_step: 1,
    };

    fn offer(minor: u32, flags: u32) -> Vec<u8> {
        let mut body: Vec<u8> =
            [7, minor, 128 << 10, flags, u32::MAX].iter().flat_map(|n| n.to_ne_bytes()).collect();
        body.resize(64, 0);
        body
    }

    #[test]
    fn only_what_is_offered_is_asked_for() {
        let poor = Offer::parse(&offer(31, 1 << 20)).unwrap();
        assert_eq!(poor.agreed(WANTED.features), Features::POSIX_ACL);
        let out = poor.answer(&WANTED);
        assert_eq!((out.minor.get(), out.flags.get(), out.flags2.get()), (31, 1 << 20, 0));
        let rich = Offer::parse(&offer(99, u32::MAX)).unwrap();
        assert!(rich.features.is_all() && !poor.features.contains(Features::DROPS_NAMES));
        assert_eq!(rich.answer(&WANTED).minor.get(), VERSION.1);
        assert!(rich.agreed(WANTED.features).contains(WANTED.features | Features::INIT_EXT));
        assert!(!rich.agreed(WANTED.features).contains(Features::NO_OPEN_SUPPORT));
    }

    #[test]
    fn transfers_are_as_large_as_wanted_and_reading_ahead_as_offered() {
        let out = Offer::parse(&offer(45, u32::MAX)).unwrap().answer(&WANTED);
        assert_eq!(
            (out.max_write.get(), out.max_pages.get(), out.max_readahead.get()),
            (1 << 20, 256, 128 << 10)
        );
        assert_eq!((out.max_background.get(), out.congestion_threshold.get()), (64, 48));
    }

    #[test]
    fn kernels_that_speak_otherwise_are_refused() {
        assert_eq!(Offer::parse(&offer(22, 0)), Err(NoSession::Version(7, 22)));
        let mut newer = offer(0, 0);
        newer[0] = 8;
        assert_eq!(Offer::parse(&newer), Err(NoSession::Version(8, 0)));
        assert_eq!(Offer::parse(&offer(45, 0)[..15]), Err(NoSession::Short));
    }
}
