//! Disks, judged by the tools of others: sfdisk, sgdisk, fsck.vfat, e2fsck, xfs_repair, veritysetup, the
//! kernel.

use crate::{Disk, Environment, Identity, Made, Spec};
use hectare_device::{FileOptions, Overwrite, SliceDevice};
use hectare_oracle::tool::{need, run, run_with_input};
use hectare_oracle::{IS_LINUX, KernelMount, LoopDevice, Skip, assert_clean, skip, skip_part};
use hectare_populate::{Quiet, Source};
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

const EPOCH: i64 = 1_700_000_000;

/// A directory with sources.
struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Self {
        let bench = Self(tempfile::tempdir().unwrap());
        for folder in ["esp/EFI/BOOT", "root/etc", "root/usr/bin", "more/etc"] {
            fs::create_dir_all(bench.path(folder)).unwrap();
        }
        let noise =
            |len: u32| (0..len).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[2]).collect::<Vec<u8>>();
        fs::write(bench.path("esp/EFI/BOOT/BOOTX64.EFI"), noise(1_300_000)).unwrap();
        fs::write(bench.path("esp/a long name with spaces.txt"), "long").unwrap();
        fs::write(bench.path("esp/empty"), "").unwrap();
        fs::write(bench.path("root/usr/bin/large"), noise(3_000_000)).unwrap();
        (0..200).for_each(|n| fs::write(bench.path(&format!("root/usr/bin/f{n}")), format!("{n}")).unwrap());
        fs::write(bench.path("root/etc/name"), "one").unwrap();
        fs::write(bench.path("more/etc/name"), "two").unwrap();
        fs::write(bench.path("u-boot.bin"), noise(600_000)).unwrap();
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn spec(&self, text: &str) -> Result<Spec, crate::Error> {
        Spec::parse(&self.path("disk.toml"), text)
    }

    /// Makes a disk of a description.
    fn made(
        &self,
        name: &str,
        spec: Spec,
        threads: usize,
        identity: Identity,
    ) -> Result<(PathBuf, Made), String> {
        let env = Environment {
            threads: NonZeroUsize::new(threads).unwrap(),
            epoch: Some(EPOCH),
            identity,
            replaces: None,
            open: &|argument| Source::from_argument(argument).map_err(|error| error.to_string()),
            // On other hosts than Linux a warning says what is not read of a directory.
            warn: &|warning| assert!(!IS_LINUX && warning.to_string().contains("on this host"), "{warning}"),
        };
        let disk = Disk::plan(spec, &env).map_err(|error| error.to_string())?;
        let path = self.path(name);
        let file = FileOptions::new().write(true).create(&path, disk.size(), Overwrite::Replace).unwrap();
        let made = disk.write(&file, &Quiet).map_err(|error| error.to_string())?;
        Ok((path, made))
    }

    fn disk(&self, name: &str, text: &str) -> (PathBuf, Made) {
        self.made(name, self.spec(text).unwrap(), 2, Identity::Content).unwrap()
    }

    /// The bytes of a partition in a file of their own.
    fn partition(&self, disk: &Path, made: &Made, number: usize) -> PathBuf {
        let part = &made.partitions[number - 1];
        let bytes = fs::read(disk).unwrap();
        let start = usize::try_from(part.start.get()).unwrap();
        let path = self.path(&format!("part{number}"));
        fs::write(&path, &bytes[start..start + usize::try_from(part.len.get()).unwrap()]).unwrap();
        path
    }

    fn refused(&self, text: &str) -> String {
        let said = match self.spec(text) {
            Err(error) => error.to_string(),
            Ok(spec) => self.made("refused.img", spec, 1, Identity::Content).expect_err(text),
        };
        assert!(!said.contains('\n'), "{said}");
        said.replace(&format!("{}/", self.0.path().display()), "")
    }
}

#[track_caller]
fn says(tool: &str, words: &[&str], path: &Path, silent_about: &[&str]) -> Result<String, Skip> {
    let said = run(need(tool)?.args(words).arg(path));
    assert!(said.succeeded(), "{}", said.report());
    let text = format!("{}{}", said.stdout, said.stderr);
    silent_about.iter().for_each(|bad| assert!(!text.contains(bad), "{}", said.report()));
    Ok(text)
}

const UEFI: &str = r#"
[[partition]]
name = "esp"
type = "esp"
format = "vfat"
label = "ESP"
size = "40M"
from = "esp"
[[partition]]
name = "root"
type = "root-x86-64"
format = "ext4"
label = "root"
size = "min"
from = ["root", "more"]
exclude = "f1*"
owner = "0:0"
features = "^has_journal"
[[partition]]
name = "root-verity"
type = "root-x86-64-verity"
verity = "root"
[[partition]]
name = "data"
type = "linux-generic"
format = "xfs"
label = "data"
size = "320M"
[[partition]]
name = "hole"
type = "0fc63daf-8483-4772-8e79-3d69d8477de4"
uuid = "01234567-89ab-4cde-8f01-23456789abcd"
flags = ["no-auto", "read-only"]
size = "3M"
"#;

#[test]
fn a_gpt_is_found_sound_by_other_tools() {
    let bench = Bench::new();
    let (disk, made) = bench.disk("disk.img", UEFI);
    let checked = says("sgdisk", &["-v"], &disk, &["Problem", "Warning:"])
        .map(|text| assert!(text.contains("No problems found"), "{text}"))
        .and_then(|()| says("sfdisk", &["--verify"], &disk, &["error:", "overlap"]).map(drop));
    if let Err(reason) = checked {
        skip!("disk_build::a_gpt_is_found_sound", reason);
    }
    let dump = says("sfdisk", &["-d"], &disk, &[]).unwrap();
    assert!(dump.contains(&format!("label-id: {}", made.uuid.to_uppercase())), "{dump}");
    assert!(
        dump.contains("uuid=01234567-89AB-4CDE-8F01-23456789ABCD, name=\"hole\", attrs=\"GUID:60,63\""),
        "{dump}"
    );
    for part in &made.partitions {
        let place = format!("start={:>12}, size={:>12}", part.start.get() / 512, part.len.get() / 512);
        let line =
            dump.lines().find(|line| line.contains(&place)).unwrap_or_else(|| panic!("{place}: {dump}"));
        assert!(line.contains(&part.uuid.to_uppercase()) && line.contains(&part.name), "{line}");
        assert_eq!(part.start.get() % (1 << 20), 0);
    }
    // Our own reader agrees.
    let device = FileOptions::new().open(&disk).unwrap();
    let found = hectare_partition::partitions(&device).unwrap();
    let names: Vec<_> = found.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(names, ["esp", "root", "root-verity", "data", "hole"]);
    assert!(SliceDevice::new(device, found[4].start, found[4].len).is_ok());
}

#[test]
fn volumes_of_a_disk_are_found_sound_by_other_tools() {
    let bench = Bench::new();
    let (disk, made) = bench.disk("disk.img", UEFI);
    if let Err(reason) = assert_clean(&bench.partition(&disk, &made, 2)) {
        skip_part!("disk_build::volumes, ext4", reason);
    }
    if let Err(reason) =
        says("fsck.vfat", &["-n", "-v"], &bench.partition(&disk, &made, 1), &["differ", "bad "])
    {
        skip_part!("disk_build::volumes, vfat", reason);
    }
    if let Err(reason) = says("xfs_repair", &["-n", "-f"], &bench.partition(&disk, &made, 4), &["would "]) {
        skip_part!("disk_build::volumes, xfs", reason);
    }
    // With other numbers of bits, sectors and labels, as small as can be.
    for (bits, name) in [(12, "fat12"), (16, "fat16"), (32, "fat32")] {
        let text = format!(
            "[[partition]]\nname = \"{name}\"\ntype = \"esp\"\nformat = \"vfat\"\nfat = {bits}\n\
             from = \"esp\"\n\
             fs-uuid = \"1234-ABCD\"\n"
        );
        let (disk, made) = bench.disk(name, &text);
        let volume = bench.partition(&disk, &made, 1);
        if let Err(reason) = says("fsck.vfat", &["-n", "-v"], &volume, &["differ", "bad "])
            .map(|text| assert!(text.contains(&format!("{bits} bit entries")), "{text}"))
        {
            skip_part!(format!("disk_build::volumes, {name}"), reason);
        }
    }
}

/// mtools read every file of a FAT volume, by its long name, as it was.
#[test]
fn files_in_fat_are_read_by_mtools() {
    let bench = Bench::new();
    (0..300)
        .for_each(|n| fs::write(bench.path(&format!("esp/a file with a number {n}.txt")), [7; 700]).unwrap());
    for (bits, sector) in [(12, 512), (16, 512), (32, 512), (16, 4096)] {
        let text = format!(
            "sector = {sector}\n[[partition]]\ntype = \"esp\"\nformat = \"vfat\"\nfat = {bits}\n\
             from = \"esp\"\n"
        );
        let (disk, made) = bench.disk("fat.img", &text);
        let volume = bench.partition(&disk, &made, 1);
        let names =
            ["EFI/BOOT/BOOTX64.EFI", "a long name with spaces.txt", "empty", "a file with a number 299.txt"];
        for name in names {
            let mut mtype = match need("mtype") {
                Ok(mtype) => mtype,
                Err(reason) => skip!("disk_build::files_in_fat_are_read_by_mtools", reason),
            };
            let said = mtype.arg("-i").arg(&volume).arg(format!("::{name}")).output().unwrap();
            let complaint = String::from_utf8_lossy(&said.stderr);
            assert!(
                said.stdout == fs::read(bench.path("esp").join(name)).unwrap(),
                "FAT{bits}: {name}: {complaint}"
            );
        }
    }
}

#[test]
fn a_hash_tree_is_verified_by_veritysetup() {
    let bench = Bench::new();
    for (salt, size) in [("", "5M"), ("salt = \"00ff\"\n", "4096"), ("salt = \"-\"\n", "70M")] {
        let text = format!(
            "[[partition]]\nname = \"usr\"\ntype = \"usr-arm64\"\nfile = \"u-boot.bin\"\nsize = {size:?}\n\
             [[partition]]\nname = \"tree\"\ntype = \"usr-arm64-verity\"\nverity = \"usr\"\n{salt}"
        );
        let text = if size == "4096" { text.replace("file = \"u-boot.bin\"\n", "") } else { text };
        let (disk, made) = bench.disk("verity.img", &text);
        let root = &made.root_hashes[0];
        assert_eq!((root.suffix.as_str(), root.number), ("usrhash", 1));
        let uuid = |number: usize| made.partitions[number].uuid.replace('-', "");
        assert_eq!(uuid(0) + &uuid(1), root.hash);
        let (data, tree) = (bench.partition(&disk, &made, 1), bench.partition(&disk, &made, 2));
        let verified = |hash: &str| {
            let mut veritysetup = need("veritysetup")?;
            Ok::<_, Skip>(run(veritysetup.arg("verify").arg(&data).arg(&tree).arg(hash)))
        };
        match verified(&root.hash) {
            Ok(said) => assert!(said.succeeded(), "{size}: {}", said.report()),
            Err(reason) => skip!("disk_build::a_hash_tree_is_verified", reason),
        }
        let mut changed = fs::File::options().write(true).open(&data).unwrap();
        changed.seek(SeekFrom::Start(4000)).unwrap();
        changed.write_all(b"x").unwrap();
        assert!(!verified(&root.hash).unwrap().succeeded(), "a changed block is found");
    }
}

const CARD: &str = r#"
table = "mbr"
disk-id = "0x5d0c4a7e"
[[blob]]
file = "u-boot.bin"
offset = "8K"
[[partition]]
name = "boot"
type = "fat32"
flags = ["boot"]
format = "vfat"
fat = 32
from = "esp"
[[partition]]
name = "root"
type = "linux"
format = "ext4"
free = "8M"
from = "root"
"#;

#[test]
fn an_mbr_is_found_sound_and_a_blob_lies_where_it_was_put() {
    let bench = Bench::new();
    let (disk, made) = bench.disk("card.img", CARD);
    let bytes = fs::read(&disk).unwrap();
    let blob = fs::read(bench.path("u-boot.bin")).unwrap();
    assert!(bytes[8192..].starts_with(&blob));
    let dump = match says("sfdisk", &["-d"], &disk, &[]) {
        Ok(dump) => dump,
        Err(reason) => skip!("disk_build::an_mbr_is_found_sound", reason),
    };
    says("sfdisk", &["--verify"], &disk, &["error:", "overlap"]).unwrap();
    assert!(dump.contains("label-id: 0x5d0c4a7e") && dump.contains("type=c, bootable"), "{dump}");
    assert_eq!(made.partitions[1].uuid, "5d0c4a7e-02");
    assert_clean(&bench.partition(&disk, &made, 2)).unwrap();
}

#[test]
fn the_same_sources_give_the_same_bytes() {
    let bench = Bench::new();
    for text in [UEFI, CARD] {
        let spec = || bench.spec(text).unwrap();
        let (one, made) = bench.made("one.img", spec(), 1, Identity::Content).unwrap();
        let (two, again) = bench.made("two.img", spec(), 5, Identity::Content).unwrap();
        assert_eq!(made, again);
        assert!(fs::read(one).unwrap() == fs::read(two).unwrap());
    }
    // What a partition holds is in its UUID and in the disk's.
    let (_, before) = bench.disk("one.img", CARD);
    let mut blob = fs::read(bench.path("u-boot.bin")).unwrap();
    blob[77] ^= 1;
    fs::write(bench.path("u-boot.bin"), blob).unwrap();
    let other = CARD.replace("disk-id = \"0x5d0c4a7e\"\n", "");
    assert_ne!(bench.disk("two.img", &other).1.uuid, before.uuid);
}

/// The sizes of the partitions that the kernel found on a loop device, up to the first that is missing.
fn partition_sizes(device: &Path) -> Vec<u64> {
    let name = device.file_name().unwrap().to_str().unwrap();
    let size = |number: usize| fs::read_to_string(format!("/sys/block/{name}/{name}p{number}/size"));
    let sizes = (1..).map_while(|number| size(number).ok());
    sizes.map(|text| text.trim().parse::<u64>().unwrap() * 512).collect()
}

/// Whether the kernel looks for partitions on loop devices: a table of sfdisk's shows it.
fn kernel_looks(bench: &Bench) -> Result<(), Skip> {
    let disk = bench.path("other.img");
    fs::write(&disk, vec![0; 8 << 20]).unwrap();
    let table = "label: gpt\nsize=2M\n";
    let _ =
        run_with_input(need("sfdisk")?.args(["-q", "--no-tell-kernel"]).arg(&disk), table).expect_success();
    if partition_sizes(LoopDevice::with_partitions(&disk, 512)?.path()) == [2 << 20] {
        Ok(())
    } else {
        Err(Skip::new("the kernel looks for no partitions on loop devices"))
    }
}

/// The kernel finds and mounts the partitions, also with sectors of 4096 bytes.
#[test]
fn the_kernel_mounts_the_partitions() {
    let bench = Bench::new();
    for sector in [512, 4096] {
        let text = format!("sector = {sector}\n{UEFI}");
        let (disk, made) = bench.disk("disk.img", &text);
        let device = match LoopDevice::with_partitions(&disk, sector) {
            Ok(device) => device,
            Err(reason) => skip!("disk_build::the_kernel_mounts_the_partitions", reason),
        };
        let verified = says("sfdisk", &["--verify"], device.path(), &["error:", "overlap"]);
        let sizes = partition_sizes(device.path());
        drop(device);
        if let Err(reason) = verified {
            skip_part!(format!("disk_build::the_kernel_mounts, sfdisk on sectors of {sector}"), reason);
        }
        let expected: Vec<_> = made.partitions.iter().map(|part| part.len.get()).collect();
        match kernel_looks(&bench) {
            Ok(()) => assert_eq!(sizes, expected, "sectors of {sector}"),
            Err(reason) => skip_part!(format!("disk_build::the_kernel_mounts, table of {sector}"), reason),
        }
        match KernelMount::read_only(&bench.partition(&disk, &made, 2), "") {
            Ok(mount) => {
                let expected = fs::read(bench.path("root/usr/bin/large")).unwrap();
                assert!(fs::read(mount.path().join("usr/bin/large")).unwrap() == expected);
            }
            Err(reason) => skip_part!("disk_build::the_kernel_mounts, root", reason),
        }
    }
}

#[test]
fn a_disk_of_a_given_size_has_a_rest() {
    let bench = Bench::new();
    let text = "size = \"64M\"\n[[partition]]\nname = \"a\"\ntype = \"linux\"\nsize = \"rest\"\n\
                format = \"ext4\"\n\
                from = \"root\"\n[[partition]]\nname = \"b\"\ntype = \"linux\"\nsize = \"5M\"\n";
    let (disk, made) = bench.disk("rest.img", text);
    assert_eq!(fs::metadata(&disk).unwrap().len(), 64 << 20);
    let ends: Vec<_> = made.partitions.iter().map(|part| (part.start + part.len).get()).collect();
    assert!(made.partitions[1].start.get() - ends[0] < 1 << 20);
    assert!((64 << 20) - ends[1] < 2 << 20, "{ends:?}");
    if let Err(reason) = assert_clean(&bench.partition(&disk, &made, 1)) {
        skip!("disk_build::a_disk_of_a_given_size_has_a_rest", reason);
    }
}

#[test]
fn regression_partitions_of_one_content_have_identities_of_their_own() {
    let bench = Bench::new();
    let distinct = |what: &str, mut all: Vec<Vec<u8>>| {
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count, "{what}");
    };
    // Where the three kinds have their UUID or serial number.
    for (format, size, place) in
        [("ext4", "20M", 1024 + 104..1024 + 120), ("xfs", "310M", 32..48), ("vfat", "20M", 39..43)]
    {
        for names in [["a", "b"], ["", ""]] {
            let part = |name| {
                format!(
                    "[[partition]]\ntype=\"linux\"\nname=\"{name}\"\nformat=\"{format}\"\nsize=\"{size}\"\n"
                )
            };
            let (disk, made) = bench.disk("same.img", &names.map(part).concat());
            let uuid =
                |number| fs::read(bench.partition(&disk, &made, number)).unwrap()[place.clone()].to_vec();
            distinct(format, vec![uuid(1), uuid(2)]);
        }
    }
    for content in ["format=\"ext4\"\nfrom=\"root\"", "file=\"u-boot.bin\""] {
        let slot = |name: &str| {
            format!(
                "[[partition]]\ntype=\"root\"\nname=\"r{name}\"\n{content}\n\
                 [[partition]]\ntype=\"root-verity\"\nname=\"v{name}\"\nverity=\"r{name}\"\n"
            )
        };
        let (_, made) = bench.disk("ab.img", &["a", "b"].map(slot).concat());
        distinct(content, made.partitions.iter().map(|part| part.uuid.clone().into_bytes()).collect());
        distinct(content, made.root_hashes.iter().map(|root| root.hash.clone().into_bytes()).collect());
    }
}

#[test]
fn regression_two_partitions_with_one_uuid_are_refused() {
    let bench = Bench::new();
    let uuid = "01234567-89ab-4cde-8f01-23456789abcd";
    let part = format!("[[partition]]\ntype=\"linux\"\nsize=\"1M\"\nuuid=\"{uuid}\"\n");
    let said = bench.refused(&part.repeat(2));
    assert!(said.contains(&format!("uuid: {uuid} is that of partition 1, too")), "{said}");
}

#[test]
fn what_is_wrong_is_named_in_one_line() {
    let bench = Bench::new();
    let part = |keys: &str| format!("[[partition]]\ntype = \"linux\"\n{keys}");
    std::os::unix::fs::symlink("empty", bench.path("esp/link")).unwrap();
    for (text, expected) in [
        ("tabel = \"gpt\"".to_owned(), "disk.toml:1: unknown field `tabel`"),
        ("table = \"apm\"".to_owned(), "disk.toml:1: table: \"apm\" is neither gpt nor mbr"),
        ("\n\nsector = 1024".to_owned(), "disk.toml:3: sector: 1024: a sector"),
        ("align = \"3M\"".to_owned(), "disk.toml:1: align: 3145728 is no power of two"),
        ("uuid = \"x\"".to_owned(), "disk.toml:1: uuid: \"x\" is not a UUID"),
        ("disk-id = 5".to_owned(), "disk.toml:1: disk-id: only an MBR has it"),
        (part("featurs = \"x\""), "disk.toml:3: unknown field `featurs`"),
        (
            part("size = \"1M\"\nfeatures = \"x\""),
            "disk.toml:4: features: an empty partition has no such key",
        ),
        (part("format = \"vfat\"\nowner = \"0:0\""), "disk.toml:4: owner: a FAT volume has no such key"),
        (part("format = \"btrfs\""), "disk.toml:3: format: \"btrfs\" is not made"),
        (part("format = \"ext4\"\nfeatures = \"bogus\""), "disk.toml:4: features: -O bogus: no such feature"),
        (part("format = \"ext4\"\nsize = \"lots\""), "disk.toml:4: size: lots is no size"),
        (
            part("format = \"ext4\"\nfree = \"1M\"\nsize = \"9M\""),
            "disk.toml:4: free: give either it or size",
        ),
        (part(""), "disk.toml:1: size: there is no content"),
        (part("size = 1000"), "disk.toml:3: size: 1000 bytes are not whole sectors of 512"),
        (
            part("file = \"u-boot.bin\"\nformat = \"ext4\""),
            "disk.toml:1: format, file: give one of them only",
        ),
        (part("file = \"missing\""), "disk.toml:1: partition 1: missing: No such file"),
        (
            part("file = \"u-boot.bin\"\nsize = 4096"),
            "disk.toml:1: partition 1: size: the file has 600000 bytes",
        ),
        (part("verity = \"x\""), "disk.toml:3: verity: there is no partition with the name \"x\""),
        (
            part("format = \"vfat\"\nfrom = \"esp\""),
            "disk.toml:1: partition 1: \"link\": FAT has no symbolic links",
        ),
        (part("format = \"ext4\"\nfrom = \"gone\""), "disk.toml:1: partition 1: gone: "),
        (part("size = \"rest\""), "disk.toml:1: partition 1: size: rest needs a size of the disk"),
        (
            format!("size = \"2M\"\n{}", part("size = \"2M\"")),
            "disk.toml: size: the disk of 2097152 bytes is",
        ),
        (
            format!("[[blob]]\nfile = \"u-boot.bin\"\noffset = 512\n{}", part("size = \"1M\"")),
            "disk.toml: the blob u-boot.bin (bytes 512 to 600512) overlaps the partition table (bytes 0 to",
        ),
        (
            format!(
                "[[blob]]\nfile = \"u-boot.bin\"\noffset = \"1M\"\n{}",
                part("size = \"1M\"\noffset = \"1536K\"")
            ),
            "disk.toml: partition 1 (bytes 1572864 to 2621440) overlaps the blob u-boot.bin (bytes 1048576",
        ),
        ("[[partition]]\nsize = \"1M\"".to_owned(), "disk.toml:1: type: every partition needs one"),
        ("[[partition]]\ntype = \"rot\"".to_owned(), "disk.toml:2: type: \"rot\" is no type here"),
        (
            format!("table = \"mbr\"\n{}", part("size = \"1M\"\n").repeat(5)),
            "disk.toml:14: partition: a table of this kind has 4 partitions",
        ),
        (
            part("size = \"1M\"\nname = \"a\"\n").repeat(2),
            "disk.toml:8: name: there are two partitions \"a\"",
        ),
        (part("size = \"1M\"\nflags = \"boot\""), "disk.toml:4: flags: \"boot\" is no flag of a GPT"),
        ("[[partition".to_owned(), "disk.toml:1: "),
    ] {
        let said = bench.refused(&text);
        assert!(said.starts_with(expected), "{text}\n{said}\n{expected}");
    }
}

#[test]
fn names_that_fat_takes_for_one_are_refused() {
    let bench = Bench::new();
    let text = "[[partition]]\ntype = \"esp\"\nformat = \"vfat\"\nfrom = \"fat\"\n";
    fs::create_dir(bench.path("fat")).unwrap();
    fs::write(bench.path("fat/Name"), "1").unwrap();
    fs::write(bench.path("fat/name"), "2").unwrap();
    assert!(bench.refused(text).contains("\"name\": in FAT it is the same name as \"Name\""));
    fs::remove_file(bench.path("fat/name")).unwrap();
    // The short name that is made for the first is the second.
    fs::write(bench.path("fat/ABCDEF one.txt"), "1").unwrap();
    fs::write(bench.path("fat/abcdef~1.txt"), "2").unwrap();
    let (disk, made) = bench.disk("fat.img", text);
    if let Err(reason) =
        says("fsck.vfat", &["-n", "-v"], &bench.partition(&disk, &made, 1), &["differ", "uplicate"])
    {
        skip_part!("disk_build::names_that_fat_takes_for_one, fsck.vfat", reason);
    }
    fs::write(bench.path("fat/dot."), "1").unwrap();
    assert!(bench.refused(text).contains("\"dot.\": a name in FAT"));
}

/// What systemd-repart makes of the same files: the table has to be the same to the byte of its dump.
#[test]
fn repart_files_give_the_table_that_systemd_gives() {
    let bench = Bench::new();
    let folder = bench.path("repart.d");
    fs::create_dir(&folder).unwrap();
    for (name, text) in [
        ("10-esp.conf", "[Partition]\nType=esp\nFormat=vfat\nSizeMinBytes=48M\nSizeMaxBytes=48M\n"),
        (
            "20-root.conf",
            "[Partition]\nType=root\nFormat=ext4\nCopyFiles=/root:/\nSizeMinBytes=40M\nSizeMaxBytes=40M\n",
        ),
        (
            "30-home.conf",
            "[Partition]\nType=home\nLabel=people\nSizeMinBytes=5M\nSizeMaxBytes=5M\nNoAuto=yes\n",
        ),
        ("31-home.conf", "[Partition]\nType=home\nReadOnly=yes\nSizeMaxBytes=12M\n"),
        (
            "32-home.conf",
            "[Partition]\nType=home\nUUID=01234567-89ab-4cde-8f01-23456789abcd\nSizeMaxBytes=10M\n",
        ),
        (
            "40-file.conf",
            "[Partition]\nType=linux-generic\nCopyBlocks=/u-boot.bin\nFlags=0x2000000000000000\n\
             SizeMaxBytes=10M\n",
        ),
    ] {
        fs::write(folder.join(name), text).unwrap();
    }
    // It copies whole sectors only, and files to FAT only where the kernel mounts it.
    let blob = fs::File::options().write(true).open(bench.path("u-boot.bin")).unwrap();
    blob.set_len(614_400).unwrap();
    let seed = "f0e1d2c3-b4a5-4697-8879-6a5b4c3d2e1f";
    let mut seed_bytes = [0; 16];
    let digits = seed.replace('-', "");
    for (at, byte) in seed_bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap();
    }
    let spec = Spec::from_repart(&folder, bench.0.path()).unwrap();
    let (ours, made) = bench.made("ours.img", spec, 2, Identity::of_seed(seed_bytes)).unwrap();
    let theirs = bench.path("theirs.img");
    let repart = |size: &str| -> Result<_, Skip> {
        let mut repart = need("systemd-repart")?;
        let _ = fs::remove_file(&theirs);
        repart.args(["--no-pager", "--empty=create", "--dry-run=no"]).arg(format!("--size={size}"));
        repart.arg(format!("--seed={seed}")).arg(format!("--root={}", bench.0.path().display()));
        repart.arg(format!("--definitions={}", folder.display())).arg(&theirs);
        Ok(run(&mut repart))
    };
    let said = match repart("auto") {
        Ok(said) => said,
        Err(reason) => skip!("disk_build::repart_files_give_the_table", reason),
    };
    if !said.succeeded() {
        skip!(
            "disk_build::repart_files_give_the_table",
            format!("systemd-repart can't work here: {}", said.report())
        );
    }
    let dump = |path: &Path| {
        let text = says("sfdisk", &["-d"], path, &[]).unwrap();
        let name = path.display().to_string();
        let wanted = text.lines().filter(|line| line.starts_with(&name) || line.starts_with("label-id"));
        wanted.map(|line| line.replace(&name, "disk")).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(dump(&ours), dump(&theirs));
    // The volumes have the same UUID too.
    let id = |path: &Path, offset: u64| {
        let bytes = fs::read(path).unwrap();
        bytes[usize::try_from(offset).unwrap() + 1024 + 0x68..][..16].to_vec()
    };
    let at = made.partitions[1].start.get();
    assert_eq!(id(&ours, at), id(&theirs, at));
    // On a disk of a given size what may grow shares the rest.
    fs::write(folder.join("31-home.conf"), "[Partition]\nType=home\nWeight=3000\n").unwrap();
    fs::write(folder.join("32-home.conf"), "[Partition]\nType=home\nWeight=70\n").unwrap();
    let mut spec = Spec::from_repart(&folder, bench.0.path()).unwrap();
    spec.set_size(300 << 20).unwrap();
    let (ours, _) = bench.made("ours.img", spec, 2, Identity::of_seed(seed_bytes)).unwrap();
    let said = repart("300M").unwrap();
    assert!(said.succeeded(), "{}", said.report());
    assert_eq!(dump(&ours), dump(&theirs));
}
