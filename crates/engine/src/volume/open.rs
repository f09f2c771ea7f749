//! Opens a volume: checks it, and assembles its state.
//!
//! A journal that is needed is replayed ([`crate::recover`]). For writing, a volume without one that the
//! superblock calls not clean is refused, and so is one that is marked as having errors, by name. Orphans are
//! cleaned up ([`crate::stores::orphans`]).
//!
//! Invariant: an unusable volume is refused before anything is written; one that is refused later is closed
//! as if it had been used.

use super::{Inner, Shared, Volume};
use crate::background::Background;
use crate::commit::Committer;
use crate::error::{Error, Result};
use crate::options::OpenOptions;
use crate::recover::{self, Recovered};
use crate::space;
use crate::stores::block_cache::BlockCache;
use crate::stores::delay::Delay;
use crate::stores::discards::Discards;
use crate::stores::flush_tracker::Flushes;
use crate::stores::fs_errors::Findings;
use crate::stores::groups::{Groups, Source, flex};
use crate::stores::inode_cache::InodeCache;
use crate::stores::orphans::{Cleaned, Orphans};
use crate::stores::volume_journal::VolumeLog;
use hectare_alloc::{Allocator, Config, Layout, Preallocation, Tunables};
use hectare_device::Device;
use hectare_ext4::dir::Format as DirFormat;
use hectare_ext4::error::{Corrupt, Place, Unsupported};
use hectare_ext4::feature::{Compat, Incompat};
use hectare_ext4::superblock::{STATE_ERROR, STATE_VALID, SuperBlock};
use hectare_ext4::time::Timestamp;
use hectare_journal::{Journal, MetadataView};
use hectare_units::{Clusters, TxnId};
use log::info;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

/// What keeps the files of a whole volume from being written.
pub(crate) const UNWRITTEN_FORM: &str =
    "the volume has no extents (ext2, ext3), and its files can't be written yet";

impl Volume {
    /// Opens the volume on a device.
    ///
    /// # Errors
    /// [`Error::Corrupt`] or [`Error::Unsupported`] name what keeps the volume from being read, or, unless
    /// opened read-only, from being written; [`Error::ReadOnly`] if the device can't be written.
    pub fn open(device: Arc<dyn Device>, options: OpenOptions) -> Result<Self> {
        let sb = recover::read_superblock(&device, &options)?;
        let read_only = options.read_only;
        if !sb.finds_descriptors() {
            let reason = format!("its first meta group is {}", sb.geometry().first_meta_bg);
            return Err(Corrupt::new("the superblock", Place::Volume, reason).into());
        }
        if !read_only {
            if options.no_replay {
                return Err(Error::Invalid(
                    "without replaying the journal it can only be read: open it so (ro)",
                ));
            }
            if device.is_read_only() {
                return Err(Error::ReadOnly);
            }
            check_writable(&sb)?;
        }
        if let Some(mode) = options.data_mode.filter(|_| !sb.features().compat.contains(Compat::HAS_JOURNAL))
        {
            let what = format!("data={} needs a journal, and the volume has none", mode.name());
            return Err(Error::Unsupported(what));
        }
        let cluster = sb.geometry().cluster_bytes();
        options.tunables.classes.check(cluster).map_err(|error| Error::Unsupported(error.to_string()))?;
        // Errors of an unusable volume come before anything is written.
        DirFormat::of(&sb)?;
        let mut mmp = crate::stores::mmp::enter(&device, &sb, read_only)?;
        let opened =
            recover::recover(&device, sb, &options).and_then(|recovered| Self::assemble(recovered, options));
        let shared = match opened {
            Ok(shared) => shared,
            Err(error) => {
                if let Some(mmp) = mmp.take() {
                    mmp.leave(&*device)?;
                }
                return Err(error);
            }
        };
        // From here on there is something to undo: a volume that is refused below is closed by dropping it.
        *shared.mmp.lock() = mmp;
        let journal = Journal::new(Committer::new(Arc::clone(&shared)), TxnId::default());
        let volume = Self { inner: Arc::new(Inner { shared, journal, background: OnceLock::new() }) };
        if !read_only {
            if let Err(error) = volume.load_orphans() {
                volume.inner.abandon();
                return Err(error);
            }
            volume.mark_open()?;
            volume.process_orphans()?;
            if let Some(interval) = volume.options.commit_interval {
                let background = Background::start(Arc::downgrade(&volume.inner), interval);
                volume.inner.background.get_or_init(|| background);
            }
        }
        volume.log_opened();
        Ok(volume)
    }

    /// Opens a volume as far as its files can be used: like [`Self::open`], but for reading only where none
    /// of them can be written; then with the reason.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_as_usable(
        device: Arc<dyn Device>,
        options: OpenOptions,
    ) -> Result<(Self, Option<&'static str>)> {
        let sb = recover::read_superblock(&device, &options)?;
        if options.read_only || sb.features().incompat.contains(Incompat::EXTENTS) {
            return Ok((Self::open(device, options)?, None));
        }
        Ok((Self::open(device, OpenOptions { read_only: true, ..options })?, Some(UNWRITTEN_FORM)))
    }

    fn log_opened(&self) {
        let cleaned = self.cleaned();
        if cleaned != Cleaned::default() {
            info!(freed = cleaned.freed, cut = cleaned.cut; "orphan cleanup finished");
        }
        let label = String::from_utf8_lossy(self.sb.label());
        info!(device = self.device.name(), label = &*label, read_only = self.read_only,
            data = self.data_mode.name(), policy:% = self.options.policy,
            errors:% = self.errors_behaviour(); "the volume is open");
    }

    /// The volume on a device that is private and not durable, in use for replaying a journal: it has no
    /// journal itself, no thread, and is not marked as in use.
    pub(crate) fn for_replay(device: Arc<dyn Device>, sb: SuperBlock, options: &OpenOptions) -> Result<Self> {
        let options = OpenOptions {
            read_only: false,
            use_reserved_blocks: true,
            discard: false,
            record: None,
            ..options.clone()
        };
        let shared = Self::assemble(Recovered { device, sb, log: None, clean: false }, options)?;
        let journal = Journal::new(Committer::new(Arc::clone(&shared)), TxnId::default());
        Ok(Self { inner: Arc::new(Inner { shared, journal, background: OnceLock::new() }) })
    }

    /// Writes what was replayed to the device, and releases it.
    pub(crate) fn end_replay(self) -> Result<()> {
        let written = self.inner.commit();
        self.inner.abandon();
        written
    }

    fn assemble(recovered: Recovered, options: OpenOptions) -> Result<Arc<Shared>> {
        let Recovered { device, sb, log, clean } = recovered;
        let sb = Arc::new(sb);
        let geometry = sb.geometry();
        // Committed metadata that is not checkpointed is read from where it is.
        let metadata = log.as_ref().map_or_else(|| MetadataView::plain(Arc::clone(&device)), VolumeLog::view);
        let reaction = options.errors.unwrap_or_else(|| sb.on_error());
        let findings = Arc::new(Findings::new(reaction, options.fixed_time));
        let groups = Groups::open(metadata.clone(), Arc::clone(&sb), Arc::clone(&findings), clean);
        let groups = Arc::new(groups);
        let allocator = allocator(&groups, &sb, &options)?;
        let shared = Arc::new(Shared {
            blocks: BlockCache::new(
                metadata,
                geometry.block_size,
                options.cache_bytes,
                Arc::clone(&findings),
            ),
            findings,
            data_errors_abort: options
                .data_errors_abort
                .unwrap_or_else(|| sb.mount_option("data_err") == Some("abort")),
            inodes: InodeCache::new(options.cache_inodes),
            dir_format: DirFormat::of(&sb)?,
            live_sb: Mutex::new((*sb).clone()),
            read_only: options.read_only,
            kbytes_written: AtomicU64::new(0),
            discards: Discards::default(),
            log,
            flushes: Flushes::default(),
            delay: Delay::new(options.delayed_bytes),
            shut_down: AtomicBool::new(false),
            superblock_changed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            nameless: Mutex::default(),
            orphans: Orphans::new(geometry.features.compat.contains(Compat::HAS_JOURNAL)),
            rename_lock: Mutex::default(),
            state_before: sb.state(),
            mmp: Mutex::default(),
            seed: AtomicU64::new(options.seed.unwrap_or_else(arbitrary_seed)),
            device,
            groups,
            prealloc: Preallocation::new(allocator.config()),
            allocator,
            data_mode: options.data_mode.or(sb.default_data_mode()).unwrap_or_default(),
            options,
            sb,
        });
        Ok(shared)
    }
}

/// The allocator of a volume, with nothing allocated from it yet.
pub(crate) fn allocator(
    groups: &Arc<Groups>,
    sb: &SuperBlock,
    options: &OpenOptions,
) -> Result<Allocator<Source>> {
    let geometry = sb.geometry();
    let layout = Layout::new(geometry.clusters_per_group, geometry.clusters_count())
        .ok_or_else(|| Corrupt::new("the superblock", Place::Volume, "its groups are impossible"))?;
    let config = Config {
        policy: options.policy,
        tunables: Tunables { stripe: options.tunables.stripe.or(Some(stripe(sb))), ..options.tunables },
        block_bytes: geometry.block_size.get(),
        cluster_blocks: geometry.cluster_blocks(),
        flex_groups: flex::flex_groups(geometry),
        discard: options.discard,
        record: options.record,
    };
    let allocator = Allocator::new(Source::new(Arc::clone(groups)), layout, config);
    allocator.set_root_reserve(Clusters::new(sb.reserved_blocks().get() >> geometry.cluster_ratio_shift));
    allocator.keep(space::kept(sb, options));
    Ok(allocator)
}

/// Returns an error, by name, for writing to a volume whose state does not allow it. A journal to be replayed
/// first is no reason.
pub(crate) fn check_writable(sb: &SuperBlock) -> Result<()> {
    let mut features = *sb.features();
    features.incompat.remove(Incompat::RECOVER);
    features.check_write()?;
    let refuse = |what: &str| Err(Unsupported(format!("{what}: run e2fsck -fy on it before writing")).into());
    if sb.state() & STATE_ERROR != 0 {
        return refuse("the volume is marked as having errors");
    }
    if let Some(fault) = sb.faults().first() {
        return refuse(&format!("the superblock is broken, {fault}"));
    }
    // Without a journal, "not clean" means that an earlier writer was interrupted. With one it means nothing.
    if sb.state() & STATE_VALID == 0 && !sb.features().compat.contains(Compat::HAS_JOURNAL) {
        return refuse("the volume was not cleanly closed");
    }
    Ok(())
}

fn arbitrary_seed() -> u64 {
    let now = Timestamp::now();
    now.seconds.cast_unsigned().wrapping_mul(1_000_000_007) ^ u64::from(now.nanoseconds)
}

/// Blocks of the stripe that the volume was made for, 0 for none: its stripe's width, else its stride, if no
/// longer than a group. Source: the kernel's use of both (`ext4_get_stripe_size`).
fn stripe(sb: &SuperBlock) -> u32 {
    let (raw, group) = (sb.raw(), sb.geometry().blocks_per_group());
    let fitting = [raw.s_raid_stripe_width.get(), raw.s_raid_stride.get().into()];
    fitting.into_iter().find(|blocks| (1..=group).contains(blocks)).unwrap_or(0)
}
