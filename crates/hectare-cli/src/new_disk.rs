//! A new file with a disk, in any kind of image that is written: raw, qcow2, VHD, Android's sparse image.
//!
//! The file gets its name when it is complete. A raw image, a qcow2 and a VHD are written as the disk is; a
//! sparse image is written from start to end, of a disk in a file without a name in the directory for
//! temporary files.

use crate::failure::{Failure, Outcome};
use crate::name::shown;
use crate::output::reason;
use crate::reproducible;
use hectare_device::os::{OsStrExt, borrowed};
use hectare_device::{Device, FileDevice, FileOptions, Overwrite, PendingFile};
use hectare_disk::{New, android, create};
use hectare_units::{Bytes, random};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of a sparse image that are written at a time.
const BUFFER: usize = 1 << 20;

/// A kind of disk image that is written.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The bytes of the disk, with holes
    Raw,
    /// QEMU's
    Qcow2,
    /// Microsoft's, growing
    Vhd,
    /// Microsoft's, with all bytes in order, as Azure takes it
    VhdFixed,
    /// Android's sparse image
    Simg,
}

/// Names that promise a kind which is not written.
const NOT_WRITTEN: [&str; 4] = ["vhdx", "vmdk", "vdi", "qcow"];

impl Kind {
    /// The kind that a name promises.
    pub(crate) fn of_name(path: &Path) -> Outcome<Self> {
        let extension = path.extension().map(|name| name.to_string_lossy().to_ascii_lowercase());
        Ok(match extension.as_deref() {
            Some("qcow2") => Self::Qcow2,
            Some("vhd") => Self::Vhd,
            Some("simg") => Self::Simg,
            Some(other) if NOT_WRITTEN.contains(&other) => {
                let what = format!(
                    "the name is that of a {other}, which is not written: make a raw image, qcow2 or vhd, \
                     or name the kind with --to or --format"
                );
                return Err(Failure::of(shown(path.as_os_str().as_bytes()), what));
            }
            _ => Self::Raw,
        })
    }
}

/// A new disk in a file that has no name yet.
pub(crate) struct NewDisk {
    pending: PendingFile,
    body: Body,
    name: String,
}

/// Where the bytes of the disk go.
enum Body {
    /// To the file.
    Raw,
    /// To the file, by a map.
    Mapped(Box<dyn Device>),
    /// To a file without a name, of which a sparse image is made.
    Nameless(Box<FileDevice>),
}

impl NewDisk {
    /// A disk of `size` zeros.
    ///
    /// # Errors
    /// If the file can't be made, or the kind does not take that size.
    pub(crate) fn create(path: &Path, kind: Kind, size: Bytes, overwrite: Overwrite) -> Outcome<Self> {
        let len = if kind == Kind::Raw { size } else { Bytes::ZERO };
        let pending =
            FileOptions::new().write(true).create_pending(path, len, overwrite).map_err(device_failed)?;
        let mapped = |new| -> Outcome<Body> {
            let file = pending.device().another().map_err(device_failed)?;
            let made = create(file, path, new, size, uuid()?);
            made.map(Body::Mapped).map_err(|error| Failure::Line(error.to_string()))
        };
        let body = match kind {
            Kind::Raw => Body::Raw,
            Kind::Qcow2 => mapped(New::Qcow2)?,
            Kind::Vhd => mapped(New::Vhd)?,
            Kind::VhdFixed => mapped(New::VhdFixed)?,
            Kind::Simg => Body::Nameless(Box::new(nameless(size)?)),
        };
        Ok(Self { pending, body, name: shown(path.as_os_str().as_bytes()) })
    }

    /// Makes a sparse image of a disk that is there.
    ///
    /// # Errors
    /// If the disk can't be read, or the file can't be written.
    pub(crate) fn sparse_image_of(disk: &dyn Device, path: &Path, overwrite: Overwrite) -> Outcome {
        let pending = FileOptions::new().write(true).create_pending(path, Bytes::ZERO, overwrite);
        let pending = pending.map_err(device_failed)?;
        write_sparse(disk, &pending, &shown(path.as_os_str().as_bytes()))?;
        publish(pending)
    }

    /// The bytes of the disk.
    pub(crate) fn device(&self) -> &dyn Device {
        match &self.body {
            Body::Raw => self.pending.device(),
            Body::Mapped(device) => &**device,
            Body::Nameless(device) => &**device,
        }
    }

    /// Makes the disk durable, and gives the file its name.
    ///
    /// # Errors
    /// If it can't be written; there is no file of the name then, or the one before.
    pub(crate) fn finish(self) -> Outcome {
        match self.body {
            Body::Raw => {}
            // Its tables are written before it is dropped, where an error would be lost.
            Body::Mapped(device) => device.flush().map_err(device_failed)?,
            Body::Nameless(device) => write_sparse(&*device, &self.pending, &self.name)?,
        }
        publish(self.pending)
    }
}

fn publish(pending: PendingFile) -> Outcome {
    pending.publish().and_then(|file| file.flush()).map_err(device_failed)
}

fn write_sparse(disk: &dyn Device, pending: &PendingFile, name: &str) -> Outcome {
    let failed = |error: std::io::Error| Failure::of(name, reason(&error));
    let file =
        pending.device().claim().and_then(|claim| borrowed(&claim).try_clone_to_owned()).map_err(failed)?;
    let mut out = BufWriter::with_capacity(BUFFER, File::from(file));
    android::write(disk, &mut out).map_err(|error| Failure::Line(error.to_string()))?;
    out.flush().map_err(failed)
}

/// A file of zeros without a name in the directory for temporary files.
pub(crate) fn nameless(size: Bytes) -> Outcome<FileDevice> {
    let directory = std::env::temp_dir();
    FileOptions::new().write(true).create_nameless(&directory, size).map_err(|error| {
        let place = shown(directory.as_os_str().as_bytes());
        Failure::of(format_args!("temporary file in {place} (TMPDIR)"), error.reason())
    })
}

/// The same, and a second handle of it.
pub(crate) fn nameless_twice(size: Bytes) -> Outcome<(FileDevice, File)> {
    let device = nameless(size)?;
    let file = device.claim().and_then(|claim| borrowed(&claim).try_clone_to_owned());
    let file = file.map_err(|error| Failure::of(device.name(), reason(&error)))?;
    Ok((device, File::from(file)))
}

/// A UUID for an image: an arbitrary one, or one that only the given time determines.
fn uuid() -> Outcome<[u8; 16]> {
    let seed = match reproducible::epoch()? {
        Some(epoch) => epoch.cast_unsigned(),
        None => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| {
            since.as_secs().rotate_left(32)
                ^ u64::from(since.subsec_nanos())
                ^ u64::from(std::process::id()) << 40
        }),
    };
    let halves = [1, 2].map(|n| random::mixed(seed.wrapping_add(random::STEP.wrapping_mul(n))).to_be_bytes());
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&halves[0]);
    uuid[8..].copy_from_slice(&halves[1]);
    // Version 4, variant 1.
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Ok(uuid)
}

#[allow(clippy::needless_pass_by_value)] // shaped for map_err
fn device_failed(error: hectare_device::Error) -> Failure {
    Failure::Line(error.to_string())
}
