//! Volumes in disk images, and their conversion.

use crate::mount::bench;
use crate::support::hectare;
use hectare_oracle::tool::{need, run};
use hectare_oracle::{assert_clean, skip};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

fn qemu_img(args: &[&str]) -> Result<(), hectare_oracle::Skip> {
    let said = run(need("qemu-img")?.args(args));
    assert!(said.succeeded(), "{}", said.report());
    Ok(())
}

/// A disk with a GPT: swap space, and an ext4 volume that was made by us.
fn partitioned(raw: &Path) -> Result<(), hectare_oracle::Skip> {
    fs::write(raw, []).unwrap();
    fs::File::options().write(true).open(raw).unwrap().set_len(40 << 20).unwrap();
    let table = "label: gpt\nsize=4M, type=S, name=swap\n\
                 size=20M, name=root, uuid=01234567-89AB-4CDE-8F01-23456789ABCD\n";
    let mut sfdisk = need("sfdisk")?;
    let _ = hectare_oracle::tool::run_with_input(sfdisk.args(["-q", "--no-tell-kernel"]).arg(raw), table)
        .expect_success();
    Ok(())
}

/// Every command works on the volume inside, and qemu reads what they wrote.
#[test]
fn volumes_in_disk_images_are_made_filled_checked_and_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let file = path("a-file");
    fs::write(&file, [7; 70_000]).unwrap();
    for (format, image) in [("qcow2", path("disk.qcow2")), ("vpc", path("disk.vhd"))] {
        if let Err(reason) = qemu_img(&["create", "-q", "-f", format, "-o", "size=40M", &image]) {
            skip!("disk_image::volumes_in_disk_images", reason);
        }
        hectare(&["mkfs", &image]).ok();
        hectare(&["cp", &file, &format!("{image}:/copied")]).ok();
        assert_eq!(hectare(&["cat", &format!("{image}:/copied")]).ok().out, [7; 70_000]);
        hectare(&["check", &image]).ok();
        let raw = path("raw");
        qemu_img(&["convert", "-f", format, "-O", "raw", &image, &raw]).unwrap();
        assert_clean(Path::new(&raw)).unwrap();
        assert_eq!(hectare(&["cat", &format!("{raw}:/copied")]).ok().out, [7; 70_000]);
        if format == "qcow2" {
            qemu_img(&["check", "-q", &image]).unwrap();
        }
    }
}

#[test]
fn a_partition_is_named_or_found() {
    let folder = tempfile::tempdir().unwrap();
    let raw = folder.path().join("disk");
    if let Err(reason) = partitioned(&raw) {
        skip!("disk_image::a_partition_is_named_or_found", reason);
    }
    let image = raw.to_str().unwrap();
    hectare(&["mkfs", "--partition", "root", image]).ok();
    for named in ["2", "root", "01234567-89ab-4cde-8f01-23456789abcd"] {
        hectare(&["mkdir", "--partition", named, &format!("{image}:/made-{named}")]).ok();
    }
    let ran = hectare(&["ls", &format!("{image}:/")]).ok();
    assert!(ran.err.contains("note: partition 2 is used, the only one with an ext volume"), "{}", ran.err);
    assert_eq!(text(&ran.out).matches("made-").count(), 3);
    let refused = hectare(&["ls", "--partition", "boot", image]);
    assert!(refused.refused().contains("\"boot\" is the name or UUID of no partition: there are 1, 2"));
    regression_a_partition_that_was_found_keeps_its_length(&raw);
    // A second volume: nothing is guessed.
    hectare(&["mkfs", "--partition", "1", image]).ok();
    let refused = hectare(&["ls", image]);
    assert!(refused.refused().contains("--partition"), "{}", refused.err);
}

/// `resize` took a partition that it had found by itself for the whole file, and wanted to cut it.
fn regression_a_partition_that_was_found_keeps_its_length(raw: &Path) {
    let qcow2 = raw.with_extension("qcow2");
    let [raw, qcow2] = [raw, &qcow2].map(|path| path.to_str().unwrap().to_owned());
    let made = qemu_img(&["convert", "-f", "raw", "-O", "qcow2", &raw, &qcow2]);
    let disks = if made.is_ok() { vec![raw, qcow2] } else { vec![raw] };
    for disk in &disks {
        let resized = |size: &str| {
            let done = hectare(&["resize", "--json", disk, size]).ok().json();
            let bytes = done["blocks"].as_u64().unwrap() * done["block_size"].as_u64().unwrap();
            bytes >> 20
        };
        assert_eq!([resized("12M"), resized("max"), resized("-4M")], [12, 20, 16], "{disk}");
        let refused = hectare(&["resize", disk, "30M"]);
        assert!(refused.err.contains("make the partition larger first"), "{}", refused.err);
        assert_eq!(refused.code, Some(1));
        hectare(&["check", "--partition", "2", disk]).ok();
        let info = hectare(&["check", "--partition", "1", disk]);
        assert_ne!(info.code, Some(0), "the other partition is as it was");
    }
    if let [raw, qcow2] = &disks[..] {
        assert_eq!(fs::metadata(raw).unwrap().len(), 40 << 20);
        qemu_img(&["check", "-q", qcow2]).unwrap();
        let back = format!("{raw}.back");
        qemu_img(&["convert", "-f", "qcow2", "-O", "raw", qcow2, &back]).unwrap();
        assert_eq!(fs::metadata(&back).unwrap().len(), 40 << 20);
    }
}

/// A volume that fills a disk image makes that shorter, if its kind can be.
#[test]
fn a_disk_image_is_cut_behind_its_volume_or_keeps_its_length() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for (format, image) in [("qcow2", path("d.qcow2")), ("vpc", path("d.vhd"))] {
        if let Err(reason) = qemu_img(&["create", "-q", "-f", format, "-o", "size=40M", &image]) {
            skip!("disk_image::a_disk_image_is_cut_behind_its_volume_or_keeps_its_length", reason);
        }
        hectare(&["mkfs", "-q", &image]).ok();
        let shrunk = hectare(&["resize", &image, "20M"]).ok();
        assert_eq!(shrunk.text().contains("keeps its length"), format == "vpc", "{}", shrunk.text());
        hectare(&["check", &image]).ok();
        let raw = path("raw");
        qemu_img(&["convert", "-f", format, "-O", "raw", &image, &raw]).unwrap();
        assert_eq!(fs::metadata(&raw).unwrap().len() == 20 << 20, format == "qcow2");
        let grown = hectare(&["resize", &image, "60M"]);
        assert_eq!(grown.code, Some(i32::from(format == "vpc")), "{}", grown.err);
        assert!(format == "qcow2" || grown.err.contains("keeps its size"), "{}", grown.err);
        hectare(&["check", &image]).ok();
    }
}

#[test]
fn disks_are_converted_with_their_holes() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let raw = path("disk");
    if let Err(reason) = partitioned(Path::new(&raw)).and_then(|()| need("qemu-img").map(drop)) {
        skip!("disk_image::disks_are_converted", reason);
    }
    hectare(&["mkfs", "--partition", "2", &raw]).ok();
    let bytes = fs::read(&raw).unwrap();
    for (name, format) in [("a.qcow2", "qcow2"), ("a.vhd", "vpc"), ("a.img", "raw")] {
        hectare(&["convert", &raw, &path(name)]).ok();
        qemu_img(&["compare", "-q", "-f", "raw", "-F", format, &raw, &path(name)]).unwrap();
        assert!(fs::metadata(path(name)).map(|data| allocated(&data)).unwrap() < 10 << 20, "{name}");
        hectare(&["convert", &path(name), &path("back")]).ok();
        assert!(fs::read(path("back")).unwrap() == bytes, "{name}");
        fs::remove_file(path("back")).unwrap();
    }
    hectare(&["convert", "--to", "vhd-fixed", &raw, &path("b.vhd")]).ok();
    assert_eq!(fs::metadata(path("b.vhd")).unwrap().len(), (40 << 20) + 512);
    assert!(fs::read(path("b.vhd")).unwrap().starts_with(&bytes));
    hectare(&["convert", "--partition", "2", &path("a.qcow2"), &path("a.simg")]).ok();
    hectare(&["convert", &path("a.simg"), &path("root")]).ok();
    assert_clean(Path::new(&path("root"))).unwrap();
    // Nothing is replaced, and nothing is half made.
    assert!(hectare(&["convert", &raw, &path("a.img")]).refused().contains("exists"));
    assert!(hectare(&["convert", &raw, &path("a.vmdk")]).refused().contains("--to"));
    assert!(!Path::new(&path("a.vmdk")).exists());
}

/// Disk images of kinds that are not read, archives and compressed files were copied byte for byte, as raw disks.
#[test]
fn regression_disks_in_a_form_that_is_not_read_were_copied_as_they_lie() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let raw = path("disk");
    fs::File::create(&raw).unwrap().set_len(32 << 20).unwrap();
    hectare(&["mkfs", "-q", &raw]).ok();
    for (format, kind) in [("vdi", "a VDI disk image"), ("qed", "a QED disk image")] {
        let image = path(format);
        if let Err(reason) = qemu_img(&["convert", "-f", "raw", "-O", format, &raw, &image]) {
            skip!("disk_image::regression_disks_in_a_form_that_is_not_read", reason);
        }
        let refused = hectare(&["convert", &image, &path("back")]);
        assert!(refused.refused().contains(kind), "{}", refused.err);
        assert!(!Path::new(&path("back")).exists());
        assert!(
            hectare(&["serve", &image, "--nbd", &format!("unix:{}", path("socket"))])
                .refused()
                .contains(kind)
        );
    }
    fs::write(path("gz"), [&[0x1f, 0x8b, 8, 0], &[0; 4096][..]].concat()).unwrap();
    assert!(hectare(&["convert", &path("gz"), &path("back")]).refused().contains("gunzip"));
    fs::write(path("zip"), [b"PK\x03\x04", &[0; 4096][..]].concat()).unwrap();
    assert!(hectare(&["convert", &path("zip"), &path("back")]).refused().contains("a zip archive"));
    // The first KiB of a volume is for boot loaders, and may begin like any of these.
    fs::OpenOptions::new().write(true).open(&raw).unwrap().write_all_at(&[0x1f, 0x8b, 8, 0], 0).unwrap();
    hectare(&["convert", &raw, &path("back")]).ok();
    assert!(fs::read(path("back")).unwrap() == fs::read(&raw).unwrap());
}

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

fn allocated(data: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(data) * 512
}

/// The head of a qcow2 in the first KiB of a volume, which is for boot loaders, does not make it one.
#[test]
fn a_volume_that_begins_like_a_disk_image_is_a_volume() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let name = image.to_str().unwrap();
    hectare(&["mkfs", name, "16M"]).ok();
    let mut bytes = fs::read(&image).unwrap();
    bytes[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
    fs::write(&image, bytes).unwrap();
    assert!(text(&hectare(&["ls", name]).ok().out).contains("lost+found"));
}

#[test]
fn what_only_its_own_program_can_write_is_refused_with_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    hectare(&["mkfs", &path("raw"), "16M"]).ok();
    if let Err(reason) = qemu_img(&["convert", "-f", "raw", "-O", "vmdk", &path("raw"), &path("disk.vmdk")]) {
        skip!("disk_image::what_only_its_own_program_can_write", reason);
    }
    assert!(text(&hectare(&["ls", &path("disk.vmdk")]).ok().out).contains("lost+found"));
    let refused = hectare(&["mkdir", &format!("{}:/d", path("disk.vmdk"))]);
    assert!(refused.refused().contains("hectare convert"), "{}", refused.err);
}

/// The server of a mount may open no files: those behind the image are open by then.
#[test]
fn images_with_files_behind_them_are_mounted() {
    const NAME: &str = "disk_image::images_with_files_behind_them_are_mounted";
    let mut bench = bench!(NAME);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let dir = bench.dir.to_str().unwrap().to_owned();
    hectare(&["mkfs", &path("base"), "16M"]).ok();
    hectare(&["mkdir", &format!("{}:/from-base", path("base"))]).ok();
    let before = fs::read(path("base")).unwrap();
    let overlay = |on: &str, format: &str, name: &str| {
        qemu_img(&["create", "-q", "-f", "qcow2", "-b", on, "-F", format, &path(name)])
    };
    if let Err(reason) = overlay("base", "raw", "middle.qcow2") {
        skip!(NAME, reason);
    }
    fs::create_dir(path("deep")).unwrap();
    overlay("middle.qcow2", "qcow2", "top.qcow2").unwrap();
    overlay(&path("middle.qcow2"), "qcow2", "deep/top.qcow2").unwrap();
    bench.image = path("top.qcow2").into();
    hectare(&["mount", &path("top.qcow2"), &dir]).ok();
    assert!(bench.dir.join("from-base").is_dir());
    fs::write(bench.dir.join("f"), vec![5; 2 << 20]).unwrap();
    assert!(
        hectare(&["mkdir", &format!("{}:/no", path("base"))]).refused().contains("is using it"),
        "it is locked"
    );
    hectare(&["umount", &dir]).ok();
    assert!(hectare(&["cat", &format!("{}:/f", path("top.qcow2"))]).ok().out == vec![5; 2 << 20]);
    assert!(fs::read(path("base")).unwrap() == before);
    // One that lies elsewhere only if that is asked for.
    let deep = path("deep/top.qcow2");
    let refused = hectare(&["mount", &deep, &dir]);
    assert!(refused.err.contains("which does not lie beside it: --backing"), "{}", refused.err);
    hectare(&["mount", "--backing", &deep, &dir]).ok();
    assert!(bench.dir.join("from-base").is_dir());
    hectare(&["umount", &dir]).ok();
    // A VMDK in two files, for reading.
    let flat = ["convert", "-f", "raw", "-O", "vmdk", "-o", "subformat=monolithicFlat"];
    qemu_img(&[&flat[..], &[&path("base"), &path("flat.vmdk")]].concat()).unwrap();
    hectare(&["mount", "-o", "ro", &path("flat.vmdk"), &dir]).ok();
    assert!(bench.dir.join("from-base").is_dir());
    hectare(&["umount", &dir]).ok();
    fs::remove_file(path("base")).unwrap();
    let missing = hectare(&["mount", &path("top.qcow2"), &dir]);
    assert!(missing.err.contains("/base, which is not there"), "{}", missing.err);
}
