//! Chooses the next call: mostly one that can succeed, given the existing files in [`Ground`].
//!
//! The ground is read before each call, on the kernel's side, whose results decide; so nothing here needs to
//! know what calls do. One call in [`ODD`] takes random names, files and places, and so mostly fails.

use super::call::{ATTRIBUTES, Call, FILE_MAX, MODES, Name, SLOTS, VALUE_MAX};
use super::user::{GIDS, UIDS};
use hectare_oracle::trees::random::Random;
use rustix::fs::{FileType, OFlags};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The names of all files; few, so that calls meet.
const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "dir", "a name that is a little longer than the others"];
/// One call in this many ignores the existing files.
const ODD: u64 = 7;
/// A file that is truncated to make room keeps less than this.
const SHORT: u64 = 16_384;

/// An open file.
#[derive(Clone, Copy, Debug)]
struct OpenSlot {
    nr: usize,
    len: u64,
    reads: bool,
    writes: bool,
    named: bool,
}

/// The existing files before a call.
#[derive(Debug)]
pub(super) struct Ground {
    root: PathBuf,
    /// The root is the empty name.
    directories: Vec<Name>,
    files: Vec<Name>,
    links: Vec<Name>,
    others: Vec<Name>,
    slots: Vec<OpenSlot>,
    crowded: bool,
    /// Whether nothing else in the process makes files.
    alone: bool,
}

impl Ground {
    /// Reads a mounted volume and the files that are open there.
    pub(super) fn look(root: &Path, open: &[Option<OwnedFd>; SLOTS]) -> Self {
        let mut ground = Self {
            root: root.into(),
            directories: Vec::new(),
            files: Vec::new(),
            links: Vec::new(),
            others: Vec::new(),
            slots: open.iter().enumerate().filter_map(|(nr, file)| slot(nr, file.as_ref()?)).collect(),
            alone: false,
            crowded: rustix::fs::statvfs(root).is_ok_and(|free| free.f_bavail < free.f_blocks / 3),
        };
        ground.enter(String::new());
        ground
    }

    /// The same as if there were room: other threads may be the ones that fill the volume.
    pub(super) fn with_room(self) -> Self {
        Self { crowded: false, ..self }
    }

    /// The same for a process that does nothing else meanwhile, and may change its `umask`.
    pub(super) fn with_umask(self, alone: bool) -> Self {
        Self { alone, ..self }
    }

    fn enter(&mut self, directory: Name) {
        let entries = fs::read_dir(self.root.join(&directory)).into_iter().flatten().flatten();
        let mut found: Vec<_> =
            entries.filter_map(|entry| Some((entry.file_name(), entry.file_type().ok()?))).collect();
        found.sort_by(|one, other| one.0.cmp(&other.0));
        self.directories.push(directory.clone());
        for (name, kind) in found {
            let name = format!("{directory}/{}", name.to_string_lossy()).trim_start_matches('/').to_owned();
            match kind {
                _ if name == "lost+found" => {}
                kind if kind.is_dir() => self.enter(name),
                kind if kind.is_file() => self.files.push(name),
                kind if kind.is_symlink() => self.links.push(name),
                _ => self.others.push(name),
            }
        }
    }

    fn exists(&self, name: &str) -> bool {
        fs::symlink_metadata(self.root.join(name)).is_ok()
    }

    fn has(&self, name: &str, attribute: usize) -> bool {
        rustix::fs::lgetxattr(self.root.join(name), ATTRIBUTES[attribute], &mut [0_u8; 0]).is_ok()
    }

    /// An unused name, below an existing directory and no deeper than three names.
    fn fresh(&self, r: &mut Random) -> Name {
        let shallow = |name: &&Name| name.matches('/').count() < 2;
        let directories: Vec<_> = self.directories.iter().filter(shallow).collect();
        for _ in 0..8 {
            let name = format!("{}/{}", pick(r, &directories).map_or("", |name| name), any_of(r, &NAMES));
            let name = name.trim_start_matches('/').to_owned();
            if !self.exists(&name) {
                return name;
            }
        }
        any_name(r)
    }

    fn file(&self, r: &mut Random) -> Name {
        pick(r, &self.files).cloned().unwrap_or_else(|| any_name(r))
    }

    /// Anything but a directory.
    fn leaf(&self, r: &mut Random) -> Name {
        let kind = [&self.files, &self.files, &self.links, &self.others][index(r, 4)];
        pick(r, kind).cloned().unwrap_or_else(|| self.file(r))
    }

    fn directory(&self, r: &mut Random) -> Name {
        pick(r, &self.directories).cloned().unwrap_or_default()
    }

    fn anything(&self, r: &mut Random) -> Name {
        let directory = r.below(3) == 0 && self.directories.len() > 1;
        if directory { pick(r, &self.directories[1..]).cloned().unwrap_or_default() } else { self.leaf(r) }
    }

    /// An empty directory, if there is one.
    fn empty(&self, r: &mut Random) -> Name {
        let all = || self.files.iter().chain(&self.links).chain(&self.others).chain(&self.directories);
        let lies_in = |name: &&Name| all().any(|other| other.starts_with(&format!("{name}/")));
        let empty: Vec<_> = self.directories.iter().skip(1).filter(|name| !lies_in(name)).collect();
        pick(r, &empty).map_or_else(|| self.directory(r), |name| (*name).clone())
    }

    fn slot(&self, r: &mut Random, suits: impl Fn(&OpenSlot) -> bool) -> OpenSlot {
        let suiting: Vec<_> = self.slots.iter().copied().filter(suits).collect();
        let none = OpenSlot { nr: index(r, SLOTS), len: 0, reads: false, writes: false, named: false };
        pick(r, &suiting).copied().unwrap_or(none)
    }

    /// The next call.
    pub(super) fn call(&self, r: &mut Random) -> Call {
        if r.below(ODD) == 0 {
            return any_call(r);
        }
        if self.crowded && r.below(2) == 0 {
            return self.freeing(r);
        }
        let writable = |slot: &OpenSlot| slot.writes;
        match r.below(48) {
            0 | 1 => Call::MakeDirectory(self.fresh(r), mode(r)),
            2 => Call::MakeNode(self.fresh(r), byte(r) % 4, mode(r)),
            3 => Call::Symlink(NAMES[index(r, 3)].into(), self.fresh(r)),
            4 => Call::Link(self.leaf(r), self.fresh(r)),
            5 | 6 => self.rename(r),
            7 => Call::Unlink(self.leaf(r)),
            8 => Call::RemoveDirectory(self.empty(r)),
            9..=13 => self.open(r),
            14 => Call::OpenNameless(index(r, SLOTS), self.directory(r)),
            15 => Call::LinkOpen(self.slot(r, |slot| !slot.named).nr, self.fresh(r)),
            16 => Call::Close(self.slot(r, |_| true).nr),
            17..=21 => Call::Write(self.slot(r, writable).nr, offset(r), len(r), byte(r)),
            22 => Call::Append(self.slot(r, writable).nr, len(r), byte(r)),
            23..=26 => {
                let slot = self.slot(r, |slot| slot.reads);
                Call::Read(slot.nr, r.below(slot.len + 1), len(r))
            }
            27 => Call::Truncate(self.slot(r, writable).nr, offset(r)),
            28 => Call::TruncateName(self.file(r), offset(r)),
            29..=31 => self.allocate(r),
            32 => self.copy(r),
            33 => {
                let slot = self.slot(r, |slot| slot.len > 0);
                Call::Seek(slot.nr, r.below(slot.len))
            }
            34 => Call::Sync(self.slot(r, |_| true).nr, r.below(2) == 0),
            35 => Call::Mode(self.anything(r), mode(r)),
            36 => Call::Owner(self.anything(r), UIDS[index(r, 3)], GIDS[index(r, 3)]),
            37 => Call::Times(self.anything(r), i64::from(r.below32(2_000_000_000))),
            38 | 39 => self.set_attribute(r),
            40 => self.attributed(r, Call::GetAttribute),
            41 => self.attributed(r, Call::RemoveAttribute),
            42 => Call::ListAttributes(self.anything(r)),
            43 => Call::Stat(self.anything(r)),
            44 => Call::List(self.directory(r)),
            45 if self.alone => Call::Umask([0o022, 0, 0o077, 0o027][index(r, 4)]),
            45 | 46 => Call::Mode(self.anything(r), mode(r)),
            _ => Call::ReadLink(pick(r, &self.links).cloned().unwrap_or_else(|| any_name(r))),
        }
    }

    /// A call that frees space.
    fn freeing(&self, r: &mut Random) -> Call {
        match r.below(4) {
            0 => Call::Truncate(self.slot(r, |slot| slot.writes && slot.len > 0).nr, r.below(SHORT)),
            1 => Call::Close(self.slot(r, |slot| !slot.named).nr),
            2 => Call::TruncateName(self.file(r), r.below(SHORT)),
            _ => Call::Unlink(self.leaf(r)),
        }
    }

    fn rename(&self, r: &mut Random) -> Call {
        let is_directory = r.below(3) == 0 && self.directories.len() > 1;
        let one = |r: &mut Random| if is_directory { self.empty(r) } else { self.leaf(r) };
        let from = if is_directory { self.anything(r) } else { self.leaf(r) };
        match byte(r) % 4 {
            how @ (0 | 2) => Call::Rename(from, self.fresh(r), how),
            how => Call::Rename(one(r), one(r), how),
        }
    }

    fn open(&self, r: &mut Random) -> Call {
        let how = byte(r) % 6;
        let is_new = how == 3 || (r.below(3) == 0 && matches!(how, 0 | 4));
        Call::Open(index(r, SLOTS), if is_new { self.fresh(r) } else { self.file(r) }, how)
    }

    fn allocate(&self, r: &mut Random) -> Call {
        let slot = self.slot(r, |slot| slot.writes);
        Call::Allocate(slot.nr, index(r, MODES.len()), offset(r), 1 + offset(r) / 8)
    }

    fn copy(&self, r: &mut Random) -> Call {
        let from = self.slot(r, |slot| slot.reads && slot.len > 0);
        let to = self.slot(r, |slot| slot.writes && slot.nr != from.nr);
        Call::Copy(from.nr, to.nr, r.below(from.len), offset(r), len(r))
    }

    fn set_attribute(&self, r: &mut Random) -> Call {
        let attribute = index(r, ATTRIBUTES.len());
        let kind = ATTRIBUTES[attribute].split('.').next();
        let name = match kind {
            _ if ATTRIBUTES[attribute].ends_with("default") => self.directory(r),
            Some("user" | "system") if r.below(2) == 0 => self.directory(r),
            Some("user" | "system") => self.file(r),
            _ => self.anything(r),
        };
        let how = match r.below(3) {
            0 => 0,
            _ if self.has(&name, attribute) => 2,
            _ => 1,
        };
        Call::SetAttribute(name, attribute, len(r) % VALUE_MAX, how)
    }

    /// A call on an existing attribute, if one is found.
    fn attributed(&self, r: &mut Random, call: fn(Name, usize) -> Call) -> Call {
        let (mut name, mut attribute) = (self.anything(r), index(r, ATTRIBUTES.len()));
        for _ in 0..12 {
            if self.has(&name, attribute) {
                break;
            }
            (name, attribute) = (self.anything(r), index(r, ATTRIBUTES.len()));
        }
        call(name, attribute)
    }
}

fn slot(nr: usize, file: &OwnedFd) -> Option<OpenSlot> {
    let stat = rustix::fs::fstat(file).ok()?;
    let access = rustix::fs::fcntl_getfl(file).ok()? & OFlags::ACCMODE;
    debug_assert_eq!(FileType::from_raw_mode(stat.st_mode), FileType::RegularFile);
    Some(OpenSlot {
        nr,
        len: u64::try_from(stat.st_size).unwrap_or(0),
        reads: access != OFlags::WRONLY,
        writes: access != OFlags::RDONLY,
        named: stat.st_nlink > 0,
    })
}

/// A call whose names and files may exist or not.
fn any_call(r: &mut Random) -> Call {
    let slot = index(r, SLOTS);
    match r.below(24) {
        0 => Call::MakeDirectory(any_name(r), mode(r)),
        1 => Call::MakeNode(any_name(r), byte(r) % 4, mode(r)),
        2 => Call::Symlink(any_name(r), any_name(r)),
        3 => Call::Link(any_name(r), any_name(r)),
        4 | 5 => Call::Rename(any_name(r), any_name(r), byte(r) % 4),
        6 => Call::Unlink(any_name(r)),
        7 => Call::RemoveDirectory(any_name(r)),
        8 => Call::Open(slot, any_name(r), byte(r) % 6),
        9 => Call::OpenNameless(slot, any_name(r)),
        10 => Call::LinkOpen(slot, any_name(r)),
        11 => Call::Write(slot, offset(r), len(r), byte(r)),
        12 => Call::Read(slot, offset(r), len(r)),
        13 => Call::TruncateName(any_name(r), offset(r)),
        14 | 15 => Call::Allocate(slot, index(r, MODES.len()), offset(r), offset(r) / 8),
        16 => Call::Copy(slot, index(r, SLOTS), offset(r), offset(r), len(r)),
        17 => Call::Seek(slot, offset(r)),
        18 => Call::Mode(any_name(r), mode(r)),
        19 => Call::SetAttribute(any_name(r), index(r, ATTRIBUTES.len()), len(r) % VALUE_MAX, byte(r) % 3),
        20 => Call::GetAttribute(any_name(r), index(r, ATTRIBUTES.len())),
        21 => Call::RemoveAttribute(any_name(r), index(r, ATTRIBUTES.len())),
        22 => Call::List(any_name(r)),
        _ => Call::ReadLink(any_name(r)),
    }
}

fn any_name(r: &mut Random) -> Name {
    // The first names are mostly directories, the others mostly not.
    let above = r.below(5) / 2;
    let mut path: Vec<&str> = (0..above).map(|_| NAMES[index(r, 2)]).collect();
    path.push(any_of(r, &NAMES));
    path.join("/")
}

fn any_of<'a>(r: &mut Random, names: &[&'a str]) -> &'a str {
    names[index(r, names.len())]
}

/// A random element of a slice, if it has any.
fn pick<'a, T>(r: &mut Random, some: &'a [T]) -> Option<&'a T> {
    some.get(index(r, some.len()))
}

fn index(r: &mut Random, bound: usize) -> usize {
    usize::try_from(r.below(bound as u64)).unwrap_or(0)
}

/// An offset; half of them at borders of blocks.
fn offset(r: &mut Random) -> u64 {
    let at = r.below(FILE_MAX);
    if r.below(2) == 0 { at / 1024 * 1024 } else { at }
}

fn len(r: &mut Random) -> usize {
    let most = [16, 1000, 8192, 200_000][index(r, 4)];
    index(r, most)
}

/// A mode, mostly one with which other users have some access.
fn mode(r: &mut Random) -> u16 {
    const USUAL: [u16; 8] = [0o755, 0o777, 0o775, 0o644, 0o700, 0o1777, 0o2775, 0o4755];
    let any = u16::try_from(r.below(0o10000)).unwrap_or(0) | 0o600;
    if r.below(4) == 0 { any } else { USUAL[index(r, USUAL.len())] }
}

fn byte(r: &mut Random) -> u8 {
    u8::try_from(r.below(255)).unwrap_or(0) + 1
}
