//! The kernel reads our directories, and we read the kernel's. Needs root and loop devices.

use super::super::*;
use super::oracle::*;
use super::store::*;
use crate::checksum::Seed;
use hectare_oracle::skip;
use hectare_units::{InodeNr, LogicalBlock};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A mounted image.
struct Mount(PathBuf);

impl Mount {
    fn new(test: &str, image: &Path, at: PathBuf) -> Option<Self> {
        if let Err(reason) = hectare_oracle::mount::can_mount() {
            skip::record(skip::Extent::Test, &format!("dir::{test}"), &reason.to_string());
            return None;
        }
        std::fs::create_dir_all(&at).unwrap();
        let (ok, output) = run("mount", &["-o", "loop", image.to_str().unwrap(), at.to_str().unwrap()]);
        if !ok {
            let reason = String::from_utf8_lossy(&output);
            skip::record(skip::Extent::Test, &format!("dir::{test}"), reason.trim());
        }
        ok.then_some(Self(at))
    }

    fn path(&self, name: &[u8]) -> PathBuf {
        self.0.join("d").join(OsStr::from_bytes(name))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        run("umount", &[self.0.to_str().unwrap()]);
    }
}

/// A number that debugfs's `stat` prints after `label`.
fn stat_field(text: &str, label: &str) -> u32 {
    let rest = text.split(label).nth(1).expect("the field is printed").trim_start();
    let word = rest.split_whitespace().next().unwrap();
    match word.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).unwrap(),
        None => word.parse().unwrap(),
    }
}

/// Directory `d` of an image, every checksum verified.
fn dump(scratch: &Scratch, image: &Path, format: &Format) -> VecStore {
    let image = image.to_str().unwrap();
    let (_, stat) = run("debugfs", &["-R", "stat d", image]);
    let stat = String::from_utf8_lossy(&stat).into_owned();
    let own = InodeNr::new(stat_field(&stat, "Inode:"));
    let indexed = stat_field(&stat, "Flags:") & 0x1000 != 0;
    let seed = Seed::of_uuid(&UUID_BYTES).inode(own, stat_field(&stat, "Generation:"));
    let path = scratch.file("dumped");
    run("debugfs", &["-R", &format!("dump d {}", path.display()), image]);
    let bytes = std::fs::read(path).unwrap();
    let store = VecStore::from_bytes(&bytes, format, indexed);
    let resealed = store.sealed(format, Some(seed).filter(|_| format.checksums));
    assert!(bytes == resealed, "our checksums are those of the kernel");
    for (i, block) in bytes.chunks(format.block_size.len()).enumerate() {
        let at = LogicalBlock::new(i.try_into().unwrap());
        verify_block(block, format, Some(seed), at, indexed, store.place(at)).unwrap();
    }
    store
}

fn mixed_names(count: u32) -> Vec<Vec<u8>> {
    let names: BTreeSet<Vec<u8>> = (0..count)
        .map(|i| match i % 3 {
            0 => tea_twin(120, i),
            1 => format!("plain {i}").into_bytes(),
            _ => [format!("{i}").as_bytes(), &vec![0xe4; i as usize % 200]].concat(),
        })
        .collect();
    names.into_iter().collect()
}

#[test]
fn we_read_what_the_kernel_made() {
    const TEST: &str = "we_read_what_the_kernel_made";
    if !have(TEST, &["mke2fs", "debugfs", "tune2fs"]) {
        return;
    }
    let scratch = Scratch::new("kernel-made");
    let cases = [
        (1024, true, HashVersion::HalfMd4, "half_md4"),
        (1024, false, HashVersion::Tea, "tea"),
        (4096, true, HashVersion::Tea, "tea"),
        (4096, true, HashVersion::Legacy, "legacy"),
    ];
    for (block_size, checksums, version, version_name) in cases {
        let format = oracle_format(block_size, checksums, version);
        let image = scratch.file("image");
        let path = image.to_str().unwrap();
        let features = if checksums { CHECKSUMS } else { "^has_journal,^metadata_csum,large_dir" };
        let (size, seed) = (block_size.to_string(), format!("hash_seed={UUID}"));
        let options =
            ["-q", "-F", "-t", "ext4", "-U", UUID, "-O", features, "-b", &size, "-E", &seed, "-N", "30000"];
        run("mke2fs", &[options.as_slice(), &[path, "64m"]].concat());
        run("tune2fs", &["-E", &format!("hash_alg={version_name}"), path]);
        let signed =
            String::from_utf8_lossy(&run("dumpe2fs", &["-h", path]).1).contains("signed_directory_hash");
        assert!(signed, "the volume says how it hashes");
        let unsigned =
            String::from_utf8_lossy(&run("dumpe2fs", &["-h", path]).1).contains("unsigned_directory_hash");
        let hash_signedness = if unsigned { Signedness::Unsigned } else { Signedness::Signed };
        let format = Format { hash_signedness, ..format };
        let Some(mount) = Mount::new(TEST, &image, scratch.file("mnt")) else { return };
        let names = mixed_names(12_000);
        std::fs::create_dir(mount.0.join("d")).unwrap();
        for name in &names {
            std::fs::write(mount.path(name), []).unwrap();
        }
        // Every fifth is removed again, so that there is slack of every kind.
        for name in names.iter().step_by(5) {
            std::fs::remove_file(mount.path(name)).unwrap();
        }
        drop(mount);
        let store = dump(&scratch, &image, &format);
        check(&store, &format);
        assert_eq!(store.blocks[0].as_ref().unwrap()[28], version.code());
        let left: BTreeSet<&[u8]> =
            names.iter().enumerate().filter(|(i, _)| i % 5 != 0).map(|(_, name)| name.as_slice()).collect();
        let listed = list(&store, &format);
        assert_eq!(listed.len(), left.len() + 2);
        for bytes in &names {
            let found = lookup(&store, &format, name(bytes)).unwrap();
            assert_eq!(found.is_some(), left.contains(bytes.as_slice()), "{bytes:?}");
            assert_eq!(found.map(|f| (f.inode.get(), f.file_type)), listed.get(bytes).copied());
        }
    }
}

#[test]
fn the_kernel_uses_what_we_built() {
    const TEST: &str = "the_kernel_uses_what_we_built";
    if !have(TEST, &["mke2fs", "debugfs", "e2fsck"]) {
        return;
    }
    let scratch = Scratch::new("kernel-uses");
    for (block_size, version) in [(1024, HashVersion::HalfMd4), (4096, HashVersion::Tea)] {
        let format = oracle_format(block_size, true, version);
        let names = mixed_names(9_000);
        let planted = Planted { scratch: &scratch, format, features: CHECKSUMS, size_mib: 64 };
        let seed = Planted::seed(names.len());
        let own = Planted::own(names.len());
        let built = build(&Planted::entries(&names), own, PARENT, &format, seed, Fill::DEFAULT).unwrap();
        planted.plant(names.len(), &built);
        let Some(mount) = Mount::new(TEST, &planted.image(), scratch.file("mnt")) else { return };
        let listed: BTreeSet<Vec<u8>> = std::fs::read_dir(mount.0.join("d"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().as_bytes().to_vec())
            .collect();
        assert_eq!(listed, names.iter().cloned().collect());
        for (i, name) in names.iter().enumerate() {
            assert!(mount.path(name).symlink_metadata().unwrap().is_file());
            if i % 4 == 0 {
                std::fs::remove_file(mount.path(name)).unwrap();
            }
        }
        for i in 0..6000 {
            std::fs::write(mount.path(format!("added by the kernel {i}").as_bytes()), []).unwrap();
        }
        drop(mount);
        planted.fsck();
        let store = dump(&scratch, &planted.image(), &format);
        check(&store, &format);
        assert_eq!(list(&store, &format).len(), names.len() - names.len().div_ceil(4) + 6000 + 2);
    }
}
