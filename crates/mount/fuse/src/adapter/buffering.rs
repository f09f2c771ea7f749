//! Handles writes that the kernel buffers (`-o writeback`) on a volume that fills up.
//!
//! With the writeback cache `write(2)` succeeds before the server sees the data, whether there is space for
//! it or not. So while the free space is below what may be dirty ([`reserve`]), every write must ask first:
//! the server drops the attributes of files that are open for writing, and the kernel asks for a file's
//! attributes by its handle before it puts data into the page cache. Before the answer the kernel has to
//! write back what it buffers of the file ([`Server::waits`]), so that the free space is what it seems; and
//! the answer is an error if that writeback ran out of space, or if hardly any is left ([`ROOM_MIN`]).
//!
//! Invariant: while the volume is guarded, the kernel has no valid attributes of a file open for writing. An
//! answer with attributes is preceded by a message that drops them, after which the kernel ignores them; a
//! file that is being created gets attributes that expire at once.
//!
//! Hazards: the request has neither the length nor the offset of the write. So a write larger than the free
//! space is found by the next write, by `fsync` or by `close`; and with less than [`ROOM_MIN`] left even
//! writes to blocks that a file has are refused, and so are reads near the end of a file that was created
//! then, by a handle that may write. Users who need each write to be exact mount without `-o writeback`.
//!
//! Writes through shared mappings never ask, with or without the cache; `msync` reports their errors.
//!
//! [`Server::waits`]: crate::event_loop::Server::waits

use super::Adapter;
use crate::errno::Answer;
use crate::node_table::Node;
use crate::protocol::NodeId;
use crate::protocol::reply::{Reply, Stale};
use hectare_units::Bytes;
use rustix::io::Errno;

/// The free space below which no write is buffered.
const ROOM_MIN: Bytes = Bytes::mib(1);
/// Added to the share of memory that may be dirty: writes in flight, and extent trees.
const SLACK: Bytes = Bytes::mib(64);
/// A FUSE mount may have this part of the dirty memory of the machine (`max_ratio` of the mount in
/// `/sys/class/bdi` is 1 per cent, unless root changes it).
const DIRTY_SHARE: u64 = 100;

/// The free space below which writes ask first: more than a mount may have dirty.
pub(super) fn reserve() -> Bytes {
    let found = rustix::system::sysinfo();
    // The type of both differs between the C libraries' targets.
    #[allow(clippy::useless_conversion)]
    let memory = u64::try_from(found.totalram).unwrap_or(u64::MAX).saturating_mul(found.mem_unit.into());
    let setting =
        |name: &str| std::fs::read_to_string(format!("/proc/sys/vm/{name}")).ok()?.trim().parse().ok();
    let dirty = match (setting("dirty_ratio"), setting("dirty_bytes")) {
        (Some(per_cent @ 1..), _) => memory / 100 * per_cent.min(100),
        (Some(0), Some(bytes @ 1..)) => bytes,
        _ => memory,
    };
    Bytes::new(SLACK.get().saturating_add(dirty / DIRTY_SHARE))
}

impl Adapter {
    /// Whether writes must ask before the kernel buffers them.
    pub(super) fn is_guarded(&self) -> bool {
        self.is_writeback() && self.room().is_ok_and(|room| room < self.reserve)
    }

    /// The space that files can still get.
    fn room(&self) -> Answer<Bytes> {
        let fs = self.volume.statfs()?;
        Ok(Bytes::new(fs.usable.get().saturating_mul(fs.block_size.bytes().get())))
    }

    /// Makes the next write to a file ask first, where that is needed: drops its attributes.
    pub(super) fn guard(&self, id: NodeId, reply: &mut Reply) {
        if self.needs_guard(id) {
            reply.make_stale(Stale::Attributes(id));
        }
    }

    /// Whether a file is open for writing on a volume with little room.
    pub(super) fn needs_guard(&self, id: NodeId) -> bool {
        self.is_writeback() && self.nodes.has_writers(id) && self.is_guarded()
    }

    /// Refuses a buffered write if the last writeback failed or there is no space left.
    pub(super) fn check_buffers(&self, node: &Node) -> Answer {
        if !self.is_writeback() {
            return Ok(());
        }
        if let Some(errno) = node.take_failure() {
            return Err(errno.into());
        }
        if self.room()? < ROOM_MIN { Err(Errno::NOSPC.into()) } else { Ok(()) }
    }
}
