//! `hectare convert`.

use crate::failure::{Failure, Outcome};
use crate::image_device::{Hold, refuse_wrapped, whole_device};
use crate::name::shown;
use crate::new_disk::{Kind, NewDisk};
use crate::partition_args::Part;
use crate::progress::Progress;
use hectare_device::os::OsStrExt;
use hectare_device::{Device, Overwrite};
use hectare_units::{Bytes, index_of, u64_of};
use std::path::PathBuf;

/// Bytes that are read at a time, and the pieces of them that are left out if they are zeros.
const CHUNK: usize = 1 << 20;
const PIECE: usize = 64 << 10;

/// Copy a disk from one kind of image to another
///
/// What is zero takes no space in the target. Reads raw files, block devices, qcow2 (with backing files), VHD,
/// VHDX, VMDK and Android sparse images; the target appears under its name when it is complete. With
/// --partition or --offset only that part is copied.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare convert disk.qcow2 disk.img\n  \
    hectare convert --partition 2 disk.vmdk root.img\n  \
    hectare convert --to simg root.img system.simg")]
pub(crate) struct Arguments {
    /// The kind of the target [default: by its name, else raw]
    #[arg(long, value_name = "KIND")]
    to: Option<Kind>,
    /// Replace the target if it exists
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    part: Part,
    /// The disk image or block device
    from: PathBuf,
    /// The image to make
    target: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let kind = arguments.to.map_or_else(|| Kind::of_name(&arguments.target), Ok)?;
    // The disk as a whole, also if there is only one volume on it.
    let whole = whole_device(&arguments.from, arguments.part, Hold::Writers)?;
    refuse_wrapped(&*whole, &shown(arguments.from.as_os_str().as_bytes()))?;
    let disk = arguments.part.of(whole)?;
    let overwrite = if arguments.force { Overwrite::Replace } else { Overwrite::Refuse };
    if kind == Kind::Simg {
        return NewDisk::sparse_image_of(&*disk, &arguments.target, overwrite);
    }
    let new = NewDisk::create(&arguments.target, kind, disk.len(), overwrite)?;
    copy(&*disk, new.device())?;
    new.finish()
}

/// Copies all that is not zero to a device that is.
fn copy(disk: &dyn Device, target: &dyn Device) -> Outcome {
    let progress = Progress::new("converting");
    let mut buf = vec![0; CHUNK];
    let mut at = Bytes::ZERO;
    while at < disk.len() {
        let known = disk.extent_at(at, disk.len() - at).map_err(device_failed)?;
        let end = at + known.len;
        if known.is_zero {
            at = end;
            continue;
        }
        while at < end {
            let len = index_of((end - at).get().min(u64_of(CHUNK)));
            disk.read_at(at, &mut buf[..len]).map_err(device_failed)?;
            for piece in buf[..len].chunks(PIECE) {
                if piece.iter().any(|byte| *byte != 0) {
                    target.write_at(at, piece).map_err(device_failed)?;
                }
                at += Bytes::of(piece.len());
            }
            progress.bytes(u64_of(len));
        }
    }
    target.flush().map_err(device_failed)
}

#[allow(clippy::needless_pass_by_value)] // shaped for map_err
fn device_failed(error: hectare_device::Error) -> Failure {
    Failure::Line(error.to_string())
}
