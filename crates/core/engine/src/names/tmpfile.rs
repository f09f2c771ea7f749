//! Makes files without a name (`O_TMPFILE`), and finds inodes by number and generation.
//!
//! A nameless file is an orphan from the start: it lives while it is open, and a crash frees it. Linking it
//! once gives it a name and makes it a file like others ([`crate::Volume::link`]).
//!
//! A handle that outlives its file (a network file system's) names an inode by its number and its generation,
//! which changes each time the number is given out.

use crate::attributes::freeing;
use crate::data::reclaim;
use crate::error::Result;
use crate::immutable::Deed;
use crate::names::create;
use crate::names::create::NAME_CREDITS;
use crate::names::node::{Creation, NewNode};
use crate::space::quota;
use crate::state::Core;
use crate::stores::inode_cache::CachedInode;
use crate::stores::orphans::ORPHAN_CREDITS;
use crate::stores::quotas::Owners;
use hectare_ext4::inode::Kind;
use hectare_units::InodeNr;
use std::sync::Arc;

/// Makes a file without a name, as if it were made in a directory, and opens it. It is freed when it is
/// closed, unless it was `linkable` and has been linked.
pub(crate) fn create_nameless(
    core: &Core,
    parent: InodeNr,
    creation: Creation,
    linkable: bool,
) -> Result<Arc<CachedInode>> {
    let dir = core.state.directory(parent)?;
    reclaim::retry(core, || {
        let _operation = dir.lock().read();
        create::check_directory_writable(core, &dir, Deed::AddName)?;
        let prepared = create::prepare(core, &dir, Kind::File, creation)?;
        quota::prepare(core, Owners::of(&prepared.0))?;
        freeing::with_dropped(core, || {
            let mut handle = core.start(NAME_CREDITS + ORPHAN_CREDITS + prepared.1.credits(core))?;
            let made = create::make_node(core, &mut handle, parent, NewNode::File, prepared)?;
            made.edit(&mut handle, &core.state.inodes).links = 0;
            made.set_linkable(linkable);
            core.state.add_orphan(&mut handle, &made);
            core.state.nameless.lock().insert(made.nr(), Arc::clone(&made));
            Ok(made)
        })
    })
}
