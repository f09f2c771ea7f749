//! `hectare defrag`.

mod live;
mod pack;

use crate::failure::{Failure, LeftOut, Outcome};
use crate::image::{Image, change_each, read_each};
use crate::image_path::ImagePath;
use crate::name::{absolute, shown};
use crate::output::Output;
use crate::progress::Progress;
use crate::walk::{self, Met, Visitor};
use crate::write_args::Writing;
use hectare_engine::{Error, Gathered, Kind, Result};
use hectare_ext4::extent::Extent;
use hectare_fuse::mounted_image;
use hectare_units::{Blocks, InodeNr};
use indicatif::HumanBytes;
use pack::{Move, movable, plan};
use std::collections::HashSet;
use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Move the blocks of files and directories together
///
/// A file or directory that lies in more places than it has stretches without a hole is copied to fewer, if
/// there is room. Content and times stay. With a journal a power cut harms nothing: each block is at its old
/// place or at its new one. Volumes with bigalloc are left as they are.
///
/// For a path of a volume that `hectare mount` has mounted, the mount's server does it, while programs go on
/// working.
///
/// With --free the free space is made whole instead: what files have towards the end of the volume moves to
/// free places before it, if one holds all of it. No file comes to lie in more places. Not while it is
/// mounted.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare defrag -n disk.img\n  hectare defrag disk.img:/var/lib/db\n  \
    hectare defrag /mnt/srv               (a volume that is mounted)\n  \
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
    /// The files or directories: in an image, or of a mount
    #[arg(required = true, value_name = "IMAGE:PATH|PATH")]
    places: Vec<OsString>,
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
    seen: HashSet<u64>,
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
    let is_mounted = |place: &&OsString| mounted_image(Path::new(place)).is_ok();
    let (mounted, inside): (Vec<_>, Vec<_>) = arguments.places.iter().partition(is_mounted);
    let inside: Vec<ImagePath> = inside.into_iter().map(|place| ImagePath::parse(place)).collect();
    if !arguments.free {
        return run_files(arguments, &inside, &mounted);
    }
    if let Some(place) = mounted.first() {
        let place = shown(place.as_bytes());
        return Err(Failure::Usage(format!("--free: {place} is mounted: unmount it, and name its image")));
    }
    run_free(arguments, &inside)
}

fn run_files(arguments: &Arguments, inside: &[ImagePath], mounted: &[&OsString]) -> Outcome {
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
        read_each(inside, &arguments.writing.looking(), each)?;
    } else {
        change_each(inside, &arguments.writing, each)?;
    }
    mounted.iter().try_for_each(|top| live::run(Path::new(top), &mut mover))?;
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
fn run_free(arguments: &Arguments, inside: &[ImagePath]) -> Outcome {
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
        read_each(inside, &arguments.writing.looking(), each)?;
    } else {
        change_each(inside, &arguments.writing, each)?;
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
    /// Whether a file is met for the first time.
    fn is_first(&mut self, nr: u64, links: u64) -> bool {
        links <= 1 || self.seen.insert(nr)
    }

    /// Counts what became of a file: the places it was in and is in now, and the bytes that moved.
    fn count(&mut self, path: &[u8], (before, after, bytes): (u64, u64, u64)) -> Outcome {
        let is_scattered = before > after || bytes > 0;
        self.files += 1;
        self.scattered += u64::from(is_scattered);
        (self.before, self.after, self.bytes) =
            (self.before + before, self.after + after, self.bytes + bytes);
        self.progress.file();
        self.progress.bytes(bytes);
        if is_scattered && self.arguments.verbose {
            write!(self.out, "{before:>8} -> {after:<8} ")?;
            self.out.name(path)?;
            self.out.bytes(b"\n")?;
        }
        Ok(())
    }

    fn finish(self) -> Outcome {
        let Self { mut out, files, scattered, before, after, bytes, .. } = self;
        write!(out, "{files} files and directories, {scattered} of them scattered: in {before} places, ")?;
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
        let is_wanted = match met.meta.kind {
            Kind::File => self.mover.is_first(met.nr.get().into(), met.meta.links.into()),
            Kind::Directory => true,
            _ => false,
        };
        if !is_wanted {
            return Ok(true);
        }
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
        let bytes = moved.get() * u64::from(met.meta.block_size);
        self.mover.count(&absolute(met.path), (before, after, bytes))?;
        Ok(true)
    }
}
