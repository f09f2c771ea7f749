//! `hectare convert`.

use crate::failure::{Failure, Outcome};
use crate::image_device::{Hold, whole_device};
use crate::name::shown;
use crate::output::Output;
use crate::partition_args::Part;
use crate::progress::Progress;
use crate::reproducible;
use hectare_device::{Device, FileOptions, Overwrite, PendingFile};
use hectare_disk::{New, android, create};
use hectare_units::{Bytes, index_of, random, u64_of};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

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

/// A kind of disk image that is written.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
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
    fn of_name(path: &Path) -> Outcome<Self> {
        let extension = path.extension().map(|name| name.to_string_lossy().to_ascii_lowercase());
        Ok(match extension.as_deref() {
            Some("qcow2") => Self::Qcow2,
            Some("vhd") => Self::Vhd,
            Some("simg") => Self::Simg,
            Some(other) if NOT_WRITTEN.contains(&other) => {
                let what = format!(
                    "the name is that of a {other}, which is not written: make a raw image, qcow2 or vhd, \
                     or name the kind with --to"
                );
                return Err(Failure::of(shown(path.as_os_str().as_bytes()), what));
            }
            _ => Self::Raw,
        })
    }
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let kind = arguments.to.map_or_else(|| Kind::of_name(&arguments.target), Ok)?;
    // The disk as a whole, also if there is only one volume on it.
    let disk = arguments.part.of(whole_device(&arguments.from, arguments.part, Hold::Writers)?)?;
    let overwrite = if arguments.force { Overwrite::Replace } else { Overwrite::Refuse };
    let len = if kind == Kind::Raw { disk.len() } else { Bytes::ZERO };
    let pending = FileOptions::new().write(true).create_pending(&arguments.target, len, overwrite);
    let pending = pending.map_err(device_failed)?;
    fill(&*disk, &pending, arguments, kind)?;
    pending.publish().and_then(|file| file.flush()).map_err(device_failed)?;
    Output::new().finish()
}

fn fill(disk: &dyn Device, pending: &PendingFile, arguments: &Arguments, kind: Kind) -> Outcome {
    let new = match kind {
        Kind::Raw => return copy(disk, pending.device()),
        Kind::Simg => {
            let claim = pending.device().claim();
            let file = claim.and_then(|claim| claim.as_fd().try_clone_to_owned());
            let name = shown(arguments.target.as_os_str().as_bytes());
            let file = file.map_err(|error| Failure::of(&name, error))?;
            let mut out = BufWriter::with_capacity(CHUNK, File::from(file));
            let written = android::write(disk, &mut out).map_err(|error| Failure::Line(error.to_string()));
            return written.and_then(|()| out.flush().map_err(|error| Failure::of(name, error)));
        }
        Kind::Qcow2 => New::Qcow2,
        Kind::Vhd => New::Vhd,
        Kind::VhdFixed => New::VhdFixed,
    };
    let made = create(pending.device(), &arguments.target, new, disk.len(), uuid()?);
    let made = made.map_err(|error| Failure::Line(error.to_string()))?;
    copy(disk, &*made)
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
