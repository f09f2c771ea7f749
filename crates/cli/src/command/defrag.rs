//! `hectare defrag`.

mod pack;

use crate::failure::{Failure, LeftOut, Outcome};
use crate::image::{Image, change_each, read_each};
use crate::image_path::ImagePath;
use crate::name::absolute;
use crate::output::Output;
use crate::progress::Progress;
use crate::walk::{self, Met, Visitor};
use crate::write_args::Writing;
use hectare_engine::{Error, Gathered, Kind, Result};
use hectare_ext4::extent::Extent;
use hectare_units::{Blocks, InodeNr};
use indicatif::HumanBytes;
use pack::{Move, movable, plan};
use std::collections::HashSet;
use std::ops::Range;

/// Move the blocks of files together
///
/// A file that lies in more places than it has stretches without a hole is copied to fewer, if there is room.
/// Content and times stay. With a journal a power cut harms nothing: each block is at its old place or at its
/// new one.
/// Journalled files, directories, and volumes with bigalloc, are left as they are.
///
/// With --free the free space is made whole instead: what lies towards the end of the volume moves to free
/// places before it, if one holds all of it. No file comes to lie in more places. Of files that are mapped by
/// blocks the tables of the map move, too, wherever there is room, and so less may come out than -n says.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare defrag -n disk.img\n  hectare defrag disk.img:/var/lib/db\n  \
    hectare defrag --free -n disk.img     (how large the largest free extent would be)")]
pub(crate) struct Arguments {
    /// Change nothing; show what is scattered
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Make free space whole: move what lies last to the front
    #[arg(long)]
    free: bool,
    /// Show each file that is scattered, or each extent that moves
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
    if arguments.free { run_free(arguments) } else { run_files(arguments) }
}

fn run_files(arguments: &Arguments) -> Outcome {
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

/// Collects the extents that may move.
struct Collector<'a> {
    image: &'a Image,
    left_out: &'a LeftOut,
    seen: HashSet<InodeNr>,
    extents: Vec<(InodeNr, Extent)>,
}

impl Visitor for Collector<'_> {
    fn visit(&mut self, met: &Met<'_>) -> Outcome<bool> {
        if met.meta.kind != Kind::File || met.meta.links > 1 && !self.seen.insert(met.nr) {
            return Ok(true);
        }
        match self.image.volume().inode_blocks(met.nr) {
            Ok(blocks) => self.extents.extend(movable(&blocks.extents).map(|extent| (met.nr, extent))),
            Err(error) => self.left_out.tell(self.image.show(met.path), error),
        }
        Ok(true)
    }
}

/// Makes the free space of volumes whole.
fn run_free(arguments: &Arguments) -> Outcome {
    let left_out = LeftOut::default();
    let mut out = Output::new();
    let each = |image: &Image, place: &ImagePath| {
        let geometry = image.volume().superblock().geometry().clone();
        if geometry.cluster_ratio_shift > 0 {
            let why = "--free: blocks of volumes with clusters (bigalloc) can't be moved";
            return Err(Failure::of(image.name(), why));
        }
        let root = image.resolve(&place.path, false)?;
        let mut collector =
            Collector { image, left_out: &left_out, seen: HashSet::new(), extents: Vec::new() };
        walk::tree(image, root, &place.path, &left_out, &mut collector)?;
        let free = free_runs(image, &left_out);
        let (before, mut moves) = (pack::after(&free, &[]), plan(&free, collector.extents));
        let best = pack::after(&free, &moves);
        if best.1 <= before.1 && best.0 >= before.0 {
            // Nothing would become whole.
            moves.clear();
        }
        let (after, moved) = if arguments.dry_run {
            (pack::after(&free, &moves), pack::blocks(&moves))
        } else {
            let moved = move_all(image, &moves, &left_out)?;
            // What was moved away from is free once that is committed.
            image.volume().sync().map_err(|error| image.fail(&place.path, &error))?;
            (pack::after(&free_runs(image, &left_out), &[]), moved)
        };
        let block = u64::from(geometry.block_size.get());
        let shown = |(count, longest): (u64, u64)| {
            format!("{count} free extents, the largest {}", HumanBytes(longest * block))
        };
        let before = shown(before);
        let (now, has) = if arguments.dry_run { ("then", "would move") } else { ("now", "moved") };
        for Move { nr, extent, to } in moves.iter().filter(|_| arguments.verbose) {
            writeln!(out, "inode {nr}: {} blocks from {} to {to}", extent.len, extent.physical)?;
        }
        let bytes = HumanBytes(moved * block);
        writeln!(out, "{}: {before}; {now} {}; {bytes} {has}", image.name(), shown(after))
    };
    if arguments.dry_run {
        read_each(&arguments.places, &arguments.writing.looking(), each)?;
    } else {
        change_each(&arguments.places, &arguments.writing, each)?;
    }
    out.finish()?;
    left_out.outcome()
}

/// The free runs of a volume, none of which reaches beyond its group.
fn free_runs(image: &Image, left_out: &LeftOut) -> Vec<Range<u64>> {
    let mut free = Vec::new();
    for group in image.groups(left_out) {
        match image.volume().free_runs(group) {
            Ok(runs) => free.extend(runs.into_iter().map(|run| run.start.get()..run.end.get())),
            Err(error) => left_out.tell(image.name(), error),
        }
    }
    free
}

/// Moves what can be moved; returns how many blocks that was.
fn move_all(image: &Image, moves: &[Move], left_out: &LeftOut) -> Outcome<u64> {
    let progress = Progress::new("moving");
    let mut moved = 0;
    let block = u64::from(image.volume().superblock().geometry().block_size.get());
    for Move { nr, extent, to } in moves {
        match image.volume().move_extent(*nr, *extent, *to) {
            Ok(false) => {}
            Ok(true) => {
                moved += u64::from(extent.len);
                progress.bytes(u64::from(extent.len) * block);
            }
            Err(error @ (Error::Aborted(_) | Error::ReadOnly)) => return Err(image.fail(b"/", &error)),
            Err(error) => left_out.tell(image.name(), error),
        }
    }
    Ok(moved)
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
