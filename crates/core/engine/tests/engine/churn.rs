//! Allocates and frees in every way at once: threads allocate, write, truncate and remove files on small
//! volumes of all shapes under all policies, mostly close to full. Afterwards every file has its expected
//! content, the counts in memory match a fresh read of the device, and e2fsck agrees.

use crate::common::{InMemory, assert_clean_bytes, format_bytes, in_memory_with, pattern, unhurried};
use hectare_device::{Device, FaultDevice, MemoryDevice, Operation, Outcome, Rule};
use hectare_engine::{Creation, Error, OpenFile, OpenOptions, Policy, Volume};
use hectare_oracle::hunt::{self, long};
use hectare_oracle::trees::Random;
use hectare_oracle::{skip, skip_part};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

/// Volumes with little room: name, features, other arguments, and size.
const SHAPES: [(&str, &str, &[&str], &str); 8] = [
    ("one group", "^has_journal", &["-b", "1024", "-m", "0", "-N", "256"], "4M"),
    (
        "groups of 1024",
        "^has_journal",
        &["-b", "1024", "-g", "1024", "-G", "4", "-m", "5", "-N", "512"],
        "8M",
    ),
    ("no flex_bg", "^flex_bg,^has_journal", &["-b", "1024", "-g", "2048", "-N", "512"], "8M"),
    ("bigalloc", "bigalloc,^has_journal", &["-b", "1024", "-C", "8192", "-m", "0", "-N", "256"], "8M"),
    (
        "bigalloc in groups",
        "bigalloc,^has_journal",
        &["-b", "2048", "-C", "8192", "-g", "256", "-N", "512"],
        "16M",
    ),
    ("blocks of 4 KiB", "^has_journal", &["-b", "4096", "-N", "256"], "12M"),
    ("block maps", "^extents,^64bit,^has_journal", &["-b", "1024", "-m", "0", "-N", "256"], "4M"),
    (
        "block maps in groups",
        "^extents,^64bit,^flex_bg,^has_journal",
        &["-b", "1024", "-g", "1024", "-N", "512"],
        "8M",
    ),
];

const THREADS: u64 = 3;
const FILE_MAX: u64 = 700_000;

/// A file and what it should hold.
struct Model {
    name: String,
    file: OpenFile,
    content: Vec<u8>,
    named: bool,
}

impl Model {
    fn new(volume: &Volume, name: String) -> Option<Self> {
        match volume.create_file(&name, Creation::default()) {
            Ok(file) => Some(Self { name, file, content: Vec::new(), named: true }),
            Err(Error::NoSpace | Error::NoInodes) => None,
            Err(other) => panic!("{name}: {other}"),
        }
    }

    fn write(&mut self, at: u64, len: usize, seed: u64) {
        let data = pattern(seed, at, len);
        let done = match self.file.write_at(at, &data) {
            Ok(done) => done,
            Err(Error::NoSpace) => return,
            Err(other) => panic!("{}: {other}", self.name),
        };
        assert!(done > 0, "{}: nothing was written, and nothing said", self.name);
        let (start, end) = (at as usize, at as usize + done);
        self.content.resize(self.content.len().max(end), 0);
        self.content[start..end].copy_from_slice(&data[..done]);
    }

    fn allocate(&mut self, at: u64, len: u64, keep_size: bool) {
        let size = self.content.len() as u64;
        match self.file.allocate(at, len, keep_size) {
            Ok(()) if keep_size => {}
            Ok(()) => self.content.resize(self.content.len().max((at + len) as usize), 0),
            Err(Error::NoSpace) => {
                let got = self.file.metadata().unwrap().size;
                assert!(got >= size && (got == size || (!keep_size && got <= at + len)), "{}", self.name);
                self.content.resize(got as usize, 0);
            }
            Err(Error::Unsupported(what)) if what.contains("mapped by blocks") => {}
            Err(other) => panic!("{}: {other}", self.name),
        }
    }

    fn check(&self) {
        assert_eq!(self.file.metadata().unwrap().size, self.content.len() as u64, "{}", self.name);
        let mut read = vec![0xaa; self.content.len() + 1];
        assert_eq!(self.file.read_at(0, &mut read).unwrap(), self.content.len(), "{}", self.name);
        if let Some(at) = (0..self.content.len()).find(|at| read[*at] != self.content[*at]) {
            panic!("{}: byte {at} is {}, should be {}", self.name, read[at], self.content[at]);
        }
    }
}

fn step(volume: &Volume, files: &mut Vec<Model>, random: &mut Random, thread: u64, number: u64) {
    if files.len() < 2 || (files.len() < 12 && random.below(6) == 0) {
        files.extend(Model::new(volume, format!("{thread}-{number}")));
    }
    if files.is_empty() {
        return;
    }
    let which = random.below(files.len() as u64) as usize;
    let file = &mut files[which];
    let (at, len) = (random.below(FILE_MAX), 1 + random.below(60_000));
    match random.below(16) {
        0..=2 => file.allocate(at, len * 4, number.is_multiple_of(2)),
        3..=5 => file.write(at, len as usize, thread),
        6 | 7 => file.write(file.content.len() as u64, len as usize, thread),
        8 => file.write(file.content.len() as u64, 1 + random.below(2000) as usize, number),
        9 | 10 => {
            let size = at.min(file.content.len() as u64 + 5000);
            file.file.set_len(size).unwrap();
            file.content.resize(size as usize, 0);
        }
        11 => {
            // Without a name it lives until it is closed.
            if std::mem::replace(&mut file.named, false) {
                volume.remove_file(&file.name).unwrap();
            }
        }
        12 | 13 => {
            let file = files.swap_remove(which);
            file.check();
            if file.named {
                volume.remove_file(&file.name).unwrap();
            }
        }
        14 => {
            let Model { name, file, content, named } = files.swap_remove(which);
            drop(file);
            if named {
                files.push(Model { file: volume.open_file(&name).unwrap(), name, content, named });
            }
        }
        _ => volume.sync().unwrap(),
    }
}

fn work(volume: &Volume, thread: u64, case: u64, steps: u64) -> Vec<(String, Vec<u8>)> {
    let mut random = Random::new(&format!("churn {case}, thread {thread}"));
    let mut files = Vec::new();
    for number in 0..steps {
        step(volume, &mut files, &mut random, thread, number);
    }
    files.iter().for_each(Model::check);
    files.into_iter().filter(|file| file.named).map(|file| (file.name, file.content)).collect()
}

fn churn(case: u64, bytes: &[u8], label: &str) -> InMemory {
    let policy = Policy::ALL[(case % 6) as usize];
    let options = OpenOptions {
        policy,
        discard: case.is_multiple_of(4),
        use_reserved_blocks: case.is_multiple_of(3),
        ..OpenOptions::default()
    };
    let held = in_memory_with(bytes, options).unwrap();
    let left: Vec<_> = thread::scope(|scope| {
        let work = |thread| {
            let volume = held.volume.clone();
            scope.spawn(move || work(&volume, thread, case, 60))
        };
        let threads: Vec<_> = (0..THREADS).map(work).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    held.volume.sync().unwrap();
    let counts = held.volume.check_space().unwrap_or_else(|what| panic!("{label}: {what}"));
    assert_eq!(
        (counts.claimed.get(), counts.pending.get()),
        (0, 0),
        "{label}: after the commit nothing waits"
    );
    for (name, content) in &left {
        assert!(&held.volume.read(name).unwrap() == content, "{label}: {name}");
    }
    held
}

fn finish(held: &InMemory, label: &str) {
    let before = held.volume.statfs().unwrap();
    held.volume.close().unwrap();
    let bytes = held.device.to_vec();
    assert_clean_bytes(&bytes);
    let again = in_memory_with(&bytes, OpenOptions::read_only()).unwrap();
    let after = again.volume.statfs().unwrap();
    assert_eq!((before.free, before.free_inodes), (after.free, after.free_inodes), "{label}");
}

#[test]
fn space_is_neither_lost_nor_given_twice() {
    let cases = if long("churn, 600 cases a shape") { 600 } else { 6 };
    let cases = std::env::var("HECTARE_CHURN").map_or(cases, |n| n.parse().unwrap());
    let first = hunt::seed("churn") % 1_000_000;
    for (number, (name, features, args, size)) in SHAPES.into_iter().enumerate() {
        let args = [&["-t", "ext4", "-O", features], args].concat();
        let bytes = match format_bytes(&args, size) {
            Ok(bytes) => bytes,
            Err(reason) => {
                skip_part!(format!("churn, {name}"), reason);
                continue;
            }
        };
        for case in 0..cases {
            let label = format!("{name}, case {case} from {first}");
            let held = churn(first + case * 9 + number as u64, &bytes, &label);
            finish(&held, &label);
        }
    }
}

#[test]
fn what_is_out_to_be_discarded_is_no_reason_to_refuse() {
    let bytes = match format_bytes(&["-t", "ext4", "-b", "1024", "-m", "0", "-O", "^has_journal"], "4M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!("churn::what_is_out_to_be_discarded", reason),
    };
    let device = Arc::new(FaultDevice::new(MemoryDevice::from_bytes(&bytes)));
    let options = OpenOptions { discard: true, ..unhurried() };
    let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, options).unwrap();
    let file = volume.create_file("new", Creation::default()).unwrap();
    let all = volume.create_file("all", Creation::default()).unwrap();
    assert!(matches!(all.allocate(0, 8 << 20, false), Err(Error::NoSpace)));
    drop(all);
    volume.remove_file("all").unwrap();
    // The device takes its time to discard freed space.
    let (begun, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let slow = Rule::new(Outcome::IO).on(&[Operation::Discard]).when(move |_| {
        let _ = begun.send(());
        let _ = may_go_on.lock().unwrap().recv_timeout(Duration::from_secs(120));
        false
    });
    device.add(slow);
    thread::scope(|scope| {
        scope.spawn(|| volume.sync().unwrap());
        has_begun.recv_timeout(Duration::from_secs(120)).unwrap();
        // Except a block that would have needed another for the extent tree.
        let kept = volume.superblock().geometry().clusters_count().get() / 50;
        assert!(volume.check_space().unwrap().available.get() <= kept + 1, "all of it is out");
        let writer = scope.spawn(|| file.write_at(0, &[7; 5000]));
        thread::sleep(Duration::from_millis(50));
        drop(go_on);
        assert_eq!(writer.join().unwrap().unwrap(), 5000);
    });
    device.clear();
    drop(file);
    volume.close().unwrap();
    assert_clean_bytes(&device.inner().to_vec());
}
