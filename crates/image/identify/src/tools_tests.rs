//! What real tools make, against `blkid -p`: kind, label, UUID; and sizes against the tools themselves.

use crate::{Place, What, identify, search};
use hectare_device::{Device, FileOptions, MemoryDevice};
use hectare_oracle::tool::{need, run};
use hectare_oracle::{mke2fs, skip, skip_part};
use hectare_units::Bytes;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn empty(folder: &Path, name: &str, len: Bytes) -> PathBuf {
    let image = folder.join(name);
    File::create(&image).unwrap().set_len(len.get()).unwrap();
    image
}

fn identified(image: &Path) -> Place {
    identify(&FileOptions::new().open(image).unwrap()).unwrap()
}

/// What blkid says of an image: its tags by name.
fn blkid(image: &Path) -> Result<BTreeMap<String, String>, hectare_oracle::Skip> {
    let said = run(need("blkid")?.args(["-p", "-o", "export"]).arg(image));
    let tags = said.stdout.lines().filter_map(|line| line.split_once('='));
    // It escapes blanks for shells.
    Ok(tags.map(|(name, value)| (name.to_owned(), value.replace('\\', ""))).collect())
}

/// Kinds that a formatter makes: the tool, its arguments before and after the image, MiB, the kind, and
/// blkid's name for it.
type Made = (&'static str, &'static [&'static str], &'static [&'static str], u64, What, &'static str);

const UUID: &str = "11223344-5566-7788-99aa-bbccddeeff00";

const FORMATTERS: [Made; 15] = [
    (
        "mkfs.xfs",
        &["-q", "-L", "a label", "-m", "uuid=11223344-5566-7788-99aa-bbccddeeff00"],
        &[],
        400,
        What::Xfs,
        "xfs",
    ),
    ("mkfs.btrfs", &["-q", "-L", "a label", "-U", UUID], &[], 128, What::Btrfs, "btrfs"),
    ("mkfs.f2fs", &["-q", "-l", "a label"], &[], 128, What::F2fs, "f2fs"),
    ("mkswap", &["-q", "-L", "a label", "-U", UUID], &[], 4, What::Swap, "swap"),
    ("mkfs.vfat", &["-F", "12", "-n", "A LABEL", "-i", "1234abcd"], &[], 4, What::Fat, "vfat"),
    ("mkfs.vfat", &["-F", "16", "-n", "A LABEL"], &[], 32, What::Fat, "vfat"),
    ("mkfs.vfat", &["-F", "32", "-n", "A LABEL"], &[], 128, What::Fat, "vfat"),
    ("mkfs.vfat", &["-F", "32"], &[], 128, What::Fat, "vfat"),
    ("mkfs.exfat", &["-L", "a label"], &[], 32, What::ExFat, "exfat"),
    ("mkfs.ntfs", &["-q", "-F", "-Q", "-L", "a label"], &[], 16, What::Ntfs, "ntfs"),
    (
        "cryptsetup",
        &[
            "luksFormat",
            "--batch-mode",
            "--type=luks1",
            "--iter-time=1",
            "--uuid=11223344-5566-7788-99aa-bbccddeeff00",
            "--key-file=/etc/hostname",
        ],
        &[],
        32,
        What::Luks,
        "crypto_LUKS",
    ),
    (
        "cryptsetup",
        &[
            "luksFormat",
            "--batch-mode",
            "--type=luks2",
            "--pbkdf=pbkdf2",
            "--iter-time=1",
            "--label=a label",
            "--subsystem=of tests",
            "--key-file=/etc/hostname",
        ],
        &[],
        32,
        What::Luks,
        "crypto_LUKS",
    ),
    ("mke2fs", &["-q", "-F", "-t", "ext4", "-L", "a label", "-U", UUID], &[], 16, What::Ext4, "ext4"),
    ("mke2fs", &["-q", "-F", "-t", "ext2", "-b", "1024", "-r", "0"], &[], 4, What::Ext2, "ext2"),
    (
        "mke2fs",
        &["-q", "-F", "-O", "journal_dev", "-L", "a label", "-b", "1024"],
        &[],
        8,
        What::ExtJournal,
        "jbd",
    ),
];

#[test]
fn kind_label_and_uuid_are_those_of_blkid() {
    let folder = folder();
    for (nr, (tool, before, after, mib, what, name)) in FORMATTERS.into_iter().enumerate() {
        let image = empty(folder.path(), &format!("{tool}-{nr}"), Bytes::mib(mib));
        let mut command = match need(tool) {
            Ok(command) => command,
            Err(reason) => {
                skip_part!(format!("kind_label_and_uuid_are_those_of_blkid, {tool}"), reason);
                continue;
            }
        };
        let _ = run(command.args(before).arg(&image).args(after)).expect_success();
        let tags = match blkid(&image) {
            Ok(tags) => tags,
            Err(reason) => skip!("kind_label_and_uuid_are_those_of_blkid", reason),
        };
        let place = identified(&image);
        assert_eq!(place.what, Some(what), "{tool}");
        let tag = |tag: &str| tags.get(tag).cloned();
        assert_eq!(tag("TYPE").as_deref(), Some(name), "{tool}: {tags:?}");
        assert_eq!(place.details.label, tag("LABEL"), "{tool}: {tags:?}");
        assert_eq!(place.details.uuid, tag("UUID").or_else(|| tag("LOGUUID")), "{tool}: {tags:?}");
        let whole = [What::Xfs, What::Btrfs, What::Swap, What::Fat, What::ExFat, What::Ext4, What::Ext2];
        if whole.contains(&what) {
            assert_eq!(place.details.size, Some(Bytes::mib(mib)), "{tool}");
        }
        std::fs::remove_file(&image).unwrap();
    }
}

#[test]
fn read_only_file_systems_are_those_of_blkid() {
    let folder = folder();
    let source = folder.path().join("source");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("file"), vec![7; 100_000]).unwrap();
    let source = source.to_str().unwrap();
    for (tool, args, what) in [
        ("mksquashfs", vec![source, "IMAGE", "-quiet", "-no-progress", "-comp", "zstd"], What::Squashfs),
        ("mkfs.erofs", vec!["--quiet", "IMAGE", source], What::Erofs),
        ("xorriso", vec!["-as", "mkisofs", "-quiet", "-V", "A_LABEL", "-o", "IMAGE", source], What::Iso9660),
    ] {
        let image = folder.path().join(tool);
        let mut command = match need(tool) {
            Ok(command) => command,
            Err(reason) => {
                skip_part!(format!("read_only_file_systems_are_those_of_blkid, {tool}"), reason);
                continue;
            }
        };
        let args = args.iter().map(|arg| if *arg == "IMAGE" { image.to_str().unwrap() } else { arg });
        let _ = run(command.args(args)).expect_success();
        let tags = match blkid(&image) {
            Ok(tags) => tags,
            Err(reason) => skip!("read_only_file_systems_are_those_of_blkid", reason),
        };
        let place = identified(&image);
        assert_eq!(place.what, Some(what), "{tool}");
        assert_eq!(place.details.label, tags.get("LABEL").cloned(), "{tool}: {tags:?}");
        assert_eq!(place.details.uuid, tags.get("UUID").cloned(), "{tool}: {tags:?}");
        let size = place.details.size.unwrap();
        assert!(size > Bytes::ZERO && size <= place.len, "{tool}: {size}");
    }
}

#[test]
fn disk_images_have_the_size_that_qemu_img_gave_them() {
    let folder = folder();
    for (format, options, what) in [
        ("qcow2", "", What::Qcow),
        ("qcow2", "compat=0.10", What::Qcow),
        ("qcow", "", What::Qcow),
        ("vpc", "subformat=dynamic,force_size=on", What::Vhd),
        ("vpc", "subformat=fixed,force_size=on", What::Vhd),
        ("vhdx", "", What::Vhdx),
        ("vmdk", "", What::Vmdk),
        ("vmdk", "subformat=monolithicFlat", What::Vmdk),
        ("vmdk", "subformat=streamOptimized", What::Vmdk),
        ("vmdk", "subformat=twoGbMaxExtentSparse", What::Vmdk),
        ("vdi", "", What::Vdi),
    ] {
        let image = folder.path().join(format!("image.{format}"));
        let _ = std::fs::remove_file(&image);
        let mut command = match need("qemu-img") {
            Ok(command) => command,
            Err(reason) => skip!("disk_images_have_the_size_that_qemu_img_gave_them", reason),
        };
        command.args(["create", "-q", "-f", format]);
        if !options.is_empty() {
            command.args(["-o", options]);
        }
        let _ = run(command.arg(&image).arg("48M")).expect_success();
        let place = identified(&image);
        assert_eq!(place.what, Some(what), "{format} {options}");
        assert_eq!(place.details.size, Some(Bytes::mib(48)), "{format} {options}");
    }
}

#[test]
fn an_overlay_names_its_backing_file() {
    let folder = folder();
    let mut command = match need("qemu-img") {
        Ok(command) => command,
        Err(reason) => skip!("an_overlay_names_its_backing_file", reason),
    };
    let base = empty(folder.path(), "base", Bytes::mib(1));
    let image = folder.path().join("overlay");
    let _ = run(command.args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b"]).arg(&base).arg(&image))
        .expect_success();
    assert_eq!(identified(&image).details.value("backing file"), base.to_str());
}

#[test]
fn a_physical_volume_names_its_group_and_an_array_its_level() {
    let folder = folder();
    let name = "a_physical_volume_names_its_group_and_an_array_its_level";
    let loops = hectare_oracle::mount::can_mount();
    if let Err(reason) = loops {
        skip!(name, reason);
    }
    let image = empty(folder.path(), "pv", Bytes::mib(16));
    match need("pvcreate") {
        Err(reason) => skip_part!(format!("{name}, pvcreate"), reason),
        Ok(mut pvcreate) => {
            let device =
                hectare_oracle::LoopDevice::new(&image, hectare_oracle::mount::Access::ReadWrite).unwrap();
            let filter = format!("filter=[\"a|^{}$|\", \"r|.*|\"]", device.path().display());
            let config = format!("devices {{ use_devicesfile=0 dir=\"/dev\" scan=[\"/dev\"] {filter} }}");
            let quiet = ["--config", &config];
            let _ = run(pvcreate.args(quiet).args(["-qq", "-y", "-ff"]).arg(device.path())).expect_success();
            let tags = blkid(&image).unwrap_or_default();
            let place = identified(&image);
            assert_eq!(place.what, Some(What::Lvm));
            assert_eq!(place.details.uuid, tags.get("UUID").cloned(), "{tags:?}");
            assert_eq!(place.details.size, Some(Bytes::mib(16)));
            let mut vgcreate = need("vgcreate").unwrap();
            let made = run(vgcreate.args(quiet).args(["-qq", "-y", "-An", "hectaretest"]).arg(device.path()));
            let _ = made.expect_success();
            drop(device);
            assert_eq!(identified(&image).details.value("volume group"), Some("hectaretest"));
        }
    }
}

/// A disk with a table that sfdisk wrote and volumes in it.
fn disk(folder: &Path, script: &str) -> Result<PathBuf, hectare_oracle::Skip> {
    let image = empty(folder, "disk", Bytes::mib(64));
    let mut sfdisk = need("sfdisk")?;
    let said = hectare_oracle::tool::run_with_input(
        sfdisk.args(["--quiet", "--no-reread", "--no-tell-kernel"]).arg(&image),
        script,
    );
    let _ = said.expect_success();
    let part = empty(folder, "part", Bytes::mib(16));
    mke2fs(&["-t", "ext4", "-b", "1024", "-L", "inside", "-U", UUID], &part, "16M")?;
    let file = File::options().write(true).open(&image).unwrap();
    file.write_all_at(&std::fs::read(&part).unwrap(), 20 << 20).unwrap();
    Ok(image)
}

const GPT: &str = "label: gpt\nstart=1MiB, size=8MiB, name=\"first one\", type=U\nstart=20MiB, size=16MiB\n";
const DOS: &str = "label: dos\nd1 : start=1MiB, size=8MiB, type=83\nd2 : start=18MiB, size=40MiB, type=5\n\
                   d5 : start=20MiB, size=16MiB, type=83\nd6 : start=40MiB, size=4MiB, type=82\n";

#[test]
fn partitions_are_looked_into() {
    let folder = folder();
    for (script, what, number) in [(GPT, What::Gpt, 2), (DOS, What::Mbr, 5)] {
        let image = match disk(folder.path(), script) {
            Ok(image) => image,
            Err(reason) => skip!("partitions_are_looked_into", reason),
        };
        let place = identified(&image);
        assert_eq!(place.what, Some(what));
        assert!(place.notes.is_empty(), "{:?}", place.notes);
        let named = |part: &&Place| part.partition.as_ref().is_some_and(|found| found.number == number);
        let part = place.parts.iter().find(named).unwrap();
        assert_eq!((part.start, part.len), (Bytes::mib(20), Bytes::mib(16)));
        assert_eq!(part.what, Some(What::Ext4));
        assert_eq!(part.details.label.as_deref(), Some("inside"));
        assert_eq!(part.details.uuid.as_deref(), Some(UUID));
        assert_eq!(part.details.value("state"), Some("clean"));
        if what == What::Gpt {
            let first = place.parts[0].partition.as_ref().unwrap();
            assert_eq!((first.name.as_str(), first.kind.to_string().as_str()), ("first one", "EFI system"));
        }
    }
}

#[test]
fn a_volume_is_found_without_its_table_and_without_its_first_superblock() {
    let folder = folder();
    let image = match disk(folder.path(), GPT) {
        Ok(image) => image,
        Err(reason) => skip!("a_volume_is_found_without_its_table", reason),
    };
    let device = MemoryDevice::from_bytes(&std::fs::read(&image).unwrap());
    device.zero(Bytes::ZERO, Bytes::mib(1)).unwrap();
    device.zero(Bytes::mib(63), Bytes::mib(1)).unwrap();
    let survey = search(&device, &mut |_| ()).unwrap();
    let [volume] = &survey.volumes[..] else { panic!("{survey:?}") };
    assert_eq!(volume.start.on_device(), Some(Bytes::mib(20)));
    assert_eq!(volume.len(), Bytes::mib(16));
    assert!(volume.has_primary());
    // 16 MiB in groups of 8 MiB: the copies of groups 0 and 1.
    let groups: Vec<u32> = volume.copies.iter().map(|copy| copy.group.get()).collect();
    assert_eq!(groups, [0, 1]);
    device.zero(Bytes::mib(20), Bytes::kib(64)).unwrap();
    let survey = search(&device, &mut |_| ()).unwrap();
    let [volume] = &survey.volumes[..] else { panic!("{survey:?}") };
    assert_eq!(volume.start.on_device(), Some(Bytes::mib(20)));
    assert!(!volume.has_primary());
    assert_eq!(volume.superblock.label(), b"inside");
}

#[test]
fn every_geometry_is_found_by_any_of_its_copies() {
    let folder = folder();
    for (size, args) in [
        ("200M", &["-b", "1024", "-t", "ext4"][..]),
        ("600M", &["-b", "4096", "-t", "ext4"]),
        ("100M", &["-b", "1024", "-t", "ext2", "-O", "^sparse_super,^resize_inode"]),
        ("100M", &["-b", "1024", "-t", "ext4", "-O", "sparse_super2"]),
        ("300M", &["-b", "1024", "-t", "ext4", "-O", "bigalloc", "-C", "16384"]),
        ("300M", &["-b", "1024", "-t", "ext4", "-O", "meta_bg,^resize_inode"]),
        ("100M", &["-b", "2048", "-t", "ext3", "-g", "8192"]),
    ] {
        let image = folder.path().join("volume");
        let _ = std::fs::remove_file(&image);
        if let Err(reason) = mke2fs(args, &image, size) {
            skip!("every_geometry_is_found_by_any_of_its_copies", reason);
        }
        let file = FileOptions::new().open(&image).unwrap();
        let survey = search(&file, &mut |_| ()).unwrap();
        let [volume] = &survey.volumes[..] else { panic!("{args:?}: {survey:?}") };
        assert_eq!(volume.start.on_device(), Some(Bytes::ZERO), "{args:?}");
        assert_eq!(volume.len(), file.len(), "{args:?}");
        assert!(volume.copy_count > 1 && survey.left_out == 0, "{args:?}: {survey:?}");
        let said = hectare_oracle::dumpe2fs(&image).unwrap();
        let is_backup = |line: &&String| line.contains("ackup superblock at");
        let backups = said.groups.iter().flat_map(|group| &group.lines).filter(is_backup).count();
        assert_eq!(volume.copy_count, 1 + u64::try_from(backups).unwrap(), "{args:?}");
    }
}

#[test]
fn packed_files_are_named_with_what_their_heads_say() {
    let folder = folder();
    let raw = folder.path().join("raw");
    // Data, a hole and data again, so that the sparse image has chunks of several kinds.
    let file = File::create(&raw).unwrap();
    file.set_len(3 << 20).unwrap();
    file.write_all_at(&vec![7; 100_000], 0).unwrap();
    file.write_all_at(&(0..=255).cycle().take(50_000).collect::<Vec<u8>>(), 2 << 20).unwrap();
    let (raw, sparse) = (raw.to_str().unwrap(), folder.path().join("sparse"));
    let sparse = sparse.to_str().unwrap();
    for (tool, args, made, what) in [
        ("img2simg", &[raw, sparse][..], sparse.to_owned(), What::AndroidSparse),
        ("gzip", &["-k", "-f", raw], format!("{raw}.gz"), What::Gzip),
        ("zstd", &["-q", "-f", "-k", raw], format!("{raw}.zst"), What::Zstd),
        ("xz", &["-k", "-f", raw], format!("{raw}.xz"), What::Xz),
        ("bzip2", &["-k", "-f", raw], format!("{raw}.bz2"), What::Bzip2),
    ] {
        let mut command = match need(tool) {
            Ok(command) => command,
            Err(reason) => {
                skip_part!(format!("packed_files_are_named, {tool}"), reason);
                continue;
            }
        };
        let _ = run(command.args(args)).expect_success();
        let place = identified(Path::new(&made));
        assert_eq!(place.what, Some(what), "{tool}");
        match what {
            What::AndroidSparse => {
                assert_eq!(place.details.size, Some(Bytes::mib(3)));
                assert_eq!(place.details.value("version"), Some("1.0"));
                assert!(place.details.value("chunks").unwrap().parse::<u32>().unwrap() >= 3);
            }
            What::Gzip => assert_eq!(place.details.value("name"), Some("raw")),
            What::Zstd => assert_eq!(place.details.value("bytes of the first frame"), Some("3145728")),
            _ => {}
        }
    }
}
