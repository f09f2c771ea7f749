//! Opens a volume: checks it, assembles its state, and closes it when it is dropped.
//!
//! A journal that is needed is replayed ([`recover`]). For writing, a volume without one that the superblock
//! calls not clean is refused, and so is one that is marked as having errors, by name. Orphans are cleaned up
//! ([`orphan_cleanup`]).
//!
//! Invariant: an unusable volume is refused before anything is written; one that is refused later is closed
//! as if it had been used.

pub(crate) mod assemble;
mod check;
pub(crate) mod mount_state;
mod orphan_cleanup;
pub(crate) mod quotas;
mod recover;
pub(crate) mod shutdown;

use crate::data::writeback;
use crate::error::{Error, Result};
use crate::options::OpenOptions;
use crate::state::Core;
use crate::state::background::{Background, Work};
use crate::state::unwinding::Unwinding;
use crate::stores::mmp;
use crate::stores::orphans::Cleaned;
use hectare_device::{Device, RememberingDevice};
use hectare_ext4::dir::Format as DirFormat;
use hectare_ext4::error::{Corrupt, Place};
use hectare_ext4::feature::Compat;
use hectare_ext4::superblock::{SuperBlock, Tolerances};
use log::info;
use std::sync::Arc;
use std::time::Duration;

/// A volume in use, which is closed when this is dropped.
pub(crate) struct Opened {
    pub(crate) core: Core,
}

/// Opens the volume on a device.
pub(crate) fn open(device: Arc<dyn Device>, options: OpenOptions) -> Result<Arc<Opened>> {
    let sb = recover::read_superblock(&device, &options)?;
    let read_only = options.read_only;
    check_usable(&device, &sb, &options)?;
    let mut mmp = mmp::enter(&device, &sb, &options)?;
    let opened = match &mmp {
        // Another host may have had the volume until a moment ago.
        Some(guard) => again(&device, &sb, &options).map(|sb| (guard.fenced(), sb)),
        // Threads of the volume flush side by side: if one fails, all must fail. A guard's device does that, too.
        None => Ok((Arc::new(RememberingDevice::new(device)) as Arc<dyn Device>, sb)),
    };
    let opened = opened
        .and_then(|(device, sb)| recover::recover(&device, sb, &options))
        .and_then(|recovered| assemble::assemble(recovered, options));
    let core = match opened {
        Ok(core) => core,
        Err(error) => {
            if let Some(mmp) = mmp.take() {
                mmp.leave()?;
            }
            return Err(error);
        }
    };
    // From here on there is something to undo: a volume that is refused below is closed by dropping it.
    *core.state.mmp.lock() = mmp;
    let opened = Arc::new(Opened { core });
    if let Some(guard) = &*opened.core.state.mmp.lock() {
        let volume = Arc::downgrade(&opened);
        guard.on_loss(Box::new(move |who| {
            if let Some(volume) = volume.upgrade() {
                volume.core.end_changes(mmp::taken(who));
            }
        }));
    }
    if !read_only {
        begin_use(&opened)?;
    }
    log_opened(&opened.core);
    Ok(opened)
}

/// The superblock as it is once the volume is ours.
fn again(device: &Arc<dyn Device>, before: &SuperBlock, options: &OpenOptions) -> Result<SuperBlock> {
    let now = recover::read_superblock(device, options)?;
    if now.uuid() != before.uuid() || now.raw().s_mmp_block != before.raw().s_mmp_block {
        let what = "another host has made another volume there while this one was opened: open it again";
        return Err(Error::Unsupported(what.into()));
    }
    check_usable(device, &now, options)?;
    Ok(now)
}

/// Returns the error of an unusable volume, before anything is written.
fn check_usable(device: &Arc<dyn Device>, sb: &SuperBlock, options: &OpenOptions) -> Result<()> {
    if !sb.finds_descriptors() {
        let reason = format!("its first meta group is {}", sb.geometry().first_meta_bg);
        return Err(Corrupt::new("the superblock", Place::Volume, reason).into());
    }
    if !options.read_only {
        if options.no_replay {
            return Err(Error::Invalid("without replaying the journal it can only be read: open it so (ro)"));
        }
        if options.superblock_at.is_some() || options.tolerances != Tolerances::default() {
            return Err(Error::Invalid("with damage tolerated it can only be read: open it so (ro)"));
        }
        if device.is_read_only() {
            return Err(Error::ReadOnly);
        }
        check::check_writable(sb, options)?;
    }
    if let Some(mode) = options.data_mode.filter(|_| !sb.features().compat.contains(Compat::HAS_JOURNAL)) {
        let what = format!("data={} needs a journal, and the volume has none", mode.name());
        return Err(Error::Unsupported(what));
    }
    let cluster = sb.geometry().cluster_bytes();
    options.tunables.classes.check(cluster).map_err(|error| Error::Unsupported(error.to_string()))?;
    DirFormat::of(sb)?;
    Ok(())
}

/// Marks a volume as in use, cleans up its orphans, and starts its thread.
fn begin_use(opened: &Arc<Opened>) -> Result<()> {
    let core = &opened.core;
    let loaded = orphan_cleanup::load_orphans(core).and_then(|()| quotas::load(core));
    if let Err(error) = loaded.map(|quotas| quotas.map(|quotas| core.state.inodes.count_in(Arc::new(quotas))))
    {
        mount_state::abandon(&core.state);
        return Err(error);
    }
    mount_state::mark_open(&core.state)?;
    if let Some(quotas) = core.state.quotas().filter(|_| core.state.options.recount_quotas) {
        quotas::recount(core, quotas)?;
    }
    orphan_cleanup::process_orphans(core)?;
    if let Some(interval) = core.state.options.commit_interval {
        let background = Background::start(Arc::downgrade(opened), interval);
        core.background.get_or_init(|| background);
    }
    Ok(())
}

fn log_opened(core: &Core) {
    let state = &*core.state;
    let cleaned = state.orphans.cleaned().unwrap_or_default();
    if cleaned != Cleaned::default() {
        info!(freed = cleaned.freed, cut = cleaned.cut; "orphan cleanup finished");
    }
    let label = String::from_utf8_lossy(state.sb.label());
    info!(device = state.device.name(), label = &*label, read_only = state.read_only,
        data = state.data_mode.name(), policy:% = state.options.policy,
        errors:% = state.findings.reaction(); "the volume is open");
}

impl Work for Opened {
    fn work(&self, interval: Duration) {
        let _ends = Unwinding::watch(&self.core, "a panic ended the thread that commits what has waited");
        // Failures are latched, and reported by the next fsync of the file or change of the volume.
        if self.core.check_takes_changes().is_ok() {
            writeback::place_aged(&self.core, interval);
            let _ = self.core.work();
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // Errors can't be returned here; callers that need them call `Volume::close`. The volume then stays
        // marked as not clean on the device.
        let _ = mount_state::finish(&self.core);
    }
}
