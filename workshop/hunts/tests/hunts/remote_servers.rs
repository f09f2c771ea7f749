//! The engine on the servers of others: one file changed at random beside a model, and many small files, with
//! e2fsck on the exported bytes.

use hectare_device::{CacheDevice, CacheLimits, Device};
use hectare_engine::{Creation, FallocateMode, OpenOptions, Volume};
use hectare_mkfs::{FormatOptions, Plan, execute};
use hectare_nbd::{Address, NbdDevice, Options, Place};
use hectare_oracle::tool::need;
use hectare_oracle::{assert_clean, skip};
use hectare_units::random::SplitMix64;
use hectare_units::{Bytes, index_of};
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Changes a file at random, with a model of its bytes.
fn fsx(volume: &Volume, seed: u64, steps: u32) {
    const MOST: u64 = 400_000;
    let mut random = SplitMix64::new(seed);
    let file = volume.create_file("/fsx", Creation::default()).unwrap();
    let mut model: Vec<u8> = Vec::new();
    for step in 0..steps {
        let (at, len) = (random.below(MOST), 1 + random.below(30_000));
        let len = len.min(MOST - at);
        let end = index_of(at + len);
        match random.below(8) {
            0..=2 => {
                let data = vec![u8::try_from(step % 255 + 1).unwrap(); index_of(len)];
                file.write_all_at(at, &data).unwrap();
                model.resize(model.len().max(end), 0);
                model[index_of(at)..end].copy_from_slice(&data);
            }
            3 => {
                file.set_len(at).unwrap();
                model.resize(index_of(at), 0);
            }
            4 => {
                file.fallocate(FallocateMode::PunchHole, at, len).unwrap();
                let (from, to) = (index_of(at).min(model.len()), end.min(model.len()));
                model[from..to].fill(0);
            }
            5 => file.sync().unwrap(),
            _ => {
                let mut found = vec![0xee; index_of(len)];
                let got = file.read_at(at, &mut found).unwrap();
                let (from, to) = (index_of(at).min(model.len()), end.min(model.len()));
                assert!(found[..got] == model[from..to], "seed {seed}, step {step}");
            }
        }
    }
    file.close().unwrap();
    assert!(volume.read("/fsx").unwrap() == model, "seed {seed}: the end");
}

/// Makes many small files, removes a third, and reads the rest.
fn small_files(volume: &Volume) {
    let content = |n: u32| vec![u8::try_from(n % 251).unwrap(); index_of(u64::from(n * 37 % 9000))];
    for n in 0..600_u32 {
        if n % 50 == 0 {
            volume.create_dir(format!("/d{}", n / 50), Creation::default()).unwrap();
        }
        volume.write_file(format!("/d{}/f{n}", n / 50), &content(n), Creation::default()).unwrap();
    }
    volume.sync().unwrap();
    (0..600).step_by(3).for_each(|n| volume.remove_file(format!("/d{}/f{n}", n / 50)).unwrap());
    for n in (0..600).filter(|n| n % 3 > 0) {
        assert!(volume.read(format!("/d{}/f{n}", n / 50)).unwrap() == content(n), "file {n}");
    }
}

fn use_server(image: &Path, socket: &Path) {
    for (seed, cache) in [(1, 32 << 20), (2, 0)] {
        let address = Address { place: Place::Unix(socket.to_owned()), export: b"vol".to_vec(), tls: None };
        let options = Options { write: true, ..Options::default() };
        let client = NbdDevice::open(&address, &options).unwrap();
        let device: Arc<dyn Device> = Arc::new(CacheDevice::new(client, CacheLimits::of(cache)));
        let plan = Plan::new(&FormatOptions::default(), device.len(), device.is_zeroed()).unwrap();
        execute(&plan, &*device, &plan.empty(), 1).unwrap();
        device.flush().unwrap();
        let volume = Volume::open(device, OpenOptions::default()).unwrap();
        fsx(&volume, seed, 400);
        small_files(&volume);
        volume.close().unwrap();
        drop(volume);
        assert_clean(image).unwrap();
    }
}

#[test]
fn a_volume_is_used_on_nbdkit_and_on_qemu_nbd() {
    for server in ["nbdkit", "qemu-nbd"] {
        let folder = tempfile::tempdir().unwrap();
        let (image, socket) = (folder.path().join("image"), folder.path().join("s"));
        File::create(&image).unwrap().set_len(Bytes::mib(64).get()).unwrap();
        let mut command = match need(server) {
            Ok(command) => command,
            Err(reason) => skip!("remote_servers::a_volume_is_used_on_nbdkit_and_on_qemu_nbd", reason),
        };
        match server {
            "nbdkit" => {
                command.args(["--foreground", "--exit-with-parent", "-e", "vol", "-U"]);
                command.arg(&socket).arg("file").arg(&image)
            }
            _ => command.args(["-t", "-f", "raw", "-e", "8", "-x", "vol", "-k"]).arg(&socket).arg(&image),
        };
        let running = Server(command.stdin(Stdio::null()).spawn().unwrap());
        hectare_oracle::until(|| UnixStream::connect(&socket).is_ok());
        use_server(&image, &socket);
        drop(running);
    }
}
