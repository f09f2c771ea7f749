//! `-` of `hectare cp`: standard input as the content of one file, and standard output for that of files.
//!
//! A stream has no name, mode, owner or time: its file is named by the destination and gets what a new file
//! gets; an existing one keeps its attributes. Zeros of a stream are written, as it does not say what was a hole.

use super::Arguments;
use crate::batch;
use crate::command::cat;
use crate::copy::Target;
use crate::copy::volume::Inside;
use crate::failure::{Failure, Outcome};
use crate::image::Image;
use crate::image_path::{ImagePath, Operand, split};
use crate::output::{Output, reason};
use crate::progress::Progress;
use hectare_engine::{Error, Kind};
use hectare_units::u64_of;
use std::io::Read;

/// Bytes copied at a time.
const STEP: u64 = 1 << 20;
/// The permissions of a new file, before the umask.
const MODE: u16 = 0o666;

/// Whether an operand is standard input or output; `./-` is a file of that name.
pub(super) fn is_standard(operand: &Operand) -> bool {
    matches!(operand, Operand::Local(path) if path.as_os_str() == "-")
}

/// Refuses operands and options that mean nothing for a stream.
pub(super) fn check(arguments: &Arguments, from: &[Operand]) -> Outcome {
    if !from.iter().any(is_standard) {
        return Ok(());
    }
    let reason = if batch::image().is_some() {
        "standard input has the commands of the batch: it can't be copied as well"
    } else if from.len() > 1 {
        "standard input (-) is copied alone, to a path that names its file"
    } else if arguments.options().preserve || arguments.options().recursive {
        "standard input (-) is one file without attributes: nothing is recursive, and nothing can be kept"
    } else {
        return Ok(());
    };
    Err(Failure::Usage(reason.to_owned()))
}

/// Copies standard input to a file of an image.
pub(super) fn take(image: &Image, place: &ImagePath, progress: &Progress) -> Outcome {
    let path = &place.path;
    let fail = |error: Error| image.fail(path, &error);
    match image.volume().metadata(path) {
        Ok(meta) if meta.is_dir() => return Err(fail(Error::IsADirectory)),
        Ok(_) | Err(Error::NotFound) => {}
        Err(error) => return Err(fail(error)),
    }
    let (parent, name) = split(path);
    if path.ends_with(b"/") || matches!(name, b"" | b"." | b"..") {
        return Err(fail(Error::NotFound));
    }
    let dir = image.resolve(parent, true)?;
    let target = Inside { image };
    let failed = |reason| Failure::of(target.show(path), reason);
    let there = target.find(&dir, name).map_err(failed)?;
    let is_file = there == Some(Kind::File);
    if there.is_some() && !is_file {
        target.remove(&dir, name).map_err(failed)?;
    }
    let file = target.make_file(&dir, name, crate::umask::apply(MODE), is_file).map_err(failed)?;
    fill(|at, data| target.write_at(&file, at, data).map_err(failed), progress)?;
    progress.file();
    Ok(())
}

/// Copies the content of one file of an image to standard output.
pub(super) fn give(arguments: &Arguments, from: &[Operand]) -> Outcome {
    let [Operand::Inside(source)] = from else {
        return Err(Failure::Usage(
            "one file goes to standard output (-); hectare cat prints several".into(),
        ));
    };
    let image = arguments.image_of(source)?;
    let mut out = Output::new();
    cat::print(&image, &source.path, &mut out)?;
    out.finish()
}

/// Hands over standard input piece by piece.
fn fill(mut write: impl FnMut(u64, &[u8]) -> Outcome, progress: &Progress) -> Outcome {
    let mut input = std::io::stdin().lock();
    let (mut buffer, mut at) = (Vec::new(), 0);
    loop {
        buffer.clear();
        let read = input.by_ref().take(STEP).read_to_end(&mut buffer);
        read.map_err(|error| Failure::of("standard input", reason(&error)))?;
        if buffer.is_empty() {
            return Ok(());
        }
        write(at, &buffer)?;
        at += u64_of(buffer.len());
        progress.bytes(u64_of(buffer.len()));
    }
}
