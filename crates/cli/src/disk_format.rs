//! Names that promise a disk format, a container such as qcow2: what is made is a raw image, which such a name
//! would hide from everything that goes by names.
//!
//! What this is not: a look at what a file holds (the formatter's probe does that).

use crate::failure::{Failure, Outcome};
use crate::image_device::{Hold, file_device};
use crate::name::shown;
use hectare_device::FileDevice;
use hectare_disk::Format;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Extensions and what qemu-img calls the format.
const DISK_FORMATS: [(&str, &str); 6] = [
    ("qcow2", "qcow2"),
    ("qcow", "qcow"),
    ("vmdk", "vmdk"),
    ("vhd", "vpc"),
    ("vhdx", "vhdx"),
    ("vdi", "vdi"),
];

/// Refuses a target whose name is that of a disk format, unless it is a disk image already.
pub(crate) fn refuse_disk_format_name(path: &Path) -> Outcome {
    let Some(extension) = path.extension().and_then(|extension| extension.to_str()) else { return Ok(()) };
    let found = DISK_FORMATS.iter().find(|(known, _)| extension.eq_ignore_ascii_case(known));
    let Some((known, format)) = found else { return Ok(()) };
    if path.exists() && file_device(path, Hold::Nobody).is_ok_and(|file| is_disk_image(&file)) {
        return Ok(());
    }
    let name = shown(path.as_os_str().as_bytes());
    let raw = shown(path.with_extension("img").as_os_str().as_bytes());
    let convert = match *known {
        "qcow2" | "vhd" => "hectare convert".to_owned(),
        _ => format!("qemu-img convert -O {format}"),
    };
    Err(Failure::of(
        &name,
        format_args!(
            "the name is that of a {known} container, and a raw image is made: make {raw}, then `{convert} \
             {raw} {name}`"
        ),
    ))
}

fn is_disk_image(file: &FileDevice) -> bool {
    Format::of(file).is_ok_and(|format| format.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_disk_formats_are_refused_with_advice() {
        for name in ["a.qcow2", "/tmp/b.VMDK", "c.x.vhd", "d.vhdx", "e.vdi"] {
            match refuse_disk_format_name(Path::new(name)) {
                Err(Failure::Line(line)) => assert!(line.contains(" convert "), "{line}"),
                _ => panic!("{name}"),
            }
        }
        for name in ["a.img", "qcow2", "a.qcow2.img", ".qcow2", "/dev/loop0", "a.raw"] {
            assert!(refuse_disk_format_name(Path::new(name)).is_ok(), "{name}");
        }
    }
}
