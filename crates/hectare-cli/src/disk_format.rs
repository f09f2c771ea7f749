//! Names that promise a disk format, a container such as qcow2: a raw image under such a name would be hidden
//! from everything that goes by names.
//!
//! What this is not: a look at what a file holds (the formatter's probe does that).

use crate::failure::{Failure, Outcome};
use crate::image_device::{Hold, file_device};
use crate::name::shown;
use hectare_device::FileDevice;
use hectare_device::os::OsStrExt;
use hectare_disk::Format;
use std::path::Path;

/// Extensions and what qemu-img calls the format.
const DISK_FORMATS: [(&str, &str); 7] = [
    ("qcow2", "qcow2"),
    ("qcow", "qcow"),
    ("vmdk", "vmdk"),
    ("vhd", "vpc"),
    ("vhdx", "vhdx"),
    ("vdi", "vdi"),
    ("simg", "simg"),
];

/// Those of which a new file is made as what its name says.
const MADE: [&str; 3] = ["qcow2", "vhd", "simg"];

/// Refuses a target whose name is that of a disk format, unless it is a disk image already, or a new one that
/// is made. `is_new` says that a whole new file would be written.
pub(crate) fn refuse_disk_format_name(path: &Path, is_new: bool) -> Outcome {
    let Some(extension) = path.extension().and_then(|extension| extension.to_str()) else { return Ok(()) };
    let found = DISK_FORMATS.iter().find(|(known, _)| extension.eq_ignore_ascii_case(known));
    let Some((known, format)) = found else { return Ok(()) };
    if is_new && MADE.contains(known) {
        return Ok(());
    }
    if path.exists() && file_device(path, Hold::Nobody).is_ok_and(|file| is_disk_image(&file)) {
        return Ok(());
    }
    let name = shown(path.as_os_str().as_bytes());
    let raw = shown(path.with_extension("img").as_os_str().as_bytes());
    let convert = match *known {
        "qcow2" | "vhd" | "simg" => "hectare convert".to_owned(),
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
        for name in ["a.qcow2", "/tmp/b.VMDK", "c.x.vhd", "d.vhdx", "e.vdi", "f.simg"] {
            match refuse_disk_format_name(Path::new(name), false) {
                Err(Failure::Line(line)) => assert!(line.contains(" convert "), "{line}"),
                _ => panic!("{name}"),
            }
        }
        for name in ["b.VMDK", "d.vhdx", "e.vdi"] {
            assert!(refuse_disk_format_name(Path::new(name), true).is_err(), "{name}");
        }
        for name in ["a.QCOW2", "c.x.vhd", "f.simg"] {
            assert!(refuse_disk_format_name(Path::new(name), true).is_ok(), "{name}");
        }
        for name in ["a.img", "qcow2", "a.qcow2.img", ".qcow2", "/dev/loop0", "a.raw"] {
            assert!(refuse_disk_format_name(Path::new(name), false).is_ok(), "{name}");
        }
    }
}
