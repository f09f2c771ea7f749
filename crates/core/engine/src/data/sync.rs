//! Makes changes durable: those of a volume, or of one inode, with the buffered bytes of files.

use crate::data::writeback;
use crate::error::Result;
use crate::state::Core;
use hectare_units::InodeNr;

/// Writes everything changed so far and flushes the device. Buffered bytes that are lost are recorded.
pub(crate) fn settle(core: &Core) -> Result<()> {
    if core.state.read_only {
        return Ok(());
    }
    writeback::place_all(core);
    core.sync_all()
}

/// Makes an inode durable: its changes, those of the names that lead to it where they were changed with
/// it, and its data. Other inodes' changes in the same transaction come along; later ones don't.
pub(crate) fn sync_inode(core: &Core, nr: InodeNr) -> Result<()> {
    let inode = core.state.inode(nr)?;
    let placed =
        if inode.delayed().end().is_some() { writeback::place_waiting(core, &inode) } else { Ok(()) };
    core.sync_cached(&inode, false)?;
    placed
}
