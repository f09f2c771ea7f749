//! A volume of an exbibyte on a server: how many requests it takes to make it, and that it is as in memory.

use hectare_device::{Device, SparseDevice};
use hectare_engine::{Creation, OpenOptions, Timestamp, Volume};
use hectare_mkfs::{FormatOptions, Plan, execute};
use hectare_nbd::{Address, Export, Listener, NbdDevice, Options, Place, Server, Stopper};
use hectare_oracle::{Skip, skip, tool::need};
use hectare_units::{Bytes, index_of};
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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

/// A server of others.
struct Theirs(Child);

impl Theirs {
    /// nbdkit with that many bytes in memory, of which it stores those that are not zero.
    fn start(socket: &Path, size: u64) -> Result<Self, Skip> {
        let mut nbdkit = need("nbdkit")?;
        let _ = std::fs::remove_file(socket);
        let child = nbdkit.args(["-f", "-U"]).arg(socket).args(["memory", &size.to_string()]).spawn();
        let server = Self(child.unwrap());
        let began = Instant::now();
        while !socket.exists() {
            assert!(began.elapsed() < Duration::from_secs(60), "nbdkit makes no socket");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn client(socket: &Path) -> Arc<NbdDevice> {
    let address = Address { place: Place::Unix(socket.to_owned()), export: Vec::new(), tls: None };
    Arc::new(NbdDevice::open(&address, &Options { write: true, ..Options::default() }).unwrap())
}

fn ext4_options() -> FormatOptions {
    let now = Timestamp::from_seconds(1_750_000_000);
    FormatOptions { uuid: Some([5; 16]), hash_seed: Some([6; 16]), now, ..FormatOptions::default() }
}

/// What is planned for a device that reads as zeros differs: nothing has to be zeroed there. Nothing is discarded:
/// where that gives zeros, group descriptors say that their inode tables are zeroed.
fn make_ext4(device: &dyn Device, is_zeroed: bool) {
    let options = FormatOptions { discard: false, ..ext4_options() };
    let plan = Plan::new(&options, device.len(), is_zeroed).unwrap();
    execute(&plan, device, &plan.empty(), 2).unwrap();
    device.flush().unwrap();
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

/// nbdkit can't show at once that a large export is all zeros.
#[test]
fn an_ext4_volume_on_nbdkit_is_as_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    for size in [64 << 30, EIB] {
        let _server = match Theirs::start(&socket, size) {
            Ok(server) => server,
            Err(reason) => skip!("remote_sizes::an_ext4_volume_on_nbdkit_is_as_in_memory", reason),
        };
        let (here, client) = (SparseDevice::new(Bytes::new(size)), client(&socket));
        let is_zeroed = client.is_zeroed();
        make_ext4(&here, is_zeroed);
        make_ext4(&*client, is_zeroed);
        assert_alike(&here, &*client);
        assert!(client.requests() < 200_000, "{} bytes: {}", size, client.requests());
    }
}

/// Trimming an export of this size would take millions of requests; opening a volume reads what it touches.
#[test]
fn ten_petabytes_are_made_and_opened_with_few_requests() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let _server = match Theirs::start(&socket, 10 << 50) {
        Ok(server) => server,
        Err(reason) => skip!("remote_sizes::ten_petabytes_are_made_and_opened_with_few_requests", reason),
    };
    let maker = client(&socket);
    let plan = Plan::new(&ext4_options(), maker.len(), maker.is_zeroed()).unwrap();
    execute(&plan, &*maker, &plan.empty(), 2).unwrap();
    assert!(maker.requests() < 100_000, "made by {} requests", maker.requests());
    drop(maker);
    for options in [OpenOptions::read_only(), OpenOptions::default()] {
        let (client, read_only) = (client(&socket), options.read_only);
        let device: Arc<dyn Device> = Arc::<NbdDevice>::clone(&client);
        let volume = Volume::open(device, options).unwrap();
        assert_eq!(volume.read_dir("/").unwrap().len(), 1);
        assert!(client.requests() <= 50, "opened by {} requests, read-only {read_only}", client.requests());
        if !read_only {
            volume.create_dir("/d", Creation::default()).unwrap();
        }
        volume.close().unwrap();
        assert!(client.requests() <= 100, "used by {} requests", client.requests());
    }
}

#[test]
fn an_ext4_volume_of_an_exbibyte_on_our_server_is_as_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let [here, there] = [0; 2].map(|_| Arc::new(SparseDevice::new(Bytes::new(EIB))));
    make_ext4(&*here, true);
    let _server = Ours::start(Arc::clone(&there) as _, &socket);
    let client = client(&socket);
    assert!(client.is_zeroed(), "our server says where it has zeros");
    make_ext4(&*client, true);
    assert_alike(&here, &*there);
    assert_alike(&there, &*here);
    assert!(client.requests() < 100_000, "{}", client.requests());
}
