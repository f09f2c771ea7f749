//! The kernel and the engine change one volume in turn, on every combination of features that the kernel here
//! mounts; on others the engine alone does. After each round e2fsck judges the volume, and the next one
//! begins with comparing all of it with a model.

use crate::common::{long, open_image, pattern};
use hectare_engine::{Creation, RenameMode, Volume, XattrHow};
use hectare_oracle::trees::Random;
use hectare_oracle::{Combo, KernelMount, assert_clean, combos, skip, skip_part};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Operations of a round.
const OPS: u32 = 60;
/// Bytes of the largest file.
const FILE_MAX: u64 = 700_000;

#[derive(Clone, Debug)]
enum Op {
    Write { name: String, at: u64, len: u64, seed: u64 },
    Resize { name: String, size: u64 },
    Remove { name: String },
    MakeDir { name: String },
    RemoveDir { name: String },
    Rename { from: String, to: String },
    SetAttribute { name: String, len: u64 },
}

/// The files with their content and an attribute's length, and the directories below the root.
#[derive(Default)]
struct Model {
    files: BTreeMap<String, (Vec<u8>, u64)>,
    dirs: Vec<String>,
}

impl Model {
    /// An operation that changes something, done to the model.
    fn next(&mut self, random: &mut Random) -> Option<Op> {
        let op = self.choose(random);
        self.apply(&op).then_some(op)
    }

    /// An operation on what there is.
    fn choose(&self, random: &mut Random) -> Op {
        let dir = match random.below(self.dirs.len() as u64 + 1) {
            0 => String::new(),
            n => format!("{}/", self.dirs[n as usize - 1]),
        };
        // Some names are long, so that directories leave their inodes and their first block.
        let tail = if random.below(3) == 0 {
            "-a-name-that-is-longer-than-the-others".repeat(3)
        } else {
            String::new()
        };
        let new = format!("{dir}f{}{tail}", random.below(40));
        let size = if random.below(2) == 0 { random.below(700) } else { random.below(FILE_MAX) };
        let existing = self.files.keys().nth(random.below(self.files.len().max(1) as u64) as usize).cloned();
        match (random.below(12), existing) {
            (0..=4, _) | (_, None) => {
                let seed = random.bits() >> 32;
                Op::Write {
                    name: new,
                    at: random.below(size + 1),
                    len: 1 + random.below(40_000.min(size + 1)),
                    seed,
                }
            }
            (5 | 6, Some(name)) => Op::Resize { name, size },
            (7, Some(name)) => Op::Remove { name },
            (8, Some(from)) => Op::Rename { from, to: new },
            (9, Some(name)) => Op::SetAttribute { name, len: random.below(300) },
            (10, _) => Op::MakeDir { name: format!("d{}", random.below(12)) },
            _ => Op::RemoveDir { name: format!("d{}", random.below(12)) },
        }
    }

    /// Does it to the model, if it changes anything.
    fn apply(&mut self, op: &Op) -> bool {
        match op {
            Op::Write { name, at, len, seed } => {
                let (content, _) = self.files.entry(name.clone()).or_default();
                let (start, end) = (*at as usize, (at + len) as usize);
                content.resize(content.len().max(end), 0);
                content[start..end].copy_from_slice(&pattern(*seed, *at, *len as usize));
            }
            Op::Resize { name, size } => self.files.get_mut(name).unwrap().0.resize(*size as usize, 0),
            Op::Remove { name } => drop(self.files.remove(name)),
            Op::Rename { from, to } if from == to => return false,
            Op::Rename { from, to } => {
                let moved = self.files.remove(from).unwrap();
                self.files.insert(to.clone(), moved);
            }
            Op::SetAttribute { name, len } => self.files.get_mut(name).unwrap().1 = *len,
            Op::MakeDir { name } if self.dirs.contains(name) => return false,
            Op::MakeDir { name } => self.dirs.push(name.clone()),
            Op::RemoveDir { name } => {
                let inside = format!("{name}/");
                if !self.dirs.contains(name) || self.files.keys().any(|file| file.starts_with(&inside)) {
                    return false;
                }
                self.dirs.retain(|dir| dir != name);
            }
        }
        true
    }
}

fn engine_does(volume: &Volume, op: &Op) {
    let done = match op {
        Op::Write { name, at, len, seed } => {
            let file = volume.open_file(name).or_else(|_| volume.create_file(name, Creation::default()));
            file.and_then(|file| file.write_all_at(*at, &pattern(*seed, *at, *len as usize)))
        }
        Op::Resize { name, size } => volume.open_file(name).and_then(|file| file.set_len(*size)),
        Op::Remove { name } => volume.remove_file(name),
        Op::Rename { from, to } => volume.rename_path(from, to, RenameMode::Replace),
        Op::SetAttribute { name, len } => volume
            .resolve(name, false)
            .and_then(|nr| volume.set_xattr(nr, b"user.k", &vec![7; *len as usize], XattrHow::Either)),
        Op::MakeDir { name } => volume.create_dir(name, Creation::default()).map(drop),
        Op::RemoveDir { name } => volume.remove_dir(name),
    };
    done.unwrap_or_else(|error| panic!("{op:?}: {error}"));
}

fn kernel_does(root: &Path, op: &Op) {
    let done = match op {
        Op::Write { name, at, len, seed } => fs::File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(root.join(name))
            .and_then(|file| file.write_all_at(&pattern(*seed, *at, *len as usize), *at)),
        Op::Resize { name, size } => {
            fs::File::options().write(true).open(root.join(name)).and_then(|file| file.set_len(*size))
        }
        Op::Remove { name } => fs::remove_file(root.join(name)),
        Op::Rename { from, to } => fs::rename(root.join(from), root.join(to)),
        Op::SetAttribute { name, len } => {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(root.join(name), "user.k", &vec![7; *len as usize], flags)
                .map_err(Into::into)
        }
        Op::MakeDir { name } => fs::create_dir(root.join(name)),
        Op::RemoveDir { name } => fs::remove_dir(root.join(name)),
    };
    done.unwrap_or_else(|error| panic!("{op:?}: {error}"));
}

fn engine_has(volume: &Volume, model: &Model, label: &str) {
    for (name, (content, _)) in &model.files {
        assert!(volume.read(name).unwrap() == *content, "{label}: {name} differs for the engine");
    }
    let names: usize = model.dirs.iter().map(|dir| volume.read_dir(dir).unwrap().len()).sum();
    assert_eq!(names, model.files.keys().filter(|name| name.contains('/')).count(), "{label}");
}

fn kernel_has(root: &Path, model: &Model, label: &str) {
    for (name, (content, _)) in &model.files {
        assert!(fs::read(root.join(name)).unwrap() == *content, "{label}: {name} differs for the kernel");
    }
    let inside = |dir: &String| fs::read_dir::<PathBuf>(root.join(dir)).unwrap().count();
    let names: usize = model.dirs.iter().map(inside).sum();
    assert_eq!(names, model.files.keys().filter(|name| name.contains('/')).count(), "{label}");
}

fn turns(combo: &Combo, rounds: u32, folder: &Path) {
    let label = format!("turns, {}", combo.name);
    let image = folder.join("image");
    if let Err(reason) = combo.make(&image) {
        return skip_part!(label, reason);
    }
    let mounts = match combo.mountable() {
        Ok(()) => true,
        Err(reason) => {
            skip_part!(format!("{label}, by the kernel"), reason);
            false
        }
    };
    let mut model = Model::default();
    let mut random = Random::new(&label);
    for round in 0..rounds {
        let label = format!("{label}, round {round}");
        if round % 2 == 0 || !mounts {
            let volume = open_image(&image);
            for op in (0..OPS).filter_map(|_| model.next(&mut random)) {
                engine_does(&volume, &op);
            }
            volume.close().unwrap();
        } else {
            let mount = KernelMount::new(&image, "").unwrap();
            kernel_has(mount.path(), &model, &label);
            for op in (0..OPS).filter_map(|_| model.next(&mut random)) {
                kernel_does(mount.path(), &op);
            }
            mount.unmount();
        }
        assert_clean(&image).unwrap();
        engine_has(&crate::common::open_read_only(&image), &model, &label);
    }
}

#[test]
fn the_kernel_and_the_engine_change_every_kind_of_volume_in_turn() {
    if let Err(reason) = hectare_oracle::tool::need("mke2fs") {
        skip!("turns::the_kernel_and_the_engine", reason);
    }
    let rounds = if long("turns, 20 rounds each") { 20 } else { 4 };
    let temporary = tempfile::tempdir().unwrap();
    for combo in combos() {
        turns(combo, rounds, temporary.path());
    }
}
