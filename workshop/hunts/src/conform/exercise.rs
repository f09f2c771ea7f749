//! Exercises one file: every way to read and to change its bytes, against a model in memory.
//!
//! Places and lengths are drawn without regard to the file and fitted to its length when they are used; so
//! any part of a story is a story, and a failing one is shortened by leaving parts out ([`shortened`]).
//!
//! Collapsing and inserting ranges are not here: the kernel does not pass them to a FUSE mount.
//!
//! Hazard: touching a mapped page beyond the end of a file kills the process; every step that makes a file
//! shorter unmaps it first.

use hectare_oracle::trees::random::Random;
use mmap_io::MemoryMappedFile;
use rustix::fs::{Advice, FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The maximum length of a file.
const FILE_MAX: u64 = 400_000;
/// The maximum number of attempts to shorten a story.
const ATTEMPTS: u32 = 120;
/// Memory and places of direct I/O are multiples of this, whatever the volume.
const SECTOR: u64 = 512;
/// The alignment of memory for direct I/O.
const PAGE: usize = 4096;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Read(u64, u64),
    Write(u64, u64, u8),
    Append(u64, u8),
    Truncate(u64),
    /// By `truncate(2)`, without an open file.
    TruncatePath(u64),
    MapRead(u64, u64),
    /// Written through the mapping; synced with it or not.
    MapWrite(u64, u64, u8, bool),
    Unmap,
    Allocate(FallocateFlags, u64, u64),
    /// From, to and length.
    Copy(u64, u64, u64),
    DirectRead(u64, u64),
    DirectWrite(u64, u64, u8),
    /// Checks that ranges reported as holes contain nothing but zeros.
    Holes,
    Sync(bool),
    Reopen,
    /// Syncs, and drops the pages of the file.
    Forget,
}

impl Op {
    fn random(r: &mut Random) -> Self {
        let salt = u8::try_from(r.below(256)).unwrap_or(0);
        let (at, len) = (place(r), length(r));
        let sector = |value: u64| value / SECTOR * SECTOR;
        match r.below(40) {
            0..=5 => Self::Read(at, len),
            6..=12 => Self::Write(at, len, salt),
            13 => Self::Append(len, salt),
            14 | 15 => Self::Truncate(at),
            16 => Self::TruncatePath(at),
            17..=19 => Self::MapRead(at, len),
            20..=23 => Self::MapWrite(at, len, salt, r.below(3) == 0),
            24 => Self::Unmap,
            25 => Self::Allocate(FallocateFlags::empty(), at, len.max(1)),
            26 => Self::Allocate(FallocateFlags::KEEP_SIZE, at, len.max(1)),
            27 => Self::Allocate(FallocateFlags::ZERO_RANGE, at, len.max(1)),
            28 => Self::Allocate(FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, at, len.max(1)),
            29 | 30 => Self::Allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, len.max(1)),
            31 => Self::Copy(at, place(r), len),
            32 | 33 => Self::DirectRead(sector(at), sector(len)),
            34 | 35 => Self::DirectWrite(sector(at), sector(len).max(SECTOR), salt),
            36 => Self::Holes,
            37 => Self::Sync(r.below(2) == 0),
            38 => Self::Reopen,
            _ => Self::Forget,
        }
    }
}

/// A story from a seed.
pub(crate) fn story(random: &mut Random, steps: u32) -> Vec<Op> {
    (0..steps).map(|_| Op::random(random)).collect()
}

/// A place; many at borders of blocks, and many near the beginning, so that ranges meet.
fn place(r: &mut Random) -> u64 {
    let most = [FILE_MAX, FILE_MAX / 8][usize::from(r.below(2) == 0)];
    let at = r.below(most);
    [at, at / 512 * 512, at / 4096 * 4096][usize::try_from(r.below(3)).unwrap_or(0)]
}

fn length(r: &mut Random) -> u64 {
    let most = [64, 5000, 20_000, 100_000][usize::try_from(r.below(4)).unwrap_or(0)];
    let len = r.below(most);
    if r.below(3) == 0 { len / 1024 * 1024 } else { len }
}

/// Bytes that encode their position.
fn content(at: u64, len: u64, salt: u8) -> Vec<u8> {
    (at..at + len).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 16).to_le_bytes()[0] ^ salt).collect()
}

fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// The expected content of a file.
#[derive(Default)]
struct Model(Vec<u8>);

impl Model {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn part(&self, at: u64, len: u64) -> &[u8] {
        let end = (at + len).min(self.len());
        &self.0[index(at.min(end))..index(end)]
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let (at, end) = (index(at), index(at) + bytes.len());
        self.0.resize(self.0.len().max(end), 0);
        self.0[at..end].copy_from_slice(bytes);
    }

    fn clear(&mut self, at: u64, len: u64) {
        let end = (at + len).min(self.len());
        self.0[index(at.min(end))..index(end)].fill(0);
    }

    /// Does a step; returns its result, or `None` for a step that is none on this file.
    fn apply(&mut self, op: Op) -> Option<Said> {
        match op {
            Op::Read(at, len) | Op::DirectRead(at, len) => {
                return Some(Said::Bytes(self.part(at, len).to_vec()));
            }
            Op::MapRead(at, len) => {
                let (at, len) = self.inside(at, len)?;
                return Some(Said::Bytes(self.part(at, len).to_vec()));
            }
            Op::MapWrite(at, len, salt, _) => {
                let (at, len) = self.inside(at, len)?;
                self.put(at, &content(at, len, salt));
            }
            Op::Write(at, len, salt) | Op::DirectWrite(at, len, salt) => {
                self.put(at, &content(at, len, salt));
            }
            // A story may append often; beyond the limit an append does nothing on both sides.
            Op::Append(len, _) if self.len() + len > 2 * FILE_MAX => return None,
            Op::Append(len, salt) => self.put(self.len(), &content(self.len(), len, salt)),
            Op::Truncate(len) | Op::TruncatePath(len) => self.0.resize(index(len), 0),
            Op::Allocate(mode, at, len) => {
                if mode.intersects(FallocateFlags::ZERO_RANGE | FallocateFlags::PUNCH_HOLE) {
                    self.clear(at, len);
                }
                if !mode.contains(FallocateFlags::KEEP_SIZE) {
                    self.0.resize(self.0.len().max(index(at + len)), 0);
                }
            }
            Op::Copy(from, to, len) => {
                let apart = from + len <= to || to + len <= from;
                let bytes = apart.then(|| self.part(from, len).to_vec())?;
                self.put(to, &bytes);
            }
            Op::Unmap | Op::Holes | Op::Sync(_) | Op::Reopen | Op::Forget => {}
        }
        Some(Said::Len(self.len()))
    }

    /// A range fitted into the file.
    fn inside(&self, at: u64, len: u64) -> Option<(u64, u64)> {
        let at = at.checked_rem(self.len())?;
        Some((at, len.min(self.len() - at)))
    }
}

/// The result of a step.
#[derive(Clone, PartialEq, Eq)]
enum Said {
    Bytes(Vec<u8>),
    /// The length of the file after it.
    Len(u64),
    Error(String),
}

impl Said {
    /// How this differs from the expected result.
    fn differs(&self, expected: &Self) -> String {
        match (self, expected) {
            (Self::Bytes(mine), Self::Bytes(theirs)) => {
                let same = mine.iter().zip(theirs).take_while(|(one, other)| one == other).count();
                let last = mine.iter().zip(theirs).rposition(|(one, other)| one != other);
                let begin = |bytes: &[u8]| {
                    bytes[same.min(bytes.len())..].iter().take(4).copied().collect::<Vec<u8>>()
                };
                let (found, wanted) = (begin(mine), begin(theirs));
                let (mine, theirs) = (mine.len(), theirs.len());
                format!(
                    "{mine} bytes for {theirs}, wrong from byte {same} to {last:?} of them: {found:?}... for \
                     {wanted:?}..."
                )
            }
            (mine, theirs) => format!("{} for {}", mine.shown(), theirs.shown()),
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Bytes(bytes) => format!("{} bytes", bytes.len()),
            Self::Len(len) => format!("a length of {len}"),
            Self::Error(error) => error.clone(),
        }
    }
}

/// The file on one mount.
struct Side {
    path: PathBuf,
    file: OwnedFd,
    /// Opened on first use: not every file system supports it.
    direct: Option<OwnedFd>,
    append: OwnedFd,
    mapped: Option<MemoryMappedFile>,
}

fn opened(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, flags | OFlags::CREATE | OFlags::CLOEXEC, Mode::from_raw_mode(0o644))
}

impl Side {
    fn new(path: PathBuf) -> Result<Self, Errno> {
        let file = opened(&path, OFlags::RDWR)?;
        let append = opened(&path, OFlags::WRONLY | OFlags::APPEND)?;
        Ok(Self { path, file, direct: None, append, mapped: None })
    }

    fn make(&mut self, op: Op, model: &Model) -> Said {
        self.answer(op, model).unwrap_or_else(Said::Error)
    }

    fn answer(&mut self, op: Op, model: &Model) -> Result<Said, String> {
        let told = |errno: Errno| errno.to_string();
        match op {
            Op::Read(at, len) => return read(&self.file, &mut vec![0; index(len)], at).map_err(told),
            Op::DirectRead(at, len) => {
                let mut memory = Aligned::new(index(len));
                return self.direct().and_then(|file| read(file, memory.bytes(), at)).map_err(told);
            }
            Op::MapRead(at, len) => {
                let Some((at, len)) = model.inside(at, len) else { return Ok(Said::Len(0)) };
                let mut bytes = vec![0; index(len)];
                self.mapping(at + len)?.read_into(at, &mut bytes).map_err(|error| error.to_string())?;
                return Ok(Said::Bytes(bytes));
            }
            Op::MapWrite(at, len, salt, sync) => {
                let Some((at, len)) = model.inside(at, len) else { return Ok(Said::Len(0)) };
                let mapping = self.mapping(at + len)?;
                mapping.update_region(at, &content(at, len, salt)).map_err(|error| error.to_string())?;
                if sync {
                    mapping.flush().map_err(|error| error.to_string())?;
                }
            }
            op => {
                self.settle_end(op, model)?;
                self.change(op, model).map_err(told)?;
            }
        }
        let stat = rustix::fs::fstat(&self.file).map_err(told)?;
        Ok(Said::Len(u64::try_from(stat.st_size).unwrap_or(0)))
    }

    /// Writes the mapped pages back before the file grows. While the kernel writes back the page of the end,
    /// Linux 6.18's FUSE clears what a write has just put behind the end (`docs/operating.md`).
    fn settle_end(&self, op: Op, model: &Model) -> Result<(), String> {
        let end = match op {
            Op::Write(at, len, _) | Op::DirectWrite(at, len, _) | Op::Allocate(_, at, len) => at + len,
            Op::Copy(_, to, len) => to + len,
            Op::Append(..) => model.len() + 1,
            _ => 0,
        };
        match &self.mapped {
            Some(mapped) if end > model.len() => mapped.flush().map_err(|error| error.to_string()),
            _ => Ok(()),
        }
    }

    fn change(&mut self, op: Op, model: &Model) -> Result<(), Errno> {
        match op {
            Op::Write(at, len, salt) => write(&self.file, &content(at, len, salt), at)?,
            Op::DirectWrite(at, len, salt) => {
                let mut memory = Aligned::new(index(len));
                memory.bytes().copy_from_slice(&content(at, len, salt));
                write(self.direct()?, memory.bytes(), at)?;
            }
            Op::Append(len, salt) => {
                rustix::io::write(&self.append, &content(model.len(), len, salt)).map(drop)?;
            }
            Op::Truncate(len) => {
                self.mapped = None;
                rustix::fs::ftruncate(&self.file, len)?;
            }
            Op::TruncatePath(len) => {
                self.mapped = None;
                let file = opened(&self.path, OFlags::WRONLY)?;
                rustix::fs::ftruncate(&file, len)?;
            }
            Op::Unmap => self.mapped = None,
            Op::Allocate(mode, at, len) => rustix::fs::fallocate(&self.file, mode, at, len)?,
            // Not what the copy itself puts after the end.
            Op::Copy(from, to, len) => self.copy(from, to, model.part(from, len).len())?,
            Op::Holes => self.holes(model)?,
            Op::Sync(true) => rustix::fs::fdatasync(&self.file)?,
            Op::Sync(false) => rustix::fs::fsync(&self.file)?,
            Op::Reopen => *self = Self::new(self.path.clone())?,
            Op::Forget => {
                rustix::fs::fsync(&self.file)?;
                rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed)?;
            }
            Op::Read(..) | Op::DirectRead(..) | Op::MapRead(..) | Op::MapWrite(..) => {}
        }
        Ok(())
    }

    fn direct(&mut self) -> Result<&OwnedFd, Errno> {
        let file = match self.direct.take() {
            Some(file) => file,
            None => opened(&self.path, OFlags::RDWR | OFlags::DIRECT)?,
        };
        Ok(self.direct.insert(file))
    }

    /// A mapping that has this many bytes of the file.
    fn mapping(&mut self, end: u64) -> Result<&MemoryMappedFile, String> {
        let mapped = match self.mapped.take() {
            Some(mapped) if mapped.len() >= end => mapped,
            _ => MemoryMappedFile::open_rw(&self.path).map_err(|error| error.to_string())?,
        };
        Ok(self.mapped.insert(mapped))
    }

    fn copy(&self, mut from: u64, mut to: u64, mut left: usize) -> Result<(), Errno> {
        while left > 0 {
            let (file, most) = (&self.file, left);
            match rustix::fs::copy_file_range(file, Some(&mut from), file, Some(&mut to), most)? {
                0 => break,
                copied => left -= copied,
            }
        }
        Ok(())
    }

    /// Whether everything outside of holes is the file's content, except for zeros.
    fn holes(&self, model: &Model) -> Result<(), Errno> {
        let mut at = 0;
        while at < model.len() {
            let data = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
                Err(Errno::NXIO) => model.len(),
                data => data?,
            };
            if data < at || model.part(at, data - at).iter().any(|byte| *byte != 0) {
                return Err(Errno::ILSEQ); // returned by no file system here
            }
            if data == model.len() {
                break;
            }
            at = rustix::fs::seek(&self.file, SeekFrom::Hole(data))?;
        }
        Ok(())
    }
}

fn read(file: &OwnedFd, bytes: &mut [u8], at: u64) -> Result<Said, Errno> {
    let read = rustix::io::pread(file, &mut *bytes, at)?;
    Ok(Said::Bytes(bytes[..read].to_vec()))
}

fn write(file: &OwnedFd, bytes: &[u8], at: u64) -> Result<(), Errno> {
    let written = rustix::io::pwrite(file, bytes, at)?;
    if written == bytes.len() { Ok(()) } else { Err(Errno::INTR) } // a short write, where there is room
}

/// Memory for direct I/O.
struct Aligned {
    memory: Vec<u8>,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Self {
        Self { memory: vec![0; len + PAGE], len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        let start = self.memory.as_ptr().align_offset(PAGE);
        &mut self.memory[start..start + self.len]
    }
}

/// A failed step: which, on which side and how.
pub(crate) struct Wrong {
    step: usize,
    what: String,
}

/// Plays a story on a file of this name in each of these directories, which are named for reports.
pub(crate) fn play(name: &str, sides: &[(&'static str, &Path)], story: &[Op]) -> Result<(), Wrong> {
    let begun = |(who, side): &(&'static str, &Path)| {
        let begun = Side::new(side.join(name));
        let told = |errno| Wrong { step: 0, what: format!("{}: {errno}", side.display()) };
        begun.map(|begun| (*who, begun)).map_err(told)
    };
    let mut sides = sides.iter().map(begun).collect::<Result<Vec<_>, _>>()?;
    let mut model = Model::default();
    // In the end the whole file is read once more.
    let last =
        [Op::Read(0, 2 * FILE_MAX), Op::MapRead(0, 2 * FILE_MAX), Op::Forget, Op::Read(0, 2 * FILE_MAX)];
    for (step, op) in story.iter().chain(&last).enumerate() {
        let before = Model(model.0.clone());
        let Some(expected) = model.apply(*op) else { continue };
        for (who, side) in &mut sides {
            let said = side.make(*op, if matches!(op, Op::Holes) { &model } else { &before });
            if said != expected {
                return Err(Wrong { step, what: format!("{who}: {op:?}: {}", said.differs(&expected)) });
            }
        }
    }
    Ok(())
}

/// A short failing story from a failing one: parts are left out, halves first, while it continues to fail.
pub(crate) fn shortened(
    mut story: Vec<Op>,
    first: Wrong,
    mut fails: impl FnMut(&[Op]) -> Option<Wrong>,
) -> String {
    let mut wrong = first;
    story.truncate(wrong.step + 1);
    let (mut piece, mut attempts) = (story.len() / 2, 0);
    while piece > 0 && attempts < ATTEMPTS {
        let mut at = 0;
        while at < story.len() && attempts < ATTEMPTS {
            let without: Vec<Op> = story
                .iter()
                .enumerate()
                .filter(|(n, _)| !(at..at + piece).contains(n))
                .map(|(_, op)| *op)
                .collect();
            attempts += 1;
            match fails(&without) {
                Some(again) => {
                    story = without;
                    story.truncate(again.step + 1);
                    wrong = again;
                }
                None => at += piece,
            }
        }
        piece /= 2;
    }
    let steps: Vec<String> = story.iter().map(|op| format!("{op:?}")).collect();
    format!("{}; the shortest story found:\n  {}", wrong.what, steps.join("\n  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_story_on_one_file_system_goes_as_the_model_says() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
        std::fs::create_dir(&one).unwrap();
        std::fs::create_dir(&other).unwrap();
        let ops = story(&mut Random::new("exercise"), 300);
        // Holes and direct I/O are not supported everywhere.
        let plain =
            |op: &Op| !matches!(op, Op::Holes | Op::DirectRead(..) | Op::DirectWrite(..) | Op::Allocate(..));
        let ops: Vec<Op> = ops.into_iter().filter(plain).collect();
        if let Err(wrong) = play("f", &[("one", &one), ("other", &other)], &ops) {
            panic!("step {}: {}", wrong.step, wrong.what);
        }
    }

    #[test]
    fn what_fails_is_shortened_to_what_it_needs() {
        let story: Vec<Op> = (0..100).map(Op::Truncate).collect();
        let needs = |story: &[Op]| {
            let step = story.iter().position(|op| *op == Op::Truncate(70))?;
            story[..step].contains(&Op::Truncate(30)).then(|| Wrong { step, what: "bad".into() })
        };
        let first = needs(&story).unwrap();
        let said = shortened(story, first, needs);
        assert_eq!(said, "bad; the shortest story found:\n  Truncate(30)\n  Truncate(70)");
    }
}
