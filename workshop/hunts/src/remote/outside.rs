//! The random program on a server that is not ours, and which its owner crashes.
//!
//! [`Outside::work`] opens the volume of an export, runs the program on it, and asks its owner to make a fault
//! each time that some steps have been done: for a Ceph cluster, to kill what serves it. The server decides
//! then what is left of unflushed writes. [`Outside::check`] opens the volume again, which recovers it, and
//! checks every promise.
//!
//! Faults come after steps and not after a time, so a slow machine sees as many of them between the same
//! promises. What the program does depends on the seed alone; which request a fault meets does not.

use super::program::{Program, STEPS};
use super::{Checked, open_options, text_of};
use hectare_device::{CacheDevice, CacheLimits, Device};
use hectare_engine::{Shutdown, Volume};
use hectare_nbd::{Address, NbdDevice, Options};
use hectare_tools::error::{Error, Result};
use hectare_units::random::SplitMix64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Steps between two faults, at least.
const STEPS_BETWEEN: u32 = 15;

/// How a program on a server of somebody else's went.
pub struct Outside {
    seed: u64,
    program: Program,
    /// Whether the volume was closed in the end, and not cut off.
    pub closed: bool,
    /// How many times the connection was made again.
    pub reconnects: u64,
    /// The requests that the client made.
    pub requests: u64,
    /// The longest step, which waits for the server to come back.
    pub longest: Duration,
}

impl Outside {
    /// Works on the volume of an export until `faults` faults were made and survived. Each call of `fault`
    /// makes one while the program goes on, and returns when the server is there again. In the end the volume
    /// is cut off, as by a loss of power, or closed after one run of three, by the seed.
    ///
    /// # Errors
    /// An operation that failed, what `fault` says, or a volume that can't be opened or closed.
    pub fn work(
        address: &Address,
        seed: u64,
        faults: u32,
        fault: impl FnMut(u32) -> std::result::Result<(), String> + Send,
    ) -> Result<Self> {
        Self::try_work(address, seed, faults, fault).map_err(failed(seed))
    }

    fn try_work(
        address: &Address,
        seed: u64,
        faults: u32,
        mut fault: impl FnMut(u32) -> Checked + Send,
    ) -> Checked<Self> {
        let mut random = SplitMix64::stream(seed, 5);
        let client = Arc::new(open(address)?);
        let device: Arc<dyn Device> = match random.below(2) {
            0 => Arc::clone(&client) as _,
            _ => Arc::new(CacheDevice::new(Arc::clone(&client), CacheLimits::of(2 << 20))),
        };
        let volume = Volume::open(device, open_options(seed)).map_err(text_of)?;
        let mut program = Program::new(seed);
        let (done, over) = (AtomicU32::new(0), AtomicBool::new(false));
        let longest = std::thread::scope(|scope| {
            let made = scope.spawn(|| {
                let _over = SetOnDrop(&over);
                make(faults, &done, &mut random, &mut fault)
            });
            let longest = {
                // No thread waits for steps that are not done any more, also after a panic.
                let _ended = EndedOnDrop(&done);
                program.work(&volume, |steps| {
                    done.store(steps, Ordering::SeqCst);
                    steps < STEPS || !over.load(Ordering::SeqCst)
                })
            };
            made.join().map_err(|_| "the thread that makes faults panicked".to_owned())??;
            Ok::<_, String>(longest)
        })?;
        if let Some(error) = program.ended() {
            return Err(format!("an operation failed: {error}"));
        }
        let closed = seed.is_multiple_of(3);
        if closed {
            volume.close().map_err(|error| format!("it can't be closed: {error}"))?;
            program.everything_is_durable();
        } else {
            drop(volume.shut_down(Shutdown::Cut));
        }
        let (requests, reconnects) = (client.requests(), client.reconnects());
        Ok(Self { seed, program, closed, reconnects, requests, longest })
    }

    /// Opens the volume again for writing, which recovers it, checks what the program knows to be durable, and
    /// closes it. Returns how many promises were kept.
    ///
    /// # Errors
    /// A promise that was not kept, or a volume that can't be opened or closed.
    pub fn check(&self, address: &Address) -> Result<u64> {
        self.try_check(address).map_err(failed(self.seed))
    }

    fn try_check(&self, address: &Address) -> Checked<u64> {
        let device: Arc<dyn Device> = Arc::new(open(address)?);
        let volume = Volume::open(device, open_options(self.seed));
        let volume = volume.map_err(|error| format!("not recovered: {error}"))?;
        let promises = self.program.check(&volume)?;
        volume.close().map_err(|error| format!("after recovery it can't be closed: {error}"))?;
        Ok(promises)
    }

    /// The steps of the program that were done.
    #[must_use]
    pub fn steps(&self) -> u32 {
        self.program.steps()
    }
}

fn open(address: &Address) -> Checked<NbdDevice> {
    NbdDevice::open(address, &Options { write: true, ..Options::default() }).map_err(text_of)
}

fn failed(seed: u64) -> impl Fn(String) -> Error {
    move |what| Error::at(format!("seed {seed}"), what)
}

/// Makes the faults, each after some more steps; ends early if the program has ended.
fn make(
    faults: u32,
    done: &AtomicU32,
    random: &mut SplitMix64,
    fault: &mut impl FnMut(u32) -> Checked,
) -> Checked {
    for number in 0..faults {
        let more = STEPS_BETWEEN + u32::try_from(random.below(u64::from(STEPS_BETWEEN))).unwrap_or(0);
        let next = done.load(Ordering::SeqCst).saturating_add(more);
        while done.load(Ordering::SeqCst) < next {
            std::thread::sleep(Duration::from_millis(1));
        }
        if done.load(Ordering::SeqCst) == u32::MAX {
            return Ok(());
        }
        fault(number)?;
    }
    Ok(())
}

/// Says at the end of a scope, a panic included, that no more steps are done.
struct EndedOnDrop<'a>(&'a AtomicU32);

impl Drop for EndedOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(u32::MAX, Ordering::SeqCst);
    }
}

/// Sets a flag at the end of a scope, a panic included.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::network::{Network, Served};
    use crate::remote::store::Store;
    use crate::remote::{LEN, format_with};
    use hectare_nbd::Place;
    use hectare_units::Bytes;
    use std::path::Path;

    /// A volume behind a server that is crashed twice while the program works; what became of it, and its bytes
    /// before.
    fn crashed(folder: &Path, seed: u64) -> (Outside, Arc<Store>, Vec<u8>) {
        let store = Arc::new(Store::new(LEN, seed));
        format_with(&store, "").unwrap();
        let before = store.after_power_cut();
        let [front, behind] = ["front", "behind"].map(|name| folder.join(name));
        let mut served = Served::start(Arc::clone(&store), &behind).unwrap();
        let network = Network::start(&front, &behind).unwrap();
        let mut faults = 0;
        let outside = Outside::work(&on(&front), seed, 2, |_| {
            network.block();
            store.die();
            served.stop();
            store.revive();
            served = Served::start(Arc::clone(&store), &behind)?;
            network.unblock();
            faults += 1;
            Ok(())
        });
        network.block();
        store.revive(); // a crash with the client's end
        let outside = outside.unwrap();
        assert!(faults == 2 && outside.reconnects > 0 && outside.steps() >= STEPS);
        (outside, store, before)
    }

    fn on(socket: &Path) -> Address {
        Address { place: Place::Unix(socket.to_owned()), export: b"vol".to_vec(), tls: None }
    }

    #[test]
    fn promises_outlive_crashes_of_the_server() {
        for (seed, closes) in [(3, true), (4, false)] {
            let folder = tempfile::tempdir().unwrap();
            let (outside, store, _) = crashed(folder.path(), seed);
            assert_eq!(outside.closed, closes);
            let socket = folder.path().join("again");
            let _served = Served::start(store, &socket).unwrap();
            assert!(outside.check(&on(&socket)).unwrap() > 20);
        }
    }

    #[test]
    fn a_server_that_forgot_everything_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let (outside, store, before) = crashed(folder.path(), 5);
        store.write_at(Bytes::ZERO, &before).unwrap();
        let socket = folder.path().join("again");
        let _served = Served::start(store, &socket).unwrap();
        let error = outside.check(&on(&socket)).unwrap_err().to_string();
        assert!(error.starts_with("seed 5: /slots-0: "), "{error}");
    }

    #[test]
    fn a_fault_that_fails_ends_it() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let store = Arc::new(Store::new(LEN, 1));
        format_with(&store, "").unwrap();
        let _served = Served::start(store, &socket).unwrap();
        let error = Outside::work(&on(&socket), 1, 9, |_| Err("no such process".to_owned())).err();
        assert_eq!(error.unwrap().to_string(), "seed 1: no such process");
    }
}
