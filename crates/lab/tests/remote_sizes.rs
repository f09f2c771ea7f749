//! Volumes of petabytes on servers: how many requests it takes to make and to open them, and that they are the same
//! as in a file.

use hectare_device::{CacheDevice, CacheLimits, Device, SparseDevice};
use hectare_engine::{Creation, OpenOptions, Timestamp, Volume};
use hectare_mkfs::{FormatOptions, Plan, execute, xfs};
use hectare_nbd::{Address, Export, Listener, NbdDevice, Options, Place, Server, Stopper};
use hectare_oracle::skip;
use hectare_oracle::tool::need;
use hectare_units::{Bytes, index_of};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

const PIB: u64 = 1 << 50;
const EIB: u64 = 1 << 60;

/// A server of ours.
struct Ours(Stopper, Option<JoinHandle<()>>);

impl Ours {
    fn start(device: Arc<dyn Device>, socket: &Path) -> Self {
        let export = Export { device, name: Vec::new(), description: String::new(), read_only: false };
        let server =
            Server::new(export, Listener::bind(&Place::Unix(socket.to_owned()), false).unwrap()).unwrap();
        let stopper = server.stopper();
        Self(stopper, Some(std::thread::spawn(move || server.run().unwrap())))
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.0.stop();
        let _ = self.1.take().map(JoinHandle::join);
    }
}

struct Theirs(Child);

impl Drop for Theirs {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn client(socket: &Path) -> Arc<NbdDevice> {
    let address = Address { place: Place::Unix(socket.to_owned()), export: Vec::new() };
    Arc::new(NbdDevice::open(&address, &Options { write: true, ..Options::default() }).unwrap())
}

fn ext4_options() -> FormatOptions {
    let now = Timestamp::from_seconds(1_750_000_000);
    FormatOptions { uuid: Some([5; 16]), hash_seed: Some([6; 16]), now, ..FormatOptions::default() }
}

fn make_ext4(device: &dyn Device) {
    let plan = Plan::new(&ext4_options(), device.len(), device.is_zeroed()).unwrap();
    execute(&plan, device, &plan.empty(), 2).unwrap();
    device.flush().unwrap();
}

fn make_xfs(device: &dyn Device) {
    let now = Timestamp::from_seconds(1_750_000_000);
    let options = xfs::FormatOptions { uuid: Some([7; 16]), now, ..xfs::FormatOptions::default() };
    let plan = xfs::Plan::new(&options, device.len(), device.is_zeroed()).unwrap();
    xfs::execute(&plan, device, 1).unwrap();
    device.flush().unwrap();
}

/// Opening, looking and changing something in a volume of 10 PiB takes few round trips.
#[test]
fn a_volume_of_ten_petabytes_is_opened_with_few_requests() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let store = Arc::new(SparseDevice::new(Bytes::new(10 * PIB)));
    make_ext4(&*store);
    let _server = Ours::start(store, &socket);
    for bytes in [32 << 20, 0] {
        let open = |options: OpenOptions| {
            let client = client(&socket);
            let before = client.requests();
            let cached = CacheDevice::new(Arc::clone(&client), CacheLimits::of(bytes));
            let volume = Volume::open(Arc::new(cached), options).unwrap();
            (client, volume, before)
        };
        let (client, volume, before) = open(OpenOptions::read_only());
        assert!(volume.read_dir("/").unwrap().len() <= 4);
        let reading = client.requests() - before;
        assert!(before + reading <= 50, "{before} and {reading} requests to look, {bytes} bytes of cache");
        let (client, volume, before) = open(OpenOptions::default());
        let opening = client.requests() - before;
        volume.write_file(format!("/file-{bytes}"), b"content", Creation::default()).unwrap();
        volume.close().unwrap();
        let all = client.requests() - before;
        assert!(before + opening <= 50, "{before} and {opening} requests to open, {bytes} bytes of cache");
        println!(
            "{bytes} bytes of cache: {before}, {reading} to look, {opening} to open, {all} with a file made"
        );
    }
}

/// Compares what two devices hold, of which one knows what it stores.
fn assert_alike(stored: &SparseDevice, other: &dyn Device) {
    let (mut a, mut b) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut compared = 0;
    for range in stored.data_ranges() {
        for piece in range.pieces(1 << 20) {
            let len = index_of(piece.len.get());
            stored.read_at(piece.at, &mut a[..len]).unwrap();
            other.read_at(piece.at, &mut b[..len]).unwrap();
            assert!(a[..len] == b[..len], "they differ at {}", piece.at);
            compared += len;
        }
    }
    assert!(compared > 100_000, "{compared} bytes compared");
}

type Make = fn(&dyn Device);

/// The formats of an exbibyte, with the most requests that making them may take on our server.
const EXBIBYTES: [(&str, Make); 2] = [("ext4", make_ext4), ("xfs", make_xfs)];

#[test]
fn volumes_of_an_exbibyte_on_our_server_are_as_in_memory() {
    for (name, make) in EXBIBYTES {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let [here, there] = [0; 2].map(|_| Arc::new(SparseDevice::new(Bytes::new(EIB))));
        make(&*here);
        let _server = Ours::start(Arc::clone(&there) as _, &socket);
        let client = client(&socket);
        make(&*client);
        assert_alike(&here, &*there);
        assert_alike(&there, &*here);
        println!("{name}: {} requests, {} bytes stored", client.requests(), there.stored());
        assert!(client.requests() < 400_000, "{name}: {}", client.requests());
    }
}

#[test]
fn volumes_of_an_exbibyte_on_nbdkit_are_as_in_memory() {
    for (name, make) in EXBIBYTES {
        let mut command = match need("nbdkit") {
            Ok(command) => command,
            Err(reason) => skip!("remote_sizes::volumes_of_an_exbibyte_on_nbdkit_are_as_in_memory", reason),
        };
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let _server = Theirs(
            command
                .args(["--foreground", "--exit-with-parent", "-U"])
                .arg(&socket)
                .args(["memory", "1E"])
                .stdin(Stdio::null())
                .spawn()
                .unwrap(),
        );
        hectare_oracle::until(|| UnixStream::connect(&socket).is_ok());
        let here = SparseDevice::new(Bytes::new(EIB));
        make(&here);
        let client = client(&socket);
        make(&*client);
        println!("{name}: {} requests", client.requests());
        assert_alike(&here, &*client);
    }
}
