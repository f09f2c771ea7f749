//! A file that gets its final name when it is finished: until then it has a hidden one beside that.

use super::{FileDevice, check_output_place, check_replaceable, open_new, take_lock};
use crate::beside::under_hidden_name;
use crate::device::Device;
use crate::error::{Error, Operation, Reason, Result};
use crate::file_options::{FileOptions, Overwrite};
use crate::pending::PendingFile;
use hectare_units::Bytes;
use std::fs::{self, File};
use std::io;
use std::path::Path;

impl FileOptions {
    /// Makes a new file of `len` zeros that appears under its name only when
    /// [`published`](PendingFile::publish), and disappears if that never happens, unless the program is
    /// killed.
    ///
    /// # Errors
    /// As [`FileOptions::create`], except that a file to be replaced may be in use by readers, who keep it. One that
    /// somebody writes to is refused, unless these options share it: what is written later would be lost.
    pub fn create_pending(
        &self,
        path: impl AsRef<Path>,
        len: Bytes,
        overwrite: Overwrite,
    ) -> Result<PendingFile> {
        let path = path.as_ref();
        let name = path.to_string_lossy();
        check_output_place(path)?;
        check_replaceable(path, &name, overwrite)?;
        if path.file_name().is_none() {
            let reason = Reason::NotADevice("that is no name for a file");
            return Err(Error::new(&name, Operation::Create, None, reason));
        }
        self.refuse_direct(&name, Operation::Create)?;
        let replaces = overwrite == Overwrite::Replace && path.exists();
        let replaced = if replaces && !self.shared { hold(path, &name)? } else { None };
        // Through a symbolic link the file it leads to is replaced, not the link.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let made = under_hidden_name(&path, |hidden| open_new(hidden, self.private || replaces));
        let (hidden, file) = made.map_err(|error| Error::io(&name, Operation::Create, None, &error))?;
        // From here on dropping it removes the hidden name.
        let mut pending = PendingFile {
            device: None,
            hidden: Some(hidden),
            path,
            overwrite,
            replaced,
            shared: self.shared,
        };
        #[cfg(unix)]
        if replaces {
            let kept = crate::pending::keep_permissions(&file, &pending.path);
            kept.map_err(|error| Error::io(&name, Operation::Create, None, &error))?;
        }
        pending.device = Some(self.prepare(file, &name, len)?);
        Ok(pending)
    }
}

impl PendingFile {
    /// Gives the file its final name.
    pub(crate) fn give_name(&mut self, device: &FileDevice) -> io::Result<()> {
        let Some(hidden) = &self.hidden else { return Ok(()) };
        match self.overwrite {
            Overwrite::Replace => {
                let mut held = self.replaced.take();
                // It may have come meanwhile.
                if held.is_none() && !self.shared {
                    held = hold(&self.path, device.name())?;
                }
                // Windows does not replace what is open.
                let held = held.filter(|_| !cfg!(windows));
                fs::rename(hidden, &self.path)?;
                drop(held);
            }
            Overwrite::Refuse => match fs::hard_link(hidden, &self.path) {
                // Dropping this value removes the hidden name.
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
                // A file system without links, where renaming is checked before.
                Err(_) if fs::symlink_metadata(&self.path).is_ok() => {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                Err(_) => fs::rename(hidden, &self.path)?,
            },
        }
        self.hidden = None;
        Ok(())
    }
}

/// Opens a file that is to be replaced, and keeps writers away from it. `None` if there is none, or this user may
/// not open it.
fn hold(path: &Path, name: &str) -> Result<Option<File>> {
    match File::open(path) {
        Ok(file) => take_lock(&file, name, Operation::Create, false).map(|()| Some(file)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
            Ok(None)
        }
        Err(error) => Err(Error::io(name, Operation::Create, None, &error)),
    }
}
