//! Random operations beside a model in memory: the engine's results and the volume's content must agree after
//! every step, and e2fsck must find the volume clean at the end.
//!
//! Names come from a small alphabet, so that operations collide; some are long, so that directories split
//! early. Some files stay open over several operations, so that they have preallocated space; every policy
//! gets its share of the cases. A volume that becomes full may refuse any operation for lack of space, and
//! must then have changed nothing.

use crate::common::{
    InMemory, assert_clean_bytes, format_bytes, in_memory, in_memory_with, journalling_data, pattern,
};
use hectare_engine::{
    Changes, Creation, Error, Kind, NewNode, OpenFile, OpenOptions, Policy, RenameMode, Volume, XattrHow,
};
use hectare_oracle::hunt::long;
use hectare_oracle::{Skip, skip};
use hectare_units::InodeNr;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::{BTreeMap, VecDeque};

/// A path: one of a few directories, one of some names.
#[derive(Clone, Copy, Debug)]
struct At {
    dir: u8,
    name: u8,
}

#[derive(Clone, Debug)]
enum Op {
    Create(At),
    Mkdir(At),
    Fifo(At),
    Symlink(At, u16),
    Write(At, u32, u16, u8),
    Append(At, u8, u16),
    Truncate(At, u32),
    Allocate(At, u32, u16, bool),
    Link(At, At),
    Unlink(At),
    Rmdir(At),
    Rename(At, At, RenameMode),
    SetXattr(At, u8, u16),
    RemoveXattr(At, u8),
    Chmod(At, u16),
    Sync,
    Reopen,
}

const DIRS: [&[&[u8]]; 7] =
    [&[], &[b"a"], &[b"b"], &[b"a", b"a"], &[b"a", b"b"], &[b"b", b"a"], &[b"a", b"a", b"a"]];
const SHORT: u8 = 6;
const NAMES: u8 = 30;

fn name(n: u8) -> Vec<u8> {
    let n = n % NAMES;
    if n < SHORT { vec![b'a' + n] } else { format!("{n:02}-{}", "long".repeat(49)).into_bytes() }
}

type Id = usize;

#[derive(Clone, Debug)]
enum Body {
    File(Vec<u8>),
    Dir(BTreeMap<Vec<u8>, Id>),
    Symlink(Vec<u8>),
    Fifo,
    Whiteout,
}

#[derive(Clone, Debug)]
struct Node {
    body: Body,
    mode: u16,
    links: u32,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// What the volume should hold.
struct Model {
    nodes: BTreeMap<Id, Node>,
    next: Id,
}

type Answer<T> = Result<T, i32>;
const ENOENT: i32 = 2;
const EPERM: i32 = 1;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const ENOTEMPTY: i32 = 39;
const ENODATA: i32 = 61;
const EOPNOTSUPP: i32 = 95;

/// Where the superblock says whether files are mapped by extents.
const EXTENTS_AT: usize = 1024 + 0x60;
const EXTENTS_BIT: u8 = 0x40;

impl Model {
    fn new(root_mode: u16) -> Self {
        let root =
            Node { body: Body::Dir(BTreeMap::new()), mode: root_mode, links: 2, xattrs: BTreeMap::new() };
        Self { nodes: BTreeMap::from([(0, root)]), next: 1 }
    }

    fn entries(&self, dir: Id) -> Answer<&BTreeMap<Vec<u8>, Id>> {
        match &self.nodes[&dir].body {
            Body::Dir(entries) => Ok(entries),
            _ => Err(ENOTDIR),
        }
    }

    fn entries_mut(&mut self, dir: Id) -> &mut BTreeMap<Vec<u8>, Id> {
        match &mut self.nodes.get_mut(&dir).unwrap().body {
            Body::Dir(entries) => entries,
            _ => panic!("not a directory"),
        }
    }

    fn dir(&self, at: At) -> Answer<Id> {
        let mut id = 0;
        for name in DIRS[usize::from(at.dir) % DIRS.len()] {
            id = *self.entries(id)?.get(*name).ok_or(ENOENT)?;
            if matches!(self.nodes[&id].body, Body::Symlink(_)) {
                return Err(ENOENT); // all of them dangle
            }
        }
        self.entries(id)?;
        Ok(id)
    }

    fn find(&self, at: At) -> Answer<(Id, Option<Id>)> {
        let dir = self.dir(at)?;
        Ok((dir, self.entries(dir)?.get(&name(at.name)).copied()))
    }

    fn get(&self, at: At) -> Answer<Id> {
        self.find(at)?.1.ok_or(ENOENT)
    }

    fn is_dir(&self, id: Id) -> bool {
        matches!(self.nodes[&id].body, Body::Dir(_))
    }

    fn make(&mut self, at: At, body: Body, mode: u16) -> Answer<()> {
        let (dir, found) = self.find(at)?;
        if found.is_some() {
            return Err(EEXIST);
        }
        let links = if matches!(body, Body::Dir(_)) { 2 } else { 1 };
        // Directories pass on the set-group-id bit.
        let inherited = if links == 2 { self.nodes[&dir].mode & 0o2000 } else { 0 };
        let mode = mode | inherited;
        let id = self.next;
        self.next += 1;
        if links == 2 {
            self.nodes.get_mut(&dir).unwrap().links += 1;
        }
        self.nodes.insert(id, Node { body, mode, links, xattrs: BTreeMap::new() });
        self.entries_mut(dir).insert(name(at.name), id);
        Ok(())
    }

    fn drop_link(&mut self, dir: Id, id: Id) {
        let is_dir = self.is_dir(id);
        let node = self.nodes.get_mut(&id).unwrap();
        node.links -= 1;
        if is_dir || node.links == 0 {
            self.nodes.remove(&id);
        }
        if is_dir {
            self.nodes.get_mut(&dir).unwrap().links -= 1;
        }
    }

    fn unlink(&mut self, at: At) -> Answer<()> {
        let (dir, found) = self.find(at)?;
        let id = found.ok_or(ENOENT)?;
        if self.is_dir(id) {
            return Err(EISDIR);
        }
        self.entries_mut(dir).remove(&name(at.name));
        self.drop_link(dir, id);
        Ok(())
    }

    fn rmdir(&mut self, at: At) -> Answer<()> {
        let (dir, found) = self.find(at)?;
        let id = found.ok_or(ENOENT)?;
        if !self.entries(id)?.is_empty() {
            return Err(ENOTEMPTY);
        }
        self.entries_mut(dir).remove(&name(at.name));
        self.drop_link(dir, id);
        Ok(())
    }

    fn link(&mut self, from: At, to: At) -> Answer<()> {
        let id = self.get(from)?;
        let dir = self.dir(to)?;
        if self.entries(dir)?.contains_key(&name(to.name)) {
            return Err(EEXIST);
        }
        if self.is_dir(id) {
            return Err(EPERM);
        }
        self.entries_mut(dir).insert(name(to.name), id);
        self.nodes.get_mut(&id).unwrap().links += 1;
        Ok(())
    }

    /// Whether a directory lies under another, or is it.
    fn under(&self, dir: Id, above: Id) -> bool {
        dir == above
            || self.is_dir(above) && self.entries(above).unwrap().values().any(|id| self.under(dir, *id))
    }

    fn rename(&mut self, from: At, to: At, mode: RenameMode) -> Answer<()> {
        let (from_dir, to_dir) = (self.dir(from)?, self.dir(to)?);
        let source = self.get(from)?;
        let target = self.find(to)?.1;
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return Err(EEXIST),
            (RenameMode::Exchange, None) => return Err(ENOENT),
            _ => {}
        }
        if target == Some(source) {
            return Ok(());
        }
        if self.is_dir(source) && self.under(to_dir, source) {
            return Err(EINVAL);
        }
        if let Some(target) = target
            && self.is_dir(target)
            && self.under(from_dir, target)
        {
            return Err(if mode == RenameMode::Exchange { EINVAL } else { ENOTEMPTY });
        }
        let (old, new) = (name(from.name), name(to.name));
        if let (RenameMode::Exchange, Some(target)) = (mode, target) {
            self.entries_mut(to_dir).insert(new, source);
            self.entries_mut(from_dir).insert(old, target);
            self.moved(source, from_dir, to_dir);
            self.moved(target, to_dir, from_dir);
            return Ok(());
        }
        if let Some(target) = target {
            match (self.is_dir(source), self.is_dir(target)) {
                (true, false) => return Err(ENOTDIR),
                (false, true) => return Err(EISDIR),
                (true, true) if !self.entries(target)?.is_empty() => return Err(ENOTEMPTY),
                _ => {}
            }
            self.drop_link(to_dir, target);
        }
        self.entries_mut(from_dir).remove(&old);
        self.entries_mut(to_dir).insert(new, source);
        self.moved(source, from_dir, to_dir);
        if mode == RenameMode::WHITEOUT {
            self.make(from, Body::Whiteout, 0)?;
        }
        Ok(())
    }

    fn moved(&mut self, id: Id, from: Id, to: Id) {
        if self.is_dir(id) {
            self.nodes.get_mut(&from).unwrap().links -= 1;
            self.nodes.get_mut(&to).unwrap().links += 1;
        }
    }

    fn file(&mut self, at: At) -> Answer<&mut Vec<u8>> {
        let id = self.get(at)?;
        match &mut self.nodes.get_mut(&id).unwrap().body {
            Body::File(content) => Ok(content),
            Body::Dir(_) => Err(EISDIR),
            Body::Symlink(_) => Err(ENOENT),
            Body::Fifo | Body::Whiteout => Err(EINVAL),
        }
    }
}

fn path_of(at: At) -> Vec<u8> {
    let dirs = DIRS[usize::from(at.dir) % DIRS.len()];
    dirs.iter().map(|dir| dir.to_vec()).chain([name(at.name)]).collect::<Vec<_>>().join(&b'/')
}

fn target(len: u16) -> Vec<u8> {
    b"nowhere/".iter().copied().cycle().take(usize::from(len)).collect()
}

/// Whether an error is a lack of space.
fn is_full(error: &Error) -> bool {
    error.errno() == ENOSPC
}

struct Case {
    held: InMemory,
    model: Model,
    /// Whether the volume may become full.
    tight: bool,
    /// Whether files are mapped by blocks, which can't be allocated ahead.
    by_blocks: bool,
    full: usize,
    policy: Policy,
    open: VecDeque<OpenFile>,
}

fn options(policy: Policy) -> OpenOptions {
    // A third of the cases each: nothing is buffered, little, everything.
    let delayed_bytes = [0, 10_000, 64 << 20][Policy::ALL.iter().position(|one| *one == policy).unwrap() % 3];
    OpenOptions { policy, delayed_bytes, ..OpenOptions::default() }
}

impl Case {
    /// Runs an operation on both; `None` where the volume was full.
    fn both<T>(&mut self, real: Result<T, Error>, model: impl FnOnce(&mut Model) -> Answer<()>) -> Option<T> {
        match real {
            Err(error) if self.tight && is_full(&error) => {
                self.full += 1;
                None
            }
            real => {
                let answer = real.as_ref().map(|_| ()).map_err(Error::errno);
                let said = real.as_ref().err().map(Error::to_string);
                assert_eq!(answer, model(&mut self.model), "the engine says {said:?}");
                real.ok()
            }
        }
    }

    fn step(&mut self, op: &Op) {
        let volume = self.held.volume.clone();
        let creation = Creation { permissions: 0o640, umask: 0, uid: 1, gid: 2 };
        match *op {
            Op::Create(at) => {
                let real = volume.make(path_of(at), NewNode::File, creation);
                self.both(real, |model| model.make(at, Body::File(Vec::new()), 0o640));
            }
            Op::Mkdir(at) => {
                let real = volume.create_dir(path_of(at), creation);
                self.both(real, |model| model.make(at, Body::Dir(BTreeMap::new()), 0o640));
            }
            Op::Fifo(at) => {
                let real = volume.make(path_of(at), NewNode::Fifo, creation);
                self.both(real, |model| model.make(at, Body::Fifo, 0o640));
            }
            Op::Symlink(at, len) => {
                let target = target(len);
                let real = volume.symlink(&target, path_of(at), creation);
                self.both(real, |model| model.make(at, Body::Symlink(target), 0o777));
            }
            Op::Write(at, offset, len, seed) => self.write(&volume, at, offset, len, seed),
            Op::Append(at, times, len) => {
                for n in 0..1 + times % 8 {
                    let end = self.model.file(at).map_or(0, |content| content.len());
                    if end < 400_000 {
                        // Of the first, one keeps it open: later writes may be buffered.
                        self.write(&volume, at, u32::try_from(end).unwrap(), len, n);
                    }
                }
            }
            Op::Allocate(at, offset, len, keep_size) => self.allocate(&volume, at, offset, len, keep_size),
            Op::Truncate(at, size) => {
                let real = volume.open_file(path_of(at)).and_then(|file| file.set_len(size.into()));
                self.both(real, |model| model.file(at).map(|content| content.resize(size as usize, 0)));
            }
            Op::Link(from, to) => {
                let real = volume.hard_link(path_of(from), path_of(to));
                self.both(real, |model| model.link(from, to));
            }
            Op::Unlink(at) => {
                let real = volume.remove_file(path_of(at));
                self.both(real, |model| model.unlink(at));
            }
            Op::Rmdir(at) => {
                let real = volume.remove_dir(path_of(at));
                self.both(real, |model| model.rmdir(at));
            }
            Op::Rename(from, to, mode) => {
                let real = volume.rename_path(path_of(from), path_of(to), mode);
                self.both(real, |model| model.rename(from, to, mode));
            }
            Op::SetXattr(..) | Op::RemoveXattr(..) | Op::Chmod(..) => self.attribute(&volume, op),
            Op::Sync => volume.sync().unwrap(),
            Op::Reopen => {
                self.open.clear();
                volume.close().unwrap();
                self.held = in_memory_with(&self.held.device.to_vec(), options(self.policy)).unwrap();
            }
        }
    }

    fn write(&mut self, volume: &Volume, at: At, offset: u32, len: u16, seed: u8) {
        let data = pattern(seed.into(), offset.into(), len.into());
        let real = volume.open_file(path_of(at)).and_then(|file| {
            let done = file.write_at(offset.into(), &data);
            if seed.is_multiple_of(2) {
                self.keep_open(file);
            }
            done
        });
        let done = real.as_ref().ok().copied().unwrap_or(0);
        assert!(done == data.len() || self.tight && done > 0 || real.is_err());
        self.both(real, |model| {
            let content = model.file(at)?;
            let (start, end) = (offset as usize, offset as usize + done);
            if done > 0 {
                content.resize(content.len().max(end), 0);
                content[start..end].copy_from_slice(&data[..done]);
            }
            Ok(())
        });
    }

    /// Keeps a file open for some more operations.
    fn keep_open(&mut self, file: OpenFile) {
        self.open.push_back(file);
        if self.open.len() > 3 {
            self.open.pop_front();
        }
    }

    fn allocate(&mut self, volume: &Volume, at: At, offset: u32, len: u16, keep_size: bool) {
        let file = volume.open_file(path_of(at));
        let before = file.as_ref().map_or(0, |file| file.metadata().unwrap().size);
        let real = file.as_ref().map_err(Error::errno).and_then(|file| {
            file.allocate(offset.into(), len.into(), keep_size).map_err(|error| error.errno())
        });
        if real == Err(EOPNOTSUPP) && self.by_blocks {
            return; // the comparison verifies that nothing changed
        }
        // A volume that becomes full leaves the file as long as what was allocated.
        if real == Err(ENOSPC) && self.tight {
            let after = file.unwrap().metadata().unwrap().size;
            assert!(after >= before && (after == before || !keep_size));
            if let Ok(content) = self.model.file(at) {
                content.resize(after as usize, 0);
            }
            self.full += 1;
            return;
        }
        let answer = self.model.file(at).map(|content| {
            let end = offset as usize + usize::from(len);
            if !keep_size && end > content.len() {
                content.resize(end, 0);
            }
        });
        assert_eq!(real, answer);
    }

    fn attribute(&mut self, volume: &Volume, op: &Op) {
        let xattr = |n: u8| format!("user.{}", "x".repeat(1 + usize::from(n % 4) * 20)).into_bytes();
        match *op {
            Op::SetXattr(at, n, len) => {
                let value = pattern(n.into(), 0, len.into());
                let real = volume.resolve(path_of(at), false);
                let real = real.and_then(|nr| volume.set_xattr(nr, xattr(n), &value, XattrHow::Either));
                if matches!(real, Err(Error::AttributeTooLarge)) {
                    return; // the comparison verifies that nothing changed
                }
                self.both(real, |model| {
                    let id = model.get(at)?;
                    model.nodes.get_mut(&id).unwrap().xattrs.insert(xattr(n), value);
                    Ok(())
                });
            }
            Op::RemoveXattr(at, n) => {
                let real = volume.resolve(path_of(at), false);
                let real = real.and_then(|nr| volume.remove_xattr(nr, xattr(n)));
                self.both(real, |model| {
                    let id = model.get(at)?;
                    model.nodes.get_mut(&id).unwrap().xattrs.remove(&xattr(n)).map(drop).ok_or(ENODATA)
                });
            }
            Op::Chmod(at, permissions) => {
                let permissions = permissions & 0o7777;
                let changes = Changes { permissions: Some(permissions), ..Changes::default() };
                let real = volume.resolve(path_of(at), false).and_then(|nr| volume.change(nr, &changes));
                self.both(real, |model| {
                    let id = model.get(at)?;
                    model.nodes.get_mut(&id).unwrap().mode = permissions;
                    Ok(())
                });
            }
            _ => unreachable!("not an attribute operation"),
        }
    }

    /// Everything on the volume is as in the model.
    fn compare(&self) {
        let mut inodes: BTreeMap<Id, InodeNr> = BTreeMap::new();
        let mut todo = vec![(0, InodeNr::ROOT, Vec::new())];
        while let Some((id, nr, path)) = todo.pop() {
            let context = String::from_utf8_lossy(&path).into_owned();
            if let Some(before) = inodes.insert(id, nr) {
                assert_eq!(before, nr, "{context}: another inode than under its other name");
                continue;
            }
            self.compare_node(&self.model.nodes[&id], nr, &context);
            let Body::Dir(entries) = &self.model.nodes[&id].body else { continue };
            let mut found = self.held.volume.list(nr).unwrap();
            found.retain(|entry| nr != InodeNr::ROOT || entry.name != b"lost+found");
            found.sort_by(|a, b| a.name.cmp(&b.name));
            let names: Vec<_> = found.iter().map(|entry| &entry.name).collect();
            assert_eq!(names, entries.keys().collect::<Vec<_>>(), "{context}");
            for entry in found {
                let child = entries[&entry.name];
                assert_eq!(self.held.volume.lookup(nr, &entry.name).unwrap(), entry.inode);
                todo.push((child, entry.inode, [&path[..], b"/", &entry.name].concat()));
            }
        }
    }

    fn compare_node(&self, node: &Node, nr: InodeNr, context: &str) {
        let volume = &self.held.volume;
        let metadata = volume.stat(nr).unwrap();
        let lost_and_found = u32::from(nr == InodeNr::ROOT);
        assert_eq!(metadata.links, node.links + lost_and_found, "{context}: links");
        assert_eq!(metadata.permissions, node.mode, "{context}: mode");
        match &node.body {
            Body::File(content) => {
                assert_eq!(metadata.size, content.len() as u64, "{context}: size");
                let file = volume.open_inode(nr).unwrap();
                let mut read = vec![0xaa; content.len() + 10];
                let n = file.read_at(0, &mut read).unwrap();
                read.truncate(n);
                if let Some(at) = (0..content.len().max(n)).find(|at| read.get(*at) != content.get(*at)) {
                    panic!("{context}: byte {at} is {:?}, expected {:?}", read.get(at), content.get(at));
                }
            }
            Body::Symlink(target) => assert_eq!(&volume.read_link_at(nr).unwrap(), target, "{context}"),
            Body::Dir(_) => assert_eq!(metadata.kind, Kind::Directory, "{context}"),
            Body::Fifo => assert_eq!(metadata.kind, Kind::Fifo, "{context}"),
            Body::Whiteout => assert_eq!(metadata.kind, Kind::CharDevice, "{context}"),
        }
        let names = volume.list_xattrs(nr).unwrap();
        assert_eq!(names.len(), node.xattrs.len(), "{context}: attributes");
        for (name, value) in &node.xattrs {
            assert_eq!(&volume.get_xattr(nr, name).unwrap(), value, "{context}");
        }
    }
}

fn run(bytes: &[u8], ops: &[Op], tight: bool) -> usize {
    let policy = Policy::ALL[ops.len() % Policy::ALL.len()];
    let held =
        in_memory_with(bytes, OpenOptions { cache_bytes: 0, cache_inodes: 0, ..options(policy) }).unwrap();
    let root = held.volume.stat(InodeNr::ROOT).unwrap().permissions;
    let by_blocks = bytes[EXTENTS_AT] & EXTENTS_BIT == 0;
    let model = Model::new(root);
    let mut case = Case { held, model, tight, by_blocks, full: 0, policy, open: VecDeque::new() };
    for (n, op) in ops.iter().enumerate() {
        case.step(op);
        if n % 4 == 0 {
            case.compare();
        }
    }
    case.compare();
    case.open.clear();
    case.held.volume.close().unwrap();
    let bytes = case.held.device.to_vec();
    assert_clean_bytes(&bytes);
    let full = case.full;
    // Another opening finds what was written.
    case.held = in_memory_with(&bytes, OpenOptions::read_only()).unwrap();
    case.compare();
    full
}

fn target_len() -> impl Strategy<Value = u16> {
    prop_oneof![Just(59u16), Just(60), 1..1000u16]
}

fn any_op(sizes: u32) -> impl Strategy<Value = Op> {
    let dir = || prop_oneof![Just(0u8), 0..7u8];
    let at = move || (dir(), 0..NAMES).prop_map(|(dir, name)| At { dir, name });
    let near = move || (dir(), 0..SHORT).prop_map(|(dir, name)| At { dir, name });
    let mode = prop_oneof![
        4 => Just(RenameMode::Replace),
        1 => Just(RenameMode::NoReplace),
        2 => Just(RenameMode::Exchange),
        1 => Just(RenameMode::WHITEOUT),
    ];
    prop_oneof![
        8 => at().prop_map(Op::Create),
        4 => near().prop_map(Op::Create),
        6 => (0..4u8, 0..3u8).prop_map(|(dir, name)| Op::Mkdir(At { dir, name })),
        1 => near().prop_map(Op::Fifo),
        2 => (at(), target_len()).prop_map(|(at, len)| Op::Symlink(at, len)),
        12 => (near(), 0..sizes, 1..9000u16, any::<u8>()).prop_map(|(at, o, l, s)| Op::Write(at, o, l, s)),
        4 => (at(), 0..sizes, 1..40000u16, any::<u8>()).prop_map(|(at, o, l, s)| Op::Write(at, o, l, s)),
        8 => (near(), any::<u8>(), 1..3000u16).prop_map(|(at, times, len)| Op::Append(at, times, len)),
        5 => (near(), 0..sizes).prop_map(|(at, size)| Op::Truncate(at, size)),
        4 => (near(), 0..sizes, 1..40000u16, any::<bool>())
            .prop_map(|(at, o, l, keep)| Op::Allocate(at, o, l, keep)),
        3 => (near(), at()).prop_map(|(from, to)| Op::Link(from, to)),
        4 => near().prop_map(Op::Unlink),
        3 => at().prop_map(Op::Unlink),
        2 => (0..7u8, 0..3u8).prop_map(|(dir, name)| Op::Rmdir(At { dir, name })),
        4 => (near(), near(), mode.clone()).prop_map(|(from, to, mode)| Op::Rename(from, to, mode)),
        3 => (at(), at(), mode).prop_map(|(from, to, mode)| Op::Rename(from, to, mode)),
        3 => (near(), any::<u8>(), 0..900u16).prop_map(|(at, n, len)| Op::SetXattr(at, n, len)),
        1 => (near(), any::<u8>()).prop_map(|(at, n)| Op::RemoveXattr(at, n)),
        1 => (near(), any::<u16>()).prop_map(|(at, mode)| Op::Chmod(at, mode)),
        1 => Just(Op::Sync),
        1 => Just(Op::Reopen),
    ]
}

/// The volume, all but some blocks filled with something the comparison does not see.
fn nearly_full(bytes: &[u8], left: u64) -> Vec<u8> {
    let held = in_memory(bytes);
    let file = held.volume.create_file(b"lost+found/ballast", Creation::default()).unwrap();
    let size = held.volume.statfs().unwrap();
    let block = u64::from(size.block_size.get());
    let zeros = vec![0; block as usize];
    let mut at = 0;
    while held.volume.statfs().unwrap().available.get() > left {
        file.write_all_at(at, &zeros).unwrap();
        at += block;
    }
    drop(file);
    held.volume.close().unwrap();
    held.device.to_vec()
}

/// Random cases on one kind of volume.
fn cases(label: &str, args: &[&str], size: &str, sizes: u32, tight: bool) {
    cases_on(label, format_bytes(args, size), sizes, tight);
}

/// Random cases on a volume.
fn cases_on(label: &str, bytes: Result<Vec<u8>, Skip>, sizes: u32, tight: bool) {
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(reason) => skip!(&format!("model::{label}"), reason),
    };
    let bytes = if tight { nearly_full(&bytes, 12) } else { bytes };
    let (cases, steps) = if long(format!("model, {label}, 1000 cases")) { (1000, 400) } else { (32, 120) };
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2000, ..Config::default() };
    let full = std::cell::Cell::new(0);
    let result = TestRunner::new(config).run(&vec(any_op(sizes), 1..steps), |ops| {
        full.set(full.get() + run(&bytes, &ops, tight));
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{label}: {failure}");
    }
    assert!(!tight || full.get() > 0, "{label}: no case ran full");
}

#[test]
fn random_operations_with_blocks_of_4k() {
    cases("4k", &["-t", "ext4", "-b", "4096", "-N", "512"], "32M", 300_000, false);
}

#[test]
fn random_operations_with_blocks_of_1k() {
    cases("1k", &["-t", "ext4", "-b", "1024", "-N", "512"], "16M", 100_000, false);
}

#[test]
fn random_operations_on_ext2() {
    cases("ext2", &["-t", "ext2", "-b", "1024", "-I", "128", "-N", "512"], "16M", 300_000, false);
}

#[test]
fn random_operations_on_ext3() {
    cases("ext3", &["-t", "ext3", "-b", "4096", "-N", "512"], "32M", 300_000, false);
}

#[test]
fn random_operations_with_journalled_data_on_ext3() {
    let args = ["-t", "ext3", "-b", "1024", "-N", "512", "-J", "size=1"];
    let bytes = format_bytes(&args, "16M").and_then(|bytes| journalling_data(&bytes));
    cases_on("journalled data, ext3", bytes, 400_000, false);
}

#[test]
fn random_operations_on_an_ext2_volume_that_runs_full() {
    let args = ["-t", "ext2", "-b", "1024", "-O", "^resize_inode", "-N", "64", "-m", "0"];
    cases("full ext2", &args, "384K", 60_000, true);
}

#[test]
fn random_operations_with_inline_data() {
    let args = ["-t", "ext4", "-b", "1024", "-I", "256", "-O", "inline_data", "-N", "512"];
    cases("inline data", &args, "16M", 400, false);
}

#[test]
fn random_operations_with_inline_data_in_large_inodes() {
    let args = ["-t", "ext4", "-b", "4096", "-I", "1024", "-O", "inline_data", "-N", "512"];
    cases("inline data, large inodes", &args, "32M", 3000, false);
}

#[test]
fn random_operations_with_inline_data_on_a_volume_that_runs_full() {
    let args =
        ["-t", "ext4", "-b", "1024", "-O", "inline_data,^has_journal,^resize_inode", "-N", "64", "-m", "0"];
    cases("inline data, full", &args, "384K", 2000, true);
}

#[test]
fn random_operations_with_journalled_data() {
    let args = ["-t", "ext4", "-b", "1024", "-N", "512", "-J", "size=1"];
    let bytes = format_bytes(&args, "16M").and_then(|bytes| journalling_data(&bytes));
    cases_on("journalled data", bytes, 100_000, false);
}

#[test]
fn random_operations_with_journalled_data_and_bigalloc() {
    let args = ["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "8192", "-N", "512", "-J", "size=1"];
    let bytes = format_bytes(&args, "32M").and_then(|bytes| journalling_data(&bytes));
    cases_on("journalled data, bigalloc", bytes, 100_000, false);
}

#[test]
fn random_operations_with_journalled_data_on_a_volume_that_runs_full() {
    let args = ["-t", "ext4", "-b", "1024", "-O", "^resize_inode", "-N", "64", "-m", "0", "-J", "size=1"];
    let bytes = format_bytes(&args, "4M").and_then(|bytes| journalling_data(&bytes));
    cases_on("journalled data, full", bytes, 60_000, true);
}

#[test]
fn random_operations_with_bigalloc() {
    let args = ["-t", "ext4", "-b", "4096", "-O", "bigalloc,^has_journal", "-C", "16384", "-N", "512"];
    cases("bigalloc", &args, "64M", 300_000, false);
}

#[test]
fn random_operations_without_checksums_and_with_small_inodes() {
    let args =
        ["-t", "ext4", "-b", "1024", "-I", "128", "-O", "^metadata_csum,^64bit,^has_journal", "-N", "512"];
    cases("no checksums", &args, "16M", 100_000, false);
}

#[test]
fn random_operations_on_a_volume_that_runs_full() {
    let args = ["-t", "ext4", "-b", "1024", "-O", "^has_journal,^resize_inode", "-N", "64", "-m", "0"];
    cases("full 1k", &args, "384K", 60_000, true);
}

#[test]
fn random_operations_on_a_bigalloc_volume_that_runs_full() {
    let args = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "bigalloc,^has_journal,^resize_inode",
        "-C",
        "4096",
        "-N",
        "64",
        "-m",
        "0",
    ];
    cases("full bigalloc", &args, "768K", 60_000, true);
}
