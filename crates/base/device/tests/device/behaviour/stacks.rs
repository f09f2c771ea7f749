//! Every backend, and every layer on one of them, as a fresh device of [`SIZE`] bytes.

use hectare_device::{
    CrashStates, Device, Event, FaultDevice, FileDevice, FileOptions, MemoryDevice, Outcome, OverlayDevice,
    Overwrite, RecordDevice, Rule, SliceDevice, SparseDevice, StatsDevice, TraceDevice,
};
use hectare_oracle::loops::{Access, LoopDevice};
use hectare_units::Bytes;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// A whole number of sectors, but of no larger unit.
pub(crate) const SIZE: u64 = (1 << 20) + 3 * 4096;

/// A device to test, and what it lies on, which is dropped after it.
pub(crate) struct Stack {
    pub(crate) name: String,
    device: Box<dyn Device>,
    _loop_device: Option<LoopDevice>,
    _dir: tempfile::TempDir,
}

impl Stack {
    pub(crate) fn device(&self) -> &dyn Device {
        &*self.device
    }
}

type Make = fn(&Path) -> Result<Box<dyn Device>, String>;

const STACKS: [(&str, Make); 21] = [
    ("memory", |_| Ok(Box::new(MemoryDevice::new(Bytes::new(SIZE))))),
    ("memory with old content", |_| Ok(Box::new(MemoryDevice::from_bytes(&vec![0x5a; SIZE as usize])))),
    ("sparse", |_| Ok(Box::new(SparseDevice::new(Bytes::new(SIZE))))),
    ("file", |dir| create(dir, &FileOptions::new())),
    ("file direct", |dir| create(dir, &FileOptions::new().direct(true))),
    ("file in memory", |_| Ok(Box::new(file_in_memory(SIZE)?))),
    ("file in memory beside another writer", |_| {
        let whole = Arc::new(file_in_memory(SIZE + NEIGHBOUR_AT)?);
        let weak = Arc::downgrade(&whole);
        std::thread::spawn(move || {
            // Ends when the stack is dropped.
            while let Some(whole) = weak.upgrade() {
                whole.write_at(Bytes::new(SIZE + 4096), &[0xcc; NEIGHBOUR_LEN]).unwrap();
            }
        });
        let slice = SliceDevice::new(whole, Bytes::ZERO, Bytes::new(SIZE));
        slice.map(|slice| Box::new(slice) as Box<dyn Device>).map_err(|e| e.to_string())
    }),
    ("pending file", |dir| {
        let path = dir.join("pending.img");
        let pending = FileOptions::new().create_pending(&path, Bytes::new(SIZE), Overwrite::Refuse);
        let device = pending.and_then(|pending| pending.publish()).map_err(|e| e.to_string())?;
        Ok(Box::new(device))
    }),
    ("file opened again", |dir| {
        let path = dir.join("old.img");
        File::create(&path).unwrap().write_all(&vec![0x77; SIZE as usize]).unwrap();
        let device = FileOptions::new().write(true).open(&path).map_err(|e| e.to_string())?;
        assert!(!device.is_zeroed());
        Ok(Box::new(device))
    }),
    ("slice of memory", |_| slice(MemoryDevice::new(Bytes::new(SIZE + 7000)))),
    ("slice of file", |dir| {
        let path = dir.join("whole.img");
        let whole = FileOptions::new().create(&path, Bytes::new(SIZE + 8192), Overwrite::Refuse);
        slice(whole.map_err(|e| e.to_string())?)
    }),
    ("fault without rules on sparse", |_| {
        Ok(Box::new(FaultDevice::new(SparseDevice::new(Bytes::new(SIZE)))))
    }),
    ("fault with spent rules on file", |dir| {
        let device = FaultDevice::new(create(dir, &FileOptions::new())?);
        device.add(Rule::new(Outcome::IO).times(1));
        assert!(device.flush().is_err());
        Ok(Box::new(device))
    }),
    ("stats on trace on file", |dir| {
        Ok(Box::new(StatsDevice::new(TraceDevice::new(create(dir, &FileOptions::new())?, 10))))
    }),
    ("trace on fault on shared memory", |_| {
        let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new(Bytes::new(SIZE)));
        Ok(Box::new(TraceDevice::new(FaultDevice::new(memory), 10)))
    }),
    ("mapped file in memory", |_| dax(file_in_memory(SIZE)?)),
    ("mapped file in memory with old content", |_| {
        let file = file_in_memory(SIZE)?;
        file.write_at(Bytes::ZERO, &vec![0x5a; SIZE as usize]).unwrap();
        dax(file)
    }),
    ("mapped file on disk", |dir| {
        let file = FileOptions::new().create(dir.join("new.img"), Bytes::new(SIZE), Overwrite::Refuse);
        let mapped = file.and_then(dax::anywhere).map_err(|e| e.to_string())?;
        mapped.write_at(Bytes::ZERO, &vec![0x5a; SIZE as usize]).unwrap();
        mapped.write_at(Bytes::ZERO, &vec![0; SIZE as usize]).unwrap();
        Ok(Box::new(mapped))
    }),
    ("overlay of memory with old content", |_| {
        Ok(Box::new(OverlayDevice::new(MemoryDevice::from_bytes(&vec![0x5a; SIZE as usize]))))
    }),
    ("record on overlay of file", |dir| {
        Ok(Box::new(RecordDevice::new(OverlayDevice::new(create(dir, &FileOptions::new())?))))
    }),
    ("state after a power cut", |_| {
        let event = Event::Write { at: Bytes::new(77), data: vec![0x5a; 100_000].into(), durable: false };
        let mut states = CrashStates::new(MemoryDevice::new(Bytes::new(SIZE)), vec![event].into());
        states.prefix(1).map(|state| Box::new(state) as Box<dyn Device>).map_err(|e| e.to_string())
    }),
];

/// Where in relation to the end of the stack its neighbour ends, and how much that writes at a time.
const NEIGHBOUR_AT: u64 = 1 << 20;
const NEIGHBOUR_LEN: usize = 256 << 10;

/// An unnamed file in `/dev/shm`, where writers that meet take another way.
fn file_in_memory(len: u64) -> Result<FileDevice, String> {
    let file = tempfile::tempfile_in("/dev/shm").map_err(|e| format!("/dev/shm: {e}"))?;
    file.set_len(len).unwrap();
    FileDevice::from_file(file, "file in memory").map_err(|e| e.to_string())
}

fn create(dir: &Path, options: &FileOptions) -> Result<Box<dyn Device>, String> {
    let device = options.create(dir.join("new.img"), Bytes::new(SIZE), Overwrite::Refuse);
    device.map(|device| Box::new(device) as Box<dyn Device>).map_err(|e| e.to_string())
}

fn dax(file: FileDevice) -> Result<Box<dyn Device>, String> {
    dax::new(file).map_err(|e| e.to_string())
}

fn slice(whole: impl Device + 'static) -> Result<Box<dyn Device>, String> {
    let slice = SliceDevice::new(whole, Bytes::new(4097), Bytes::new(SIZE));
    slice.map(|slice| Box::new(slice) as Box<dyn Device>).map_err(|e| e.to_string())
}

fn loop_stack(options: &FileOptions, name: &str) -> Result<Stack, String> {
    let dir = tempfile::tempdir().unwrap();
    let backing = dir.path().join("backing.img");
    File::create(&backing).unwrap().set_len(SIZE).unwrap();
    let attached = LoopDevice::new(&backing, Access::ReadWrite).map_err(|reason| reason.to_string())?;
    let device = options.clone().write(true).open(attached.path()).map_err(|e| e.to_string())?;
    assert!(device.is_block_device());
    Ok(Stack { name: name.to_owned(), device: Box::new(device), _loop_device: Some(attached), _dir: dir })
}

fn make(name: &str, make: Make) -> Result<Stack, String> {
    let dir = tempfile::tempdir().unwrap();
    let device = make(dir.path())?;
    Ok(Stack { name: name.to_owned(), device, _loop_device: None, _dir: dir })
}

/// Runs a check on each stack in turn; those that cannot be made here are named.
pub(crate) fn for_each_stack(check: impl Fn(&Stack)) {
    let made = STACKS.iter().map(|(name, how)| (*name, make(name, *how)));
    let buffered = std::iter::once_with(|| ("loop device", loop_stack(&FileOptions::new(), "loop device")));
    let direct = std::iter::once_with(|| {
        let options = FileOptions::new().direct(true);
        ("loop device direct", loop_stack(&options, "loop device direct"))
    });
    for (name, stack) in made.chain(buffered).chain(direct) {
        match stack {
            Ok(stack) => check(&stack),
            Err(why) => eprintln!("skipped: {name}: {why}"),
        }
    }
}

/// Mapped files.
#[cfg(all(target_os = "linux", not(hectare_portable)))]
mod dax {
    use hectare_device::{DaxDevice, Device, FileDevice, Result};

    pub(super) fn new(file: FileDevice) -> Result<Box<dyn Device>> {
        Ok(Box::new(DaxDevice::new(file)?))
    }

    pub(super) fn anywhere(file: FileDevice) -> Result<DaxDevice> {
        DaxDevice::new_anywhere(file)
    }
}

/// Other hosts have none: what is tested in their place is the file itself.
#[cfg(not(all(target_os = "linux", not(hectare_portable))))]
mod dax {
    use hectare_device::{Device, FileDevice, Result};

    pub(super) fn new(file: FileDevice) -> Result<Box<dyn Device>> {
        Ok(Box::new(file))
    }

    pub(super) fn anywhere(file: FileDevice) -> Result<FileDevice> {
        Ok(file)
    }
}
