//! Fuzz target: a volume with the feature `fast_commit`: after each sync of a file, a volume opened from a copy of
//! the device holds the names and contents of a model that the same program changed.
//!
//! All that the program did before a sync is recovered, not only the synced file: nothing is buffered here.

use crate::input::Input;
use hectare_device::{Device, MemoryDevice};
use hectare_engine::{
    Changes, Creation, FallocateMode, OpenFile, OpenOptions, Overwrite, RenameMode, Timestamp, Volume,
};
use hectare_mkfs::{FormatOptions, parse_features};
use hectare_units::{BlockSize, Bytes, index_of, u64_of};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

/// Bytes of the volume: the smallest journal, and twice as much.
const LEN: Bytes = Bytes::mib(4);
/// Operations of a program at most.
const STEPS: usize = 48;
const NAMES: u8 = 6;
/// No byte of a file lies behind this one.
const FILE_LEN_MAX: u64 = 60_000;

/// Files by name; two names may be of one file.
type Model = BTreeMap<String, Rc<RefCell<Vec<u8>>>>;

pub(super) fn target(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let device = Arc::new(MemoryDevice::from_bytes(base()));
    let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, options()).expect("the base is sound");
    let mut model = Model::new();
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        step(&volume, &mut model, &mut input, &device);
    }
    volume.close().expect("it can be closed");
    compare(&device, &model);
}

fn options() -> OpenOptions {
    OpenOptions {
        commit_interval: None,
        delayed_bytes: 0,
        cache_bytes: 1 << 18,
        cache_inodes: 64,
        fixed_time: Some(Timestamp { seconds: 1_700_000_000, nanoseconds: 1 }),
        seed: Some(1),
        ..OpenOptions::default()
    }
}

/// An empty volume with the feature `fast_commit`.
fn base() -> &'static [u8] {
    static BASE: OnceLock<Vec<u8>> = OnceLock::new();
    BASE.get_or_init(|| {
        let device = Arc::new(MemoryDevice::new(LEN));
        let format = FormatOptions {
            block_size: Some(BlockSize::KIB1),
            features: parse_features("fast_commit").expect("there is such a feature"),
            uuid: Some([7; 16]),
            hash_seed: Some([8; 16]),
            ..FormatOptions::default()
        };
        let shared = Arc::clone(&device) as Arc<dyn Device>;
        let volume = Volume::format(shared, &format, Overwrite::Refuse, options()).expect("it has room");
        volume.close().expect("it can be closed");
        let mut bytes = vec![0; index_of(LEN.get())];
        device.read_at(Bytes::ZERO, &mut bytes).expect("it is memory");
        bytes
    })
}

fn step(volume: &Volume, model: &mut Model, input: &mut Input<'_>, device: &MemoryDevice) {
    let name = |input: &mut Input<'_>| format!("f{}", input.byte() % NAMES);
    let what = input.byte() % 16;
    let (path, other) = (name(input), name(input));
    match what {
        0..=6 => write(volume, model, input, &path),
        7 => {
            assert_eq!(volume.remove_file(&path).is_ok(), model.remove(&path).is_some());
        }
        8 | 9 => rename(volume, model, &path, &other),
        10 => {
            let linked = volume.hard_link(&path, &other).is_ok();
            let file = model.get(&path).filter(|_| !model.contains_key(&other)).map(Rc::clone);
            assert_eq!(linked, file.is_some());
            model.extend(file.map(|file| (other, file)));
        }
        11 => change(volume, model, &path, |file, content| {
            let to = u64::from(input.word()).min(FILE_LEN_MAX);
            file.set_len(to).expect("it has room");
            content.resize(index_of(to), 0);
        }),
        12 => change(volume, model, &path, |file, content| {
            let (at, len) = (u64::from(input.word()), 1 + u64::from(input.word()));
            file.fallocate(FallocateMode::PunchHole, at, len).expect("a hole takes no room");
            let end = index_of(at + len).min(content.len());
            if let Some(hole) = content.get_mut(index_of(at)..end) {
                hole.fill(0);
            }
        }),
        13 => change(volume, model, &path, |file, _| {
            let at = u64::from(input.word()).min(FILE_LEN_MAX);
            file.allocate(at, 1 + u64::from(input.byte()) * 16, true).expect("it has room");
        }),
        14 => change(volume, model, &path, |file, _| {
            let changes = Changes { uid: Some(input.byte().into()), ..Changes::default() };
            volume.change(file.inode(), &changes).expect("it is there");
        }),
        _ => volume.sync().expect("the device works"),
    }
    if what < 15 && input.byte() & 1 == 0 && model.contains_key(&path) {
        let file = volume.open_file(&path).expect("it is there");
        // The sync of a file that has not changed is none of the others.
        let changes = Changes { gid: Some(1), ..Changes::default() };
        volume.change(file.inode(), &changes).expect("it is there");
        file.sync().expect("the device works");
        compare(device, model);
    }
}

fn write(volume: &Volume, model: &mut Model, input: &mut Input<'_>, path: &str) {
    if !model.contains_key(path) {
        volume.create_file(path, Creation::default()).expect("it has room");
        model.insert(path.to_owned(), Rc::default());
    }
    change(volume, model, path, |file, content| {
        let (at, len) =
            (index_of(u64::from(input.word()).min(FILE_LEN_MAX)), 1 + usize::from(input.byte()) * 16);
        let data = vec![1 + input.byte() % 255; len];
        file.write_all_at(u64_of(at), &data).expect("it has room");
        let end = content.len().max(at + len);
        content.resize(end, 0);
        content[at..at + len].copy_from_slice(&data);
    });
}

fn change(volume: &Volume, model: &Model, path: &str, change: impl FnOnce(&OpenFile, &mut Vec<u8>)) {
    if let Some(content) = model.get(path) {
        let file = volume.open_file(path).expect("it is there");
        change(&file, &mut content.borrow_mut());
    }
}

fn rename(volume: &Volume, model: &mut Model, path: &str, to: &str) {
    assert_eq!(volume.rename_path(path, to, RenameMode::Replace).is_ok(), model.contains_key(path));
    let same =
        |model: &Model| model.get(path).zip(model.get(to)).is_some_and(|(from, to)| Rc::ptr_eq(from, to));
    // Of two names of one file, both stay.
    if !same(model)
        && let Some(file) = model.remove(path)
    {
        model.insert(to.to_owned(), file);
    }
}

/// What a crash now leaves is the model.
fn compare(device: &MemoryDevice, model: &Model) {
    let copy: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&device.to_vec()));
    let volume = Volume::open(copy, options()).expect("what a crash leaves can be opened");
    volume.check_space().expect("all space has one owner");
    let names = volume.read_dir("/").expect("the root can be read").into_iter();
    let mut found: Vec<Vec<u8>> = names.map(|entry| entry.name.to_vec()).collect();
    found.retain(|name| ![&b"."[..], b"..", b"lost+found"].contains(&&name[..]));
    found.sort_unstable();
    let expected: Vec<Vec<u8>> = model.keys().map(|name| name.as_bytes().to_vec()).collect();
    assert_eq!(found, expected);
    for (name, content) in model {
        let read = volume.read(name).expect("it can be read");
        assert!(read == *content.borrow(), "{name} differs");
    }
}
