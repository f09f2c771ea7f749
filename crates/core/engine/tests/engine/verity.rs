//! fs-verity: what we seal is byte for byte what the tool `fsverity` computes; reads report a block that was
//! changed; crashes and lack of space leave a file as it was.

use crate::common::{
    assert_clean_bytes, close_clean, format_bytes, in_memory, in_memory_with, pattern, unhurried,
};
use hectare_device::{Device, MemoryDevice};
use hectare_engine::{Creation, Error, OpenOptions, Volume};
use hectare_ext4::verity::{Algorithm, Params, start};
use hectare_oracle::{Skip, skip, tool};
use hectare_units::{Bytes, InodeNr};
use std::sync::Arc;

const SIZES: [usize; 7] = [0, 1, 4096, 4097, 65_536, 140_000, 700_001];

fn volume(args: &[&str]) -> Result<Vec<u8>, Skip> {
    format_bytes(&[&["-t", "ext4"][..], args].concat(), "32M")
}

/// What the tool says of a file: its digest, its tree and its descriptor.
fn by_tool(content: &[u8], params: &[&str]) -> Result<(String, Vec<u8>, Vec<u8>), Skip> {
    let mut fsverity = tool::need("fsverity")?;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("file"), content).unwrap();
    let out = |option: &str, name: &str| format!("--out-{option}={}", path(name).display());
    let said = tool::run(
        fsverity
            .arg("digest")
            .args(params)
            .args(["--compact", &out("merkle-tree", "tree"), &out("descriptor", "descriptor")])
            .arg(path("file")),
    )
    .expect_success();
    let digest = said.stdout.trim().to_owned();
    let read = |name: &str| std::fs::read(path(name)).unwrap();
    Ok((digest, read("tree"), read("descriptor")))
}

/// The bytes of an inode from one on, whatever its size.
fn raw(held: &MemoryDevice, volume: &Volume, nr: InodeNr, from: u64, len: usize, block: u64) -> Vec<u8> {
    let blocks = volume.inode_blocks(nr).unwrap();
    let mut bytes = vec![0; len];
    for extent in &blocks.extents {
        for step in 0..u64::from(extent.len) {
            let at = (u64::from(extent.logical.get()) + step) * block;
            if at >= from && at < from + len as u64 {
                let place = Bytes::new((extent.physical.get() + step) * block);
                let to = (at - from) as usize;
                let part = (block as usize).min(len - to);
                held.read_at(place, &mut bytes[to..to + part]).unwrap();
            }
        }
    }
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The volume, its block size, how files are hashed, and the same for the tool.
type Case<'a> = (&'a [&'a str], u64, Algorithm, u32, &'a [u8], &'a [&'a str]);

#[test]
fn what_we_seal_is_what_the_tool_computes() {
    let cases: [Case<'_>; 4] = [
        (&["-b", "4096", "-O", "verity"], 4096, Algorithm::Sha256, 4096, b"", &["--hash-alg=sha256"]),
        (
            &["-b", "4096", "-O", "verity,^has_journal"],
            4096,
            Algorithm::Sha512,
            1024,
            b"salt",
            &["--hash-alg=sha512", "--block-size=1024", "--salt=73616c74"],
        ),
        (&["-b", "1024", "-O", "verity"], 1024, Algorithm::Sha256, 1024, b"", &["--block-size=1024"]),
        (
            &["-b", "2048", "-O", "verity,bigalloc,^resize_inode", "-C", "16384", "-N", "2048"],
            2048,
            Algorithm::Sha256,
            2048,
            &[0xff; 32],
            &["--block-size=2048", "--salt=ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"],
        ),
    ];
    for (args, block, algorithm, size, salt, options) in cases {
        let bytes = match volume(args) {
            Ok(bytes) => bytes,
            Err(reason) => skip!("verity::what_we_seal", reason),
        };
        let held = in_memory_with(&bytes, OpenOptions { verify: true, ..unhurried() }).unwrap();
        let v = &held.volume;
        for len in SIZES {
            let (name, content) = (format!("file{len}"), pattern(len as u64, 0, len));
            v.write_file(&name, &content, Creation::default()).unwrap();
            let nr = v.resolve(&name, false).unwrap();
            v.enable_verity(nr, Params::new(algorithm, size, salt).unwrap()).unwrap();
            let (digest, tree, descriptor) = match by_tool(&content, options) {
                Ok(said) => said,
                Err(reason) => skip!("verity::what_we_seal", reason),
            };
            let ours = v.verity_digest(nr).unwrap();
            assert_eq!((ours.0, hex(&ours.1)), (algorithm, digest), "{args:?} {len}");
            let from = start(len as u64).unwrap();
            let found = raw(&held.device, v, nr, from, tree.len(), block);
            assert!(found == tree, "{args:?} {len}: another tree");
            let at = from + (tree.len() as u64).next_multiple_of(block);
            assert!(raw(&held.device, v, nr, at, descriptor.len(), block) == descriptor, "{args:?} {len}");
            v.verify_verity(nr).unwrap();
            assert!(v.read(&name).unwrap() == content);
            assert_eq!(v.stat(nr).unwrap().size, len as u64);
            // It never changes again, but can be removed.
            let file = v.open_file(&name).unwrap();
            for refused in [file.write_at(0, b"x").map(drop), file.set_len(1)] {
                assert!(matches!(&refused, Err(error) if error.errno() == 1), "{refused:?}");
            }
            let again = v.enable_verity(nr, Params::new(algorithm, size, salt).unwrap());
            assert!(again.is_err());
        }
        v.remove_file("file4097").unwrap();
        v.sync().unwrap();
        close_clean(&held);
    }
}

#[test]
fn a_changed_block_is_told_by_file_and_block() {
    let bytes = match volume(&["-b", "1024", "-O", "verity,^has_journal"]) {
        Ok(bytes) => bytes,
        Err(reason) => skip!("verity::a_changed_block", reason),
    };
    let held = in_memory(&bytes);
    let content = pattern(1, 0, 300_000);
    held.volume.write_file("file", &content, Creation::default()).unwrap();
    let nr = held.volume.resolve("file", false).unwrap();
    held.volume.enable_verity(nr, Params::new(Algorithm::Sha256, 1024, b"").unwrap()).unwrap();
    let blocks = held.volume.inode_blocks(nr).unwrap();
    held.volume.close().unwrap();
    let place = |logical: u64| {
        let extent = blocks.extents.iter().find(|extent| extent.end() > logical).unwrap();
        (extent.physical.get() + logical - u64::from(extent.logical.get())) * 1024
    };
    let sound = held.device.to_vec();
    let last = blocks.extents.last().unwrap().end() - 1;
    let first_of_tree = start(300_000).unwrap() / 1024;
    for (logical, what) in [
        (77, "block 77"),
        (292, "block 292"),
        (first_of_tree, "the fs-verity tree above it"),
        (first_of_tree + 3, "the content that fs-verity sealed"),
        (last, "descriptor"),
    ] {
        let mut damaged = sound.clone();
        damaged[place(logical) as usize + if logical == last { 1021 } else { 17 }] ^= 1;
        let held =
            in_memory_with(&damaged, OpenOptions { verify: true, ..OpenOptions::read_only() }).unwrap();
        let text = held.volume.verify_verity(nr).expect_err(what).to_string();
        assert!(text.contains(what) && text.contains(&nr.to_string()), "{logical}: {text}");
        // Reads report it where they meet it, and without verification not at all.
        let file = held.volume.open_file("file").unwrap();
        if logical == 77 {
            let mut buffer = vec![0; 1000];
            assert_eq!(file.read_at(1000, &mut buffer).unwrap(), 1000);
            assert!(buffer == content[1000..2000]);
            let text = file.read_at(76 * 1024, &mut [0; 3000]).expect_err("it was changed").to_string();
            assert!(text.contains("block 77"), "{text}");
        }
        let plain = in_memory_with(&damaged, OpenOptions::read_only()).unwrap();
        assert_eq!(plain.volume.read("file").unwrap().len(), content.len());
    }
}

#[test]
fn without_room_or_the_feature_a_file_stays_as_it_was() {
    let bytes = match volume(&["-b", "1024", "-m", "0", "-O", "verity"]) {
        Ok(bytes) => bytes,
        Err(reason) => skip!("verity::without_room", reason),
    };
    let held = in_memory(&bytes);
    let (v, params) = (&held.volume, Params::new(Algorithm::Sha256, 1024, b"").unwrap());
    v.write_file("file", &pattern(1, 0, 400_000), Creation::default()).unwrap();
    let filler = v.create_file("filler", Creation::default()).unwrap();
    let mut at = 0;
    while filler.write_at(at, &[1; 4096]).is_ok_and(|done| done == 4096) {
        at += 4096;
    }
    v.sync().unwrap();
    let nr = v.resolve("file", false).unwrap();
    let (before, blocks) = (v.statfs().unwrap().free, v.inode_blocks(nr).unwrap());
    assert!(matches!(v.enable_verity(nr, params.clone()), Err(Error::NoSpace)));
    v.sync().unwrap();
    assert_eq!((v.statfs().unwrap().free, v.inode_blocks(nr).unwrap()), (before, blocks));
    v.open_file("file").unwrap().write_all_at(5, b"it can be written").unwrap();
    drop(filler);
    close_clean(&held);
    let Ok(plain) = volume(&["-b", "1024"]) else { return };
    let held = in_memory(&plain);
    held.volume.write_file("file", b"x", Creation::default()).unwrap();
    let nr = held.volume.resolve("file", false).unwrap();
    let text = held.volume.enable_verity(nr, params).expect_err("without the feature").to_string();
    assert!(text.contains("tune2fs -O verity"), "{text}");
    let text = held.volume.verity_digest(nr).expect_err("it is not sealed").to_string();
    assert!(text.contains("not sealed"), "{text}");
}

#[test]
fn a_crash_while_sealing_leaves_the_file_with_or_without_its_seal() {
    use hectare_device::{FaultDevice, Outcome, Rule};
    let bytes = match volume(&["-b", "1024", "-O", "verity"]) {
        Ok(bytes) => bytes,
        Err(reason) => skip!("verity::a_crash", reason),
    };
    let held = in_memory(&bytes);
    let content = pattern(3, 0, 90_000);
    held.volume.write_file("file", &content, Creation::default()).unwrap();
    held.volume.close().unwrap();
    let (before, params) = (held.device.to_vec(), Params::new(Algorithm::Sha256, 1024, b"").unwrap());
    let (mut sealed, mut open) = (0, 0);
    for k in 0.. {
        let memory = Arc::new(MemoryDevice::from_bytes(&before));
        let device = Arc::new(FaultDevice::new(Arc::clone(&memory)));
        let v = Volume::open(Arc::clone(&device) as Arc<dyn Device>, unhurried()).unwrap();
        // From some operation on nothing arrives any more: what is there then is what a crash leaves.
        device.add(Rule::new(Outcome::IO).after(k));
        let nr = v.resolve("file", false);
        let done = nr.and_then(|nr| v.enable_verity(nr, params.clone()).and_then(|()| v.close()));
        drop(v);
        let after = in_memory_with(&memory.to_vec(), OpenOptions { verify: true, ..unhurried() }).unwrap();
        assert!(after.volume.read("file").unwrap() == content, "operation {k}");
        let nr = after.volume.resolve("file", false).unwrap();
        match after.volume.verify_verity(nr) {
            Ok(()) => sealed += 1,
            Err(Error::Unsupported(_)) => open += 1,
            Err(other) => panic!("operation {k}: {other}"),
        }
        after.volume.close().unwrap();
        assert_clean_bytes(&after.device.to_vec());
        if done.is_ok() && device.strikes() == 0 {
            break;
        }
    }
    assert!(sealed > 1 && open > 3, "{sealed} {open}");
}
