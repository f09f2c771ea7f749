//! mkfs on block devices: those in use, those with large sectors, discards sent and topology read.

use crate::support::{Bench, hectare};
use hectare_oracle::mount::Access;
use hectare_oracle::tool::{Said, need, run};
use hectare_oracle::{KernelMount, LoopDevice, Skip, assert_clean, skip, skip_part};
use std::process::Command;

#[test]
fn a_mounted_device_and_its_image_are_refused_even_by_force() {
    const TEST: &str = "cli make_on_devices::a_mounted_device";
    let bench = Bench::empty();
    hectare(&["mkfs", "-q", bench.image(), "320M"]).ok();
    let mount = match KernelMount::attempt(&bench.image, Access::ReadWrite, "") {
        Ok(mount) => mount,
        Err(reason) => skip!(TEST, reason),
    };
    let kept = mount.path().join("kept");
    std::fs::write(&kept, "kept").unwrap();
    let device = mount.device().to_str().unwrap();
    for (image, said) in
        [(device, "it is mounted or in use; unmount it first"), (bench.image(), "the kernel uses it as")]
    {
        for words in [&["-F"][..], &["-t", "xfs", "-f"]] {
            let ran = hectare(&[&["mkfs"], words, &[image]].concat());
            assert!(ran.refused().contains(said), "{}: {}", ran.line, ran.err);
        }
    }
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "kept");
    mount.unmount();
    if let Err(reason) = assert_clean(&bench.image) {
        skip_part!(format!("{TEST}, judged"), reason);
    }
}

/// A file system's blocks and sectors are no smaller than the sectors of its device.
#[test]
fn regression_sectors_of_the_device_are_respected() {
    const NAME: &str = "cli make_on_devices::regression_sectors_of_the_device_are_respected";
    let bench = Bench::empty();
    std::fs::File::create(&bench.image).unwrap().set_len(320 << 20).unwrap();
    let device = match LoopDevice::with_sectors(&bench.image, Access::ReadWrite, 4096) {
        Ok(device) => device,
        Err(reason) => skip!(NAME, reason),
    };
    let path = device.path().to_str().unwrap();
    let refused = hectare(&["mkfs", "-q", "-b", "1024", path]);
    assert!(refused.refused().contains("-b 1024: the device has sectors of 4096 bytes"), "{}", refused.err);
    let refused = hectare(&["mkfs", "-t", "xfs", "-q", "-s", "size=512", path]);
    assert!(refused.refused().contains("sectors of 4096 bytes"), "{}", refused.err);
    for words in [&["mkfs", "-q", "-F", "-t", "ext4"][..], &["mkfs", "-t", "xfs", "-q", "-f"]] {
        hectare(&[words, &[path]].concat()).ok();
        let mounted = bench.local("mounted");
        std::fs::create_dir_all(&mounted).unwrap();
        let mount = |words: &[&str]| Command::new(words[0]).args(&words[1..]).arg(&mounted).status();
        assert!(mount(&["mount", path]).unwrap().success(), "{words:?}");
        let wrote = std::fs::write(mounted.join("file"), "text");
        assert!(mount(&["umount"]).unwrap().success());
        wrote.unwrap();
    }
}

/// On a block device the discard goes to the device, which frees the space.
#[test]
fn a_device_is_told_what_it_need_not_keep() {
    use std::os::unix::fs::MetadataExt;
    const SIZE: usize = 320 << 20;
    let bench = Bench::empty();
    let taken = || std::fs::metadata(&bench.image).unwrap().blocks() * 512;
    for (words, keeps) in [
        (&["mkfs", "-q", "-F", "-t", "ext4", "-E", "discard"][..], false),
        (&["mkfs", "-q", "-F", "-t", "ext4", "-E", "nodiscard"], true),
        (&["mkfs", "-t", "xfs", "-q", "-f"], false),
        (&["mkfs", "-t", "xfs", "-q", "-f", "-K"], true),
    ] {
        std::fs::write(&bench.image, vec![0xa5; SIZE]).unwrap();
        let device = match LoopDevice::new(&bench.image, Access::ReadWrite) {
            Ok(device) => device,
            Err(reason) => skip!("cli make_on_devices::a_device_is_told", reason),
        };
        hectare(&[words, &[device.path().to_str().unwrap()]].concat()).ok();
        drop(device);
        let most = hectare_units::u64_of(SIZE);
        assert!(if keeps { taken() > most / 2 } else { taken() < most / 8 }, "{words:?}: {} bytes", taken());
        match KernelMount::new(&bench.image, "") {
            Ok(kernel) => std::fs::write(kernel.path().join("file"), "text").unwrap(),
            Err(reason) => skip_part!(format!("cli make_on_devices::a_device_is_told, {words:?}"), reason),
        }
    }
}

/// The lines of a report without the first, which has the image's name, and without notes.
fn table(report: &str) -> Vec<&str> {
    report.lines().skip(1).filter(|line| !line.starts_with("note: ")).collect()
}

/// Runs a shell script in a namespace in which a loop device reports that it is striped.
fn where_striped(bench: &Bench, device: &LoopDevice, sizes: (u64, u64), script: &str) -> Result<Said, Skip> {
    let name = device.path().file_name().unwrap().to_str().unwrap();
    let mut lines = String::new();
    for (file, size) in [("minimum_io_size", sizes.0), ("optimal_io_size", sizes.1)] {
        let told = bench.local(file);
        std::fs::write(&told, format!("{size}\n")).unwrap();
        lines += &format!("mount --bind {} /sys/block/{name}/queue/{file}\n", told.display());
    }
    Ok(run(need("unshare")?.args(["--mount", "sh", "-ec", &(lines + script)])))
}

/// Both formatters follow a device's report, or don't, in the same cases.
#[test]
fn the_stripes_of_a_device_are_those_that_others_find() {
    const NAME: &str = "cli make_on_devices::the_stripes_of_a_device_are_those_that_others_find";
    for (sectors, sizes) in [(512, STRIPES), (4096, &[(4096, 262_144), (4096, 4096), (65536, 262_144)])] {
        let bench = Bench::empty();
        std::fs::File::create(&bench.image).unwrap().set_len(2 << 30).unwrap();
        let compared = LoopDevice::with_sectors(&bench.image, Access::ReadWrite, sectors)
            .and_then(|device| compare_stripes(&bench, &device, sizes));
        if let Err(reason) = compared {
            skip!(NAME, reason);
        }
    }
}

/// Request sizes that a device may report, minimum and optimum.
const STRIPES: &[(u64, u64)] = &[
    (65536, 262_144),
    (65536, 65536),
    (131_072, 1 << 20),
    (12288, 24576),
    (1 << 20, 1 << 20),
    // Nonsense, or nothing but a sector.
    (512, 512),
    (512, 1 << 20),
    (65536, 0),
    (65536, 100_000),
    (5000, 10_000),
    (1024, 2048),
];

fn compare_stripes(bench: &Bench, device: &LoopDevice, sizes: &[(u64, u64)]) -> Result<(), Skip> {
    for tool in ["mkfs.xfs", "mke2fs", "dumpe2fs"] {
        need(tool)?;
    }
    let (path, ours) = (device.path().to_str().unwrap(), env!("CARGO_BIN_EXE_hectare"));
    let run = |sizes, script: String| {
        where_striped(bench, device, sizes, &script).map(|said| said.expect_success().stdout)
    };
    for sizes in sizes {
        let theirs = run(*sizes, format!("mkfs.xfs -N -f {path}"))?;
        let made = run(*sizes, format!("{ours} mkfs -t xfs -N {path}"))?;
        assert_eq!(table(&made), table(&theirs), "{sizes:?}");
        let dump = format!("dumpe2fs -h {path} 2>/dev/null | grep '^RAID' || true");
        let theirs = run(*sizes, format!("mke2fs -q -F -t ext4 {path}\n{dump}"))?;
        let made = run(*sizes, format!("{ours} mkfs -q -F {path}\n{dump}"))?;
        assert_eq!(made, theirs, "{sizes:?}");
        assert_clean(&bench.image)?;
    }
    // Explicit options win, and what is followed is printed.
    let striped = (65536, 262_144);
    let told = |words: &str| run(striped, format!("{ours} mkfs -t xfs -N {words} {path}")).unwrap();
    assert!(told("").contains("stripes of 262144 bytes, 65536 on a disk; -d su=0,sw=0 for none"));
    let told_of_ext4 = |words: &str| run(striped, format!("{ours} mkfs -n {words} {path}")).unwrap();
    let note = "stripes of 64 blocks, 16 on a disk; -E stride=0,stripe_width=0 for none";
    assert!(told_of_ext4("").contains(note), "{}", told_of_ext4(""));
    assert!(!told_of_ext4("-E stride=0,stripe_width=0").contains("stripes of"));
    assert!(told("-d su=0,sw=0").contains("sunit=0      swidth=0 blks"));
    assert!(told("-d su=16k,sw=2").contains("sunit=4      swidth=8 blks"));
    // A file reports nothing, and a small volume is not worth it.
    let file = hectare(&["mkfs", "-t", "xfs", "-N", bench.image()]).ok();
    assert!(file.text().contains("sunit=0      swidth=0 blks"), "{}", file.text());
    assert!(told("-d size=1000m").contains("sunit=0      swidth=0 blks"));
    Ok(())
}
