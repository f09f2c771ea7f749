//! The rounds of a change, each of which takes a sound volume to a sound volume.
//!
//! What changes blocks in use needs a journal to survive a crash. So a journal that is asked for comes first
//! and one that goes away goes last; where there is none, or too small a one, another takes its place for a
//! while. One that lies where metadata of the new form is to lie is made anew elsewhere before.

use crate::change::Changes;
use crate::commit::Order;
use crate::error::Result;
use crate::external::{self, Parked};
use crate::features;
use crate::fields;
use crate::journal::{self, Size};
use crate::shape;
use crate::slots;
use crate::volume::{Overlay, Volume, superblock};
use hectare_device::Device;
use hectare_ext4::feature::{Compat, Features};
use hectare_ext4::superblock::SuperBlock;
use hectare_resize::{is_journal_in, make_room};
use std::sync::Arc;

/// Blocks of a log beyond those that it is to hold: its superblock, descriptors, the commit block.
const LOG_OVERHEAD: u64 = 64;

/// A step of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Round {
    /// Moves files away from where metadata is to lie.
    Room,
    /// Everything but what the other rounds do.
    Main,
    /// Adds a journal inside the volume.
    Add(Size),
    /// Takes the journal inside the volume away.
    Remove,
    /// Uses the journal on another device.
    Attach,
    /// No longer uses it.
    Detach,
    /// Does without it for a while: it still says that the volume uses it.
    Park,
    /// Uses it again.
    Return(Parked),
}

impl Round {
    pub(crate) fn order(self) -> Order {
        match self {
            Self::Room | Self::Main => Order::Logged,
            Self::Add(_) => Order::Marked,
            Self::Remove | Self::Attach | Self::Detach | Self::Park | Self::Return(_) => Order::Led,
        }
    }

    /// Makes the change on a copy; returns whether more than the superblock has changed.
    pub(crate) fn perform(self, overlay: &Arc<Overlay>, changes: &Changes, goal: &Features) -> Result<bool> {
        let mut volume = Volume::new(overlay, superblock(&**overlay)?);
        match self {
            Self::Room => return room(overlay, volume, changes, goal),
            Self::Main => return main(overlay, volume, changes, goal),
            Self::Add(size) => {
                bar_room(overlay, &mut volume, changes, goal)?;
                journal::add(&mut volume, size, changes)?;
            }
            Self::Remove => journal::take_away(&mut volume)?,
            Self::Attach => external::attach(&mut volume, changes)?,
            Self::Detach | Self::Park => external::detach(&mut volume)?,
            Self::Return(parked) => parked.put_back(&mut volume)?,
        }
        volume.finish(changes.now)?;
        Ok(true)
    }
}

/// Has no space taken where metadata of the new form is to lie: a journal there would be in the way.
fn bar_room(
    overlay: &Arc<Overlay>,
    volume: &mut Volume<'_>,
    changes: &Changes,
    goal: &Features,
) -> Result<()> {
    if shape::differs(volume.sb(), goal) {
        let copy: Arc<dyn Device> = Arc::<Overlay>::clone(overlay);
        volume.bar(hectare_resize::room(&copy, goal)?);
    }
    if let Some(size) = changes.inode_size {
        let behind = slots::behind(volume, size)?;
        volume.bar(behind);
    }
    Ok(())
}

/// Whether the journal lies where metadata of the new form is to lie.
fn is_in_the_way(overlay: &Arc<Overlay>, changes: &Changes, goal: &Features) -> Result<bool> {
    let mut volume = Volume::new(overlay, superblock(&**overlay)?);
    let obstacles = match changes.inode_size {
        Some(size) => slots::obstacles(&mut volume, size)?,
        None => Vec::new(),
    };
    let copy: Arc<dyn Device> = Arc::<Overlay>::clone(overlay);
    Ok(is_journal_in(&copy, goal, &obstacles)?)
}

fn room(overlay: &Arc<Overlay>, mut volume: Volume<'_>, changes: &Changes, goal: &Features) -> Result<bool> {
    let obstacles = match changes.inode_size {
        Some(size) => slots::obstacles(&mut volume, size)?,
        None => Vec::new(),
    };
    let copy: Arc<dyn Device> = Arc::<Overlay>::clone(overlay);
    Ok(make_room(&copy, goal, &obstacles)?)
}

fn main(overlay: &Arc<Overlay>, mut volume: Volume<'_>, changes: &Changes, goal: &Features) -> Result<bool> {
    fields::apply(&mut volume, changes)?;
    let mut structural = features::apply(&mut volume, changes, goal)?;
    let sb = volume.finish(changes.now)?;
    let copy: Arc<dyn Device> = Arc::<Overlay>::clone(overlay);
    structural |= shape::apply(&copy, &sb, goal, changes.now)?;
    if let Some(size) = changes.inode_size {
        let mut volume = Volume::new(overlay, superblock(&**overlay)?);
        structural |= slots::enlarge(&mut volume, size)?;
        volume.finish(changes.now)?;
    }
    Ok(structural)
}

/// Where the journal is before and after.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Nowhere,
    Inside,
    Outside,
}

/// The rounds that lead to the goal. `log_blocks` are those in use that the main round changes, where the
/// volume's own journal does not hold them.
pub(crate) fn plan(
    overlay: &Arc<Overlay>,
    changes: &Changes,
    goal: &Features,
    log_blocks: Option<usize>,
) -> Result<Vec<Round>> {
    let sb = superblock(&**overlay)?;
    let mut volume = Volume::new(overlay, sb.clone());
    let comes = |feature| goal.compat.contains(feature) && !sb.features().compat.contains(feature);
    let before = place(&sb);
    let after = match goal.compat.contains(Compat::HAS_JOURNAL) {
        false => Place::Nowhere,
        true if changes.journal_device.is_some() => Place::Outside,
        true if before == Place::Outside && !journal::is_asked_for(changes) => Place::Outside,
        true => Place::Inside,
    };
    let is_asked_for = journal::is_asked_for(changes) || after != before;
    let wanted = match after {
        Place::Inside if is_asked_for => Some(journal::size(&mut volume, changes, goal)?),
        Place::Inside if comes(Compat::FAST_COMMIT) => journal::with_fast_commits(&mut volume)?,
        _ => None,
    };
    let is_new = is_asked_for || wanted.is_some();
    let leave = match before {
        Place::Inside => Some(Round::Remove),
        Place::Outside => Some(Round::Detach),
        Place::Nowhere => None,
    };
    let enter = match after {
        Place::Inside => wanted.map(Round::Add),
        Place::Outside => Some(Round::Attach),
        Place::Nowhere => None,
    };
    let inner = inner(&sb, changes, goal);
    if let Some(blocks) = log_blocks {
        let log = Size::holding(hectare_units::u64_of(blocks) + LOG_OVERHEAD);
        // A journal elsewhere stays the one it is.
        let stays = before == Place::Outside && after == Place::Outside;
        let leave = if stays { Some(Round::Park) } else { leave };
        let back = match enter {
            _ if stays => Some(Round::Return(Parked::of(&sb))),
            None if after == Place::Inside => Some(Round::Add(journal::present(&mut volume)?)),
            enter => enter,
        };
        let (log, rest) = (Some(Round::Add(log)), [Some(Round::Remove), back]);
        return Ok([leave, log].into_iter().chain(inner).chain(rest).flatten().collect());
    }
    if before == Place::Inside && inner[0].is_some() && is_in_the_way(overlay, changes, goal)? {
        // It is made anew elsewhere before anything else moves.
        let (first, last) = match (after, enter) {
            (Place::Inside, Some(enter)) => ([leave, Some(enter)], [None, None]),
            (Place::Inside, None) => {
                ([leave, Some(Round::Add(journal::present(&mut volume)?))], [None, None])
            }
            _ => ([leave, Some(Round::Add(journal::present(&mut volume)?))], [leave, enter]),
        };
        return Ok(first.into_iter().chain(inner).chain(last).flatten().collect());
    }
    Ok(match (before, after) {
        _ if before == after && !is_new => inner.into_iter().flatten().collect(),
        (Place::Nowhere, Place::Inside) => [enter].into_iter().chain(inner).flatten().collect(),
        _ => inner.into_iter().chain([leave, enter]).flatten().collect(),
    })
}

/// The rounds that are about no journal.
fn inner(sb: &SuperBlock, changes: &Changes, goal: &Features) -> [Option<Round>; 2] {
    let moves = shape::differs(sb, goal) || changes.inode_size.is_some();
    [moves.then_some(Round::Room), Some(Round::Main)]
}

fn place(sb: &SuperBlock) -> Place {
    if !sb.features().compat.contains(Compat::HAS_JOURNAL) {
        Place::Nowhere
    } else if sb.journal_inode().is_some() {
        Place::Inside
    } else {
        Place::Outside
    }
}
