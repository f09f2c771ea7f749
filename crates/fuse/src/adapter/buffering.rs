//! Writes that the kernel buffers (`-o writeback`), on a volume that fills up.
//!
//! With the writeback cache `write(2)` succeeds before the server hears of the data, whether there is room
//! for it or not. So while the room left is below what may be dirty ([`reserve`]), every write is made to ask
//! first: the server drops the attributes of files that are open for writing, and the kernel asks for a
//! file's attributes by its handle before it puts anything into the page cache. Before the answer the kernel
//! has to write back what it buffers of the file ([`Server::waits`]), so that the room is what it seems; and
//! the answer is an error if what was written back found no room, or if hardly any is left ([`ROOM_MIN`]).
//!
//! Invariant: while the volume is guarded, the kernel has no valid attributes of a file open for writing. An
//! answer that brings some is preceded by a message that drops them, after which the kernel ignores them; a
//! file that is being made has attributes that expire at once.
//!
//! Hazards: the request does not say what is to be written, nor where. So a write larger than the room is
//! found out by the next one, by `fsync` or by `close`; and with less than [`ROOM_MIN`] left even writes to
//! blocks that a file has are refused, and reads near the end of a file that was made then, by a handle that
//! may write. Who needs each write to be exact mounts without `-o writeback`.
//!
//! What is written through shared mappings asks nobody, with and without the cache; `msync` reports it.
//!
//! [`Server::waits`]: crate::event_loop::Server::waits

use super::Adapter;
use crate::errno::Answer;
use crate::node_table::Node;
use crate::protocol::NodeId;
use crate::protocol::reply::Reply;
use hectare_units::Bytes;
use rustix::io::Errno;

/// The room below which no write is buffered.
const ROOM_MIN: Bytes = Bytes::mib(1);
/// What is added to the share of memory that may be dirty: writes under way, and trees of files.
const SLACK: Bytes = Bytes::mib(64);
/// Of what may be dirty on the machine, a FUSE mount may have this part (`max_ratio` of the mount in
/// `/sys/class/bdi` is 1 per cent, unless root changes it).
const DIRTY_SHARE: u64 = 100;

/// The room below which writes ask first: more than a mount may have dirty.
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

    /// What files can still be given.
    fn room(&self) -> Answer<Bytes> {
        let fs = self.volume.statfs()?;
        Ok(Bytes::new(fs.usable.get().saturating_mul(fs.block_size.bytes().get())))
    }

    /// Has the next write to a file ask first, where that is needed: its attributes are dropped.
    pub(super) fn guard(&self, id: NodeId, reply: &mut Reply) {
        if self.needs_guard(id) {
            reply.make_stale(id);
        }
    }

    /// Whether a file is open for writing on a volume with little room.
    pub(super) fn needs_guard(&self, id: NodeId) -> bool {
        self.is_writeback() && self.nodes.has_writers(id) && self.is_guarded()
    }

    /// Refuses to have a write buffered: the last could not be written back, or there is no room for this.
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
