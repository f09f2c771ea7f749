//! Groups that LVM2's own tools made on loop devices, and small ones of which only the metadata is kept
//! (`tests/kept`): what lies where is compared with what `lvs` and `pvs` say.
//!
//! The tools run with `--driverloaded n`: no kernel with a device mapper is needed, and nothing is activated.

use crate::{VolumeSet, is_physical_volume};
use hectare_device::{Device, FileOptions, MemoryDevice};
use hectare_oracle::loops::{Access, LoopDevice};
use hectare_oracle::tool::need;
use hectare_oracle::{Skip, skip};
use hectare_units::{Bytes, index_of};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Files, each with a loop device.
struct Loops(Vec<(LoopDevice, PathBuf)>);

impl Loops {
    fn new(folder: &Path, count: usize, mib: u64) -> Result<Self, Skip> {
        for tool in ["pvcreate", "vgcreate", "lvcreate", "lvs", "pvs"] {
            let _ = need(tool)?;
        }
        let mut loops = Self(Vec::new());
        for number in 0..count {
            let path = folder.join(format!("pv{number}"));
            File::create(&path).unwrap().set_len(mib << 20).unwrap();
            loops.0.push((LoopDevice::new(&path, Access::ReadWrite)?, path));
        }
        Ok(loops)
    }

    fn names(&self) -> Vec<&str> {
        self.0.iter().map(|(device, _)| device.path().to_str().unwrap()).collect()
    }

    /// Runs a tool of LVM2 that sees these devices only.
    fn lvm(&self, tool: &str, arguments: &[&str]) -> String {
        let filter: String = self.names().iter().map(|name| format!("\"a|^{name}$|\",")).collect();
        let config = format!(
            "devices {{ filter=[{filter}\"r|.*|\"] use_devicesfile=0 scan_lvs=0 }} \
         backup {{ backup=0 archive=0 }} \
             global {{ use_lvmpolld=0 use_lvmlockd=0 }} activation {{ monitoring=0 udev_sync=0 }}"
        );
        let mut command = need(tool).unwrap();
        said(command.args(["--driverloaded", "n", "--config", &config]).args(arguments))
    }

    /// The files as devices.
    fn devices(&self, write: bool) -> Vec<Arc<dyn Device>> {
        let open = |(_, path): &(_, PathBuf)| -> Arc<dyn Device> {
            Arc::new(FileOptions::new().write(write).exclusive(false).open(path).unwrap())
        };
        self.0.iter().map(open).collect()
    }
}

/// What a command writes, which must succeed.
fn said(command: &mut Command) -> String {
    let output = command.env("LVM_SUPPRESS_FD_WARNINGS", "1").output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// First byte, length, length of a chunk, and (file, byte) of each stripe.
type Segment = (u64, u64, u64, Vec<(usize, u64)>);

/// Where a volume lies, as `lvs` says, whose extents have 4 MiB.
fn by_lvs(loops: &Loops, volume: &str) -> Vec<Segment> {
    let fields = "seg_start_pe,seg_size_pe,stripesize,seg_pe_ranges";
    let units =
        ["--noheadings", "--units", "b", "--nosuffix", "--separator", ";", "-o", fields, "--segments"];
    let text = loops.lvm("lvs", &[&units[..], &[volume]].concat());
    let starts = loops.lvm("pvs", &["--noheadings", "--units", "b", "--nosuffix", "-o", "pv_name,pe_start"]);
    let start = |name: &str| -> u64 {
        let line = starts.lines().find(|line| line.split_whitespace().next() == Some(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let segment = |line: &str| {
        let parts: Vec<&str> = line.trim().split(';').collect();
        let number = |text: &str| text.parse::<u64>().unwrap();
        let stripe = |range: &str| {
            let (name, extents) = range.split_once(':').unwrap();
            let first = number(extents.split_once('-').unwrap().0);
            let file = loops.names().iter().position(|known| *known == name).unwrap();
            (file, start(name) + (first << 22))
        };
        let stripes = parts[3].split_whitespace().map(stripe).collect();
        (number(parts[0]) << 22, number(parts[1]) << 22, number(parts[2]), stripes)
    };
    text.lines().map(segment).collect()
}

/// Every byte of the files that belong to a volume, in order, as `lvs` says.
fn bytes_by_lvs(loops: &Loops, volume: &str) -> Vec<u8> {
    let files: Vec<Vec<u8>> = loops.0.iter().map(|(_, path)| std::fs::read(path).unwrap()).collect();
    let mut out = Vec::new();
    for (start, len, chunk, stripes) in by_lvs(loops, volume) {
        assert_eq!(start, out.len() as u64);
        let chunk = if stripes.len() == 1 { len } else { chunk };
        for number in 0..len / chunk {
            let (file, first) = stripes[index_of(number) % stripes.len()];
            let at = index_of(first + number / stripes.len() as u64 * chunk);
            out.extend_from_slice(&files[file][at..at + index_of(chunk)]);
        }
    }
    out
}

#[test]
fn volumes_of_the_tools_hold_what_they_say() {
    let folder = tempfile::tempdir().unwrap();
    let loops = match Loops::new(folder.path(), 3, 64) {
        Ok(loops) => loops,
        Err(reason) => skip!("lvm::volumes_of_the_tools_hold_what_they_say", reason),
    };
    let names = loops.names();
    loops.lvm("pvcreate", &[&["-y"][..], &names].concat());
    loops.lvm("vgcreate", &[&["vg-test"][..], &names].concat());
    let made =
        |options: &[&str]| loops.lvm("lvcreate", &[&["-an", "-Zn", "-Wn", "-y"][..], options].concat());
    made(&["-L", "20M", "-n", "root", "vg-test", names[0]]);
    made(&["-i", "3", "-I", "16k", "-L", "24M", "-n", "wide", "vg-test"]);
    made(&["-L", "12M", "-n", "gap", "vg-test", names[0]]);
    // A second segment behind another volume, and a third one on another device.
    loops.lvm("lvextend", &["-L", "+8M", "vg-test/root", names[0]]);
    loops.lvm("lvextend", &["-L", "+8M", "vg-test/root", names[1]]);
    // Many changes, so that the ring of texts comes round.
    for number in 0..12 {
        let tags: Vec<String> =
            (0..60).map(|tag| format!("{}-{tag}-{}", number / 2, "x".repeat(900))).collect();
        let add = if number % 2 == 0 { "--addtag" } else { "--deltag" };
        let words: Vec<&str> = tags.iter().flat_map(|tag| [add, tag.as_str()]).collect();
        loops.lvm("vgchange", &[&words[..], &["vg-test"]].concat());
    }
    for (file, (_, path)) in loops.0.iter().enumerate() {
        let mut bytes = std::fs::read(path).unwrap();
        for (at, word) in bytes[1 << 20..].chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&((at as u64) << 8 | file as u64).to_le_bytes());
        }
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(&bytes[1 << 20..], 1 << 20).unwrap();
    }
    let devices = loops.devices(true);
    assert!(devices.iter().all(|device| is_physical_volume(&**device)));
    let set = VolumeSet::open(Arc::clone(&devices[0]), &devices[1..]).unwrap();
    let listed: Vec<_> = set.volumes().into_iter().map(|one| (one.name, one.len.get() >> 20)).collect();
    let expected = [("vg-test/gap", 12), ("vg-test/root", 36), ("vg-test/wide", 24)];
    assert_eq!(listed, expected.map(|(name, mib)| (name.to_owned(), mib)));
    for (name, mib) in expected {
        let volume = set.volume(name).unwrap();
        let mut found = vec![0; index_of(mib << 20)];
        volume.read_at(Bytes::ZERO, &mut found).unwrap();
        assert!(found == bytes_by_lvs(&loops, name), "{name}");
        // What is written lies where the tools say, and nowhere else.
        let (at, data) = ((4 << 20) - 5000, vec![0xee; 3 << 20]);
        volume.write_at(Bytes::of(at), &data).unwrap();
        volume.zero(Bytes::of(at + 100), Bytes::new(70_000)).unwrap();
        volume.flush().unwrap();
        found[at..at + data.len()].copy_from_slice(&data);
        found[at + 100..at + 70_100].fill(0);
        assert!(found == bytes_by_lvs(&loops, name), "{name}");
    }
    let alone = VolumeSet::open(Arc::clone(&devices[0]), &[]).unwrap();
    assert!(alone.volume("vg-test/gap").is_ok());
    let error = alone.volume("vg-test/root").err().unwrap().to_string();
    let uuid = loops.lvm("pvs", &["--noheadings", "-o", "pv_uuid", names[1]]);
    assert!(error.contains(&uuid) && error.contains(names[1]) && error.contains("--pv"), "{error}");
    assert!(alone.volume("vg-test/none").err().unwrap().to_string().contains("vg-test/gap, vg-test/root"));
    let twice = VolumeSet::open(Arc::clone(&devices[0]), &[Arc::clone(&devices[0])]);
    assert!(twice.err().unwrap().to_string().contains("twice"));
}

/// Logical volumes of other kinds, as they stand in the text of a group.
const OTHERS: &str = include_str!("../tests/kept/others.txt");

#[test]
fn what_the_tools_make_and_is_not_plain_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let loops = match Loops::new(folder.path(), 2, 128) {
        Ok(loops) => loops,
        Err(reason) => skip!("lvm::what_the_tools_make_and_is_not_plain", reason),
    };
    loops.lvm("vgcreate", &[&["-y", "vg"][..], &loops.names()].concat());
    let made =
        |options: &[&str]| loops.lvm("lvcreate", &[&["-an", "-Zn", "-Wn", "-y"][..], options].concat());
    made(&["-L", "16M", "-n", "root", "vg"]);
    // Without a device mapper the tools make nothing else; but they take it as a text, which they verify.
    let text = folder.path().join("text");
    let file = text.to_str().unwrap();
    loops.lvm("vgcfgbackup", &["-f", file, "vg"]);
    let before = std::fs::read_to_string(&text).unwrap();
    let at = before.find("logical_volumes {").unwrap() + "logical_volumes {".len();
    std::fs::write(&text, [&before[..at], OTHERS, &before[at..]].concat()).unwrap();
    loops.lvm("vgcfgrestore", &["--force", "-f", file, "vg"]);
    loops.lvm("lvchange", &["-pr", "vg/root"]);
    let devices = loops.devices(true);
    let set = VolumeSet::open(Arc::clone(&devices[0]), &devices[1..]).unwrap();
    for (name, said) in [
        ("vg/twice", "it is a RAID (raid1)"),
        ("vg/twice_rimage_0", "a part of another"),
        ("vg/snap", "it is a snapshot"),
        ("vg/base", "it has snapshots"),
        ("vg/root", "reading only"),
    ] {
        let error = set.volume(name).err().unwrap().to_string();
        assert!(error.contains(said), "{name}: {error}");
    }
    let devices = loops.devices(false);
    let set = VolumeSet::open(Arc::clone(&devices[0]), &devices[1..]).unwrap();
    assert!(set.volume("vg/root").unwrap().is_read_only());
    assert!(set.volume("vg/base").unwrap().is_read_only());
}

/// What was kept of a physical volume of 16 MiB: its first sectors, of which the rest are zeros.
fn kept() -> Vec<u8> {
    let mut bytes =
        std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kept/two-volumes.bin")).unwrap();
    bytes.resize(64 << 20, 0);
    bytes
}

fn error_of(bytes: &[u8]) -> String {
    VolumeSet::open(Arc::new(MemoryDevice::from_bytes(bytes)), &[]).err().unwrap().to_string()
}

#[test]
fn a_kept_group_is_read_without_the_tools() {
    let bytes = kept();
    let set = VolumeSet::open(Arc::new(MemoryDevice::from_bytes(&bytes)), &[]).unwrap();
    let listed: Vec<_> = set.volumes().into_iter().map(|one| (one.name, one.len.get() >> 20)).collect();
    assert_eq!(listed, [("vg0/root".to_owned(), 20), ("vg0/striped".to_owned(), 24)]);
    let root = set.volume("vg0/root").unwrap();
    root.write_at(Bytes::new(5), b"here").unwrap();
    assert_eq!(set.start("vg0/root").unwrap(), Some(Bytes::mib(1)));
    let error = set.volume("vg0/striped").err().unwrap().to_string();
    assert!(error.contains("which is not given: add it with --pv FILE"), "{error}");
    assert!(root.resize(Bytes::mib(1)).is_err() && root.read_at(Bytes::mib(20), &mut [0]).is_err());
}

#[test]
fn damage_is_named_with_its_place() {
    let whole = kept();
    for (at, said) in [
        (512 + 30, "byte 512 is damaged: the checksum of the label"),
        (512 + 9, "another sector"),
        (4096 + 5, "byte 4096 is damaged: there should be the header"),
        (4096 + 45, "the checksum of the header of the metadata area"),
    ] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        let error = error_of(&bytes);
        assert!(error.contains(said), "{at}: {error}");
    }
    // Some byte of each text: only the last one is in force.
    let last = whole.windows(4).rposition(|text| text == b"vg0 ").unwrap();
    let mut bytes = whole.clone();
    bytes[last + 10] ^= 1;
    assert!(error_of(&bytes).contains("the checksum of its text is wrong"));
    let mut bytes = whole.clone();
    bytes[4608] ^= 1;
    assert!(VolumeSet::open(Arc::new(MemoryDevice::from_bytes(&bytes)), &[]).is_ok());
    // Cut off: the volumes lie beyond the end.
    let set = VolumeSet::open(Arc::new(MemoryDevice::from_bytes(&whole[..16 << 20])), &[]).unwrap();
    assert!(set.volume("vg0/root").err().unwrap().to_string().contains("reaches beyond the end"));
    assert!(error_of(&whole[..1 << 19]).contains("outside of the device"));
    assert!(error_of(&vec![0; 1 << 20]).contains("is no physical volume"));
    assert!(error_of(&[0; 100]).contains("is no physical volume"));
}
