//! Reports the metadata of inodes and volumes, and changes what may be changed directly.

use crate::attributes::{freeing, grow, xattr_store};
use crate::data::checks::Source;
use crate::data::writeback;
use crate::data::{reclaim, truncate};
use crate::error::{Error, Result};
use crate::immutable::Deed;
use crate::space::map_edit::MAP_CREDITS;
use crate::space::piece::cluster_sectors;
use crate::space::quota;
use crate::state::{Core, State};
use crate::stores::inode_cache::CachedInode;
use crate::stores::quotas::{Claim, Owners, SECTOR};
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::inode::{DeviceNumber, Inode, InodeFlags, Kind};
use hectare_ext4::time::Timestamp;
use hectare_units::{BlockSize, InodeNr};
use std::sync::Arc;

/// The result of `stat` for an inode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metadata {
    /// Its number.
    pub inode: InodeNr,
    /// Its kind.
    pub kind: Kind,
    /// Permission, set-id and sticky bits (`0o7777`).
    pub permissions: u16,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group of owners.
    pub gid: u32,
    /// Bytes of content.
    pub size: u64,
    /// 512-byte sectors in use, metadata included. The content of a file in its inode counts, as in the kernel,
    /// although it takes no block: programs take a file without sectors for one hole.
    pub sectors: u64,
    /// The volume's block size in bytes.
    pub block_size: u32,
    /// The number of a device; 0:0 for anything else.
    pub device: DeviceNumber,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation, where the inode has room for it.
    pub crtime: Option<Timestamp>,
    /// Its flags.
    pub flags: InodeFlags,
    /// Distinguishes files that had the same number.
    pub generation: u32,
    /// Project.
    pub project: u32,
}

impl Metadata {
    /// The metadata of an inode in use, with what its fields don't have yet.
    pub(crate) fn of(state: &State, cached: &CachedInode) -> Result<Self> {
        // In this order: buffered bytes are placed, and the inode has the new size, before this reports that
        // there are none.
        let (end, clusters) = (cached.delayed().end().unwrap_or(0), cached.delayed().clusters());
        let held = cached.get();
        let written = cached.touched();
        let metadata = Self::of_fields(cached.nr(), &held, state.geometry().block_size)?;
        Ok(Self {
            size: metadata.size.max(end),
            sectors: metadata.sectors + cluster_sectors(state, clusters),
            mtime: written.unwrap_or(metadata.mtime),
            ctime: written.unwrap_or(metadata.ctime),
            ..metadata
        })
    }

    fn of_fields(nr: InodeNr, inode: &Inode, block_size: BlockSize) -> Result<Self> {
        let kind = inode
            .kind()
            .ok_or_else(|| Corrupt::new("the inode", Place::Inode(nr), "it is in use but has no kind"))?;
        // `ext4_file_getattr`; of directories and links the kernel counts none.
        let inside = if kind == Kind::File && inode.is_inline() { inode.size.div_ceil(SECTOR) } else { 0 };
        let is_device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
        Ok(Self {
            inode: nr,
            kind,
            permissions: inode.permissions(),
            links: inode.links.into(),
            uid: inode.uid,
            gid: inode.gid,
            size: inode.size,
            sectors: inode.sectors + inside,
            block_size: block_size.get(),
            device: if is_device { inode.device_number() } else { DeviceNumber::default() },
            atime: inode.atime,
            mtime: inode.mtime,
            ctime: inode.ctime,
            crtime: inode.has_crtime().then_some(inode.crtime),
            flags: inode.flags,
            generation: inode.generation,
            project: inode.projid,
        })
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.kind == Kind::Directory
    }

    /// Whether it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.kind == Kind::File
    }

    /// Whether it is a symbolic link.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.kind == Kind::Symlink
    }
}

/// Changes of an inode; `None` leaves a field as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Permission, set-id and sticky bits.
    pub permissions: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size, for regular files.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<Timestamp>,
    /// Last change of the content.
    pub mtime: Option<Timestamp>,
    /// Last change of the inode, unless it becomes now.
    pub ctime: Option<Timestamp>,
    /// Creation.
    pub crtime: Option<Timestamp>,
}

/// What stands for no user and no group (`chown(2)`): Linux shows another in its place, and lets nobody write.
const NO_ID: u32 = u32::MAX;

/// Returns an error for owners that nobody is.
pub(crate) fn check_owners(uid: Option<u32>, gid: Option<u32>) -> Result<()> {
    match (uid, gid) {
        (Some(NO_ID), _) | (_, Some(NO_ID)) => {
            Err(Error::Invalid("4294967295 stands for no user and no group, and nothing can belong to it"))
        }
        _ => Ok(()),
    }
}

impl Changes {
    /// Returns an error for what no inode can have.
    pub(crate) fn check(&self) -> Result<()> {
        check_owners(self.uid, self.gid)
    }
}

/// Changes an inode's permissions, owners, times or size.
pub(crate) fn change(core: &Core, nr: InodeNr, changes: &Changes) -> Result<()> {
    changes.check()?;
    let inode = core.state.inode(nr)?;
    if let Some(size) = changes.size {
        truncate::set_size(core, &inode, size, Source::Caller)?;
    }
    reclaim::retry(core, || {
        let _operation = inode.lock().write();
        core.check_changeable(&inode)?;
        change_locked(core, &inode, changes)
    })?;
    core.sync_if_asked(&inode)
}

/// Sets times to the present, as `utimensat` without times does: also of an append-only file, which
/// [`change`] refuses. `changes` has times alone, which the caller has from the clock.
pub(crate) fn touch(core: &Core, nr: InodeNr, changes: &Changes) -> Result<()> {
    let inode = core.state.inode(nr)?;
    reclaim::retry(core, || {
        let _operation = inode.lock().write();
        core.check_takes_changes()?;
        inode.check_alive()?;
        Deed::Grow.check(inode.get().flags, nr)?;
        change_locked(core, &inode, changes)
    })?;
    core.sync_if_asked(&inode)
}

pub(crate) fn change_locked(core: &Core, inode: &Arc<CachedInode>, changes: &Changes) -> Result<()> {
    freeing::with_dropped(core, || change_fields(core, inode, changes))
}

fn change_fields(core: &Core, inode: &Arc<CachedInode>, changes: &Changes) -> Result<()> {
    let quota = prepare_owners(core, inode, |data| {
        data.uid = changes.uid.unwrap_or(data.uid);
        data.gid = changes.gid.unwrap_or(data.gid);
    })?;
    let mode = changes.permissions.map(|permissions| (inode.get().mode & !0o7777) | (permissions & 0o7777));
    let plan = match mode {
        Some(mode) => xattr_store::plan_chmod(core, inode.nr(), &inode.get(), mode)?,
        None => None,
    };
    let credits = plan.as_ref().map_or(0, |plan| plan.credits(core));
    let mut handle = core.start(MAP_CREDITS + credits)?;
    if let Some(plan) = plan {
        xattr_store::store(core, &mut handle, inode, plan)?;
    }
    let values = values_to_move(core, inode, quota.as_ref())?;
    let mut data = inode.edit(&mut handle, &core.state.inodes);
    let before = Owners::of(&data);
    // First, so that the times that follow have room for their nanoseconds.
    grow::grow_extra(core, &mut handle, inode.nr(), &mut data)?;
    data.mode = mode.unwrap_or(data.mode);
    if let Some(uid) = changes.uid {
        data.uid = uid;
    }
    if let Some(gid) = changes.gid {
        data.gid = gid;
    }
    if let Some(atime) = changes.atime {
        data.atime = core.state.nearest(atime);
    }
    if let Some(mtime) = changes.mtime {
        data.mtime = core.state.nearest(mtime);
    }
    if let Some(crtime) = changes.crtime {
        data.crtime = core.state.nearest(crtime);
    }
    data.ctime = changes.ctime.map_or_else(|| core.state.now(), |ctime| core.state.nearest(ctime));
    core.state.move_values(inode.nr(), before, &data, values);
    if let Some(claim) = quota {
        claim.settle(inode.nr());
    }
    Ok(())
}

/// The values of an inode that its new owners will count for, if it gets others: for
/// [`State::move_values`](crate::state::State::move_values) in the transaction that gives them to it.
pub(crate) fn values_to_move(core: &Core, inode: &CachedInode, quota: Option<&Claim>) -> Result<u64> {
    quota.map_or(Ok(0), |_| core.state.counted_values(inode.nr(), &inode.get()))
}

/// Prepares the quotas for a change of an inode's owners: `change` makes it on a copy. What is returned is to
/// be kept until the inode has them ([`values_to_move`]). The caller holds the operation lock.
///
/// # Errors
/// [`crate::Error::QuotaExceeded`] if a limit of the new owners forbids it.
pub(crate) fn prepare_owners(
    core: &Core,
    inode: &Arc<CachedInode>,
    change: impl FnOnce(&mut Inode),
) -> Result<Option<Claim>> {
    if core.state.quotas().is_none() {
        return Ok(None);
    }
    let before = inode.get().clone();
    let mut after = before.clone();
    change(&mut after);
    if Owners::of(&before) == Owners::of(&after) {
        return Ok(None);
    }
    // Its bytes are claimed from the quotas of those who wrote them.
    writeback::place_locked(core, inode)?;
    quota::prepare(core, Owners::of(&after))?;
    let before = inode.get().clone();
    let values = core.state.counted_values(inode.nr(), &before)?;
    core.state.claim_transfer(inode.nr(), &before, &after, values)
}
