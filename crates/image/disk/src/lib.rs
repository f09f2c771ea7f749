//! Disk images as devices: files that hold the bytes of a disk in another order, with a map.
//!
//! [`Format::of`] recognises one by its content, [`open`] makes it a [`Device`] of the disk's bytes,
//! [`create`] makes an empty one.
//!
//! | format | read | write | create |
//! |---|---|---|---|
//! | qcow2 ([`imago`]) | yes, with backing files | yes | yes |
//! | VHD | fixed, dynamic | fixed, dynamic | fixed, dynamic |
//! | VHDX | yes | | |
//! | VMDK | sparse, stream-optimized, flat, split | | |
//! | Android sparse | yes | | [`android::write`] |
//!
//! Invariants: a range that the map has nothing for reads as zeros (or as the backing file). What was flushed
//! is durable together with the map that leads to it.
//!
//! Hazards: all of it comes from strangers. Every place that a map names is checked to lie in the file,
//! tables are bounded by the length of the file, and nothing outside of the image's directory is opened
//! because an image names it ([`Backing`]). An image in a state that only its own program can finish (dirty,
//! with snapshots, with a log to replay, a differencing child) is refused by name.
//!
//! What it is not: it knows nothing of what lies on the disk.

mod ahead;
pub mod android;
mod backing;
mod error;
#[cfg(test)]
mod images_tests;
mod mapped;
mod named;
mod qcow2;
mod vhd;
mod vhdx;
mod vmdk;

pub use backing::Backing;
pub use error::{Error, Result};
pub use named::Named;

use hectare_device::{Device, FileDevice};
use hectare_probe::record::record;
use hectare_probe::{What, by_head};
use hectare_units::{Bytes, index_of};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A kind of disk image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// QEMU's qcow2, versions 2 and 3.
    Qcow2,
    /// Microsoft's VHD.
    Vhd,
    /// Microsoft's VHDX.
    Vhdx,
    /// VMware's VMDK.
    Vmdk,
    /// Android's sparse image.
    AndroidSparse,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Qcow2 => "qcow2",
            Self::Vhd => "VHD",
            Self::Vhdx => "VHDX",
            Self::Vmdk => "VMDK",
            Self::AndroidSparse => "Android sparse image",
        })
    }
}

/// Bytes that are looked at: those of a disk image's head, and of the superblock of a volume.
const HEAD_LEN: u64 = 2048;

impl Format {
    /// The format of a file; `None` for one that holds the bytes of a disk as they are. One with an ext
    /// volume is that, whatever it begins with.
    ///
    /// # Errors
    /// If the file can't be read.
    pub fn of(file: &dyn Device) -> hectare_device::Result<Option<Self>> {
        let len = index_of(file.len().get().min(HEAD_LEN));
        let what = record(file, 0, len)?.and_then(|head| by_head(head.bytes(0, len)));
        match what {
            Some(What::Qcow) => return Ok(Some(Self::Qcow2)),
            Some(What::Vhd) => return Ok(Some(Self::Vhd)),
            Some(What::Vhdx) => return Ok(Some(Self::Vhdx)),
            Some(What::Vmdk) => return Ok(Some(Self::Vmdk)),
            Some(What::AndroidSparse) => return Ok(Some(Self::AndroidSparse)),
            _ => {}
        }
        let foot = file.len().get().checked_sub(vhd::FOOTER_LEN);
        let is_vhd = foot.map_or(Ok(false), |at| vhd::is_fixed(file, at))?;
        Ok(is_vhd.then_some(Self::Vhd))
    }
}

/// The bytes of the disk in an image that is open, for writing if the file is. `path` is where the file was
/// opened: what it names is looked for from there.
///
/// # Errors
/// See [`Error`].
pub fn open(file: FileDevice, path: &Path, format: Format, backing: Backing) -> Result<Arc<dyn Device>> {
    open_named(file, path, format, backing, Named::default())
}

/// Likewise, with files that the image names, if they are open already: of these nothing is opened by its name.
///
/// # Errors
/// See [`Error`].
pub fn open_named(
    file: FileDevice,
    path: &Path,
    format: Format,
    backing: Backing,
    named: Named,
) -> Result<Arc<dyn Device>> {
    let name = file.name().to_owned();
    let read_only = |format| match file.is_read_only() {
        true => Ok(()),
        false => Err(Error::new(
            &name,
            format!(
                "a {format} is read, but not written: hectare convert makes a raw \
                                                image or a qcow2 of it"
            ),
        )),
    };
    Ok(match format {
        Format::Qcow2 => Arc::new(qcow2::Qcow2Device::open(file, path, backing, named)?),
        Format::Vhd => Arc::from(vhd::open(file)?),
        Format::Vhdx => {
            read_only(format)?;
            Arc::new(vhdx::open(file)?)
        }
        Format::Vmdk => {
            read_only(format)?;
            Arc::new(vmdk::open(file, path, named)?)
        }
        Format::AndroidSparse => {
            read_only(format)?;
            Arc::new(android::open(file)?)
        }
    })
}

/// What [`create`] makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum New {
    /// A qcow2 of version 3, clusters of 64 KiB.
    Qcow2,
    /// A VHD that takes space as it is written, in blocks of 2 MiB.
    Vhd,
    /// A VHD with all bytes in order and a footer.
    VhdFixed,
}

/// Makes an empty file an image of a disk of `size` zero bytes, and opens it. `file` is open for writing;
/// `uuid` names a VHD, for programs that use several at a time.
///
/// # Errors
/// See [`Error`]; the format may not take that size.
pub fn create(
    file: FileDevice,
    path: &Path,
    new: New,
    size: Bytes,
    uuid: [u8; 16],
) -> Result<Box<dyn Device>> {
    match new {
        New::Qcow2 => Ok(Box::new(qcow2::Qcow2Device::create(&file, path, size)?)),
        New::Vhd => {
            vhd::create_dynamic(&file, size, uuid)?;
            vhd::open(file)
        }
        New::VhdFixed => {
            vhd::create_fixed(&file, size, uuid)?;
            vhd::open(file)
        }
    }
}
