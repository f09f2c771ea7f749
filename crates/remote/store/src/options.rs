//! How a store is used.

use hectare_device::Clock;
use hectare_units::Bytes;
use std::path::PathBuf;
use std::time::Duration;

/// The bytes of a chunk, unless another size is asked for.
pub const DEFAULT_CHUNK: Bytes = Bytes::mib(4);

/// How a store is used.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether the volume is to be changed.
    pub write: bool,
    /// Whether a directory that is missing is made: only where a volume is.
    pub make_directory: bool,
    /// Where the local log of unflushed writes lies. `None`: `hectare/store` in the user's cache directory
    /// (`XDG_CACHE_HOME`, or `.cache` in `HOME`). Each volume has a directory in it.
    pub log: Option<PathBuf>,
    /// The bytes of unflushed writes beyond which the device flushes by itself.
    pub log_max: Bytes,
    /// Whether a volume is taken over from a writer whose lease has ended.
    pub takeover: bool,
    /// How long a writer's lease lasts; it is renewed three times as often.
    pub lease: Duration,
    /// How long a request is repeated before it fails.
    pub patience: Duration,
    /// How long one attempt may take, without the time for its bytes.
    pub attempt: Duration,
    /// How many requests there are at a time, at most.
    pub parallel: usize,
    /// The bytes of chunks or blocks that are kept in memory.
    pub cache: Bytes,
    /// The most bytes of patches: small changes that a volume has beside its chunks, and that each opening
    /// fetches. At most 16 MiB or four chunks (but 1 MiB) are used. Zero: every flush puts whole chunks.
    pub patches: Bytes,
    /// A file that keeps what was fetched for later commands, and its most bytes. Of images it is for those
    /// in object stores; one on a web server is refused.
    pub cache_file: Option<(PathBuf, Bytes)>,
    /// The clock of the lease, and of the pauses between attempts.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            write: false,
            make_directory: false,
            log: None,
            log_max: Bytes::gib(1),
            takeover: false,
            lease: Duration::from_secs(60),
            patience: Duration::from_secs(60),
            attempt: Duration::from_secs(20),
            parallel: 8,
            cache: Bytes::mib(64),
            patches: Bytes::mib(16),
            cache_file: None,
            clock: Clock::REAL,
        }
    }
}
