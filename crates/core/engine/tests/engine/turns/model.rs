//! What the files of a volume should hold, and the operations that change them: chosen on a model, done by the
//! engine or by the kernel.

use crate::common::pattern;
use hectare_engine::{Creation, FallocateMode, RenameMode, Volume, XattrHow};
use hectare_oracle::trees::Random;
use hectare_oracle::xattr;
use rustix::fs::FallocateFlags;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Bytes of the largest file.
const FILE_MAX: u64 = 700_000;

/// What fits an inode's fields for the map of its blocks.
const IN_AN_INODE: usize = 60;

#[derive(Clone, Debug)]
pub(super) enum Op {
    Write { name: String, at: u64, len: u64, seed: u64 },
    Resize { name: String, size: u64 },
    Allocate { name: String, how: How, at: u64, len: u64 },
    Remove { name: String },
    MakeDir { name: String },
    RemoveDir { name: String },
    Rename { from: String, to: String },
    Link { from: String, to: String },
    SetAttribute { name: String, len: u64 },
}

/// The modes of `fallocate`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum How {
    Allocate,
    AllocateKeepingSize,
    Punch,
    Zero,
    Collapse,
    Insert,
}

impl How {
    fn engine(self) -> FallocateMode {
        match self {
            Self::Allocate => FallocateMode::Allocate { keep_size: false },
            Self::AllocateKeepingSize => FallocateMode::Allocate { keep_size: true },
            Self::Punch => FallocateMode::PunchHole,
            Self::Zero => FallocateMode::ZeroRange { keep_size: false },
            Self::Collapse => FallocateMode::CollapseRange,
            Self::Insert => FallocateMode::InsertRange,
        }
    }

    fn kernel(self) -> FallocateFlags {
        match self {
            Self::Allocate => FallocateFlags::empty(),
            Self::AllocateKeepingSize => FallocateFlags::KEEP_SIZE,
            Self::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            Self::Zero => FallocateFlags::ZERO_RANGE,
            Self::Collapse => FallocateFlags::COLLAPSE_RANGE,
            Self::Insert => FallocateFlags::INSERT_RANGE,
        }
    }
}

/// What a volume can do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Abilities {
    /// Files are mapped by extents: they can be allocated in advance.
    pub(super) extents: bool,
    /// Bytes of a cluster, which ranges that are removed or inserted are multiples of.
    pub(super) unit: u64,
    /// Files may lie in their inodes.
    pub(super) inline_data: bool,
    /// The longest value of an attribute.
    pub(super) value_max: u64,
}

/// A file, which may have several names.
#[derive(Clone, Default)]
struct File {
    content: Vec<u8>,
    /// The length of the attribute's value; none yet.
    attribute: Option<u64>,
}

/// The value of an attribute of this length.
fn value(len: u64) -> Vec<u8> {
    pattern(len, 0, len as usize)
}

/// A name of a file, and how many it has.
struct Named<'a> {
    name: &'a String,
    links: u64,
    file: &'a File,
}

/// The files with their names, and the directories below the root.
pub(super) struct Model {
    names: BTreeMap<String, usize>,
    files: BTreeMap<usize, File>,
    dirs: Vec<String>,
    can: Abilities,
}

impl Model {
    pub(super) fn new(can: Abilities) -> Self {
        Self { names: BTreeMap::new(), files: BTreeMap::new(), dirs: Vec::new(), can }
    }

    /// Whether files may lie in their inodes.
    pub(super) fn has_inline_data(&self) -> bool {
        self.can.inline_data
    }

    /// An operation that changes something, done to the model; without `allocates` none that allocates.
    pub(super) fn next(&mut self, random: &mut Random, allocates: bool) -> Option<Op> {
        let op = self.choose(random);
        let wanted = allocates || !matches!(op, Op::Allocate { .. });
        (wanted && self.apply(&op)).then_some(op)
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
        let existing = self.names.keys().nth(random.below(self.names.len().max(1) as u64) as usize).cloned();
        match (random.below(16), existing) {
            (0..=4, _) | (_, None) => {
                let seed = random.bits() >> 32;
                let len = 1 + random.below(40_000.min(size + 1));
                Op::Write { name: new, at: random.below(size + 1), len, seed }
            }
            (5 | 6, Some(name)) => Op::Resize { name, size },
            (7, Some(name)) => Op::Remove { name },
            (8, Some(from)) => Op::Rename { from, to: new },
            (9, Some(name)) => Op::SetAttribute { name, len: random.below(self.can.value_max) },
            (10, _) => Op::MakeDir { name: format!("d{}", random.below(12)) },
            (11, Some(from)) => Op::Link { from, to: new },
            (12..=14, Some(name)) => self.allocate(name, size, random),
            _ => Op::RemoveDir { name: format!("d{}", random.below(12)) },
        }
    }

    fn allocate(&self, name: String, size: u64, random: &mut Random) -> Op {
        let (at, len) = (random.below(size + 1), 1 + random.below(40_000));
        let unit = self.can.unit;
        let (how, at, len) = match random.below(if self.can.extents { 7 } else { 1 }) {
            1 => (How::Allocate, at, len),
            2 => (How::AllocateKeepingSize, at, len),
            3 => (How::Zero, at, len),
            4 => (How::Collapse, at / unit * unit, len.div_ceil(unit) * unit),
            5 => (How::Insert, at / unit * unit, len.div_ceil(unit) * unit),
            _ => (How::Punch, at, len),
        };
        Op::Allocate { name, how, at, len }
    }

    fn file(&mut self, name: &str) -> &mut File {
        self.files.get_mut(&self.names[name]).unwrap()
    }

    /// Takes a name away, and its file if that was the last.
    fn unname(&mut self, name: &str) {
        if let Some(nr) = self.names.remove(name)
            && !self.names.values().any(|other| *other == nr)
        {
            self.files.remove(&nr);
        }
    }

    /// Does it to the model, if it changes anything.
    fn apply(&mut self, op: &Op) -> bool {
        match op {
            Op::Write { name, at, len, seed } => {
                let next = self.files.last_key_value().map_or(0, |(nr, _)| nr + 1);
                let nr = *self.names.entry(name.clone()).or_insert(next);
                let content = &mut self.files.entry(nr).or_default().content;
                let (start, end) = (*at as usize, (at + len) as usize);
                content.resize(content.len().max(end), 0);
                content[start..end].copy_from_slice(&pattern(*seed, *at, *len as usize));
            }
            Op::Resize { name, size } => self.file(name).content.resize(*size as usize, 0),
            Op::Allocate { name, how, at, len } => {
                return allocated(&mut self.file(name).content, *how, *at as usize, *len as usize);
            }
            Op::Remove { name } => self.unname(name),
            Op::Rename { from, to } if self.names.get(from) == self.names.get(to) => return false,
            Op::Rename { from, to } => {
                self.unname(to);
                let moved = self.names.remove(from).unwrap();
                self.names.insert(to.clone(), moved);
            }
            Op::Link { to, .. } if self.names.contains_key(to) => return false,
            Op::Link { from, to } => drop(self.names.insert(to.clone(), self.names[from])),
            Op::SetAttribute { name, len } => self.file(name).attribute = Some(*len),
            Op::MakeDir { name } if self.dirs.contains(name) => return false,
            Op::MakeDir { name } => self.dirs.push(name.clone()),
            Op::RemoveDir { name } => {
                let inside = format!("{name}/");
                if !self.dirs.contains(name) || self.names.keys().any(|file| file.starts_with(&inside)) {
                    return false;
                }
                self.dirs.retain(|dir| dir != name);
            }
        }
        true
    }

    /// What each name stands for.
    fn each(&self) -> impl Iterator<Item = Named<'_>> {
        self.names.iter().map(|(name, nr)| {
            let links = self.names.values().filter(|other| *other == nr).count() as u64;
            Named { name, links, file: &self.files[nr] }
        })
    }

    fn below_directories(&self) -> usize {
        self.names.keys().filter(|name| name.contains('/')).count()
    }

    pub(super) fn is_what_the_engine_has(&self, volume: &Volume, label: &str) {
        for Named { name, links, file } in self.each() {
            let label = format!("{label}: {name}, by the engine");
            assert_holds(&volume.read(name).unwrap(), &file.content, &label);
            let metadata = volume.metadata(name).unwrap();
            assert_eq!(u64::from(metadata.links), links, "{label}");
            if let Some(len) = file.attribute {
                assert!(volume.get_xattr(metadata.inode, b"user.k").unwrap() == value(len), "{label}");
            }
        }
        let names: usize = self.dirs.iter().map(|dir| volume.read_dir(dir).unwrap().len()).sum();
        assert_eq!(names, self.below_directories(), "{label}");
    }

    pub(super) fn is_what_the_kernel_has(&self, root: &Path, label: &str) {
        self.is_below(root, &format!("{label}, by the kernel"));
        for Named { name, links, file } in self.each() {
            let path = root.join(name);
            assert_eq!(fs::metadata(&path).unwrap().nlink(), links, "{label}: {name}, by the kernel");
            if let Some(len) = file.attribute {
                let found = xattr::get(&path, "user.k").unwrap();
                assert!(found == Some(value(len)), "{label}: {name}'s attribute, by the kernel");
            }
        }
    }

    pub(super) fn is_what_debugfs_copied(&self, root: &Path, label: &str) {
        self.is_below(root, &format!("{label}, by debugfs"));
    }

    /// Whether a directory has all names, with their content.
    fn is_below(&self, root: &Path, label: &str) {
        for Named { name, file, .. } in self.each() {
            let mut found = fs::read(root.join(name)).unwrap();
            if self.can.inline_data && found.len() == IN_AN_INODE {
                // debugfs (1.47) goes on behind the end.
                found.truncate(file.content.len());
            }
            assert_holds(&found, &file.content, &format!("{label}: {name}"));
        }
        let inside = |dir: &String| fs::read_dir(root.join(dir)).unwrap().count();
        let names: usize = self.dirs.iter().map(inside).sum();
        assert_eq!(names, self.below_directories(), "{label}");
    }
}

/// Whether a file holds what it should.
#[track_caller]
fn assert_holds(found: &[u8], expected: &[u8], label: &str) {
    let differs = |(one, other): (&u8, &u8)| one != other;
    let (first, last) =
        (found.iter().zip(expected).position(differs), found.iter().zip(expected).rposition(differs));
    let lens = (found.len(), expected.len());
    assert!(found == expected, "{label}: {lens:?} bytes, which differ from {first:?} to {last:?}");
}

/// Does it to a file's content, if it can be done.
fn allocated(content: &mut Vec<u8>, how: How, at: usize, len: usize) -> bool {
    let (size, end) = (content.len(), at + len);
    match how {
        How::Collapse if end >= size => return false,
        How::Collapse => drop(content.drain(at..end)),
        How::Insert if at >= size => return false,
        How::Insert => drop(content.splice(at..at, vec![0; len])),
        How::Allocate => content.resize(size.max(end), 0),
        How::AllocateKeepingSize => {}
        How::Punch => content[at.min(size)..end.min(size)].fill(0),
        How::Zero => {
            content.resize(size.max(end), 0);
            content[at..end].fill(0);
        }
    }
    true
}

pub(super) fn engine_does(volume: &Volume, op: &Op) {
    let done = match op {
        Op::Write { name, at, len, seed } => {
            let file = volume.open_file(name).or_else(|_| volume.create_file(name, Creation::default()));
            file.and_then(|file| file.write_all_at(*at, &pattern(*seed, *at, *len as usize)))
        }
        Op::Resize { name, size } => volume.open_file(name).and_then(|file| file.set_len(*size)),
        Op::Allocate { name, how, at, len } => {
            volume.open_file(name).and_then(|file| file.fallocate(how.engine(), *at, *len))
        }
        Op::Remove { name } => volume.remove_file(name),
        Op::Rename { from, to } => volume.rename_path(from, to, RenameMode::Replace),
        Op::Link { from, to } => volume.hard_link(from, to),
        Op::SetAttribute { name, len } => volume
            .resolve(name, false)
            .and_then(|nr| volume.set_xattr(nr, b"user.k", &value(*len), XattrHow::Either)),
        Op::MakeDir { name } => volume.create_dir(name, Creation::default()).map(drop),
        Op::RemoveDir { name } => volume.remove_dir(name),
    };
    done.unwrap_or_else(|error| panic!("{op:?}: {error}"));
}

pub(super) fn kernel_does(root: &Path, op: &Op) {
    let open = |name: &String| fs::File::options().write(true).open(root.join(name));
    let done = match op {
        Op::Write { name, at, len, seed } => fs::File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(root.join(name))
            .and_then(|file| file.write_all_at(&pattern(*seed, *at, *len as usize), *at)),
        Op::Resize { name, size } => open(name).and_then(|file| file.set_len(*size)),
        Op::Allocate { name, how, at, len } => open(name)
            .and_then(|file| rustix::fs::fallocate(file, how.kernel(), *at, *len).map_err(Into::into)),
        Op::Remove { name } => fs::remove_file(root.join(name)),
        Op::Rename { from, to } => fs::rename(root.join(from), root.join(to)),
        Op::Link { from, to } => fs::hard_link(root.join(from), root.join(to)),
        Op::SetAttribute { name, len } => {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(root.join(name), "user.k", &value(*len), flags).map_err(Into::into)
        }
        Op::MakeDir { name } => fs::create_dir(root.join(name)),
        Op::RemoveDir { name } => fs::remove_dir(root.join(name)),
    };
    done.unwrap_or_else(|error| panic!("{op:?}: {error}"));
}
