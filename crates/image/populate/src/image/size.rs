//! Finds the size of an image.
//!
//! The capacity of a volume is not a smooth function of its size: groups, journal and reserved descriptors
//! come in steps. So the search measures the tree in a planned volume at each size it tries. It starts from
//! the size of the tree alone, climbs by what is lacking until the tree fits, and then looks below for the
//! smallest size that is enough: first where nothing would be left over, then by halving the distance to the
//! largest size known to fail.
//!
//! Invariants: one step less than the found size is not enough. The search ends: where climbing gets nowhere
//! its steps double, so that sizes run out before tries do.

use super::Image;
use super::check::check;
use crate::image_error::ImageError;
use crate::layout::{self, Kept, LOST_AND_FOUND, Lacking, Load, Room, Volume};
use crate::like::Like;
use crate::tree::{NodeId, Tree};
use hectare_ext4::quota::Kind;
use hectare_mkfs::{FormatOptions, InodeCount, Plan};
use hectare_units::{BlockSize, Blocks, Bytes};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;

/// How large an image is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Size {
    /// As small as it can be, with just as many inodes as are needed.
    Min,
    /// A tenth more than the minimum, all of it free, and a tenth more inodes than needed or one per 16 KiB,
    /// whichever is more.
    #[default]
    Default,
    /// As small as it can be with this much free space (as `free` in [`Image::free`]), with inodes as for
    /// `Default`.
    Free(Bytes),
    /// This size. Inodes are as for `Default` if that fits, else as for `Min`.
    Exactly(Bytes),
}

/// Sizes above this are taken for a tree that no volume can hold.
const SIZE_MAX: u64 = 1 << 60;
/// Climbing goes by what is lacking this often; after that steps at least double.
const PLAIN_STEPS: u32 = 6;
/// Sizes at which options are checked before any size is known; the first that can be planned.
const SAMPLES: [Bytes; 8] = [
    Bytes::gib(1),
    Bytes::gib(64),
    Bytes::gib(4096),
    Bytes::mib(256),
    Bytes::mib(64),
    Bytes::mib(16),
    Bytes::mib(4),
    Bytes::mib(1),
];
/// Bytes for each inode of an image that is not as small as can be.
const ROOMY_RATIO: u64 = 16384;

/// A search for the size of one tree's image.
pub(super) struct Search<'t> {
    load: Load<'t>,
    options: FormatOptions,
    zeroed: bool,
    block_size: BlockSize,
    /// Sizes are multiples of this: whole clusters, and pages.
    unit: u64,
    needed_inodes: u64,
    /// No volume smaller than this holds the tree.
    least: Bytes,
    attempts: Cell<u32>,
}

/// What a volume must offer.
#[derive(Clone, Copy)]
struct Goal {
    free: Bytes,
    volume: Bytes,
    inodes: Inodes,
}

/// How many inodes to make.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inodes {
    /// As many as are needed.
    Exact,
    /// More.
    Roomy,
}

/// What came of one size.
enum Outcome {
    Fits(Fit),
    /// This much more is needed in a volume of this size.
    Lacks {
        more: Bytes,
        volume: Bytes,
    },
    /// No volume of that size can be made.
    NoVolume(hectare_mkfs::Error),
}

/// A size that is enough.
struct Fit {
    /// What was asked for, and what the volume takes of it.
    size: u64,
    volume: u64,
    /// Bytes left beside those wanted.
    spare: u64,
}

impl Goal {
    const MIN: Self = Self { free: Bytes::ZERO, volume: Bytes::ZERO, inodes: Inodes::Exact };
}

impl<'t> Search<'t> {
    /// The search for a volume like an older one. The options are to give one of the same kind.
    pub(super) fn new_like(
        tree: &'t Tree,
        options: &FormatOptions,
        like: &Like,
        zeroed: bool,
    ) -> Result<Self, ImageError> {
        like.check(sample(&with_block_size(options), zeroed)?.geometry())?;
        Self::new(tree, &like.options(options), zeroed)
    }

    pub(super) fn new(tree: &'t Tree, options: &FormatOptions, zeroed: bool) -> Result<Self, ImageError> {
        check_root(tree, options)?;
        let mut options = with_owners(with_block_size(options), tree);
        let sample = sample(&options, zeroed)?;
        // How full directories get depends on the hash seed: the one that sizes are found with is the one
        // written.
        options.hash_seed.get_or_insert(sample.superblock().raw().s_hash_seed);
        options.uuid.get_or_insert(sample.superblock().uuid());
        options.shared_blocks = tree.duplicates() > 0;
        let load = Load::new(tree, sample.superblock())?;
        let geometry = sample.geometry();
        check(&load, geometry)?;
        let block_size = geometry.block_size;
        let cluster = Blocks::new(geometry.cluster_blocks().into()).bytes(block_size);
        let needed_inodes = u64::from(sample.first_free_inode().get()) - 1 + load.inodes();
        if let InodeCount::Exactly(asked) = options.inodes
            && asked < needed_inodes
        {
            return Err(ImageError::TooFewInodes { asked, needed: needed_inodes });
        }
        let least = least(&load, &sample, needed_inodes)?;
        let unit = cluster.get().max(BlockSize::KIB4.bytes().get());
        let attempts = Cell::new(0);
        Ok(Self { load, options, zeroed, block_size, unit, needed_inodes, least, attempts })
    }

    pub(super) fn run(self, size: Size) -> Result<Image<'t>, ImageError> {
        let (size, inodes) = self.find(size)?;
        self.lay_out(size, inodes)
    }

    /// The image of the old image's size, or of the next larger one that is enough.
    pub(super) fn run_like(mut self, mut like: Like) -> Result<Image<'t>, ImageError> {
        if !self.load.attributes.values().is_empty() {
            let reason =
                "attribute values in inodes of their own (ea_inode) are not kept: build it without --like";
            return Err(ImageError::Impossible(reason.into()));
        }
        let (old, group) = (like.geometry().bytes(), like.geometry().blocks_per_group());
        let group = Blocks::new(group.into()).bytes(self.block_size);
        let (mut size, mut step) = (old, Bytes::ZERO);
        loop {
            if size.get() > SIZE_MAX {
                return Err(ImageError::Impossible(format!("it would take more than {SIZE_MAX} bytes")));
            }
            let plan = Plan::new(&like.options_for(&self.options, size), size, self.zeroed)?;
            if self.load.kept.is_none() {
                let first = plan.first_free_inode();
                self.load.kept = Some(Kept::new(self.load.tree, self.load.stand_in, &mut like, first));
            }
            let needed = self.load.kept.as_ref().map_or(0, Kept::inodes_needed);
            let more = if needed > u64::from(plan.geometry().inodes_count()) {
                group
            } else {
                let volume = Volume::new(&plan, &self.load);
                let room = Room::default();
                match in_space(&plan, |free| layout::lay_out(&self.load, volume, free, &room))? {
                    Ok(layout) => return Ok(Image { load: self.load, plan, layout }),
                    Err(Lacking(blocks)) => blocks.bytes(self.block_size),
                }
            };
            // The metadata of a further group may take what was added.
            step = if more > step { more } else { step + step };
            size = Bytes::new((size + step).get().next_multiple_of(self.unit));
        }
    }

    /// The size to plan, and how many inodes.
    fn find(&self, size: Size) -> Result<(Bytes, Inodes), ImageError> {
        let goal = match size {
            Size::Min => Goal::MIN,
            Size::Free(free) => Goal { free, inodes: Inodes::Roomy, ..Goal::MIN },
            Size::Default => {
                let min = self.smallest(0, Goal::MIN)?.volume;
                // A step of the journal or a further group must not eat what was added.
                let free = Bytes::new(min.div_ceil(10));
                let volume = Bytes::new(min) + free;
                let (fit, _) = self.climb(0, Goal { volume, free, inodes: Inodes::Roomy })?;
                return Ok((Bytes::new(fit.size), Inodes::Roomy));
            }
            Size::Exactly(size) => return self.exactly(size).map(|inodes| (size, inodes)),
        };
        Ok((Bytes::new(self.smallest(0, goal)?.size), goal.inodes))
    }

    /// A given size: with as many inodes as fit, before it is called too small.
    fn exactly(&self, size: Bytes) -> Result<Inodes, ImageError> {
        for inodes in [Inodes::Roomy, Inodes::Exact] {
            if let Outcome::Fits(_) = self.attempt(size, Goal { inodes, ..Goal::MIN })? {
                return Ok(inodes);
            }
        }
        let enough = Bytes::new(self.smallest(size.get(), Goal::MIN)?.volume);
        Err(ImageError::TooSmall { size, lacking: enough.saturating_sub(size), enough })
    }

    /// The smallest size above `low` that reaches the goal.
    fn smallest(&self, low: u64, goal: Goal) -> Result<Fit, ImageError> {
        let (mut best, mut low) = self.climb(low, goal)?;
        // First where nothing would be left over; then, once, the next smaller size; then halfway.
        let (mut by_spare, mut by_one) = (true, true);
        loop {
            let distance = best.volume.saturating_sub(low) / self.unit;
            if distance <= 1 {
                return Ok(best);
            }
            let spare = best.spare / self.unit;
            let step = if by_spare && (1..distance).contains(&spare) {
                spare
            } else if std::mem::take(&mut by_one) {
                1
            } else {
                distance / 2
            };
            let size = best.volume / self.unit * self.unit - step * self.unit;
            match self.attempt(Bytes::new(size), goal)? {
                Outcome::Fits(fit) if fit.volume < best.volume => best = fit,
                _ => (low, by_spare) = (size, false),
            }
        }
    }

    /// Goes up from `low`, which is not enough, to a size that is; also returns the largest that was not.
    fn climb(&self, mut low: u64, goal: Goal) -> Result<(Fit, u64), ImageError> {
        let start = self.least.get().saturating_add(goal.free.get()).max(goal.volume.get());
        let mut size =
            start.max(low.saturating_add(1)).checked_next_multiple_of(self.unit).unwrap_or(u64::MAX);
        let (mut tries, mut step, mut volume_before) = (0, 0, Bytes::ZERO);
        loop {
            let (more, complaint) = if size > SIZE_MAX {
                return Err(ImageError::Impossible(format!("it would take more than {SIZE_MAX} bytes")));
            } else {
                match self.attempt(Bytes::new(size), goal)? {
                    Outcome::Fits(fit) => return Ok((fit, low)),
                    // The same volume again: the end of it is left out until it is worth a group.
                    Outcome::Lacks { more, volume } if volume <= volume_before => {
                        (more.get().max(2 * step), None)
                    }
                    Outcome::Lacks { more, volume } => {
                        volume_before = volume;
                        (more.get(), None)
                    }
                    Outcome::NoVolume(error) => (self.unit.max(2 * step), Some(error)),
                }
            };
            tries += 1;
            let least = if tries > PLAIN_STEPS { 2 * step } else { 0 };
            step = more.max(least).max(self.unit);
            low = size;
            size = size.saturating_add(step).checked_next_multiple_of(self.unit).unwrap_or(u64::MAX);
            // A volume so much larger than the tree that still can't be made never will be.
            if let Some(error) = complaint
                && size > start.max(1 << 30) << 12
            {
                return Err(error.into());
            }
        }
    }

    /// Whether a volume of this size reaches the goal; if not, what is lacking.
    fn attempt(&self, size: Bytes, goal: Goal) -> Result<Outcome, ImageError> {
        self.attempts.set(self.attempts.get() + 1);
        let plan = match self.plan(size, goal.inodes) {
            Ok(plan) => plan,
            // Too small for the format's own structures, or for what an option asks for.
            Err(error @ (hectare_mkfs::Error::TooSmall { .. } | hectare_mkfs::Error::Option { .. })) => {
                return Ok(Outcome::NoVolume(error));
            }
            Err(error) => return Err(error.into()),
        };
        let volume = plan.geometry().bytes();
        let lacks = |blocks: Blocks| {
            let more = Bytes::new(blocks.get().saturating_mul(self.block_size.bytes().get()));
            Ok(Outcome::Lacks { more, volume })
        };
        let inodes = u64::from(plan.geometry().inodes_count());
        if inodes < self.needed_inodes {
            let per_block = u64::from(plan.geometry().inodes_per_block());
            return lacks(Blocks::new((self.needed_inodes - inodes).div_ceil(per_block)));
        }
        match in_space(&plan, |free| layout::measure(&self.load, Volume::new(&plan, &self.load), free))? {
            Err(Lacking(blocks)) => lacks(blocks),
            Ok(room) => {
                let free = room.left.bytes(self.block_size);
                let more = goal.free.saturating_sub(free).get().max(goal.volume.saturating_sub(volume).get());
                if more > 0 {
                    return lacks(self.block_size.blocks_for(Bytes::new(more)));
                }
                let spare = free.saturating_sub(goal.free).get();
                Ok(Outcome::Fits(Fit { size: size.get(), volume: volume.get(), spare }))
            }
        }
    }

    /// The image of a size that was found to be enough.
    fn lay_out(self, size: Bytes, inodes: Inodes) -> Result<Image<'t>, ImageError> {
        let plan = self.plan(size, inodes)?;
        let volume = Volume::new(&plan, &self.load);
        // What the first pass counts lets the second keep exactly that.
        let room = in_space(&plan, |free| layout::measure(&self.load, volume, free))?;
        let layout = match room {
            Ok(room) => in_space(&plan, |free| layout::lay_out(&self.load, volume, free, &room))?,
            Err(lacking) => Err(lacking),
        };
        match layout {
            Ok(layout) => Ok(Image { load: self.load, plan, layout }),
            Err(_) => unreachable!("this very volume was found to be enough"),
        }
    }

    /// A volume with enough inodes, if any of this size can have them.
    fn plan(&self, size: Bytes, inodes: Inodes) -> hectare_mkfs::Result<Plan> {
        let options = self.options_for(size, inodes);
        let plan = Plan::new(&options, size, self.zeroed)?;
        if u64::from(plan.geometry().inodes_count()) >= self.needed_inodes {
            return Ok(plan);
        }
        // As mke2fs does, the formatter rounds the inodes of a group down to a multiple of 8.
        let groups = u64::from(plan.geometry().groups());
        let each = self.needed_inodes.div_ceil(groups).next_multiple_of(8);
        let options = FormatOptions { inodes: InodeCount::Exactly(each * groups), ..options };
        Plan::new(&options, size, self.zeroed)
    }

    fn options_for(&self, size: Bytes, inodes: Inodes) -> FormatOptions {
        let wanted = match (self.options.inodes, inodes) {
            (InodeCount::Exactly(_), _) => return self.options.clone(),
            (_, Inodes::Exact) => self.needed_inodes,
            (InodeCount::Ratio(ratio), Inodes::Roomy) => self.needed_inodes.max(size.get() / ratio.max(1)),
            (InodeCount::ByUsage, Inodes::Roomy) => {
                let tenth_more = self.needed_inodes + self.needed_inodes.div_ceil(10);
                tenth_more.max(size.get() / ROOMY_RATIO)
            }
        };
        // A ratio that asks for more inodes than can be numbered gets as many as can be.
        let wanted = wanted.min(u32::MAX.into()).max(self.needed_inodes);
        FormatOptions { inodes: InodeCount::Exactly(wanted), ..self.options.clone() }
    }
}

/// Hands the free ranges of an empty volume to `use_it`.
fn in_space<T>(
    plan: &Plan,
    use_it: impl FnOnce(&mut dyn Iterator<Item = Range<u64>>) -> T,
) -> Result<T, ImageError> {
    let mut failed = None;
    let mut free = plan.space().map_while(|range| match range {
        Ok(range) => Some(range.start.get()..range.start.get() + range.len.get()),
        Err(error) => {
            failed = Some(error);
            None
        }
    });
    let used = use_it(&mut free);
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(used),
    }
}

/// Unlike mke2fs, which gives small volumes blocks of 1 KiB: 4 KiB is what pages and disks have.
fn with_block_size(options: &FormatOptions) -> FormatOptions {
    let block_size = options.block_size.or(Some(BlockSize::KIB4));
    FormatOptions { block_size, ..options.clone() }
}

/// Refuses a format that says of the root directory what the tree does not
/// ([`for_format`](crate::Options::for_format)).
fn check_root(tree: &Tree, options: &FormatOptions) -> Result<(), ImageError> {
    let root = tree.meta(NodeId::ROOT);
    let (owner, mode) = ((root.uid, root.gid), root.mode);
    if options.root_owner.is_none_or(|given| given == owner)
        && options.root_permissions.is_none_or(|given| given == mode)
    {
        return Ok(());
    }
    let (uid, gid) = owner;
    let reason = format!(
        "-E root_owner=, root_perms=: the sources and specifications give the root directory the owner \
         {uid}:{gid} and the mode {mode:04o}"
    );
    Err(ImageError::Impossible(reason))
}

/// The options, with the owners of everything in the tree and of lost+found, for whom quotas count.
fn with_owners(options: FormatOptions, tree: &Tree) -> FormatOptions {
    let mut quota_ids = [const { BTreeSet::new() }; 3];
    let lost_and_found = tree.find(LOST_AND_FOUND).is_none().then_some((0, 0));
    let owners = tree.ids().map(|id| (tree.meta(id).uid, tree.meta(id).gid)).chain(lost_and_found);
    for (uid, gid) in owners {
        for (kind, id) in [(Kind::User, uid), (Kind::Group, gid), (Kind::Project, 0)] {
            quota_ids[kind.index()].insert(id);
        }
    }
    FormatOptions { quota_ids, ..options }
}

/// A volume of these options of whatever size they allow.
fn sample(options: &FormatOptions, zeroed: bool) -> Result<Plan, ImageError> {
    let by_cluster = Bytes::new(options.cluster_size.unwrap_or(0).saturating_mul(1 << 14).min(SIZE_MAX));
    let mut first_error = None;
    for size in SAMPLES {
        match Plan::new(options, if size > by_cluster { size } else { by_cluster }, zeroed) {
            Ok(plan) => return Ok(plan),
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    Err(first_error.expect("there are sizes, and none was right").into())
}

/// What the tree takes by itself, in one piece, with just its inodes.
fn least(load: &Load<'_>, sample: &Plan, inodes: u64) -> Result<Bytes, ImageError> {
    const ENDLESS: u64 = 1 << 62;
    let geometry = sample.geometry();
    let impossible = || ImageError::Impossible(format!("it would take more than {SIZE_MAX} bytes"));
    let endless = std::iter::once(0..ENDLESS);
    let room = layout::measure(load, Volume::new(sample, load), endless).map_err(|_| impossible())?;
    let content = room.needs.total().get().checked_mul(geometry.block_size.bytes().get());
    let all = content.and_then(|content| content.checked_add(inodes * u64::from(geometry.inode_size)));
    all.filter(|all| *all <= SIZE_MAX).map(Bytes::new).ok_or_else(impossible)
}

#[cfg(test)]
mod tests;
