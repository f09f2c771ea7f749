//! Reports the metadata of inodes and volumes, and changes what may be changed directly.

use crate::error::Result;
use crate::file::Source;
use crate::immutable::Deed;
use crate::map::MAP_CREDITS;
use crate::space::cluster_sectors;
use crate::stores::inode_cache::CachedInode;
use crate::volume::Volume;
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::inode::{DeviceNumber, Inode, InodeFlags, Kind};
use hectare_ext4::time::{SECONDS_MAX, SECONDS_MAX_NARROW, SECONDS_MIN, Timestamp};
use hectare_units::{BlockSize, Blocks, InodeNr};
use std::sync::Arc;

/// Bytes of inodes that have one word for a time.
const NARROW_INODE: u32 = 128;

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
    /// 512-byte sectors in use, metadata included.
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
    pub(crate) fn of(volume: &Volume, cached: &CachedInode) -> Result<Self> {
        // In this order: buffered bytes are placed, and the inode has the new size, before this reports that
        // there are none.
        let (end, clusters) = (cached.delayed().end().unwrap_or(0), cached.delayed().clusters());
        let held = cached.get();
        let written = cached.touched();
        let metadata = Self::of_fields(cached.nr(), &held, volume.geometry().block_size)?;
        Ok(Self {
            size: metadata.size.max(end),
            sectors: metadata.sectors + cluster_sectors(volume, clusters),
            mtime: written.unwrap_or(metadata.mtime),
            ctime: written.unwrap_or(metadata.ctime),
            ..metadata
        })
    }

    fn of_fields(nr: InodeNr, inode: &Inode, block_size: BlockSize) -> Result<Self> {
        let kind = inode
            .kind()
            .ok_or_else(|| Corrupt::new("the inode", Place::Inode(nr), "it is in use but has no kind"))?;
        let is_device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
        Ok(Self {
            inode: nr,
            kind,
            permissions: inode.permissions(),
            links: inode.links.into(),
            uid: inode.uid,
            gid: inode.gid,
            size: inode.size,
            sectors: inode.sectors,
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

/// How full a volume is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatFs {
    /// Size of a block.
    pub block_size: BlockSize,
    /// Blocks for content: all, less the format's fixed overhead.
    pub blocks: Blocks,
    /// Free blocks.
    pub free: Blocks,
    /// Free blocks that not only root may take, without those reserved for the blocks of trees.
    pub available: Blocks,
    /// Free blocks that this volume may allocate: those of root, too, if it was opened so
    /// ([`OpenOptions::use_reserved_blocks`](crate::OpenOptions)).
    pub usable: Blocks,
    /// Inodes.
    pub inodes: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// The longest name in bytes.
    pub name_max: u32,
    /// A number for the volume, from its UUID.
    pub id: u64,
}

impl Volume {
    /// Changes an inode's permissions, owners, times or size.
    ///
    /// # Errors
    /// [`crate::Error::NotPermitted`] for an immutable inode, or the error of setting the size.
    pub fn change(&self, nr: InodeNr, changes: &Changes) -> Result<()> {
        let inode = self.inode(nr)?;
        if let Some(size) = changes.size {
            self.set_size(&inode, size, Source::Caller)?;
        }
        self.retry(|| {
            let _operation = inode.lock().write();
            self.check_changeable(&inode)?;
            self.change_locked(&inode, changes)
        })?;
        self.sync_if_asked(&inode)
    }

    /// Sets times to the present, as `utimensat` without times does: also of an append-only file, which
    /// [`Volume::change`] refuses. `changes` has times alone, which the caller has from the clock.
    ///
    /// # Errors
    /// [`crate::Error::NotPermitted`] for an immutable inode, [`crate::Error::NotFound`], or
    /// [`crate::Error::ReadOnly`].
    pub fn touch(&self, nr: InodeNr, changes: &Changes) -> Result<()> {
        let inode = self.inode(nr)?;
        self.retry(|| {
            let _operation = inode.lock().write();
            self.check_takes_changes()?;
            inode.check_alive()?;
            Deed::Grow.check(inode.get().flags, nr)?;
            self.change_locked(&inode, changes)
        })?;
        self.sync_if_asked(&inode)
    }

    pub(crate) fn change_locked(&self, inode: &Arc<CachedInode>, changes: &Changes) -> Result<()> {
        let mut handle = self.start(MAP_CREDITS)?;
        let mut data = inode.edit(&mut handle, &self.inodes);
        // First, so that the times that follow have room for their nanoseconds.
        self.grow_extra(&mut handle, inode.nr(), &mut data)?;
        if let Some(permissions) = changes.permissions {
            let mode = (data.mode & !0o7777) | (permissions & 0o7777);
            self.chmod_acl(&mut handle, inode.nr(), &mut data, mode)?;
            data.mode = mode;
        }
        if let Some(uid) = changes.uid {
            data.uid = uid;
        }
        if let Some(gid) = changes.gid {
            data.gid = gid;
        }
        if let Some(atime) = changes.atime {
            data.atime = self.nearest(atime);
        }
        if let Some(mtime) = changes.mtime {
            data.mtime = self.nearest(mtime);
        }
        if let Some(crtime) = changes.crtime {
            data.crtime = self.nearest(crtime);
        }
        data.ctime = changes.ctime.map_or_else(|| self.now(), |ctime| self.nearest(ctime));
        Ok(())
    }

    /// The nearest time that inodes of this volume can hold: what is returned now is what will be read. As
    /// with the kernel, the first and the last second have no fractions.
    pub(crate) fn nearest(&self, time: Timestamp) -> Timestamp {
        let is_narrow = self.geometry().inode_size == NARROW_INODE;
        let last = if is_narrow { SECONDS_MAX_NARROW } else { SECONDS_MAX };
        let is_whole = is_narrow || time.seconds <= SECONDS_MIN || time.seconds >= last;
        if is_whole { Timestamp::from_seconds(time.seconds.clamp(SECONDS_MIN, last)) } else { time }
    }

    /// How full the volume is.
    ///
    /// # Errors
    /// The error of reading the journal's inode.
    pub fn statfs(&self) -> Result<StatFs> {
        let geometry = self.geometry();
        let shift = geometry.cluster_ratio_shift;
        // What waits for a commit or is preallocated counts as free: an allocation that finds no space
        // commits and discards.
        let free = self.allocator.counts().durable_free().saturating_sub(self.delay.promised());
        let free = Blocks::new(free.get() << shift);
        let uuid = self.sb.uuid();
        let not_kept =
            free.saturating_sub(Blocks::new(crate::space::kept(&self.sb, &self.options).get() << shift));
        let available = not_kept.saturating_sub(self.sb.reserved_blocks());
        let half = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| uuid[at + i]));
        Ok(StatFs {
            block_size: geometry.block_size,
            blocks: geometry.blocks_count.saturating_sub(self.overhead()?),
            free,
            available,
            usable: if self.options.use_reserved_blocks { not_kept } else { available },
            inodes: geometry.inodes_count(),
            free_inodes: self.groups.free_inodes(),
            name_max: 255,
            id: half(0) ^ half(8),
        })
    }

    /// Blocks that the format takes before any file: superblocks, descriptors, bitmaps, inode tables,
    /// journal. The superblock's own count, if it has one.
    fn overhead(&self) -> Result<Blocks> {
        let geometry = self.geometry();
        let stored = u64::from(self.sb.raw().s_overhead_clusters.get());
        if (1..=geometry.clusters_count().get()).contains(&stored) {
            return Ok(Blocks::new(stored << geometry.cluster_ratio_shift));
        }
        let fixed = u64::from(geometry.first_data_block);
        let base: u64 = (0..geometry.groups())
            .map(|nr| u64::from(geometry.base_meta_blocks(hectare_units::GroupNr::new(nr))))
            .sum();
        let tables = u64::from(geometry.groups()) * (2 + u64::from(geometry.itable_blocks()));
        let journal = match self.sb.journal_inode() {
            Some(nr) => self.inode(nr)?.get().size >> geometry.block_size.shift(),
            None => 0,
        };
        Ok(Blocks::new(fixed + base + tables + journal))
    }
}
