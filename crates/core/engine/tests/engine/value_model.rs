//! Random operations on attributes of any size, by the kernel and by us in turn, against a model in memory.

use crate::common::{open_image, pattern};
use crate::value_inodes::{VOLUMES, image, settle};
use hectare_engine::{Creation, Error, Volume, XattrHow};
use hectare_oracle::hunt::{self, long};
use hectare_oracle::trees::Random;
use hectare_oracle::{KernelMount, assert_clean, skip, xattr};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const FILES: u64 = 4;
const NAMES: u64 = 6;

/// The attributes of each file.
type Model = BTreeMap<String, BTreeMap<String, Vec<u8>>>;

/// Who works on the volume in a round.
trait Side {
    fn create(&self, file: &str);
    fn unlink(&self, file: &str);
    /// Whether there was room.
    fn set(&self, file: &str, name: &str, value: &[u8]) -> bool;
    fn remove(&self, file: &str, name: &str);
    fn get(&self, file: &str, name: &str) -> Option<Vec<u8>>;
}

struct Kernel<'a>(&'a Path);

impl Side for Kernel<'_> {
    fn create(&self, file: &str) {
        fs::write(self.0.join(file), file).unwrap();
    }

    fn unlink(&self, file: &str) {
        fs::remove_file(self.0.join(file)).unwrap();
    }

    fn set(&self, file: &str, name: &str, value: &[u8]) -> bool {
        match xattr::set(&self.0.join(file), name, value) {
            Ok(()) => true,
            Err(error) if error.raw_os_error() == 28 => false,
            Err(error) => panic!("{file} {name}, {} bytes: {error}", value.len()),
        }
    }

    fn remove(&self, file: &str, name: &str) {
        xattr::remove(&self.0.join(file), name).unwrap();
    }

    fn get(&self, file: &str, name: &str) -> Option<Vec<u8>> {
        xattr::get(&self.0.join(file), name).unwrap()
    }
}

impl Side for Volume {
    fn create(&self, file: &str) {
        self.write_file(file, file.as_bytes(), Creation::default()).unwrap();
    }

    fn unlink(&self, file: &str) {
        self.remove_file(file).unwrap();
    }

    fn set(&self, file: &str, name: &str, value: &[u8]) -> bool {
        match self.set_xattr(self.resolve(file, false).unwrap(), name, value, XattrHow::Either) {
            Ok(()) => true,
            Err(Error::AttributeTooLarge | Error::NoSpace) => false,
            Err(error) => panic!("{file} {name}, {} bytes: {error}", value.len()),
        }
    }

    fn remove(&self, file: &str, name: &str) {
        self.remove_xattr(self.resolve(file, false).unwrap(), name).unwrap();
    }

    fn get(&self, file: &str, name: &str) -> Option<Vec<u8>> {
        match self.get_xattr(self.resolve(file, false).unwrap(), name) {
            Ok(value) => Some(value),
            Err(Error::NoAttribute) => None,
            Err(error) => panic!("{file} {name}: {error}"),
        }
    }
}

/// Small, around the limits of inode and block, and up to the largest; a few distinct ones, so that some are
/// equal.
fn value(random: &mut Random) -> Vec<u8> {
    let len = match random.below(6) {
        0 => random.below(80),
        1 => 900 + random.below(150),
        2 => 3_900 + random.below(250),
        3 => random.below(65_537),
        4 => 65_536 - random.below(3),
        _ => 20_000,
    };
    pattern(random.below(3), 0, len as usize)
}

fn work(side: &dyn Side, model: &mut Model, random: &mut Random, steps: u64) {
    for _ in 0..steps {
        let file = format!("f{}", random.below(FILES));
        let name = format!("user.n{}", random.below(NAMES));
        match model.get_mut(&file) {
            None => {
                side.create(&file);
                model.insert(file, BTreeMap::new());
            }
            Some(_) if random.below(12) == 0 => {
                side.unlink(&file);
                model.remove(&file);
            }
            Some(attrs) if attrs.contains_key(&name) && random.below(4) == 0 => {
                side.remove(&file, &name);
                attrs.remove(&name);
            }
            Some(attrs) => {
                let value = value(random);
                if side.set(&file, &name, &value) {
                    attrs.insert(name, value);
                }
            }
        }
    }
}

fn compare(side: &dyn Side, model: &Model, when: &str) {
    for (file, attrs) in model {
        for name in (0..NAMES).map(|n| format!("user.n{n}")) {
            assert!(side.get(file, &name).as_ref() == attrs.get(&name), "{when}: {file} {name}");
        }
    }
}

#[test]
fn the_kernel_and_we_agree_on_random_attributes_in_turn() {
    let rounds = if long("value_model, 60 rounds on each volume") { 60 } else { 10 };
    let seed = hunt::seed("value_model");
    for args in VOLUMES {
        let folder = tempfile::tempdir().unwrap();
        let image = image(folder.path(), args).unwrap_or_else(|reason| panic!("{reason}"));
        if let Err(reason) = KernelMount::new(&image, "").map(KernelMount::unmount) {
            skip!("value_model::the_kernel_and_we_agree", reason);
        }
        let (mut model, mut random) = (Model::new(), Random::new(&format!("{args:?} {seed}")));
        for round in 0..rounds {
            let when = format!("{args:?}, round {round}");
            let mount = KernelMount::new(&image, "").unwrap();
            compare(&Kernel(mount.path()), &model, &when);
            work(&Kernel(mount.path()), &mut model, &mut random, 30);
            mount.unmount();
            settle(&image);
            let volume = open_image(&image);
            compare(&volume, &model, &when);
            work(&volume, &mut model, &mut random, 30);
            compare(&volume, &model, &when);
            volume.close().unwrap();
            drop(volume);
            assert_clean(&image).unwrap();
        }
    }
}
