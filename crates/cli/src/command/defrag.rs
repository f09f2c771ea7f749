//! `hectare defrag`.

use crate::failure::{LeftOut, Outcome};
use crate::image::{Image, change_each, read_each};
use crate::image_path::ImagePath;
use crate::name::absolute;
use crate::output::Output;
use crate::progress::Progress;
use crate::walk::{self, Met, Visitor};
use crate::write_args::Writing;
use hectare_engine::{Error, Gathered, Kind, Result};
use hectare_units::{Blocks, InodeNr};
use indicatif::HumanBytes;
use std::collections::HashSet;

/// Move the blocks of files together
///
/// A file that lies in more places than it has stretches without a hole is copied to fewer, if there is room.
/// Content and times stay. With a journal a power cut harms nothing: each block is at its old place or at its
/// new one.
/// Journalled files, and volumes with bigalloc, are left as they are.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare defrag -n disk.img\n  hectare defrag disk.img:/var/lib/db")]
pub(crate) struct Arguments {
    /// Change nothing; show what is scattered
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Show each file that is scattered
    #[arg(short, long)]
    verbose: bool,
    /// The files or directories: IMAGE:PATH
    #[arg(required = true, value_name = "IMAGE:PATH", value_parser = ImagePath::parser())]
    places: Vec<ImagePath>,
    #[command(flatten)]
    writing: Writing,
}

/// What was met, and what became of it.
struct Mover<'a> {
    arguments: &'a Arguments,
    left_out: &'a LeftOut,
    out: Output,
    progress: Progress,
    /// Files with several names that were met, in the image of now.
    seen: HashSet<InodeNr>,
    files: u64,
    scattered: u64,
    before: u64,
    after: u64,
    bytes: u64,
}

/// The mover in an image.
struct Inside<'a, 'b> {
    image: &'a Image,
    mover: &'a mut Mover<'b>,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let left_out = LeftOut::default();
    let mut mover = Mover {
        arguments,
        left_out: &left_out,
        out: Output::new(),
        progress: Progress::new("moving"),
        seen: HashSet::new(),
        files: 0,
        scattered: 0,
        before: 0,
        after: 0,
        bytes: 0,
    };
    let each = |image: &Image, place: &ImagePath| {
        let root = image.resolve(&place.path, false)?;
        mover.seen.clear();
        walk::tree(image, root, &place.path, &left_out, &mut Inside { image, mover: &mut mover })
    };
    if arguments.dry_run {
        read_each(&arguments.places, &arguments.writing.looking(), each)?;
    } else {
        change_each(&arguments.places, &arguments.writing, each)?;
    }
    mover.finish()?;
    left_out.outcome()
}

impl Mover<'_> {
    fn finish(self) -> Outcome {
        let Self { mut out, files, scattered, before, after, bytes, .. } = self;
        write!(out, "{files} files, {scattered} of them scattered: in {before} places, ")?;
        if self.arguments.dry_run {
            writeln!(out, "{after} would do")?;
        } else {
            writeln!(out, "now in {after}; {} moved", HumanBytes(bytes))?;
        }
        out.finish()
    }
}

impl Inside<'_, '_> {
    /// Moves a file, or looks at it; returns in how many places it was, is or could be, and how much moved.
    fn gather(&self, nr: InodeNr) -> Result<(u64, u64, Blocks)> {
        let volume = self.image.volume();
        let blocks = volume.inode_blocks(nr)?;
        let (before, best) = (blocks.places(), blocks.stretches());
        if before == best || self.mover.arguments.dry_run {
            return Ok((before, best, Blocks::ZERO));
        }
        let Gathered { before, after, moved } = volume.gather(nr)?;
        Ok((before, after, moved))
    }
}

impl Visitor for Inside<'_, '_> {
    fn visit(&mut self, met: &Met<'_>) -> Outcome<bool> {
        if met.meta.kind != Kind::File || met.meta.links > 1 && !self.mover.seen.insert(met.nr) {
            return Ok(true);
        }
        self.mover.files += 1;
        self.mover.progress.file();
        let (before, after, moved) = match self.gather(met.nr) {
            Ok(done) => done,
            Err(error @ (Error::Aborted(_) | Error::ReadOnly)) => {
                return Err(self.image.fail(met.path, &error));
            }
            Err(error) => {
                self.mover.left_out.tell(self.image.show(met.path), error);
                return Ok(true);
            }
        };
        let mover = &mut *self.mover;
        let is_scattered = before > after || !moved.is_zero();
        let bytes = moved.get() * u64::from(met.meta.block_size);
        mover.scattered += u64::from(is_scattered);
        (mover.before, mover.after, mover.bytes) =
            (mover.before + before, mover.after + after, mover.bytes + bytes);
        mover.progress.bytes(bytes);
        if is_scattered && mover.arguments.verbose {
            write!(mover.out, "{before:>8} -> {after:<8} ")?;
            mover.out.name(&absolute(met.path))?;
            mover.out.bytes(b"\n")?;
        }
        Ok(true)
    }
}
