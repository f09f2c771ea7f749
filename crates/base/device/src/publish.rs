//! Gives a file under construction its name, or the use of it without one.

use crate::beside::{hidden_name, parent_dir};
use crate::device::Device;
use crate::error::{Error, Operation, Reason, Result};
use crate::file::FileDevice;
use crate::file_options::{FileOptions, Overwrite};
use crate::pending::PendingFile;
use hectare_units::Bytes;
use std::io;
use std::path::Path;

impl PendingFile {
    /// Gives the file its name. It is durable under that name once [`Device::flush`] of what is returned has
    /// succeeded.
    ///
    /// # Errors
    /// If meanwhile there is a file of that name and it is not to be replaced, or the directory does not take
    /// it. The file is then gone.
    ///
    /// # Panics
    /// Never: the device is there until this takes it.
    pub fn publish(mut self) -> Result<FileDevice> {
        let mut device = self.device.take().expect("it is taken only here");
        self.give_name(&device).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                Error::new(device.name(), Operation::Publish, None, Reason::Exists)
            }
            _ => Error::io(device.name(), Operation::Publish, None, &error),
        })?;
        *device.unsynced_dir.get_mut() = parent_dir(&self.path);
        Ok(device)
    }
}

impl FileOptions {
    /// Makes a file of `len` zeros in a directory that never has a name, or none that stays.
    ///
    /// # Errors
    /// If the directory takes no file, or the host can't hold one of that length.
    pub fn create_nameless(&self, directory: impl AsRef<Path>, len: Bytes) -> Result<FileDevice> {
        let options = Self { private: true, ..self.clone() };
        loop {
            let path = hidden_name(&directory.as_ref().join("nameless"));
            match options.create_pending(path, len, Overwrite::Refuse) {
                // A process that was killed left it.
                Err(error) if *error.reason() == Reason::Exists => {}
                made => return made?.device().another(),
            }
        }
    }
}
