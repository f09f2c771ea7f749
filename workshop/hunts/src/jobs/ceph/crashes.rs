//! The random program on volumes whose servers are killed.
//!
//! After each run what is left is recovered, every promise checked, and the export judged by e2fsck and the
//! kernel. In most runs the client is cut off as well, and `qemu-nbd` killed with what it kept in memory.

use super::cluster::finished;
use super::gateway::Gateway;
use super::volumes::is_clean;
use super::{Bench, Ended, Features};
use hectare_hunts::remote::Outside;
use hectare_oracle::{KernelMount, walk};
use std::time::{Duration, Instant};

/// The volumes, in MiB.
const SIZE: u64 = 64;

/// Features of the volumes, in turn. With `mmp` a volume whose user was cut off is taken over after 22 seconds.
const FORMATS: [&str; 3] = ["^mmp", "^mmp,fast_commit", "mmp"];

fn text(ended: Ended) -> String {
    match ended {
        Ended::Skipped(reason) | Ended::Failed(reason) => reason,
    }
}

/// What several runs did.
#[derive(Default)]
struct Sum {
    runs: u64,
    steps: u64,
    faults: u64,
    promises: u64,
    reconnects: u64,
    longest: Duration,
    restart: Duration,
}

impl Sum {
    fn summary(&self) -> String {
        format!(
            "{} runs, {} steps, {} kills, {} connections made again, {} promises kept, longest step {:.1} s, \
             longest restart {:.1} s",
            self.runs,
            self.steps,
            self.faults,
            self.reconnects,
            self.promises,
            self.longest.as_secs_f64(),
            self.restart.as_secs_f64()
        )
    }
}

/// `qemu-nbd` is killed; images without a lock, so that the next one can write at once.
pub(super) fn of_gateway(bench: &Bench) -> Result<String, Ended> {
    let mut sum = Sum::default();
    let mut gateway = bench.image("gateway", SIZE, Features::None)?;
    for round in 0..bench.rounds {
        one(bench, &mut gateway, "gateway", round, 4, Gateway::crash, &mut sum)?;
    }
    Ok(sum.summary())
}

/// The OSD is killed: `qemu-nbd` and the connection stay, and requests wait.
pub(super) fn of_osd(bench: &Bench) -> Result<String, Ended> {
    let mut sum = Sum::default();
    let mut gateway = bench.image("osd", SIZE, Features::None)?;
    for round in 0..bench.rounds {
        let crash = |_: &mut Gateway| bench.cluster.crash_osd();
        one(bench, &mut gateway, "osd", round, 3, crash, &mut sum)?;
    }
    Ok(sum.summary())
}

/// `qemu-nbd` is killed while it has the lock of its image: the next one has to wait until Ceph takes it away.
pub(super) fn of_lock_owner(bench: &Bench) -> Result<String, Ended> {
    let mut sum = Sum::default();
    let mut gateway = bench.image("locked", SIZE, Features::Default)?;
    one(bench, &mut gateway, "locked", 0, 1, Gateway::crash, &mut sum)?;
    Ok(sum.summary())
}

/// One run on a new volume.
fn one(
    bench: &Bench,
    gateway: &mut Gateway,
    image: &str,
    round: u64,
    faults: u32,
    mut crash: impl FnMut(&mut Gateway) -> Result<(), Ended> + Send,
    sum: &mut Sum,
) -> Result<(), Ended> {
    let seed = bench.seed.wrapping_add(round);
    let format = FORMATS[hectare_units::index_of(round) % FORMATS.len()];
    finished(&mut bench.hectare(&["mkfs", "-F", "-t", "ext4", "-O", format, &gateway.url()]))?;
    let failed = |error: hectare_tools::error::Error| Ended::Failed(format!("{format}: {error}"));
    let address = gateway.address();
    let (mut longest, mut made) = (Duration::ZERO, 0);
    let outside = Outside::work(&address, seed, faults, |_| {
        let began = Instant::now();
        made += 1;
        let done = crash(gateway).map_err(text);
        longest = longest.max(began.elapsed());
        done
    });
    let outside = outside.map_err(failed)?;
    if made == 0 {
        return Err(format!("{format}: the program ended before the first fault").into());
    }
    sum.faults += made;
    gateway.crash()?;
    sum.promises += outside.check(&address).map_err(failed)?;
    let copy = bench.exported(image)?;
    is_clean(&copy)?;
    let mount = KernelMount::read_only(&copy, "")?;
    if walk(mount.path()).is_empty() {
        return Err("the kernel finds nothing in the export".to_owned().into());
    }
    mount.unmount();
    sum.runs += 1;
    sum.steps += u64::from(outside.steps());
    sum.reconnects += outside.reconnects;
    sum.longest = sum.longest.max(outside.longest);
    sum.restart = sum.restart.max(longest);
    Ok(())
}
