//! Drives the adapter from bytes, without a mount: lifetimes that a kernel would hardly show, and requests
//! that no kernel would send.

use hectare_device::{FaultDevice, MemoryDevice, Operation, Outcome, Rule};
use hectare_engine::{Caller, Changes, Creation, InodeFlags, NewNode, OpenOptions, Overwrite, Volume};
use hectare_fuse::client::Client;
use hectare_fuse::{Adapter, Behaviour};
use hectare_mkfs::FormatOptions;
use hectare_units::{Bytes, InodeNr};
use std::sync::Arc;
use std::time::Duration;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const UNLINK: u32 = 10;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const STATFS: u32 = 17;
const RELEASE: u32 = 18;
const SETXATTR: u32 = 21;
const GETXATTR: u32 = 22;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const OPENDIR: u32 = 27;
const CREATE: u32 = 35;
const READDIR: u32 = 28;
const DESTROY: u32 = 38;
const IOCTL: u32 = 39;
const BATCH_FORGET: u32 = 42;
const FALLOCATE: u32 = 43;
const COPY_FILE_RANGE: u32 = 47;
const TMPFILE: u32 = 51;
const STATX: u32 = 52;
const LINK: u32 = 13;
const LAST: u32 = 53;

const ROOT: u64 = 1;
const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EINVAL: i32 = 22;
const EFBIG: i32 = 27;
const ENOSPC: i32 = 28;
const EDQUOT: i32 = 122;
const ENOSYS: i32 = 38;
const ESTALE: i32 = 116;

fn behaviour() -> Behaviour {
    Behaviour { writeback: false, creation_times: true, ..Behaviour::default() }
}

fn volume() -> Volume {
    let device = Arc::new(MemoryDevice::new(Bytes::mib(16)));
    Volume::format(device, &FormatOptions::default(), Overwrite::Refuse, OpenOptions::default()).unwrap()
}

fn client(volume: &Volume) -> Client {
    Client::start(Adapter::new(volume.clone(), behaviour(), Arc::default()).unwrap())
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn quads(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn quad(answer: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(*answer[at..].first_chunk().unwrap())
}

fn read_request(at: u64, size: u32) -> Vec<u8> {
    [quads(&[0, at]), words(&[size, 0]), quads(&[0]), words(&[0, 0])].concat()
}

fn write_request(at: u64, data: &[u8]) -> Vec<u8> {
    let size = u32::try_from(data.len()).unwrap();
    [quads(&[0, at]), words(&[size, 0]), quads(&[0]), words(&[0, 0]), data.to_vec()].concat()
}

/// The fields that `valid` selects: a size, the modification time and the change time, in seconds.
fn setattr_request(valid: u32, size: u64, [mtime, ctime]: [u64; 2]) -> Vec<u8> {
    [words(&[valid, 0]), quads(&[0, size, 0, 0, mtime, ctime]), words(&[0; 8])].concat()
}

fn resize_request(size: u64) -> Vec<u8> {
    const SIZE: u32 = 1 << 3;
    const KILL_PRIVILEGES: u32 = 1 << 11;
    setattr_request(SIZE | KILL_PRIVILEGES, size, [0, 0])
}

fn inode_of(node: u64) -> InodeNr {
    InodeNr::new(u32::try_from(node).unwrap())
}

fn add_flag(volume: &Volume, node: u64, flag: InodeFlags) {
    let flags = volume.inode_flags(inode_of(node)).unwrap() | flag;
    volume.set_inode_flags(inode_of(node), flags, &Caller::ROOT).unwrap();
}

fn create(client: &mut Client, name: &str) -> u64 {
    create_open(client, name).0
}

/// A new file and its handle.
fn create_open(client: &mut Client, name: &str) -> (u64, u64) {
    let body = [words(&[2, 0o100_644, 0o022, 0]), name.as_bytes().to_vec(), vec![0]].concat();
    let made = client.ask(CREATE, ROOT, &body).unwrap();
    (quad(&made, 0), quad(&made, 128))
}

fn release(client: &mut Client, node: u64, handle: u64) {
    client.ask(RELEASE, node, &quads(&[handle, 0, 0])).unwrap();
}

#[test]
fn an_unlinked_file_lives_until_it_is_closed_and_forgotten() {
    let volume = volume();
    let free = volume.statfs().unwrap().free_inodes;
    let mut client = client(&volume);
    let (node, handle) = create_open(&mut client, "it");
    assert_eq!(client.ask(WRITE, node, &write_request(0, b"still here")).unwrap()[..4], [10, 0, 0, 0]);
    client.ask(UNLINK, ROOT, b"it\0").unwrap();
    assert_eq!(client.ask(READ, node, &read_request(6, 100)).unwrap(), b"here");
    release(&mut client, node, handle);
    assert_eq!(client.ask(READ, node, &read_request(6, 100)).unwrap(), b"here");
    assert_eq!(volume.statfs().unwrap().free_inodes, free - 1);
    client.tell(FORGET, node, &quads(&[1]));
    assert_eq!(client.ask(GETATTR, node, &[0; 16]), Err(ESTALE));
    assert_eq!(volume.statfs().unwrap().free_inodes, free);
}

#[test]
fn a_name_that_is_not_there_may_be_remembered() {
    let mut client = client(&volume());
    let answer = client.ask(LOOKUP, ROOT, b"nothing\0").unwrap();
    assert_eq!(quad(&answer, 0), 0, "no inode");
    assert!(quad(&answer, 16) > 3600, "for long");
    assert_eq!(client.ask(LOOKUP, 77, b"nothing\0"), Err(ESTALE));
    assert_eq!(client.ask(UNLINK, ROOT, b"nothing\0"), Err(ENOENT));
}

/// When the kernel writes back what it buffers, its time arrives, too.
#[test]
fn times_of_what_was_written_before_a_file_became_immutable_are_no_error() {
    let volume = volume();
    let mut client = client(&volume);
    let node = create(&mut client, "f");
    add_flag(&volume, node, InodeFlags::IMMUTABLE);
    const TIMES: u32 = 1 << 5 | 1 << 10;
    const OF_OPEN_FILE: u32 = 1 << 6;
    for ctime in [1000, 2000] {
        let request = setattr_request(TIMES | OF_OPEN_FILE, 0, [1000, ctime]);
        client.ask(SETATTR, node, &request).unwrap();
    }
    // Not open for writing: a program sets them.
    assert_eq!(client.ask(SETATTR, node, &setattr_request(TIMES, 0, [3000, 3000])), Err(EPERM));
    assert_ne!(volume.metadata("f").unwrap().mtime.seconds, 3000);
}

/// As the kernel's own file system: a refused request leaves the file as it was, including its set-ID bits.
#[test]
fn regression_the_kernel_hears_of_set_id_bits_that_changing_content_takes() {
    const TRUNC: u32 = 0o1000;
    let volume = volume();
    let mut client = client(&volume);
    let node = create(&mut client, "f");
    let nr = inode_of(node);
    let mode = || volume.metadata("f").unwrap().permissions;
    let make_set_id = || {
        volume.change(nr, &Changes { permissions: Some(0o4755), ..Changes::default() }).unwrap();
    };
    let mut write = write_request(0, b"text");
    write[20] = 4; // WRITE_KILL_SUIDGID
    for (operation, body) in [
        (WRITE, write),
        (SETATTR, resize_request(2)),
        (SETATTR, resize_request(2)), // changes nothing but the bits
        (OPEN, words(&[TRUNC | 1, 1])),
    ] {
        make_set_id();
        client.ask(operation, node, &body).unwrap();
        assert_eq!((client.stale(), mode()), (Some(node), 0o755), "{operation}");
        client.ask(GETATTR, node, &[0; 16]).unwrap();
        assert_eq!(client.stale(), None);
    }
    make_set_id();
    assert_eq!(client.ask(SETATTR, node, &resize_request(1 << 60)), Err(EFBIG));
    assert_eq!((client.stale(), mode()), (None, 0o4755));
    add_flag(&volume, node, InodeFlags::APPEND);
    assert_eq!(client.ask(SETATTR, node, &resize_request(0)), Err(EPERM));
    assert_eq!((client.stale(), mode()), (None, 0o4755));
}

/// All handles of a file shared what they had heard: the second `fsync` returned 0, of what its writer had
/// lost.
#[test]
fn regression_every_handle_hears_of_a_lost_write_once() {
    // The quota of a host is no limit of ours: a request that fails by it is not made again.
    for errno in [ENOSPC, EDQUOT] {
        every_handle_hears_of(errno);
    }
}

fn every_handle_hears_of(errno: i32) {
    let device = Arc::new(FaultDevice::new(MemoryDevice::new(Bytes::mib(16))));
    let (format, open) = (FormatOptions::default(), OpenOptions::default());
    let volume = Volume::format(Arc::clone(&device) as _, &format, Overwrite::Refuse, open).unwrap();
    let mut client = client(&volume);
    let (node, first) = create_open(&mut client, "f");
    let second = quad(&client.ask(OPEN, node, &words(&[2, 0])).unwrap(), 0);
    client.ask(WRITE, node, &write_request(0, &[7; 9000])).unwrap();
    device.add(Rule::new(Outcome::Fail(errno)).on(&[Operation::Write]));
    volume.place_aged(Duration::ZERO);
    device.clear();
    let sync = |client: &mut Client, handle| client.ask(FSYNC, node, &quads(&[handle, 0])).map(drop);
    for expected in [Err(errno), Ok(())] {
        for handle in [first, second] {
            assert_eq!(sync(&mut client, handle), expected, "{handle}");
        }
    }
    release(&mut client, node, first);
    assert_eq!(sync(&mut client, second), Ok(()));
}

/// The kernel takes an error for no change, and kept the old size and pages of what had changed in part.
#[test]
fn regression_the_kernel_drops_what_a_failed_request_may_have_changed() {
    let memory = Arc::new(MemoryDevice::new(Bytes::mib(16)));
    let device = Arc::new(FaultDevice::new(memory));
    let (format, open) = (FormatOptions::default(), OpenOptions::default());
    let volume = Volume::format(Arc::clone(&device) as _, &format, Overwrite::Refuse, open).unwrap();
    let mut client = client(&volume);
    let (node, other) = (create(&mut client, "f"), create(&mut client, "g"));
    client.ask(WRITE, node, &write_request(0, &[7; 100_000])).unwrap();
    client.ask(WRITE, other, &write_request(0, &[8; 100_000])).unwrap();
    assert_eq!(client.stale(), None);
    device.add(Rule::new(Outcome::IO).on(&[Operation::Write]));
    let zero = [quads(&[0, 100, 50_000]), words(&[16 | 1, 0])].concat();
    let copy = quads(&[0, 0, other, 0, 0, 100_000, 0]);
    for (operation, body, stale) in
        [(WRITE, write_request(0, b"text"), node), (FALLOCATE, zero, node), (COPY_FILE_RANGE, copy, other)]
    {
        assert_eq!(client.ask(operation, node, &body), Err(EIO), "{operation}");
        assert_eq!(client.stale(), Some(stale), "{operation}");
    }
    device.clear();
}

/// What the kernel learns once and for all, unless an option asks for the requests.
#[test]
fn needless_requests_are_refused_for_good_or_answered() {
    let volume = volume();
    let wanted = Behaviour { ask_flush: true, ask_opendir: true, ..behaviour() };
    for (behaviour, answered) in [(behaviour(), false), (wanted, true)] {
        let mut client = Client::start(Adapter::new(volume.clone(), behaviour, Arc::default()).unwrap());
        for (operation, len) in [(FLUSH, 24), (OPENDIR, 8)] {
            let answer = client.ask(operation, ROOT, &vec![0; len]);
            assert_eq!(answer.map(drop), if answered { Ok(()) } else { Err(ENOSYS) }, "{operation}");
        }
    }
}

#[test]
fn inodes_that_were_not_told_are_nobodys() {
    let volume = volume();
    let made = volume.create(InodeNr::ROOT, b"hidden", NewNode::File, Creation::default()).unwrap();
    let mut client = client(&volume);
    // The ext4 root by its own number, the journal, and a file that was never looked up.
    for node in [0, 2, 8, u64::from(made.get()), u64::MAX] {
        assert_eq!(client.ask(GETATTR, node, &[0; 16]), Err(ESTALE), "{node}");
        assert_eq!(client.ask(WRITE, node, &write_request(0, b"x")), Err(ESTALE), "{node}");
    }
    // A client with a file handle asks for ".", and never gets an inode of the format.
    assert_eq!(client.ask(LOOKUP, 8, b".\0").map(|answer| quad(&answer, 0)), Ok(0));
    let found = client.ask(LOOKUP, made.get().into(), b".\0").unwrap();
    assert_eq!(quad(&found, 0), u64::from(made.get()));
    assert_eq!(quad(&client.ask(LOOKUP, made.get().into(), b"..\0").unwrap_or(vec![0; 8]), 0), 0);
}

#[test]
fn times_before_1970_arrive_as_they_were_sent() {
    let volume = volume();
    let mut client = client(&volume);
    let node = create(&mut client, "old");
    const MTIME: u32 = 1 << 5;
    let (seconds, nanoseconds) = (-86_400_i64, 250_000_000);
    let body = [
        words(&[MTIME, 0]),
        quads(&[0, 0, 0, 0, seconds.cast_unsigned(), 0]),
        words(&[0, nanoseconds, 0, 0, 0, 0, 0, 0]),
    ]
    .concat();
    client.ask(SETATTR, node, &body).unwrap();
    let mtime = volume.metadata("old").unwrap().mtime;
    assert_eq!((mtime.seconds, mtime.nanoseconds), (seconds, nanoseconds));
}

/// A time that no inode can hold becomes the nearest that it can.
#[test]
fn times_that_are_too_early_are_the_earliest() {
    let volume = volume();
    let mut client = client(&volume);
    let node = create(&mut client, "old");
    let never = [words(&[1 << 4, 0]), quads(&[0, 0, 0, 1 << 63, 0, 0]), words(&[0; 8])].concat();
    client.ask(SETATTR, node, &never).unwrap();
    assert_eq!(volume.metadata("old").unwrap().atime.seconds, i64::from(i32::MIN));
}

#[test]
fn a_file_without_a_name_lives_until_it_is_closed_or_gets_one() {
    let volume = volume();
    let free = volume.statfs().unwrap().free_inodes;
    let mut client = client(&volume);
    let nameless = |client: &mut Client, flags: u32| {
        let made = client.ask(TMPFILE, ROOT, &words(&[flags, 0o100_600, 0, 0])).unwrap();
        assert_eq!(made.len(), 128 + 16, "an entry, and that it is open");
        (quad(&made, 0), quad(&made, 128))
    };
    let (lost, handle) = nameless(&mut client, 2);
    client.ask(WRITE, lost, &write_request(0, b"lost")).unwrap();
    assert_eq!(client.ask(READ, lost, &read_request(0, 100)).unwrap(), b"lost");
    release(&mut client, lost, handle);
    client.tell(FORGET, lost, &quads(&[1]));
    assert_eq!(volume.statfs().unwrap().free_inodes, free);
    let (kept, handle) = nameless(&mut client, 2);
    client.ask(WRITE, kept, &write_request(0, b"kept")).unwrap();
    client.ask(LINK, ROOT, &[quads(&[kept]), b"name\0".to_vec()].concat()).unwrap();
    release(&mut client, kept, handle);
    client.tell(FORGET, kept, &quads(&[2]));
    assert_eq!(volume.read("name").unwrap(), b"kept");
    const O_EXCL: u32 = 0o200;
    let (never, handle) = nameless(&mut client, 2 | O_EXCL);
    assert!(client.ask(LINK, ROOT, &[quads(&[never]), b"other\0".to_vec()].concat()).is_err());
    release(&mut client, never, handle);
    client.tell(FORGET, never, &quads(&[1]));
    assert_eq!(volume.statfs().unwrap().free_inodes, free - 1);
}

#[test]
fn the_time_of_creation_is_told() {
    let volume = volume();
    let mut client = client(&volume);
    let node = create(&mut client, "file");
    let told = client.ask(STATX, node, &[0; 24]).unwrap();
    assert_eq!(told.len(), 288);
    let made = volume.metadata("file").unwrap().crtime.unwrap();
    assert_eq!(quad(&told, 32 + 0x50), made.seconds.cast_unsigned());
    assert_eq!(told[32 + 0x58..][..4], made.nanoseconds.to_ne_bytes());
    assert_eq!(told[32..][..4], 0xfff_u32.to_ne_bytes(), "all, that among them");
}

/// Random bytes, the same in every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn body(&mut self) -> Vec<u8> {
        let len = usize::try_from(self.next() % 120).unwrap();
        let mut body: Vec<u8> = (0..len).map(|_| self.next().to_ne_bytes()[0]).collect();
        // Half of them with small fields, as good requests have.
        if self.next() & 1 == 0 {
            for (at, byte) in body.iter_mut().enumerate() {
                *byte = if at % 4 == 0 { *byte } else { 0 };
            }
        }
        body.extend_from_slice(b"name\0other\0");
        body
    }

    /// A known or unknown command, with more or less input than it needs.
    fn control(&mut self) -> Vec<u8> {
        const COMMANDS: [u32; 7] =
            [0x8008_6601, 0x4008_6602, 0x8008_7601, 0x801c_581f, 0x401c_5820, 0xc018_5879, 0x1234_5678];
        let input = self.body();
        let command = COMMANDS[usize::try_from(self.next() % 7).unwrap()];
        let sizes = words(&[u32::try_from(input.len()).unwrap(), u32::try_from(self.next() % 64).unwrap()]);
        [quads(&[0]), words(&[0, command]), quads(&[0]), sizes, input].concat()
    }

    /// An attribute to set, with a strange name or strange flags.
    fn attribute(&mut self) -> Vec<u8> {
        let value = self.body();
        let flags = u32::try_from(self.next() % 5).unwrap();
        let names: [&[u8]; 6] =
            [b"", b"user.", b"user.x", b"system.posix_acl_access", b"system.data", b"no prefix\xff"];
        let name = names[usize::try_from(self.next() % 6).unwrap()];
        [&words(&[u32::try_from(value.len()).unwrap(), flags, 0, 0]), name, b"\0", &value].concat()
    }
}

#[test]
fn hostile_requests_get_an_error_and_never_end_the_session() {
    let volume = volume();
    let mut client = client(&volume);
    let file = create(&mut client, "file");
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    for round in 0..40 {
        for operation in 0..=LAST {
            for node in [0, ROOT, 8, file, noise.next()] {
                let body = if round == 0 { Vec::new() } else { noise.body() };
                match operation {
                    DESTROY => {}
                    FORGET | BATCH_FORGET if node == file => {}
                    FORGET | BATCH_FORGET if body.len() >= 16 => {
                        client.tell(FORGET, node, &body[..8]);
                    }
                    FORGET | BATCH_FORGET => {}
                    // Those with as many bytes as announced get further.
                    IOCTL => drop(client.ask(IOCTL, node, &noise.control())),
                    SETXATTR => drop(client.ask(SETXATTR, node, &noise.attribute())),
                    WRITE => drop(client.ask(WRITE, node, &write_request(noise.next(), &body))),
                    _ => drop(client.ask(operation, node, &body)),
                }
            }
        }
    }
    let file = create(&mut client, "another");
    for (at, size) in [(u64::MAX, 1), (i64::MAX as u64, u32::MAX), (1 << 62, u32::MAX), (0, u32::MAX)] {
        let _ = client.ask(READ, file, &read_request(at, size));
        let _ = client.ask(READDIR, ROOT, &read_request(at, size));
        assert!(client.ask(WRITE, file, &write_request(at.max(1 << 60), b"x")).is_err());
    }
    let long = [vec![b'n'; 5000], vec![0]].concat();
    assert!(client.ask(LOOKUP, ROOT, &long).is_err());
    assert!(client.ask(GETXATTR, file, &[words(&[0, 0]), long].concat()).is_err());
    client.ask(STATFS, ROOT, &[]).unwrap();
    drop(client);
    volume.close().unwrap();
}

/// A session library panicked, and its thread was gone.
#[test]
fn regression_requests_that_lie_about_their_sizes_are_refused() {
    let volume = volume();
    let mut client = client(&volume);
    let file = create(&mut client, "file");
    let mut lie = write_request(0, b"bytes");
    lie[16] = 200;
    assert_eq!(client.ask(WRITE, file, &lie), Err(EINVAL));
    let lie = [words(&[9, 0, 0, 0]), b"user.x\0short".to_vec()].concat();
    assert_eq!(client.ask(SETXATTR, file, &lie), Err(EINVAL));
    let lie = [quads(&[0]), words(&[0, 0x8008_6601]), quads(&[0]), words(&[4096, 8])].concat();
    assert_eq!(client.ask(IOCTL, file, &lie), Err(EINVAL));
    // Not even a header, and headers that announce more or less than there is.
    client.send(b"x");
    for len in [0_u32, 39, 41, u32::MAX] {
        let request = [words(&[len, STATFS]), quads(&[u64::MAX, ROOT]), words(&[0; 4])].concat();
        client.send(&request);
    }
    // Requests without an answer.
    for body in [&[][..], &[0; 3], &[0xff; 24]] {
        client.tell(FORGET, file, body);
        client.tell(BATCH_FORGET, file, body);
    }
    client.ask(STATFS, ROOT, &[]).unwrap();
    drop(client);
    volume.close().unwrap();
}
