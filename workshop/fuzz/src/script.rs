//! Everything that writing to a volume can do, as a short program decoded from an input.
//!
//! Names come from a small set, so that operations meet each other: a directory under a file's name, a
//! rename onto its own parent, a file removed while it is open. What is only for some volumes (ranges of
//! files, flags, limits) is in [`special`](self::special).
//!
//! With a device to watch, each operation runs between two syncs, and one that is refused because of
//! corruption must leave everything in use as it was ([`repair::first_change`]). Operations that are many, or
//! that write data before they map it, are not watched.

mod special;

use crate::input::Input;
use crate::repair;
use hectare_device::MemoryDevice;
use hectare_engine::{
    Changes, Creation, DeviceNumber, Error, InodeFlags, NewNode, OpenFile, RenameMode, Result, Timestamp,
    Volume, XattrHow,
};

const OPERATIONS_MAX: usize = 60;
/// Of those that are watched, each of which costs two syncs.
const WATCHED_MAX: usize = 12;
const OPEN_MAX: usize = 4;
/// Kinds of operations that any volume is for; the others are [`special`].
const COMMON: u8 = 22;

/// Names in the base volumes, and new ones.
pub const PATHS: &[&[u8]] = &[
    b"/",
    b"/d",
    b"/d/f00",
    b"/d/f01",
    b"/d/new",
    b"/links",
    b"/links/fast",
    b"/links/slow",
    b"/links/loop",
    b"/sparse",
    b"/small",
    b"/attrs",
    b"/attrs/many",
    b"/a",
    b"/a/b",
    b"/a/b/c",
    b"/a/b/c/x",
    b"/new",
    b"/new/x",
    b"/new/y",
    b"/new/x/deep",
    b"/hard",
    b"/d/..",
    b"/a/./b",
    b"/d/f19",
    b"/x",
    b"/y",
    b"/attrs/acl",
];
const NAMES: [&str; 8] = [
    "user.a",
    "user.many",
    "trusted.t",
    "security.capability",
    "system.posix_acl_access",
    "system.posix_acl_default",
    "user.",
    "system.data",
];
const SIZES: [u64; 12] = [0, 1, 59, 60, 1000, 1024, 4096, 70_000, 300_000, 1 << 31, 1 << 43, u64::MAX];

/// The first error of each kind that an undamaged volume never gives.
#[derive(Default, Debug)]
pub struct Ran {
    /// A finding about the format, or an aborted journal.
    pub broken: Option<String>,
}

/// What programs are made of.
pub struct Program<'a> {
    /// The names that there are.
    pub paths: &'a [&'a [u8]],
    /// Whether it has operations that only some volumes are for.
    pub special: bool,
    /// The device below the volume, if operations that are refused are watched.
    pub watch: Option<&'a MemoryDevice>,
}

impl Program<'_> {
    /// Runs it; every error but the broken ones is as good as success.
    ///
    /// # Panics
    /// If an error is no single line, or a watched operation that was refused has changed the device.
    pub fn run(&self, volume: &Volume, input: &mut Input<'_>) -> Ran {
        let mut run = Run { program: self, volume, input, open: Vec::new() };
        let mut ran = Ran::default();
        for _ in 0..if self.watch.is_some() { WATCHED_MAX } else { OPERATIONS_MAX } {
            if run.input.is_empty() {
                break;
            }
            let kinds = COMMON + if self.special { special::KINDS } else { 0 };
            let what = run.input.byte() % kinds;
            if let Err(error) = run.watched(what) {
                let text = error.to_string();
                assert!(!text.contains('\n'), "an error of several lines: {text:?}");
                if matches!(error, Error::Corrupt(_) | Error::Aborted(_)) && ran.broken.is_none() {
                    ran.broken = Some(format!("operation {what}: {text}"));
                }
            }
        }
        ran
    }
}

/// A program that runs.
struct Run<'a, 'b> {
    program: &'a Program<'a>,
    volume: &'a Volume,
    input: &'a mut Input<'b>,
    open: Vec<OpenFile>,
}

impl<'a> Run<'a, '_> {
    fn watched(&mut self, what: u8) -> Result<()> {
        let Some(device) = self.program.watch else { return self.step(what) };
        self.volume.sync()?;
        let before = device.to_vec();
        // As in the kernel, such content moves to a block first, whatever comes of the rest.
        let leaves_inode = special::RANGES.contains(&what) && self.is_last_inline();
        let done = self.step(what);
        let is_one =
            !matches!(what, 8 | 9 | 15..=17 | 20) && !special::WRITES.contains(&what) && !leaves_inode;
        if let Err(Error::Corrupt(error)) = &done
            && is_one
            && self.volume.sync().is_ok()
        {
            let changed = repair::first_change(&before, &device.to_vec());
            assert_eq!(changed, None, "operation {what} was refused and changed this byte: {error}");
        }
        done
    }

    /// Whether the file that was opened last has its content in its inode.
    fn is_last_inline(&self) -> bool {
        let found = self.open.last().and_then(|file| file.metadata().ok());
        found.is_some_and(|found| found.flags.contains(InodeFlags::INLINE_DATA))
    }

    fn path(&mut self) -> &'a [u8] {
        self.input.pick::<&[u8]>(self.program.paths)
    }

    fn creation(&mut self) -> Creation {
        let word = self.input.word();
        Creation { permissions: word & 0o7777, umask: 0, uid: u32::from(word >> 12) * 70_000, gid: 5 }
    }

    fn step(&mut self, what: u8) -> Result<()> {
        let volume = self.volume;
        match what {
            0 => {
                let file = volume.create_file(self.path(), self.creation())?;
                self.keep(file);
            }
            1 => {
                let file = volume.open_file(self.path())?;
                self.keep(file);
            }
            2 => volume.create_dir(self.path(), self.creation()).map(drop)?,
            3 => volume.remove_file(self.path())?,
            4 => volume.remove_dir(self.path())?,
            5 => {
                let modes =
                    [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange, RenameMode::WHITEOUT];
                volume.rename_path(self.path(), self.path(), *self.input.pick(&modes))?;
            }
            6 => volume.hard_link(self.path(), self.path())?,
            7 => {
                let len = usize::from(self.input.word()) % 1200;
                volume.symlink("t".repeat(len), self.path(), self.creation()).map(drop)?;
            }
            8 | 9 => self.write()?,
            10 => {
                let size = *self.input.pick(&SIZES);
                if let Some(file) = self.open.last() {
                    file.set_len(size)?;
                }
            }
            11 => {
                let mut buf = vec![0; 3000];
                let at = *self.input.pick(&SIZES);
                if let Some(file) = self.open.first() {
                    file.read_at(at, &mut buf)?;
                    file.data_ranges()?;
                }
            }
            12 => drop(self.open.pop()),
            13 => {
                let nr = volume.resolve(self.path(), false)?;
                let how = [XattrHow::Either, XattrHow::Create, XattrHow::Replace];
                let (name, how) = (*self.input.pick(&NAMES), *self.input.pick(&how));
                let len = usize::from(self.input.word()) % 3000;
                let mut value = self.input.bytes(len.min(40)).to_vec();
                value.resize(len, b'v');
                volume.set_xattr(nr, name, &value, how)?;
            }
            14 => volume.remove_xattr(volume.resolve(self.path(), false)?, *self.input.pick(&NAMES))?,
            15 => volume.change_path(self.path(), &changes(self.input))?,
            16 => self.many()?,
            17 => volume.remove_dir_all(self.path())?,
            18 => volume.sync()?,
            19 => {
                let device =
                    DeviceNumber { major: u32::from(self.input.byte()), minor: self.input.long() & 0xf_ffff };
                let nodes = [
                    NewNode::Fifo,
                    NewNode::Socket,
                    NewNode::CharDevice(device),
                    NewNode::BlockDevice(device),
                ];
                volume.make(self.path(), *self.input.pick(&nodes), self.creation()).map(drop)?;
            }
            20 => volume.create_dir_all("/new/x/deep/and/deeper", self.creation()).map(drop)?,
            21 => {
                volume.read_dir(self.path())?;
                volume.statfs().map(drop)?;
            }
            _ => self.special(what)?,
        }
        Ok(())
    }

    fn keep(&mut self, file: OpenFile) {
        if self.open.len() == OPEN_MAX {
            self.open.remove(0);
        }
        self.open.push(file);
    }

    fn write(&mut self) -> Result<()> {
        let at = match self.input.byte() {
            n @ 0..=199 => u64::from(n) * 700,
            n => SIZES[usize::from(n) % SIZES.len()],
        };
        let len = usize::from(self.input.word()) % 20_000;
        let which = usize::from(self.input.byte());
        if !self.open.is_empty() {
            self.open[which % self.open.len()].write_at(at, &vec![b'w'; len])?;
        }
        Ok(())
    }

    /// Fills, or empties, a directory with names, so that its index grows.
    fn many(&mut self) -> Result<()> {
        let dir = self.path();
        let (count, len) = (self.input.byte(), usize::from(self.input.byte()) % 200);
        for i in 0..count {
            let name = [dir, format!("/{}{i}", "n".repeat(len)).as_bytes()].concat();
            if count & 1 == 0 {
                self.volume.hard_link("/small", &name)?;
            } else {
                self.volume.remove_file(&name)?;
            }
        }
        Ok(())
    }
}

fn changes(input: &mut Input<'_>) -> Changes {
    let which = input.byte();
    let time = Timestamp { seconds: i64::from(input.long()) * 3 - (1 << 31), nanoseconds: 999_999_999 };
    Changes {
        permissions: (which & 1 != 0).then(|| input.word()),
        uid: (which & 2 != 0).then(|| input.long()),
        gid: (which & 4 != 0).then(|| input.long()),
        size: (which & 8 != 0).then(|| *input.pick(&SIZES)),
        atime: (which & 16 != 0).then_some(time),
        mtime: (which & 32 != 0).then_some(time),
        ctime: (which & 64 != 0).then_some(time),
        crtime: (which & 128 != 0).then_some(time),
    }
}
