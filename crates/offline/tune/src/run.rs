//! The whole change: what is refused, a trial in memory and its check, the change itself.
//!
//! A change is a few rounds ([`crate::rounds`]). The trial makes them all on one copy in memory, which is
//! checked; then each is made anew, and written before the next begins.

use crate::change::Changes;
use crate::commit::{Difference, Order};
use crate::error::{Error, Result};
use crate::rounds::{Round, plan};
use crate::volume::{Overlay, Volume, superblock};
use crate::{external, features, hidden};
use hectare_check::{Options, check};
use hectare_device::{Device, OverlayDevice};
use hectare_ext4::feature::{Features, Incompat, RoCompat};
use hectare_ext4::superblock::{STATE_ERROR, STATE_VALID, SuperBlock};
use std::sync::Arc;
use std::time::Duration;

/// What a change has done.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The superblock as it was.
    pub before: SuperBlock,
    /// The superblock as it is.
    pub after: SuperBlock,
    /// Whether blocks in use were written in place: there was no room for a journal, and a power cut would
    /// have left errors.
    pub in_place: bool,
}

/// Makes changes to the volume on a device, which nobody else uses.
///
/// # Errors
/// [`Error`] says what is in the way and what to do. But for an error of the storage while the result is
/// written, nothing has changed then.
pub fn tune(device: &Arc<dyn Device>, changes: &Changes) -> Result<Outcome> {
    let before = superblock(&**device)?;
    let reading: Arc<Overlay> = Arc::new(OverlayDevice::new(Arc::clone(device)));
    let mut volume = Volume::new(&reading, before.clone());
    // First: what is open elsewhere needs no repair.
    hidden::refuse_in_use(&volume, changes.clear_mmp)?;
    refuse_state(&before)?;
    let goal = features::goal(&mut volume, changes)?;
    let mut run = Run { device, changes, goal, is_structural: false, log_blocks: None };
    let mut rounds = plan(&reading, changes, &run.goal, None)?;
    if rounds.contains(&Round::Attach) || rounds.contains(&Round::Detach) {
        external::admit(&before, changes, rounds.contains(&Round::Detach))?;
    }
    let mut trial = run.attempt(&rounds)?;
    if let Some(blocks) = run.log_blocks {
        // Without room for another journal it is done without.
        let logged = plan(&reading, changes, &run.goal, Some(blocks));
        if let Ok(logged) = logged
            && let Ok(better) = run.attempt(&logged)
        {
            (rounds, trial) = (logged, better);
        }
    }
    if run.is_structural {
        refuse_unsound(&**device, &before)?;
        judge(&*trial)?;
    }
    drop(trial);
    let in_place = run.write(&rounds)?;
    Ok(Outcome { before, after: superblock(&**device)?, in_place })
}

/// A change under way.
struct Run<'a> {
    device: &'a Arc<dyn Device>,
    changes: &'a Changes,
    goal: Features,
    /// Whether more than superblocks change.
    is_structural: bool,
    /// Blocks in use that the main round changes and no journal takes.
    log_blocks: Option<usize>,
}

impl Run<'_> {
    /// The volume as it would be after the rounds.
    fn attempt(&mut self, rounds: &[Round]) -> Result<Arc<dyn Device>> {
        let trial: Arc<dyn Device> = Arc::new(OverlayDevice::new(Arc::clone(self.device)));
        for round in rounds {
            let before = superblock(&*trial)?;
            let overlay: Arc<Overlay> = Arc::new(OverlayDevice::new(Arc::clone(&trial)));
            self.is_structural |= round.perform(&overlay, self.changes, &self.goal)?;
            let difference = Difference::of(&overlay, &before)?;
            if round.order() == Order::Logged && !difference.is_loggable()? {
                self.log_blocks = Some(difference.home_len());
            }
            difference.copy()?;
        }
        Ok(trial)
    }

    /// Makes the rounds, and says whether something was written without the care for crashes.
    fn write(&self, rounds: &[Round]) -> Result<bool> {
        let now = Duration::from_secs(self.changes.now.seconds.max(0).cast_unsigned());
        let mut in_place = false;
        for round in rounds {
            let before = superblock(&**self.device)?;
            let overlay: Arc<Overlay> = Arc::new(OverlayDevice::new(Arc::clone(self.device)));
            round.perform(&overlay, self.changes, &self.goal)?;
            if *round == Round::Attach {
                external::join(&before, self.changes)?;
            }
            in_place |= !Difference::of(&overlay, &before)?.write(round.order(), now)?;
            if *round == Round::Detach {
                external::leave(&before, self.changes)?;
            }
        }
        Ok(in_place)
    }
}

/// Refuses a volume that is in use or was not closed.
fn refuse_state(sb: &SuperBlock) -> Result<()> {
    if sb.features().incompat.contains(Incompat::RECOVER) {
        return Err(Error::refused(
            "the journal must be replayed first (needs_recovery): unmount the volume if it is mounted, else \
             run e2fsck -fy",
        ));
    }
    if sb.state() & STATE_VALID == 0 {
        return Err(Error::refused(
            "the volume was not cleanly closed: unmount it if it is mounted, else run e2fsck -fy",
        ));
    }
    Ok(())
}

/// Refuses a volume that the change could make worse.
fn refuse_unsound(device: &dyn Device, sb: &SuperBlock) -> Result<()> {
    let mut features = *sb.features();
    // The flag keeps writers away, not who takes it off.
    features.ro_compat.remove(RoCompat::READONLY);
    features.check_write()?;
    if sb.state() & STATE_ERROR != 0 {
        return Err(Error::refused("the volume is marked as having errors: run e2fsck -fy first"));
    }
    let report = check(device, &Options::default())?;
    if let Some(problem) = report.problems.first() {
        return Err(Error::refused(format!("the volume is not sound, run e2fsck -fy first: {problem}")));
    }
    Ok(())
}

/// The verdict on the result.
fn judge(overlay: &dyn Device) -> Result<()> {
    let report = check(overlay, &Options::default())?;
    match report.problems.first() {
        Some(problem) => Err(Error::Unsound(problem.to_string())),
        None => Ok(()),
    }
}
