//! How long a server that is away is waited for, and whether a volume is taken whose writer is: of NBD servers and
//! object stores alike.

use crate::heading;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

static TIMEOUT: OnceLock<Duration> = OnceLock::new();
static TAKES_OVER: AtomicBool = AtomicBool::new(false);

/// How long a server may be away.
#[derive(clap::Args, Clone, Copy, Default)]
#[command(next_help_heading = heading::SERVERS)]
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
pub(crate) fn timeout() -> Option<Duration> {
    TIMEOUT.get().copied()
}

/// Whether a volume that was left in use is to be taken.
#[derive(clap::Args, Clone, Copy, Default)]
#[command(next_help_heading = heading::SERVERS)]
pub(crate) struct Takeover {
    /// For volumes on servers and in object stores: take one whose writer is gone: one that does not renew its mark
    /// (MMP) while this waits, 22 seconds or more, or whose lease has ended
    #[arg(long, global = true, hide_short_help = true)]
    takeover: bool,
}

impl Takeover {
    /// Holds for all volumes from here on.
    pub(crate) fn apply(self) {
        TAKES_OVER.store(self.takeover, Ordering::Relaxed);
    }
}

/// Whether a volume is taken whose writer is gone.
pub(crate) fn takes_over() -> bool {
    TAKES_OVER.load(Ordering::Relaxed)
}
