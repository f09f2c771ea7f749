//! Volumes.

#![allow(unsafe_code)] // names that C calls

use crate::failure::{Failure, guard, status};
use crate::handles::{Held, Kind, Table};
use crate::memory::{self, host_path, put, text};
use hectare::Volume;
use hectare::inode::{self, Changes, InodeNr};
use std::ffi::{c_char, c_int};

/// An open volume.
#[allow(non_camel_case_types, missing_debug_implementations)]
pub struct hectare_volume {
    _private: [u8; 0],
}

/// For hectare_open: for reading only.
pub const HECTARE_READ_ONLY: u32 = 0;
/// For hectare_open: for reading and writing.
pub const HECTARE_READ_WRITE: u32 = 1;

static VOLUMES: Table<Volume> = Table::new(Kind::Volume);

pub(crate) fn volume(handle: *mut hectare_volume) -> Result<Held<Volume>, Failure> {
    VOLUMES.get(handle)
}

pub(crate) fn keep(volume: Volume) -> Result<*mut hectare_volume, Failure> {
    VOLUMES.insert(volume)
}

pub(crate) fn options(flags: u32) -> Result<hectare::VolumeOptions, Failure> {
    match flags {
        HECTARE_READ_ONLY => Ok(Volume::options()),
        HECTARE_READ_WRITE => Ok(Volume::options().write(true).clone()),
        _ => {
            Err(Failure::new(crate::failure::EINVAL, "the flags are HECTARE_READ_ONLY or HECTARE_READ_WRITE"))
        }
    }
}

/// Opens the volume in a file or on a block device, and locks that: for reading any number may have it open
/// at once, for writing one (EBUSY), in this program as in others. NULL if it can't. A journal that must be
/// replayed is; in memory only if the volume is opened for reading.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_open(image: *const c_char, flags: u32) -> *mut hectare_volume {
    guard(std::ptr::null_mut(), || {
        let opened = options(flags)?.open(host_path(image, "the image's path")?)?;
        keep(opened)
    })
}

/// Makes everything durable and closes the volume: its handle leads to nothing any more, also after an error.
/// Files and directories of it that are open stay readable, and keep the image locked until they are closed;
/// those that have lost their last name are freed, and calls with them fail with ESTALE.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_close(volume: *mut hectare_volume) -> c_int {
    status(|| Ok(VOLUMES.take(volume)?.close()?))
}

/// Makes all changes durable.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_sync(volume: *mut hectare_volume) -> c_int {
    status(|| Ok(self::volume(volume)?.sync()?))
}

/// How full a volume is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(non_camel_case_types)]
pub struct hectare_space {
    /// Bytes for content, free or not.
    pub total: u64,
    /// Free bytes, those reserved for root included.
    pub free: u64,
    /// Free bytes for everyone.
    pub available: u64,
    /// Inodes, free or not.
    pub inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// 0.
    pub reserved: u32,
}

/// How full a volume is.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_statfs(volume: *mut hectare_volume, to: *mut hectare_space) -> c_int {
    status(|| {
        let space = self::volume(volume)?.space()?;
        let found = hectare_space {
            total: space.total,
            free: space.free,
            available: space.available,
            inodes: space.inodes,
            free_inodes: space.free_inodes,
            block_size: space.block_size,
            reserved: 0,
        };
        put(to, found)
    })
}
/// Who a volume is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(non_camel_case_types)]
pub struct hectare_identity {
    /// The UUID.
    pub uuid: [u8; 16],
    /// The label, up to 16 bytes, with a NUL behind it; empty if there is none.
    pub label: [u8; 24],
}

/// The UUID and the label of an open volume.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_identify(volume: *mut hectare_volume, to: *mut hectare_identity) -> c_int {
    status(|| {
        let volume = self::volume(volume)?;
        let mut found = hectare_identity { uuid: volume.engine().superblock().uuid(), label: [0; 24] };
        for (to, from) in found.label[..16].iter_mut().zip(volume.engine().label()) {
            *to = from;
        }
        put(to, found)
    })
}

/// Changes the label, durably: up to 16 bytes; empty: none.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_set_label(volume: *mut hectare_volume, label: *const c_char) -> c_int {
    status(|| {
        let volume = self::volume(volume)?;
        about(&volume, b"", volume.engine().set_label(text(label, "the label")?))
    })
}

/// What is at a path.
pub(crate) struct At<'a> {
    volume: Held<Volume>,
    path: &'a [u8],
    follows: bool,
}

impl At<'_> {
    pub(crate) fn of(
        volume: *mut hectare_volume,
        path: *const c_char,
        follows: bool,
    ) -> Result<Self, Failure> {
        Ok(Self { volume: self::volume(volume)?, path: memory::path(path, "the path")?, follows })
    }

    pub(crate) fn run<T>(
        &self,
        run: impl FnOnce(&inode::Volume, InodeNr) -> Result<T, inode::Error>,
    ) -> Result<T, Failure> {
        let engine = self.volume.engine();
        about(&self.volume, self.path, engine.resolve(self.path, self.follows).and_then(|nr| run(engine, nr)))
    }

    pub(crate) fn change(&self, changes: &Changes) -> Result<(), Failure> {
        self.run(|engine, nr| engine.change(nr, changes))
    }
}

/// The result of the engine's, whose errors name no file, with the file that it is about.
pub(crate) fn about<T>(volume: &Volume, path: &[u8], result: Result<T, inode::Error>) -> Result<T, Failure> {
    result.map_err(|error| {
        let (device, text) = (volume.engine().device().name(), error.to_string());
        let place = match path {
            [] => device.to_owned(),
            path => format!("{device}:{}", String::from_utf8_lossy(path)),
        };
        // Devices name themselves.
        let message = if text.starts_with(device) { text } else { format!("{place}: {text}") };
        Failure::new(error.errno(), message)
    })
}
