//! Finding the size of an image.
//!
//! What a volume can hold is not a smooth function of its size: groups, journal and reserved descriptors come in
//! steps. So the search lays the tree out for real at each size it looks at. It goes up by what is lacking until the
//! tree fits, and then halves the distance to the largest size known to be too small, down to one cluster.

use super::{Image, ImageError, attempt, check, inodes_needed, own_lost_and_found, with_inodes};
use crate::error::ShownPath;
use crate::layout::{DirectorySizes, Lacking};
use crate::tree::{Kind, Tree};
use hectare_ext4::dir;
use hectare_mkfs::{FormatOptions, InodeCount, Plan};
use hectare_units::{BlockSize, Blocks, Bytes};

/// How large an image is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Size {
    /// As small as it can be, with just as many inodes as are needed.
    Min,
    /// A tenth more than the minimum, and a tenth more inodes than needed or one per 16 KiB, whichever is more.
    #[default]
    Default,
    /// As small as it can be with this much free space, with inodes as for `Default`.
    Free(Bytes),
    /// This size.
    Exactly(Bytes),
}

/// Sizes above this are taken for a tree that no volume can hold.
const SIZE_MAX: u64 = 1 << 60;
/// Attempts to reach a size that is enough.
const TRIES_MAX: usize = 64;

/// A search for the size of one tree's image.
pub(super) struct Search<'t> {
    tree: &'t Tree,
    options: FormatOptions,
    zeroed: bool,
    directories: DirectorySizes,
    block_size: BlockSize,
    cluster: Bytes,
    needed_inodes: u64,
}

impl<'t> Search<'t> {
    pub(super) fn new(tree: &'t Tree, options: &FormatOptions, zeroed: bool) -> Result<Self, ImageError> {
        if let Some(id) = own_lost_and_found(tree) {
            refuse_lost_and_found(tree, id)?;
        }
        let mut options = options.clone();
        // Unlike mke2fs, which gives small volumes blocks of 1 KiB: 4 KiB is what pages and disks have.
        options.block_size.get_or_insert(BlockSize::KIB4);
        let sample = Plan::new(&options, sample_size(&options), zeroed)?;
        // How full directories get depends on the hash seed: the one that sizes are found with is the one written.
        options.hash_seed.get_or_insert(sample.superblock().raw().s_hash_seed);
        options.uuid.get_or_insert(sample.superblock().uuid());
        check(tree, &sample)?;
        let format = dir::Format::of(sample.superblock()).map_err(hectare_ext4::FormatError::from)?;
        let directories = DirectorySizes::new(tree, &format, Some(super::LOST_AND_FOUND))?;
        let block_size = sample.geometry().block_size;
        let cluster = Blocks::new(sample.geometry().cluster_blocks().into()).bytes(block_size);
        let needed_inodes = inodes_needed(tree, &sample);
        if let InodeCount::Exactly(asked) = options.inodes
            && asked < needed_inodes
        {
            return Err(ImageError::TooFewInodes { asked, needed: needed_inodes });
        }
        Ok(Self { tree, options, zeroed, directories, block_size, cluster, needed_inodes })
    }

    pub(super) fn run(&self, size: Size) -> Result<Image<'t>, ImageError> {
        match size {
            Size::Min => self.smallest(Bytes::ZERO, Inodes::Exact),
            Size::Free(free) => self.smallest(free, Inodes::Roomy),
            Size::Default => {
                let min = self.smallest(Bytes::ZERO, Inodes::Exact)?.size();
                let roomy = Bytes::new(min.get() + min.get().div_ceil(10));
                self.up(roomy, Bytes::ZERO, Inodes::Roomy).map(|(image, _)| image)
            }
            Size::Exactly(size) => match self.attempt(size, Inodes::Roomy)? {
                Ok(image) => Ok(image),
                Err(_) => self.exactly_with_fewer_inodes(size),
            },
        }
    }

    /// A given size: with as many inodes as fit, before it is called too small.
    fn exactly_with_fewer_inodes(&self, size: Bytes) -> Result<Image<'t>, ImageError> {
        match self.attempt(size, Inodes::Exact)? {
            Ok(image) => Ok(image),
            Err(Lacking(blocks)) => {
                let enough = self.smallest(Bytes::ZERO, Inodes::Exact)?.size();
                let lacking = enough.saturating_sub(size).max(blocks.bytes(self.block_size));
                Err(ImageError::TooSmall { size, lacking, enough })
            }
        }
    }

    /// The smallest image with so much free space.
    fn smallest(&self, free: Bytes, inodes: Inodes) -> Result<Image<'t>, ImageError> {
        let totals = self.tree.totals();
        let start = Bytes::new(totals.data.get().saturating_add(free.get()).max(self.cluster.get()));
        let (mut best, mut too_small) = self.up(start, free, inodes)?;
        let unit = self.cluster.get();
        loop {
            // What is left over is a good guess of what can be taken away; halving makes sure of an end.
            let distance = (best.size().get() - too_small.get()) / unit;
            if distance <= 1 {
                return Ok(best);
            }
            let spare = best.free().bytes(self.block_size).saturating_sub(free).get() / unit;
            let step = if spare > 0 && spare < distance { spare } else { distance / 2 };
            let size = Bytes::new(best.size().get() - step.max(1) * unit);
            match self.fits(size, free, inodes)? {
                Ok(image) if image.size() < best.size() => best = image,
                Ok(_) => too_small = size, // the formatter leaves out the end of some sizes
                Err(_) => too_small = size,
            }
        }
    }

    /// Goes up from `size` to one that is enough; also returns the largest that was not.
    fn up(&self, mut size: Bytes, free: Bytes, inodes: Inodes) -> Result<(Image<'t>, Bytes), ImageError> {
        let mut too_small = Bytes::ZERO;
        for _ in 0..TRIES_MAX {
            match self.fits(size, free, inodes)? {
                Ok(image) => return Ok((image, too_small)),
                Err(Lacking(blocks)) => {
                    too_small = size;
                    let more = blocks.bytes(self.block_size).max(self.cluster);
                    size = Bytes::new(
                        size.get().saturating_add(more.get()).next_multiple_of(self.cluster.get()),
                    );
                }
            }
            if size.get() > SIZE_MAX {
                break;
            }
        }
        Err(ImageError::Impossible(format!("it would take more than {size} bytes")))
    }

    /// Whether the tree and so much free space fit; if not, what is lacking.
    fn fits(
        &self,
        size: Bytes,
        free: Bytes,
        inodes: Inodes,
    ) -> Result<Result<Image<'t>, Lacking>, ImageError> {
        Ok(self.attempt(size, inodes)?.and_then(|image| {
            let lacking = free.saturating_sub(image.free().bytes(self.block_size));
            match self.block_size.blocks_for(lacking) {
                Blocks::ZERO => Ok(image),
                blocks => Err(Lacking(blocks)),
            }
        }))
    }

    fn attempt(&self, size: Bytes, inodes: Inodes) -> Result<Result<Image<'t>, Lacking>, ImageError> {
        let options = self.options_for(size, inodes);
        match Plan::new(&options, size, self.zeroed) {
            Ok(plan) if u64::from(plan.geometry().inodes_count()) < self.needed_inodes => {
                Ok(Err(Lacking(self.step_for_inodes(&plan))))
            }
            Ok(plan) => attempt(self.tree, plan, &self.directories),
            // Too small even for the format's own structures.
            Err(error) if size.get() < SIZE_MAX && is_too_small(&error) => {
                Ok(Err(Lacking(self.block_size.blocks_for(Bytes::new((size.get() / 16).max(64 << 10))))))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Blocks to add where the volume's groups can't hold as many inodes as are needed.
    fn step_for_inodes(&self, plan: &Plan) -> Blocks {
        let geometry = plan.geometry();
        let missing = self.needed_inodes - u64::from(geometry.inodes_count());
        let per_block = u64::from(geometry.inodes_per_block());
        Blocks::new(missing.div_ceil(per_block).max(geometry.cluster_blocks().into()))
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
        with_inodes(&self.options, wanted)
    }
}

/// Bytes for each inode of an image that is not as small as can be.
const ROOMY_RATIO: u64 = 16384;

/// How many inodes to make.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inodes {
    /// As many as are needed.
    Exact,
    /// More.
    Roomy,
}

/// A size at which the options can be judged.
fn sample_size(options: &FormatOptions) -> Bytes {
    let cluster = options.cluster_size.unwrap_or(0);
    Bytes::new((1 << 30).max(cluster.saturating_mul(1 << 14)))
}

fn is_too_small(error: &hectare_mkfs::Error) -> bool {
    matches!(error, hectare_mkfs::Error::TooSmall { .. } | hectare_mkfs::Error::Option { .. })
}

fn refuse_lost_and_found(tree: &Tree, id: crate::NodeId) -> Result<(), ImageError> {
    let what = match tree.kind(id) {
        Kind::Directory => {
            "the image has a directory of that name already; leave it out with --exclude /lost+found"
        }
        _ => "every volume has a directory of that name; leave it out with --exclude /lost+found",
    };
    Err(ImageError::Directory { path: ShownPath::new(&tree.path(id)), reason: what.into() })
}
