//! A volume of an exbibyte on a server: how many requests it takes to make it, and that it is as in memory.

#![allow(clippy::unwrap_used)] // a test that cannot continue fails

use hectare_device::{Device, SparseDevice};
use hectare_engine::Timestamp;
use hectare_mkfs::{FormatOptions, Plan, execute};
use hectare_nbd::{Address, Export, Listener, NbdDevice, Options, Place, Server, Stopper};
use hectare_units::{Bytes, index_of};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

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

fn client(socket: &Path) -> Arc<NbdDevice> {
    let address = Address { place: Place::Unix(socket.to_owned()), export: Vec::new(), tls: None };
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

#[test]
fn an_ext4_volume_of_an_exbibyte_on_our_server_is_as_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let [here, there] = [0; 2].map(|_| Arc::new(SparseDevice::new(Bytes::new(EIB))));
    make_ext4(&*here);
    let _server = Ours::start(Arc::clone(&there) as _, &socket);
    let client = client(&socket);
    make_ext4(&*client);
    assert_alike(&here, &*there);
    assert_alike(&there, &*here);
    assert!(client.requests() < 100_000, "{}", client.requests());
}
