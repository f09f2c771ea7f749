//! Damage that the command line can't make: sectors that fail, and any bytes at all.

use hectare_device::{Device, FaultDevice, MemoryDevice, Operation, Outcome, Rule};
use hectare_oracle::{debugfs, mke2fs, skip, skip_part};
use hectare_salvage::{Kind, NodeId, Options, Salvage, Step, Watch};
use hectare_units::{Bytes, random, u64_of};
use std::fs;
use std::sync::Arc;

struct Quiet;

impl Watch for Quiet {
    fn advance(&self, _step: Step, _done: u64, _all: u64) {}
}

/// Bytes of content of what is in `file`.
const LEN: usize = 300_000;

/// A volume with some files, as bytes, and the first block of `file`.
fn volume(arguments: &[&str], size: &str) -> Result<(Vec<u8>, u64), hectare_oracle::Skip> {
    let folder = tempfile::tempdir().unwrap();
    let (source, image) = (folder.path().join("source"), folder.path().join("disk.img"));
    fs::create_dir_all(source.join("dir/inner")).unwrap();
    fs::write(source.join("file"), vec![7; LEN]).unwrap();
    for nr in 0..60 {
        fs::write(source.join(format!("dir/inner/{nr}")), vec![nr; 500 * usize::from(nr)]).unwrap();
    }
    std::os::unix::fs::symlink("dir/inner", source.join("link")).unwrap();
    let arguments = [arguments, &["-d", source.to_str().unwrap()]].concat();
    mke2fs(&arguments, &image, size)?;
    let said = debugfs(&image, &["blocks /file"])?;
    let numbers = said.lines().filter(|line| !line.contains("debugfs")).flat_map(str::split_whitespace);
    let first = numbers.filter_map(|word| word.parse().ok()).next().unwrap();
    Ok((fs::read(&image).unwrap(), first))
}

fn device(bytes: &[u8]) -> MemoryDevice {
    let device = MemoryDevice::new(Bytes::of(bytes.len()));
    device.write_at(Bytes::ZERO, bytes).unwrap();
    device
}

/// Reads everything; returns bytes and nodes.
fn read_all(salvage: &Arc<Salvage>) -> (u64, u64) {
    let (mut bytes, mut nodes) = (0, 0);
    let mut waiting = vec![salvage.root()];
    let mut buffer = vec![0; 1 << 16];
    while let Some(node) = waiting.pop() {
        nodes += 1;
        let meta = salvage.metadata(node);
        let _ = salvage.xattrs(node);
        match meta.kind {
            Kind::File => {
                let file = salvage.open(node);
                for (start, len) in file.ranges() {
                    let mut at = start;
                    while at < start + len {
                        let read = file.read_at(at, &mut buffer);
                        assert!(read > 0, "a range ends behind the file");
                        at += u64_of(read);
                        bytes += u64_of(read);
                    }
                }
            }
            Kind::Symlink => drop(salvage.read_link(node)),
            _ => {}
        }
        waiting.extend(salvage.children(node).map(|(_, child)| child));
    }
    (bytes, nodes)
}

fn find(salvage: &Salvage, name: &[u8]) -> NodeId {
    salvage.children(salvage.root()).find(|(own, _)| *own == name).unwrap().1
}

#[test]
fn sectors_that_fail_are_zeros_and_named() {
    let (bytes, first) = match volume(&["-t", "ext4", "-b", "4096"], "16M") {
        Ok(volume) => volume,
        Err(reason) => skip!("salvage damage::sectors_that_fail", reason),
    };
    let fault = FaultDevice::new(device(&bytes));
    let bad = first * 4096 + 8192..first * 4096 + 8192 + 512;
    let range = bad.clone();
    fault.add(Rule::new(Outcome::IO).on(&[Operation::Read]).when(move |request| {
        let span = request.span;
        span.at.get() < range.end && span.at.get() + span.len.get() > range.start
    }));
    let salvage = Arc::new(Salvage::survey(Arc::new(fault), &Options::default(), &Quiet).unwrap());
    let node = find(&salvage, b"file");
    let file = salvage.open(node);
    let mut content = vec![1; LEN];
    assert_eq!(file.read_at(0, &mut content), LEN);
    assert!(content[8192..8704].iter().all(|byte| *byte == 0));
    assert!(content[..8192].iter().chain(&content[8704..]).all(|byte| *byte == 7));
    let report = salvage.report();
    assert_eq!((report.unreadable[0].at, report.unreadable[0].len), (bad.start, 512));
    assert!(report.doubtful.len() == 1 && report.doubtful[0].path == "file", "{report:?}");
    assert!(report.doubtful[0].doubts[0].contains("512 bytes from 8192"), "{report:?}");
    assert!(!salvage.is_whole(node));
}

/// Damages of all sizes, at any place: what comes out is bounded, and nothing panics.
#[test]
fn any_damage_ends_within_bounds() {
    let kinds: [&[&str]; 6] = [
        &["-t", "ext2", "-b", "1024"],
        &["-t", "ext3", "-b", "1024"],
        &["-t", "ext4", "-b", "1024", "-O", "inline_data,ea_inode", "-I", "256"],
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg"],
        &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "4096"],
        &["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode", "-I", "128"],
    ];
    for arguments in kinds {
        let (whole, _) = match volume(arguments, "8M") {
            Ok(volume) => volume,
            Err(reason) => {
                skip_part!(format!("salvage damage, {arguments:?}"), reason);
                continue;
            }
        };
        let used: Vec<usize> = whole
            .chunks(512)
            .enumerate()
            .filter(|(_, s)| s.iter().any(|b| *b != 0))
            .map(|(nr, _)| nr)
            .collect();
        let mut state = 7_u64;
        let mut next = || {
            state = state.wrapping_add(random::STEP);
            random::mixed(state)
        };
        for run in 0..60_u64 {
            let mut bytes = whole.clone();
            for _ in 0..1 << (run % 9) {
                let sector = used[usize::try_from(next() % u64_of(used.len())).unwrap()] * 512;
                let len = [1, 4, 64, 512][usize::try_from(next() % 4).unwrap()];
                for at in 0..len {
                    let value = next();
                    let place = sector + usize::try_from(value % 512).unwrap();
                    let place = if len == 512 { sector + at } else { place };
                    bytes[place] = [0, 0xff, value.to_le_bytes()[1]][usize::try_from(run % 3).unwrap()];
                }
            }
            let len = if run % 7 == 3 { bytes.len() * 2 / 3 } else { bytes.len() };
            let options = Options { deleted: run % 2 == 1, no_journal: run % 5 == 0, ..Options::default() };
            let salvage = Salvage::survey(Arc::new(device(&bytes[..len])), &options, &Quiet);
            let Ok(salvage) = salvage else { continue };
            let (read, nodes) = read_all(&Arc::new(salvage));
            assert!(read <= 5 * u64_of(bytes.len()) && nodes < 20_000, "{arguments:?} {run}: {read} {nodes}");
        }
    }
}
