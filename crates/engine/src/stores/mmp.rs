//! Multiple-mount protection: refuses a volume that another host has in use, and marks ours as in use.
//!
//! The MMP block holds a sequence number that the user of the volume changes every few seconds. To open for
//! writing, the block must say *clean* (or not change for long enough, which is not tried: a volume that
//! looks in use is refused, and the message says how to clear it). While the volume is open its block holds
//! our sequence number, and a thread renews it; closing writes *clean* again.

use crate::error::{Error, Result};
use hectare_device::Device;
use hectare_ext4::feature::Incompat;
use hectare_ext4::mmp::{Mmp, Status};
use hectare_ext4::superblock::SuperBlock;
use hectare_ext4::time::Timestamp;
use hectare_units::{BlockNr, Bytes};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// A volume that others can see is in use. Dropping it stops the renewal and leaves the block as it is.
pub(crate) struct Guard {
    at: Bytes,
    /// The block of an unused volume.
    clean: [u8; 1024],
    stop: Arc<(Mutex<bool>, Condvar)>,
    heartbeat: Option<JoinHandle<()>>,
}

/// Checks the MMP block and, for writing, takes the volume. Returns `None` where the volume has no such
/// protection or is opened for reading only.
pub(crate) fn enter(device: &Arc<dyn Device>, sb: &SuperBlock, read_only: bool) -> Result<Option<Guard>> {
    if !sb.features().incompat.contains(Incompat::MMP) {
        return Ok(None);
    }
    let size = sb.geometry().block_size;
    let block = BlockNr::new(sb.raw().s_mmp_block.get());
    let at = block.offset(size);
    let mut bytes = vec![0; size.len()];
    device.read_at(at, &mut bytes)?;
    let mmp = Mmp::parse(&bytes, block, sb.seed())?;
    match &mmp.status {
        Status::Clean => {}
        Status::InUse { node, device, .. } => {
            return Err(Error::Unsupported(format!(
                "the volume is in use by host {node}, device {device} (MMP): close it there, or, if \
                 that host is gone, clear the mark with tune2fs -f -E clear_mmp"
            )));
        }
        Status::Fsck => {
            return Err(Error::Unsupported(
                "the volume is being checked by e2fsck (MMP): wait for it, or clear the mark with \
                 tune2fs -f -E clear_mmp"
                    .into(),
            ));
        }
    }
    if read_only {
        return Ok(None);
    }
    Guard::take(device, sb, at, mmp).map(Some)
}

impl Guard {
    fn take(device: &Arc<dyn Device>, sb: &SuperBlock, at: Bytes, mmp: Mmp) -> Result<Self> {
        let seed = sb.seed();
        let mine = move |sequence: u32, device: &dyn Device| Mmp {
            status: Status::InUse { node: node_name(), device: device.name().to_owned(), sequence },
            time: Timestamp::now().seconds.cast_unsigned(),
            check_interval: mmp.check_interval,
        };
        device.write_at(at, &mine(1, &**device).render(seed))?;
        device.flush()?;
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let interval = Duration::from_secs(u64::from(sb.raw().s_mmp_update_interval.get().max(1)));
        let heartbeat = {
            let (device, stop, mut sequence) = (Arc::clone(device), Arc::clone(&stop), 1u32);
            std::thread::spawn(move || {
                let (stopped, wake) = &*stop;
                let mut stopped = stopped.lock();
                while !*stopped {
                    if wake.wait_for(&mut stopped, interval).timed_out() {
                        // Far below the two values with a special meaning.
                        sequence = sequence % 0x7fff_ffff + 1;
                        // After a failed renewal other hosts may think the volume free; the next write fails
                        // too and latches.
                        let _ = device.write_at(at, &mine(sequence, &*device).render(seed));
                    }
                }
            })
        };
        let clean =
            Mmp { status: Status::Clean, time: 0, check_interval: sb.raw().s_mmp_update_interval.get() };
        Ok(Self { at, clean: clean.render(seed), stop, heartbeat: Some(heartbeat) })
    }

    fn halt(&mut self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        if let Some(heartbeat) = self.heartbeat.take() {
            let _ = heartbeat.join(); // it does not panic; the result does not matter
        }
    }

    /// Marks the volume as free again.
    pub(crate) fn leave(mut self, device: &dyn Device) -> Result<()> {
        self.halt();
        device.write_at(self.at, &self.clean)?;
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.halt();
    }
}

/// This host's name, for others to read.
fn node_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "hectare".into(), |name| name.trim().into())
}
