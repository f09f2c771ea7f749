//! Everything that writing to a volume can do, as a short program decoded from an input.
//!
//! Names come from a small set, so that operations meet each other: a directory under a file's name, a rename
//! onto its own parent, a file removed while it is open.

use crate::input::Input;
use hectare_engine::{
    Changes, Creation, DeviceNumber, Error, NewNode, OpenFile, RenameMode, Result, Timestamp, Volume,
    XattrHow,
};

const OPERATIONS_MAX: usize = 60;
const OPEN_MAX: usize = 4;

const PATHS: [&str; 28] = [
    "/",
    "/d",
    "/d/f00",
    "/d/f01",
    "/d/new",
    "/links",
    "/links/fast",
    "/links/slow",
    "/links/loop",
    "/sparse",
    "/small",
    "/attrs",
    "/attrs/many",
    "/a",
    "/a/b",
    "/a/b/c",
    "/a/b/c/x",
    "/new",
    "/new/x",
    "/new/y",
    "/new/x/deep",
    "/hard",
    "/d/..",
    "/a/./b",
    "/d/f19",
    "/x",
    "/y",
    "/attrs/acl",
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

/// Runs the program; every error but the broken ones is as good as success.
pub fn run(volume: &Volume, input: &mut Input<'_>) -> Ran {
    let mut ran = Ran::default();
    let mut open: Vec<OpenFile> = Vec::new();
    for _ in 0..OPERATIONS_MAX {
        if input.is_empty() {
            break;
        }
        let what = input.byte();
        if let Err(error) = step(volume, what, input, &mut open) {
            let text = error.to_string();
            assert!(!text.contains('\n'), "an error of several lines: {text:?}");
            if matches!(error, Error::Corrupt(_) | Error::Aborted(_)) && ran.broken.is_none() {
                ran.broken = Some(format!("operation {what}: {text}"));
            }
        }
    }
    ran
}

fn path(input: &mut Input<'_>) -> &'static str {
    input.pick::<&'static str>(&PATHS)
}

fn creation(input: &mut Input<'_>) -> Creation {
    let word = input.word();
    Creation { permissions: word & 0o7777, uid: u32::from(word >> 12) * 70_000, gid: 5 }
}

fn step(volume: &Volume, what: u8, input: &mut Input<'_>, open: &mut Vec<OpenFile>) -> Result<()> {
    match what % 22 {
        0 => keep(open, volume.create_file(path(input), creation(input))?),
        1 => keep(open, volume.open_file(path(input))?),
        2 => volume.create_dir(path(input), creation(input)).map(drop)?,
        3 => volume.remove_file(path(input))?,
        4 => volume.remove_dir(path(input))?,
        5 => {
            let modes =
                [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange, RenameMode::WHITEOUT];
            volume.rename_path(path(input), path(input), *input.pick(&modes))?;
        }
        6 => volume.hard_link(path(input), path(input))?,
        7 => {
            let len = usize::from(input.word()) % 1200;
            volume.symlink("t".repeat(len), path(input), creation(input)).map(drop)?;
        }
        8 | 9 => write(input, open)?,
        10 => {
            let size = *input.pick(&SIZES);
            if let Some(file) = open.last() {
                file.set_len(size)?;
            }
        }
        11 => {
            let mut buf = vec![0; 3000];
            let at = *input.pick(&SIZES);
            if let Some(file) = open.first() {
                file.read_at(at, &mut buf)?;
                file.data_ranges()?;
            }
        }
        12 => drop(open.pop()),
        13 => {
            let nr = volume.resolve(path(input), false)?;
            let how = [XattrHow::Either, XattrHow::Create, XattrHow::Replace];
            let (name, how, len) = (*input.pick(&NAMES), *input.pick(&how), usize::from(input.word()) % 3000);
            let mut value = input.bytes(len.min(40)).to_vec();
            value.resize(len, b'v');
            volume.set_xattr(nr, name, &value, how)?;
        }
        14 => volume.remove_xattr(volume.resolve(path(input), false)?, *input.pick(&NAMES))?,
        15 => volume.change_path(path(input), &changes(input))?,
        16 => many(volume, input)?,
        17 => volume.remove_dir_all(path(input))?,
        18 => volume.sync()?,
        19 => {
            let device = DeviceNumber { major: u32::from(input.byte()), minor: input.long() & 0xf_ffff };
            let nodes =
                [NewNode::Fifo, NewNode::Socket, NewNode::CharDevice(device), NewNode::BlockDevice(device)];
            volume.make(path(input), *input.pick(&nodes), creation(input)).map(drop)?;
        }
        20 => volume.create_dir_all("/new/x/deep/and/deeper", creation(input)).map(drop)?,
        _ => {
            volume.read_dir(path(input))?;
            volume.statfs().map(drop)?;
        }
    }
    Ok(())
}

fn keep(open: &mut Vec<OpenFile>, file: OpenFile) {
    if open.len() == OPEN_MAX {
        open.remove(0);
    }
    open.push(file);
}

fn write(input: &mut Input<'_>, open: &[OpenFile]) -> Result<()> {
    let at = match input.byte() {
        n @ 0..=199 => u64::from(n) * 700,
        n => SIZES[usize::from(n) % SIZES.len()],
    };
    let len = usize::from(input.word()) % 20_000;
    let which = usize::from(input.byte());
    if !open.is_empty() {
        open[which % open.len()].write_at(at, &vec![b'w'; len])?;
    }
    Ok(())
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

/// Fills, or empties, a directory with names, so that its index grows.
fn many(volume: &Volume, input: &mut Input<'_>) -> Result<()> {
    let dir = path(input);
    let (count, len) = (input.byte(), usize::from(input.byte()) % 200);
    for i in 0..count {
        let name = format!("{dir}/{}{i}", "n".repeat(len));
        if count & 1 == 0 {
            volume.hard_link("/small", &name)?;
        } else {
            volume.remove_file(&name)?;
        }
    }
    Ok(())
}
