//! The allocation group headers of XFS: written once, with the free list in them, against a second pass that
//! reads, changes and writes five blocks of each group.
//!
//! The second pass is the one of mkfs.xfs before the change, made again with the same blocks: AGF, AGFL, and
//! the roots of the two free space trees and of the owners' tree are read, and written back. What it writes
//! is what was there, so that the volume is the same after both.
//!
//! A volume that does not fit the directory is written to nowhere: calls and bytes are counted, and the
//! seconds are those of rendering alone.

use super::{Experiment, Options, Part, Role, Row, Side, Unit};
use crate::run::float;
use crate::timing::timed;
use hectare_device::{Counters, Device, FileOptions, Operation, StatsDevice};
use hectare_mkfs::xfs::{FormatOptions, Plan, execute};
use hectare_tools::error::{Error, Result};
use hectare_units::{Bytes, GroupNr, index_of};
use hectare_xfs::Volume;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ag-headers",
    title: "allocation group headers are written in one pass",
    source: "Dave Chinner, \"mkfs: rework AG header initialisation ordering\", linux-xfs, 2018-09-05",
    differs: "The published mkfs.xfs writes every header block by itself through a cache of buffers; here \
              the first pass is one write a group on both sides, so the second pass is a larger share of the \
              whole than it was. Where a size does not fit the directory of --work, calls and bytes are \
              counted and nothing is stored. One thread on both sides.",
    make,
};

/// What was published for a size: seconds before and after.
struct Size {
    title: &'static str,
    bytes: u64,
    published: [f64; 2],
}

const PETABYTE: u64 = 1_000_000_000_000_000;
const SIZES: [Size; 3] = [
    Size { title: "10 PB", bytes: 10 * PETABYTE, published: [26.9, 11.3] },
    Size { title: "100 PB", bytes: 100 * PETABYTE, published: [214.8, 70.3] },
    Size { title: "1 EB", bytes: 1000 * PETABYTE, published: [2484.0, 709.0] },
];

/// What a group takes in a sparse file, at most: its headers and roots, and half as much again for the host.
const GROUP_BYTES: u64 = 48 << 10;
/// What all is divided by to be small.
const QUICK: u64 = 1000;
/// The length of a sector in which a header lies; AGF is the second of a group and AGFL the fourth.
const AGF: u32 = 1;
const AGFL: u32 = 3;

fn make(options: &Options, say: &mut dyn FnMut(&str)) -> Result<Vec<Part>> {
    let wanted = options.wanted(SIZES.iter().collect(), |size| size.title)?;
    wanted.into_iter().map(|size| one(size, options, say)).collect()
}

fn one(size: &Size, options: &Options, say: &mut dyn FnMut(&str)) -> Result<Part> {
    let bytes = if options.quick { size.bytes / QUICK } else { size.bytes };
    let place = Destination::of(&options.work, bytes)?;
    let mut table = Table::new(place.is_stored() && options.kernel);
    for round in 0..options.rounds {
        for nr in table.order(round) {
            options.check_stop()?;
            say(&format!("{}: round {} of {}: {}", size.title, round + 1, options.rounds, table.titles[nr]));
            match nr {
                TWO_PASSES => table.add(nr, &format(&place, bytes, Passes::Two)?),
                ONE_PASS => table.add(nr, &format(&place, bytes, Passes::One)?),
                _ => match mkfs_xfs(&place, bytes) {
                    Ok(seconds) => table.samples[SECONDS][nr].push(seconds),
                    Err(reason) => table.left_out = Some(reason),
                },
            }
        }
    }
    Ok(table.part(size, bytes, &place))
}

/// Where a volume goes.
enum Destination {
    /// Into a sparse file of a directory of its own.
    File(tempfile::TempDir),
    /// Nowhere, for that reason.
    Nowhere(String),
}

impl Destination {
    fn of(work: &Path, bytes: u64) -> Result<Self> {
        let fail = |error: &dyn ToString| Error::at(work.display().to_string(), error.to_string());
        let made = tempfile::Builder::new().prefix("hectare-reproduce-").tempdir_in(work);
        let dir = made.map_err(|error| fail(&error))?;
        let room = rustix::fs::statvfs(work).map_err(|error| fail(&error))?;
        let (free, need) = (room.f_bavail.saturating_mul(room.f_frsize), (bytes >> 40).max(4) * GROUP_BYTES);
        if free < need {
            let reason = format!("{} MiB of headers do not fit {}", need >> 20, work.display());
            return Ok(Self::Nowhere(reason));
        }
        let sized = std::fs::File::create(dir.path().join("volume")).and_then(|file| file.set_len(bytes));
        Ok(match sized {
            Ok(()) => Self::File(dir),
            Err(error) => Self::Nowhere(format!("{}: {error}", work.display())),
        })
    }

    fn is_stored(&self) -> bool {
        matches!(self, Self::File(_))
    }

    fn file(&self) -> Option<PathBuf> {
        match self {
            Self::File(dir) => Some(dir.path().join("volume")),
            Self::Nowhere(_) => None,
        }
    }

    /// A device of zeros there.
    fn device(&self, bytes: u64) -> Result<Box<dyn Device>> {
        let Some(path) = self.file() else { return Ok(Box::new(Nowhere(Bytes::new(bytes)))) };
        let fail = |error: &dyn ToString| Error::at(path.display().to_string(), error.to_string());
        let file = std::fs::File::create(&path).and_then(|file| file.set_len(bytes));
        file.map_err(|error| fail(&error))?;
        let device = FileOptions::new().write(true).open(&path).map_err(|error| fail(&error))?;
        Ok(Box::new(device))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Passes {
    One,
    Two,
}

/// What a format did.
struct Did {
    seconds: f64,
    written: Counters,
    read: Counters,
    groups: u32,
}

fn format(place: &Destination, bytes: u64, passes: Passes) -> Result<Did> {
    let device = StatsDevice::new(place.device(bytes)?);
    let fail = |error: &dyn ToString| Error::at(device.name().to_owned(), error.to_string());
    let options = FormatOptions { rmapbt: true, discard: false, ..FormatOptions::default() };
    let (planned, seconds) = timed(|| {
        let plan = Plan::new(&options, Bytes::new(bytes), true).map_err(|error| fail(&error))?;
        execute(&plan, &device, 1).map_err(|error| fail(&error))?;
        if passes == Passes::Two {
            again(plan.volume(), &device).map_err(|error| fail(&error))?;
        }
        device.flush().map_err(|error| fail(&error))?;
        Ok::<_, Error>(plan)
    });
    let counted = device.snapshot();
    Ok(Did {
        seconds,
        written: counted.of(Operation::Write),
        read: counted.of(Operation::Read),
        groups: planned?.volume().groups,
    })
}

/// Reads and writes back five blocks of each group.
fn again(volume: &Volume, device: &dyn Device) -> hectare_device::Result<()> {
    let (roots, sector, block) = (volume.roots(), volume.sector_size, volume.block_size.get());
    let mut buffer = vec![0; index_of(u64::from(block))];
    for group in (0..volume.groups).map(GroupNr::new) {
        let start = volume.offset(group, 0);
        let headers = [AGF, AGFL].map(|nr| (start + Bytes::new(u64::from(nr * sector)), sector));
        let trees = [Some(roots.bno), Some(roots.cnt), roots.rmap].into_iter().flatten();
        let blocks = trees.map(|root| (volume.offset(group, root), block));
        for (at, len) in headers.into_iter().chain(blocks) {
            let piece = &mut buffer[..index_of(u64::from(len))];
            device.read_at(at, piece)?;
            device.write_at(at, piece)?;
        }
    }
    Ok(())
}

/// How long the formatter of xfsprogs takes.
fn mkfs_xfs(place: &Destination, bytes: u64) -> std::result::Result<f64, String> {
    let path = place.file().ok_or("nothing is stored")?;
    let file = std::fs::File::create(&path).and_then(|file| file.set_len(bytes));
    file.map_err(|error| error.to_string())?;
    let mut mkfs = Command::new("mkfs.xfs");
    mkfs.args(["-q", "-f", "-K", "-m", "rmapbt=1"]).arg(&path).stdin(Stdio::null()).stdout(Stdio::null());
    let (done, seconds) = timed(|| mkfs.output());
    let done = done.map_err(|error| format!("mkfs.xfs: {error}"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    let failed = || format!("mkfs.xfs: {}", said.lines().next().unwrap_or("it failed and says nothing"));
    done.status.success().then_some(seconds).ok_or_else(failed)
}

const TWO_PASSES: usize = 0;
const ONE_PASS: usize = 1;
const MKFS_XFS: usize = 2;
const SECONDS: usize = 0;
const NAMES: [(&str, Unit); 5] = [
    ("seconds", Unit::Seconds),
    ("writes", Unit::Count),
    ("bytes written", Unit::Bytes),
    ("reads", Unit::Count),
    ("bytes read", Unit::Bytes),
];

/// What was measured: by figure and side.
struct Table {
    titles: [&'static str; 3],
    samples: [[Vec<f64>; 3]; 5],
    left_out: Option<String>,
    groups: u32,
}

impl Table {
    fn new(with_peer: bool) -> Self {
        Self {
            titles: ["two passes", "one pass", "mkfs.xfs"],
            samples: Default::default(),
            left_out: (!with_peer).then(|| "not asked for, or nothing is stored".to_owned()),
            groups: 0,
        }
    }

    fn order(&self, round: u32) -> Vec<usize> {
        let mut order: Vec<usize> = [TWO_PASSES, ONE_PASS].into();
        order.extend(self.left_out.is_none().then_some(MKFS_XFS));
        if round % 2 == 1 {
            order.reverse();
        }
        order
    }

    fn add(&mut self, side: usize, did: &Did) {
        let Did { seconds, written, read, groups } = did;
        let counts = [written.done, written.bytes.get(), read.done, read.bytes.get()];
        self.samples[SECONDS][side].push(*seconds);
        for (samples, count) in self.samples[1..].iter_mut().zip(counts) {
            samples[side].push(float(count));
        }
        self.groups = *groups;
    }

    fn part(self, size: &Size, bytes: u64, place: &Destination) -> Part {
        let roles = [Role::Before, Role::After, Role::Beside];
        let mut left_out = [None, None, self.left_out];
        let sides = (0..3).map(|nr| Side {
            title: self.titles[nr].to_owned(),
            role: roles[nr],
            left_out: left_out[nr].take(),
        });
        let rows = NAMES.iter().zip(self.samples).enumerate().map(|(nr, ((name, unit), samples))| Row {
            name: (*name).to_owned(),
            unit: *unit,
            published: if nr == SECONDS { size.published.map(Some) } else { [None; 2] },
            samples: samples.into(),
            drawn: true,
        });
        let dry = match place {
            Destination::File(_) => None,
            Destination::Nowhere(reason) => Some(format!("nothing was stored: {reason}")),
        };
        Part {
            title: size.title.to_owned(),
            about: format!("{bytes} bytes, {} groups, owners' tree, nothing discarded", self.groups),
            sides: sides.collect(),
            rows: rows.collect(),
            points_of: None,
            notes: dry.into_iter().collect(),
        }
    }
}

/// A device that keeps nothing and reads as zeros.
struct Nowhere(Bytes);

impl Device for Nowhere {
    fn name(&self) -> &str {
        "nowhere"
    }

    fn len(&self) -> Bytes {
        self.0
    }

    fn read_at(&self, _at: Bytes, buf: &mut [u8]) -> hectare_device::Result<()> {
        buf.fill(0);
        Ok(())
    }

    fn write_at(&self, _at: Bytes, _data: &[u8]) -> hectare_device::Result<()> {
        Ok(())
    }

    fn flush(&self) -> hectare_device::Result<()> {
        Ok(())
    }

    fn zero(&self, _at: Bytes, _len: Bytes) -> hectare_device::Result<()> {
        Ok(())
    }

    fn discard(&self, _at: Bytes, _len: Bytes) -> hectare_device::Result<()> {
        Ok(())
    }

    fn resize(&self, _len: Bytes) -> hectare_device::Result<()> {
        Ok(())
    }

    fn is_zeroed(&self) -> bool {
        true
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_pass_is_ten_calls_a_group_and_changes_nothing() {
        let bytes = 10 << 40;
        let place = Destination::Nowhere("a test".into());
        let [one, two] = [Passes::One, Passes::Two].map(|passes| format(&place, bytes, passes).unwrap());
        let groups = u64::from(one.groups);
        assert_eq!((one.read.done, two.read.done), (0, 5 * groups));
        assert_eq!(two.written.done, one.written.done + 5 * groups);
        let again = groups * (2 * 512 + 3 * 4096);
        assert_eq!((two.read.bytes.get(), two.written.bytes.get()), (again, one.written.bytes.get() + again));
        // In memory both leave the same.
        let small = 4 << 30;
        let images = [Passes::One, Passes::Two].map(|passes| {
            let device = hectare_device::MemoryDevice::new(Bytes::new(small));
            let options = FormatOptions {
                rmapbt: true,
                discard: false,
                uuid: Some([7; 16]),
                now: hectare_engine::Timestamp::from_seconds(1),
                ..FormatOptions::default()
            };
            let plan = Plan::new(&options, Bytes::new(small), true).unwrap();
            execute(&plan, &device, 1).unwrap();
            if passes == Passes::Two {
                again_in(&plan, &device);
            }
            let mut head = vec![0; 1 << 20];
            device.read_at(Bytes::ZERO, &mut head).unwrap();
            head
        });
        assert!(images[0] == images[1]);
    }

    fn again_in(plan: &Plan, device: &dyn Device) {
        again(plan.volume(), device).unwrap();
    }
}
