//! `-` of `hectare cp`: standard input as the content of one file, and standard output for that of files.
//!
//! A stream has no name, mode, owner or time: its file is named by the destination and gets what a new file
//! gets; an existing one keeps its attributes. Zeros of a stream are written, as it does not say what was a hole.

use super::Arguments;
use crate::batch;
use crate::command::cat;
use crate::copy::volume::Inside;
use crate::copy::{Goal, Target};
use crate::failure::{Failure, Outcome};
use crate::image::Image;
use crate::image_path::{ImagePath, Operand};
use crate::output::{Output, reason};
use crate::progress::Progress;
use hectare_engine::{Error, Kind};
use hectare_units::u64_of;
use std::io::{Read, StdinLock};

/// Bytes copied at a time.
const STEP: u64 = 1 << 20;
/// The permissions of a new file, before the umask.
const MODE: u16 = 0o666;

/// Whether an operand is standard input or output; `./-` is a file of that name.
pub(super) fn is_standard(operand: &Operand) -> bool {
    matches!(operand, Operand::Local(path) if path.as_os_str() == "-")
}

/// Refuses operands and options that mean nothing for a stream.
pub(super) fn check(arguments: &Arguments, to: &Operand, from: &[Operand]) -> Outcome {
    let is_read = from.iter().any(is_standard);
    if !is_read && !is_standard(to) {
        return Ok(());
    }
    let options = arguments.options();
    let reason = if is_read && batch::image().is_some() {
        "standard input is read as the batch file: it can't be a source too"
    } else if from.len() > 1 {
        "standard input and output (-) are one file: the other side is one file, named by its path"
    } else if options.preserve || options.recursive || arguments.devices || arguments.threads.is_some() {
        "standard input and output (-) are one file without attributes: -r, -p, -a, --devices and --threads \
         have no effect on them"
    } else {
        return Ok(());
    };
    Err(Failure::Usage(reason.to_owned()))
}

/// Copies standard input to a file of an image. Nothing is changed before the first of it was read.
pub(super) fn take(image: &Image, place: &ImagePath, progress: &Progress) -> Outcome {
    let path = &place.path;
    let goal = super::goal_inside(image, path, None, false, false)?;
    let Goal { dir, name: Some(name), .. } = goal else {
        return Err(image.fail(path, &Error::IsADirectory));
    };
    let (mut input, mut piece) = (std::io::stdin().lock(), Vec::new());
    read_piece(&mut input, &mut piece)?;
    let target = Inside { image };
    let failed = |reason| Failure::of(target.show(path), reason);
    let there = target.find(&dir, &name).map_err(failed)?;
    let is_file = there == Some(Kind::File);
    if there.is_some() && !is_file {
        target.remove(&dir, &name).map_err(failed)?;
    }
    let file = target.make_file(&dir, &name, target.new_mode(MODE), is_file).map_err(failed)?;
    let mut at = 0;
    while !piece.is_empty() {
        target.write_at(&file, at, &piece).map_err(failed)?;
        at += u64_of(piece.len());
        progress.bytes(u64_of(piece.len()));
        read_piece(&mut input, &mut piece)?;
    }
    progress.file();
    Ok(())
}

/// Reads the next of standard input; nothing at its end.
fn read_piece(input: &mut StdinLock<'_>, piece: &mut Vec<u8>) -> Outcome {
    piece.clear();
    let read = input.by_ref().take(STEP).read_to_end(piece);
    read.map(drop).map_err(|error| Failure::of("standard input", reason(&error)))
}

/// Copies the content of one file of an image to standard output.
pub(super) fn give(arguments: &Arguments, from: &[Operand]) -> Outcome {
    let [Operand::Inside(source)] = from else { return Ok(()) };
    let image = arguments.image_of(source)?;
    let mut out = Output::listing();
    cat::print(&image, &source.path, &mut out)?;
    out.finish()
}
