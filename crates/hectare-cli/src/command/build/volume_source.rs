//! An ext2, ext3 or ext4 image as a source of `hectare build`: what `hectare export` writes of it.
//!
//! The archive is written by a thread of its own into a pipe. What ends the export is the error of the last
//! read, so that an archive that lacks files is never taken for a whole one.
//!
//! Not kept, as by an export: access and creation times, flags, projects, sockets (with a warning).

use crate::directory::Directory;
use crate::failure::{Outcome, tell};
use crate::image_path::ImagePath;
use crate::remote::is_address;
use crate::write_args::Looking;
use hectare_device::FileDevice;
use hectare_export::{Observer, export};
use hectare_populate::Source;
use hectare_probe::{What, probe};
use hectare_units::Bytes;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, PipeReader, Read, Write};
use std::thread::JoinHandle;

/// Bytes that are handed to the pipe at a time.
const BUFFER_LEN: usize = 256 << 10;

/// The source, if the argument names an ext volume, or a directory in one (`IMAGE:DIR`).
///
/// # Errors
/// If the volume can't be opened.
pub(in crate::command) fn of(argument: &OsStr) -> Outcome<Option<Source>> {
    let place = ImagePath::parse(argument);
    if !is_volume(&place) {
        return Ok(None);
    }
    let name = place.show();
    let directory = Directory::open(&place, &Looking::default())?;
    let (reader, writer) = io::pipe().map_err(|error| crate::failure::Failure::of(&name, error))?;
    let thread = std::thread::spawn(move || write(&directory, writer));
    Ok(Some(Source::Stream { name, reader: Box::new(Exported { reader, thread: Some(thread) }) }))
}

fn is_volume(place: &ImagePath) -> bool {
    // An export is nothing else: what is wrong with it shows when it is opened.
    if is_address(&place.image) {
        return true;
    }
    // Opening a pipe would wait for its writer, and closing it end that.
    if !std::fs::metadata(&place.image).is_ok_and(|data| data.is_file()) {
        return false;
    }
    let Ok(file) = File::open(&place.image) else { return false };
    let found = FileDevice::from_file(file, "source").ok().and_then(|device| probe(&device).ok().flatten());
    found.is_some_and(|found| matches!(found.what, What::Ext2 | What::Ext3 | What::Ext4))
}

fn write(directory: &Directory, writer: io::PipeWriter) -> Result<(), String> {
    let show = |path: &[u8]| directory.show(path);
    let out = BufWriter::with_capacity(BUFFER_LEN, writer);
    let mut out = export(&directory.tree(&show), out, &Watch).map_err(|error| error.to_string())?;
    out.flush().map_err(|error| error.to_string())
}

/// Reports what an archive can't hold.
struct Watch;

impl Observer for Watch {
    fn left_out(&self, place: &str, reason: &str) {
        tell(format_args!("{place}: warning: {reason}"));
    }

    fn advance(&self, _: Bytes) {}
}

/// The archive, which ends with the error of the thread that writes it, if there is one.
struct Exported {
    reader: PipeReader,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl Read for Exported {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.reader.read(buffer)?;
        if len > 0 || buffer.is_empty() {
            return Ok(len);
        }
        match self.thread.take().map(JoinHandle::join) {
            None | Some(Ok(Ok(()))) => Ok(0),
            Some(Ok(Err(reason))) => Err(io::Error::other(reason)),
            Some(Err(_)) => Err(io::Error::other("the thread that reads the image has ended")),
        }
    }
}
