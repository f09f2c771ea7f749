//! The plugin for nbdkit serves a file of a volume to clients of others.

use crate::installed::{Installed, compilers, here, shown};
use hectare_oracle::{skip, skip_part, tool};
use std::io::Write;
use std::path::Path;
use std::process::Command;

const LEN: usize = 8 << 20;

/// Runs clients, in the words of a shell, on the file that nbdkit serves.
fn served(installed: &Installed, plugin: &Path, image: &Path, more: &[&str], clients: &str) -> String {
    let mut nbdkit = Command::new(tool::find("nbdkit").unwrap());
    nbdkit.args(["--exit-with-parent", "--foreground", "-U", "-"]).arg(plugin).args(more);
    nbdkit.arg(format!("image={}", image.display())).args(["file=/inner.img", "--run", clients]);
    let output = nbdkit.env("LD_LIBRARY_PATH", installed.path("")).output().unwrap();
    assert!(output.status.success(), "{nbdkit:?}: {}", shown(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_plugin_for_nbdkit_serves_a_file_of_a_volume() {
    const NAME: &str = "interface::a_plugin_for_nbdkit_serves_a_file_of_a_volume";
    for name in ["nbdkit", "nbdcopy", "nbdinfo", "qemu-io"] {
        if let Err(reason) = tool::need(name) {
            skip!(NAME, reason);
        }
    }
    if !Path::new("/usr/include/nbdkit-plugin.h").exists() {
        skip!(NAME, "the headers of nbdkit (nbdkit-plugin-dev) are not installed");
    }
    let installed = Installed::new();
    for compiler in compilers() {
        let source = here("examples/nbdkit-hectare-plugin.c");
        let plugin =
            installed.compiled_as(compiler, &source, "nbdkit-hectare-plugin.so", &["-shared", "-fPIC"]);
        let image = installed.path(&format!("{compiler}.img"));
        hectare::mkfs::Format::new().create(&image, 64 << 20).unwrap();
        let volume = hectare::Volume::options().write(true).open(&image).unwrap();
        // Data, a hole of 3 MiB, data.
        let mut content: Vec<u8> = (0..LEN).map(|at| (at % 251).to_le_bytes()[0]).collect();
        content[2 << 20..5 << 20].fill(0);
        let mut file = hectare::fs::OpenOptions::new().write(true).create(true).open(&volume, "/inner.img");
        file.as_mut().unwrap().write_all(&content[..2 << 20]).unwrap();
        file.unwrap().write_all_at(&content[5 << 20..], 5 << 20).unwrap();
        volume.close().unwrap();

        let copy = installed.path(&format!("{compiler}.copy"));
        let read = format!("nbdinfo --map --totals \"$uri\"; nbdcopy \"$uri\" {}", copy.display());
        let map = served(&installed, &plugin, &image, &["-r", "readonly=true"], &read);
        assert!(map.contains("3145728") && map.contains("5242880"), "{map}");
        assert!(std::fs::read(&copy).unwrap() == content, "nbdcopy gave other bytes");

        let write = "qemu-io -f raw -c 'write -P 7 1M 64k' -c 'discard 6M 1M' -c 'write -z 7M 64k' -c flush \
                     -c 'read -P 7 1M 64k' -c 'read -P 0 6M 1M' \"$uri\"";
        let said = served(&installed, &plugin, &image, &[], write);
        assert!(!said.contains("failed"), "{said}");
        content[1 << 20..(1 << 20) + (64 << 10)].fill(7);
        content[6 << 20..7 << 20].fill(0);
        content[7 << 20..(7 << 20) + (64 << 10)].fill(0);
        let volume = hectare::Volume::open(&image).unwrap();
        assert!(volume.read("/inner.img").unwrap() == content, "what was written is not there");
        drop(volume);
        hectare_oracle::assert_clean(&image).unwrap_or_else(|reason| skip_part!("interface, e2fsck", reason));
    }
}
