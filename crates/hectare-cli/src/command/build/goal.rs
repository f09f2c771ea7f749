//! Where `hectare build` writes: a new file, a device or part of a disk that is there, or standard output.
//!
//! A new file gets its name when it is complete, and replaces another only then. What is there is written in
//! place, and never outside of its part. An image is not written from its start to its end, so standard
//! output gets a copy of one that is complete, from a file without a name in the directory for temporary
//! files.

use crate::command::mkfs;
use crate::failure::{Failure, Outcome};
use crate::image_device::{Hold, whole_device};
use crate::name::shown;
use crate::new_disk::{Kind, NewDisk, nameless_twice};
use crate::os;
use crate::output::reason;
use crate::partition_args::Part;
use crate::remote::is_address;
use hectare_device::os::{OsStrExt, borrowed};
use hectare_device::{Device, FileDevice, Overwrite};
use hectare_units::Bytes;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::Path;

/// The target, looked at before any source is read.
pub(super) struct Target<'a> {
    path: &'a Path,
    part: Part,
    /// The size of the device or part that is written in place.
    room: Option<Bytes>,
}

impl<'a> Target<'a> {
    /// Looks at the target.
    ///
    /// # Errors
    /// If it can't be one.
    pub(super) fn of(path: &'a Path, part: Part) -> Outcome<Self> {
        let target = Self { path, part, room: None };
        if target.is_stdout() {
            return target.check_stdout().map(|()| target);
        }
        crate::disk_format::refuse_disk_format_name(path, part.is_whole() && !is_address(path))?;
        let in_place = match std::fs::metadata(path) {
            _ if is_address(path) => true,
            Ok(data) => !part.is_whole() || os::is_block_device(&data),
            Err(_) if part.is_whole() => false,
            Err(error) => return Err(Failure::of(target.shown(), reason(&error))),
        };
        let size = || Ok(part.of(whole_device(path, part, Hold::Writers)?)?.len());
        let room = in_place.then(size);
        Ok(Self { room: room.transpose()?, ..target })
    }

    fn check_stdout(&self) -> Outcome {
        if !self.part.is_whole() {
            let reason = "--partition and --offset are for a disk that is there, not for standard output";
            return Err(Failure::Usage(reason.to_owned()));
        }
        if io::stdout().is_terminal() {
            let reason = "standard output is a terminal: name a file, or use a pipe";
            return Err(Failure::Usage(reason.to_owned()));
        }
        Ok(())
    }

    /// Whether the image goes to standard output, which then is for nothing else.
    pub(super) fn is_stdout(&self) -> bool {
        self.path.as_os_str() == "-"
    }

    /// The size of what is written in place; `None` for an image that can have any size.
    pub(super) const fn room(&self) -> Option<Bytes> {
        self.room
    }

    /// Its name in messages.
    pub(super) fn shown(&self) -> String {
        match self.is_stdout() {
            true => "standard output".to_owned(),
            false => self.part.shown(&shown(self.path.as_os_str().as_bytes())),
        }
    }

    /// Refuses an image that needs more than there is.
    ///
    /// # Errors
    /// With both sizes.
    pub(super) fn check_room(&self, needed: Bytes) -> Outcome {
        match self.room {
            Some(room) if needed > room => {
                let reason = format_args!("it has {room} bytes, and the image needs {needed}");
                Err(Failure::of(self.shown(), reason))
            }
            _ => Ok(()),
        }
    }

    /// Opens what is there, unless it has content and `force` is not given; or makes a file of `size`.
    pub(super) fn open(&self, size: Bytes, force: bool) -> Outcome<Goal> {
        if self.is_stdout() {
            return Goal::nameless(size);
        }
        let name = self.shown();
        if self.room.is_some() {
            let size = self.part.offset().map(|_| size);
            let goal = mkfs::Goal::open(self.path, self.part, &name, size, force)?;
            return Ok(Goal::There(goal));
        }
        if self.path.exists() && !force {
            return Err(Failure::of(name, "the file exists; use --force to replace it"));
        }
        let overwrite = if force { Overwrite::Replace } else { Overwrite::Refuse };
        let new = NewDisk::create(self.path, Kind::of_name(self.path)?, size, overwrite)?;
        Ok(Goal::New(Box::new(new)))
    }
}

/// The target, open for writing.
pub(super) enum Goal {
    /// A device or part of a disk, written in place.
    There(mkfs::Goal),
    /// A file that gets its name when it is complete.
    New(Box<NewDisk>),
    /// A file without a name, to be copied to standard output, and a second handle of it.
    Nameless(Box<FileDevice>, File),
}

impl Goal {
    fn nameless(size: Bytes) -> Outcome<Self> {
        let (device, copy) = nameless_twice(size)?;
        Ok(Self::Nameless(Box::new(device), copy))
    }

    pub(super) fn device(&self) -> &dyn Device {
        match self {
            Self::There(goal) => goal.device(),
            Self::New(new) => new.device(),
            Self::Nameless(device, _) => &**device,
        }
    }

    /// Makes the image durable, gives a new file its name, or copies it to standard output.
    pub(super) fn finish(self) -> Outcome {
        match self {
            Self::There(goal) => goal.finish(),
            Self::New(new) => new.finish(),
            Self::Nameless(_, mut image) => {
                let copied = borrowed(&io::stdout()).try_clone_to_owned().and_then(|stdout| {
                    // Not through a buffer, which would hide an error until after the end.
                    io::copy(&mut image, &mut File::from(stdout))
                });
                copied.map(drop).map_err(|error| Failure::of("standard output", reason(&error)))
            }
        }
    }
}
