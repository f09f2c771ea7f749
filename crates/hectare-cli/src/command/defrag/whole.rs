//! Makes the free space of a volume whole, in an image or on a mount ([`Space`]).
//!
//! First all extents that may move are collected, then what is free is looked at, and a plan is made of both
//! ([`pack`]). Its moves are made one by one. In an image nobody else changes anything, so the plan is what
//! happens; on a mount each move is made only if it is still possible, by the volume itself.

use super::pack::{self, Move, movable, plan};
use super::{Arguments, live};
use crate::failure::{Failure, LeftOut, Outcome};
use crate::image::{Image, change_each, read_each};
use crate::image_path::ImagePath;
use crate::output::Output;
use crate::progress::Progress;
use crate::walk::{self, Met, Visitor};
use hectare_engine::{Error, Kind};
use hectare_ext4::extent::Extent;
use hectare_units::InodeNr;
use indicatif::HumanBytes;
use std::collections::HashSet;
use std::ffi::OsString;
use std::ops::Range;
use std::path::Path;

/// A volume whose blocks can be moved.
pub(super) trait Space {
    /// Its name, safe to print.
    fn name(&self) -> String;
    /// Bytes of a block.
    fn block_bytes(&self) -> u64;
    /// The free runs, none of which reaches beyond its group.
    fn free_runs(&self, left_out: &LeftOut) -> Outcome<Vec<Range<u64>>>;
    /// Moves an extent; returns whether that was possible. What can't be moved is noted.
    fn move_extent(&self, step: &Move, left_out: &LeftOut) -> Outcome<bool>;
    /// Frees what was moved away from.
    fn settle(&self) -> Outcome;
}

/// Makes the free space of volumes whole.
pub(super) fn run(arguments: &Arguments, inside: &[ImagePath], mounted: &[&OsString]) -> Outcome {
    let left_out = LeftOut::default();
    let mut out = Output::report();
    let refuse = |image: &Image, _: &ImagePath| {
        let has_clusters = image.volume().superblock().geometry().cluster_ratio_shift > 0;
        if has_clusters { Err(refused(&image.name())) } else { Ok(()) }
    };
    // Opening for writing changes an image already.
    read_each(inside, &arguments.writing.looking(), refuse)?;
    let each = |image: &Image, place: &ImagePath| {
        let root = image.resolve(&place.path, false)?;
        let mut collector =
            Collector { image, left_out: &left_out, seen: HashSet::new(), extents: Vec::new() };
        walk::tree(image, root, &place.path, &left_out, &mut collector)?;
        make_whole(image, collector.extents, arguments, &left_out, &mut out)
    };
    if arguments.dry_run {
        read_each(inside, &arguments.writing.looking(), each)?;
    } else {
        change_each(inside, &arguments.writing, each)?;
    }
    for top in mounted {
        let mount = live::Mount::of(Path::new(top))?;
        if mount.has_clusters() {
            return Err(refused(&mount.name()));
        }
        if !arguments.dry_run {
            // What is only in memory has no blocks yet.
            mount.settle()?;
        }
        make_whole(&mount, mount.movable(&left_out)?, arguments, &left_out, &mut out)?;
    }
    out.finish()?;
    left_out.outcome()
}

fn refused(name: &str) -> Failure {
    Failure::of(name, "--free: blocks of volumes with clusters (bigalloc) can't be moved")
}

/// Makes the free space of one volume whole, and says what became of it.
fn make_whole(
    space: &dyn Space,
    extents: Vec<(InodeNr, Extent)>,
    arguments: &Arguments,
    left_out: &LeftOut,
    out: &mut Output,
) -> Outcome {
    let free = space.free_runs(left_out)?;
    let (before, mut moves) = (pack::after(&free, &[]), plan(&free, extents));
    let best = pack::after(&free, &moves);
    if best.1 <= before.1 && best.0 >= before.0 {
        // Nothing would become whole.
        moves.clear();
    }
    let after = if arguments.dry_run {
        pack::after(&free, &moves)
    } else {
        moves = move_all(space, moves, left_out)?;
        // What was moved away from is free once that is committed.
        space.settle()?;
        pack::after(&space.free_runs(left_out)?, &[])
    };
    let block = space.block_bytes();
    let shown = |(count, longest): (u64, u64)| {
        format!("{count} free extents, the largest {}", HumanBytes(longest * block))
    };
    let before = shown(before);
    let (now, has) = if arguments.dry_run { ("then", "would move") } else { ("now", "moved") };
    for Move { nr, extent, to } in moves.iter().filter(|_| arguments.verbose) {
        writeln!(out, "inode {nr}: {} blocks from {} to {to}", extent.len, extent.physical)?;
    }
    let bytes = HumanBytes(pack::blocks(&moves) * block);
    writeln!(out, "{}: {before}; {now} {}; {bytes} {has}", space.name(), shown(after))
}

/// Moves what can be moved; returns what was.
fn move_all(space: &dyn Space, moves: Vec<Move>, left_out: &LeftOut) -> Outcome<Vec<Move>> {
    let progress = Progress::new("moving");
    let mut moved = Vec::new();
    for step in moves {
        if space.move_extent(&step, left_out)? {
            progress.bytes(u64::from(step.extent.len) * space.block_bytes());
            moved.push(step);
        }
    }
    Ok(moved)
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

impl Space for Image {
    fn name(&self) -> String {
        Self::name(self)
    }

    fn block_bytes(&self) -> u64 {
        self.volume().superblock().geometry().block_size.bytes().get()
    }

    fn free_runs(&self, left_out: &LeftOut) -> Outcome<Vec<Range<u64>>> {
        let mut free = Vec::new();
        for group in self.groups(left_out) {
            match self.volume().free_runs(group) {
                Ok(runs) => free.extend(runs.into_iter().map(|run| run.start.get()..run.end.get())),
                Err(error) => left_out.tell(Self::name(self), error),
            }
        }
        Ok(free)
    }

    fn move_extent(&self, &Move { nr, extent, to }: &Move, left_out: &LeftOut) -> Outcome<bool> {
        match self.volume().move_extent(nr, extent, to) {
            Ok(moved) => Ok(moved),
            Err(error @ (Error::Aborted(_) | Error::ReadOnly)) => Err(self.fail(b"/", &error)),
            Err(error) => {
                left_out.tell(Self::name(self), error);
                Ok(false)
            }
        }
    }

    fn settle(&self) -> Outcome {
        self.volume().sync().map_err(|error| self.fail(b"/", &error))
    }
}
