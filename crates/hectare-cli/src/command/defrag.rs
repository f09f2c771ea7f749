//! `hectare defrag`.

#[cfg(all(target_os = "linux", not(hectare_portable)))]
mod live;
#[cfg(not(all(target_os = "linux", not(hectare_portable))))]
mod no_mounts;
mod pack;
mod whole;

use crate::failure::{LeftOut, Outcome};
use crate::image::{Image, change_each, read_each};
use crate::image_path::ImagePath;
use crate::name::absolute;
use crate::os;
use crate::output::Output;
use crate::progress::Progress;
use crate::walk::{self, Met, Visitor};
use crate::write_args::Writing;
use hectare_engine::{Error, Gathered, Kind, Result};
use hectare_units::{Blocks, InodeNr};
use indicatif::HumanBytes;
#[cfg(not(all(target_os = "linux", not(hectare_portable))))]
use no_mounts as live;
use std::collections::HashSet;
use std::ffi::OsString;
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
/// free places before it, if one holds all of it. No file comes to lie in more places. While it is mounted, what
/// others change or take meanwhile stays where it is: a second run finds the rest.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare defrag -n disk.img\n  hectare defrag disk.img:/var/lib/db\n  \
    hectare defrag /mnt/srv               (a volume that is mounted)\n  \
    hectare defrag --free -n disk.img     (how large the largest free extent would be)\n  \
    hectare defrag --free /mnt/srv")]
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
    let is_mounted = |place: &&OsString| os::is_mount(Path::new(place));
    let (mounted, inside): (Vec<_>, Vec<_>) = arguments.places.iter().partition(is_mounted);
    let inside: Vec<ImagePath> = inside.into_iter().map(|place| ImagePath::parse(place)).collect();
    if !arguments.free {
        return run_files(arguments, &inside, &mounted);
    }
    whole::run(arguments, &inside, &mounted)
}

fn run_files(arguments: &Arguments, inside: &[ImagePath], mounted: &[&OsString]) -> Outcome {
    let left_out = LeftOut::default();
    let mut mover = Mover {
        arguments,
        left_out: &left_out,
        out: Output::report(),
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
    mounted.iter().try_for_each(|top| live::gather_below(Path::new(top), &mut mover))?;
    mover.finish()?;
    left_out.outcome()
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
