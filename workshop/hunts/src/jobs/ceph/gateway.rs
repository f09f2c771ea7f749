//! What makes an RBD image an NBD export: `qemu-nbd`, as in `docs/remote.md`.
//!
//! It keeps unflushed writes in its own memory (the cache of librbd), which a kill loses: what a client does
//! about that is what crashes of it test.

use super::Ended;
use super::cluster::{Cluster, Daemon};
use hectare_nbd::{Address, Place};
use hectare_oracle::tool::need;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long it may take to open its image.
const PATIENCE: Duration = Duration::from_secs(120);

/// A `qemu-nbd` that serves an image, killed in the end.
pub(super) struct Gateway {
    daemon: Option<Daemon>,
    image: String,
    configuration: PathBuf,
    socket: PathBuf,
}

/// Whether `qemu-nbd` is there, with its driver for RBD, which is a package of its own on Debian.
pub(super) fn need_driver() -> Result<(), Ended> {
    let said =
        hectare_oracle::tool::run(need("qemu-nbd")?.args(["-t", "-f", "raw", "-k", "/nowhere/s", "rbd:x/y"]));
    match said.stderr.contains("Unknown protocol 'rbd'") {
        true => {
            Err(Ended::Skipped("qemu-nbd has no driver for RBD (Debian package qemu-block-extra)".to_owned()))
        }
        false => Ok(()),
    }
}

impl Gateway {
    /// Serves an image of the pool `rbd` on a socket.
    pub(super) fn start(cluster: &Cluster, image: &str) -> Result<Self, Ended> {
        let socket = cluster.folder().join(format!("{image}.sock"));
        let configuration = cluster.configuration();
        let mut gateway = Self { daemon: None, image: image.to_owned(), configuration, socket };
        gateway.run()?;
        Ok(gateway)
    }

    /// One more that serves the same image, on a socket of its own.
    pub(super) fn another(&self) -> Result<Self, Ended> {
        let (image, configuration) = (self.image.clone(), self.configuration.clone());
        let mut gateway =
            Self { daemon: None, image, configuration, socket: self.socket.with_extension("second.sock") };
        gateway.run()?;
        Ok(gateway)
    }

    /// Kills it, and starts it again.
    pub(super) fn crash(&mut self) -> Result<(), Ended> {
        self.daemon = None;
        self.run()
    }

    fn run(&mut self) -> Result<(), Ended> {
        std::fs::remove_file(&self.socket).unwrap_or_default(); // of the one before, if any
        let mut command = need("qemu-nbd")?;
        command.args(["-t", "-f", "raw", "-e", "4", "--discard=unmap", "-k"]).arg(&self.socket);
        command.arg(format!("rbd:rbd/{}:conf={}", self.image, self.configuration.display()));
        let log = self.socket.with_extension("out");
        let mut daemon = Daemon::start(&mut command, &log)?;
        let began = Instant::now();
        while UnixStream::connect(&self.socket).is_err() {
            if daemon.has_ended() || began.elapsed() > PATIENCE {
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                return Err(Ended::Failed(format!("qemu-nbd does not serve {}: {said}", self.image)));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.daemon = Some(daemon);
        Ok(())
    }

    /// Its export.
    pub(super) fn address(&self) -> Address {
        Address { place: Place::Unix(self.socket.clone()), export: Vec::new(), tls: None }
    }

    /// Its export, as one types it.
    pub(super) fn url(&self) -> String {
        url(&self.socket)
    }
}

fn url(socket: &Path) -> String {
    format!("nbd+unix:///?socket={}", socket.display())
}
