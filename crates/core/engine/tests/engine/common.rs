//! Shared helpers of the tests: volumes on files and in memory, the oracle's entries of a volume, copying a
//! directory in.

use hectare_device::{Device, FaultDevice, FileOptions, MemoryDevice, Outcome, Rule};
use hectare_engine::{
    Changes, Creation, DeviceNumber, Error, Kind, Metadata, NewNode, OpenOptions, Timestamp, Volume, XattrHow,
};
use hectare_oracle::compare::Times;
use hectare_oracle::filled::Maker;
use hectare_oracle::{Combo, Content, Entry, Filled, Skip, Time, What};
use hectare_units::InodeNr;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Whether an error is that of a device that failed (`EIO`).
pub(crate) fn is_io(error: &Error) -> bool {
    matches!(error, Error::Device(error) if error.raw_os_error() == 5)
}

pub(crate) fn open_image(image: &Path) -> Volume {
    let device = FileOptions::new().write(true).open(image).unwrap();
    Volume::open(Arc::new(device), OpenOptions::default()).unwrap()
}

pub(crate) fn try_open_image(image: &Path, options: OpenOptions) -> Result<Volume, Error> {
    let device = FileOptions::new().write(!options.read_only).open(image).unwrap();
    Volume::open(Arc::new(device), options)
}

pub(crate) fn open_read_only(image: &Path) -> Volume {
    try_open_image(image, OpenOptions::read_only()).unwrap()
}

/// A volume in memory, with its device.
pub(crate) struct InMemory {
    pub(crate) device: Arc<MemoryDevice>,
    pub(crate) volume: Volume,
}

/// The bytes of a fresh volume.
pub(crate) fn format_bytes(args: &[&str], size: &str) -> Result<Vec<u8>, Skip> {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    hectare_oracle::mke2fs(args, &image, size)?;
    Ok(std::fs::read(&image).unwrap())
}

/// The same volume, whose superblock requests `data=journal`.
pub(crate) fn journalling_data(bytes: &[u8]) -> Result<Vec<u8>, Skip> {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    save(bytes, &image);
    hectare_oracle::debugfs_write(&image, &["ssv default_mount_opts 0x2c"])?;
    Ok(std::fs::read(&image).unwrap())
}

/// One that is committed only on request.
pub(crate) fn in_memory(bytes: &[u8]) -> InMemory {
    in_memory_with(bytes, unhurried()).unwrap()
}

/// No background thread, which might act between a test's operations and its checks.
pub(crate) fn unhurried() -> OpenOptions {
    OpenOptions { commit_interval: None, ..OpenOptions::default() }
}

pub(crate) fn in_memory_with(bytes: &[u8], options: OpenOptions) -> Result<InMemory, Error> {
    let device = Arc::new(MemoryDevice::from_bytes(bytes));
    let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, options)?;
    Ok(InMemory { device, volume })
}

/// Runs `workload` on a volume with these bytes again and again, with one operation of its device failing, the
/// next each time: all that may come of it is the error of the device. `left` gets what is on the device then, and
/// which operation it was. Returns how many operations there are.
pub(crate) fn each_operation_failing(
    bytes: &[u8],
    options: impl Fn() -> OpenOptions,
    workload: fn(&Volume) -> Result<(), Error>,
    left: impl Fn(&[u8], u64),
) -> u64 {
    for k in 0.. {
        let memory = Arc::new(MemoryDevice::from_bytes(bytes));
        let device = Arc::new(FaultDevice::new(Arc::clone(&memory)));
        device.add(Rule::new(Outcome::IO).after(k).times(1));
        let result = Volume::open(Arc::clone(&device) as Arc<dyn Device>, options())
            .and_then(|volume| workload(&volume));
        if device.strikes() == 0 {
            result.unwrap();
            assert_clean_bytes(&memory.to_vec());
            return k;
        }
        if let Err(error) = result {
            let known = matches!(error, Error::Aborted(_)) || is_io(&error);
            assert!(known, "operation {k}: {error}");
        }
        left(&memory.to_vec(), k);
    }
    unreachable!("some operation is the last")
}

/// Writes bytes to a file, zeros as holes.
pub(crate) fn save(bytes: &[u8], image: &Path) {
    hectare_oracle::sparse::save(image, bytes).unwrap();
}

/// Fails unless e2fsck finds the bytes clean.
#[track_caller]
pub(crate) fn assert_clean_bytes(bytes: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    save(bytes, &image);
    hectare_oracle::assert_clean(&image).unwrap();
}

/// Likewise, except nodes of trees that were split all over and could be fewer, as the kernel's could.
#[track_caller]
pub(crate) fn assert_clean_but_wide_bytes(bytes: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    save(bytes, &image);
    hectare_oracle::assert_clean_but_wide(&image, |_| true).unwrap();
}

/// Closes a volume in memory and fails unless e2fsck finds it clean, and no corruption was found.
#[track_caller]
pub(crate) fn close_clean(held: &InMemory) {
    assert_eq!(held.volume.found_errors(), None);
    held.volume.close().unwrap();
    assert_clean_bytes(&held.device.to_vec());
}

/// What can be compared with a filled volume: `mke2fs -d` keeps no fractions of seconds, and not the root's
/// times.
pub(crate) fn what_of(combo: &Combo, filled: &Filled) -> What {
    match filled.maker() {
        Maker::Kernel => what(combo),
        Maker::Mke2fs => What { mtimes: Times::Ignored, ..what(combo) },
    }
}

/// The comparable properties of a volume of a combination.
pub(crate) fn what(combo: &Combo) -> What {
    let mtimes = if combo.inode_size == 128 { Times::Seconds } else { Times::Exact };
    What { mtimes, holes: Some(u64::from(combo.block_size).max(4096)), ..What::all() }
}

fn time(stamp: Timestamp) -> Time {
    Time { secs: stamp.seconds, nanos: stamp.nanoseconds }
}

fn stamp(time: Time) -> Timestamp {
    Timestamp { seconds: time.secs, nanoseconds: time.nanos }
}

/// Everything on a volume, in the oracle's form.
pub(crate) fn entries_of(volume: &Volume) -> Vec<Entry> {
    try_entries_of(volume).unwrap()
}

pub(crate) fn try_entries_of(volume: &Volume) -> Result<Vec<Entry>, Error> {
    let mut entries = Vec::new();
    let mut folders = vec![(Vec::new(), InodeNr::ROOT)];
    entries.push(entry(volume, Vec::new(), InodeNr::ROOT)?);
    while let Some((folder, nr)) = folders.pop() {
        for found in volume.list(nr)? {
            let path = if folder.is_empty() {
                found.name.clone()
            } else {
                [&folder, &b"/"[..], &found.name].concat()
            };
            let entry = entry(volume, path.clone(), found.inode)?;
            if entry.kind == hectare_oracle::Kind::Directory {
                folders.push((path, found.inode));
            }
            entries.push(entry);
        }
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(entries)
}

fn entry(volume: &Volume, path: Vec<u8>, nr: InodeNr) -> Result<Entry, Error> {
    let metadata = volume.stat(nr)?;
    let mut entry = Entry::new(path, kind(&metadata));
    entry.mode = metadata.permissions;
    (entry.uid, entry.gid) = (metadata.uid, metadata.gid);
    entry.nlink = metadata.links.into();
    entry.size = metadata.size;
    entry.inode = nr.get().into();
    entry.device = (metadata.device.major, metadata.device.minor);
    (entry.mtime, entry.atime) = (time(metadata.mtime), time(metadata.atime));
    for name in volume.list_xattrs(nr)? {
        let value = volume.get_xattr(nr, &name)?;
        entry.xattrs.insert(name, value);
    }
    match metadata.kind {
        Kind::Symlink => entry.target = volume.read_link_at(nr)?,
        Kind::File => (entry.data, entry.digest) = content(volume, nr, metadata.size)?,
        _ => {}
    }
    Ok(entry)
}

fn kind(metadata: &Metadata) -> hectare_oracle::Kind {
    match metadata.kind {
        Kind::File => hectare_oracle::Kind::File,
        Kind::Directory => hectare_oracle::Kind::Directory,
        Kind::Symlink => hectare_oracle::Kind::Symlink,
        Kind::Fifo => hectare_oracle::Kind::Fifo,
        Kind::Socket => hectare_oracle::Kind::Socket,
        Kind::CharDevice => hectare_oracle::Kind::Char,
        Kind::BlockDevice => hectare_oracle::Kind::Block,
    }
}

type Data = Vec<(u64, u64)>;

fn content(volume: &Volume, nr: InodeNr, size: u64) -> Result<(Data, [u8; 32]), Error> {
    let file = volume.open_inode(nr)?;
    let ranges = file.data_ranges()?;
    let mut buffer = vec![0; 1 << 20];
    let mut digest = Content::new();
    for (start, len) in &ranges {
        let (mut at, end) = (*start, start + len);
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            let n = file.read_at(at, &mut buffer[..want])?;
            assert!(n > 0, "inode {nr} ends at {at}, but its data is reported up to {end}");
            digest.add(at, &buffer[..n]);
            at += n as u64;
        }
    }
    Ok((ranges, digest.finish(size)))
}

/// Copies a directory of the host into a volume, with all metadata.
pub(crate) fn copy_in(volume: &Volume, folder: &Path) -> Vec<Entry> {
    let entries = hectare_oracle::walk(folder);
    let mut first_names: HashMap<u64, Vec<u8>> = HashMap::new();
    for entry in &entries {
        let seen =
            (entry.kind != hectare_oracle::Kind::Directory).then(|| first_names.get(&entry.inode)).flatten();
        if let Some(first) = seen {
            volume.hard_link(first, &entry.path).unwrap();
            continue;
        }
        first_names.insert(entry.inode, entry.path.clone());
        copy_one(volume, folder, entry);
    }
    // Deepest first: filling a directory changes its times.
    for entry in entries.iter().rev() {
        let nr = volume.resolve(&entry.path, false).unwrap();
        let (atime, mtime) = (Some(stamp(entry.atime)), Some(stamp(entry.mtime)));
        volume.change(nr, &Changes { atime, mtime, ..Changes::default() }).unwrap();
    }
    entries
}

fn copy_one(volume: &Volume, folder: &Path, entry: &Entry) {
    use hectare_oracle::Kind as K;
    let number = DeviceNumber { major: entry.device.0, minor: entry.device.1 };
    let node = match entry.kind {
        K::File => NewNode::File,
        K::Directory => NewNode::Directory,
        K::Symlink => NewNode::Symlink(&entry.target),
        K::Fifo => NewNode::Fifo,
        K::Socket => NewNode::Socket,
        K::Char => NewNode::CharDevice(number),
        K::Block => NewNode::BlockDevice(number),
    };
    let creation = Creation { permissions: entry.mode, umask: 0, uid: entry.uid, gid: entry.gid };
    let nr =
        if entry.path.is_empty() { InodeNr::ROOT } else { volume.make(&entry.path, node, creation).unwrap() };
    if entry.kind == K::File {
        copy_content(volume, folder, entry, nr);
    }
    // What it inherited from a default ACL above is not its own.
    for name in volume.list_xattrs(nr).unwrap() {
        volume.remove_xattr(nr, &name).unwrap();
    }
    for (name, value) in &entry.xattrs {
        volume.set_xattr(nr, name, value, XattrHow::Either).unwrap();
    }
    let permissions = (entry.kind != K::Symlink).then_some(entry.mode);
    let (uid, gid) = (Some(entry.uid), Some(entry.gid));
    volume.change(nr, &Changes { permissions, uid, gid, ..Changes::default() }).unwrap();
}

fn copy_content(volume: &Volume, folder: &Path, entry: &Entry, nr: InodeNr) {
    use std::os::unix::ffi::OsStrExt;
    let source = File::open(folder.join(std::ffi::OsStr::from_bytes(&entry.path))).unwrap();
    let target = volume.open_inode(nr).unwrap();
    let mut buffer = vec![0; 1 << 20];
    for (start, len) in &entry.data {
        let (mut at, end) = (*start, start + len);
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            source.read_exact_at(&mut buffer[..want], at).unwrap();
            target.write_all_at(at, &buffer[..want]).unwrap();
            at += want as u64;
        }
    }
    target.set_len(entry.size).unwrap();
}

/// Bytes that identify their offset and their file.
pub(crate) fn pattern(seed: u64, at: u64, len: usize) -> Vec<u8> {
    (at..at + len as u64).map(|n| ((n ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}
