//! Idle polling: idle processors of a virtual machine poll for work instead of halting.
//!
//! Where a halt exits to the host, waking a halted processor takes tens to hundreds of microseconds. The
//! kernel can poll for work instead (driver and governor *haltpoll*), and does so without a time limit if a
//! program requests a latency of zero: `/dev/cpu_dma_latency`, the kernel's interface for quality of service
//! in power management (`Documentation/power/pm_qos_interface.rst`). It takes a number of microseconds as
//! four bytes, and the request holds while the descriptor is open; so a server that is killed leaves nothing
//! behind.
//!
//! A polling processor is no burden to programs of the same machine: it runs them at once. It is one to the
//! host, as far as that has other work; therefore it is limited to bursts.
//!
//! What it is not: for real hardware. There the number selects sleep states, of which the light ones are
//! quick enough, and all processors of a large machine would be kept from saving power. That is not measured,
//! so nothing is done there.

use super::Aid;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
const DEVICE: &str = "/dev/cpu_dma_latency";
/// The latency that requests nothing: the kernel's default (`PM_QOS_CPU_LATENCY_DEFAULT_VALUE`).
const ANY: i32 = 2_000_000_000;

/// Polling by idle processors.
pub(crate) struct IdlePoll {
    latency: File,
}

impl IdlePoll {
    /// `None` if it would not help or is not allowed.
    pub(crate) fn new() -> Option<Self> {
        let driver = fs::read_to_string(DRIVER).ok()?;
        if driver.trim() != "haltpoll" { None } else { Self::through(Path::new(DEVICE)) }
    }

    fn through(device: &Path) -> Option<Self> {
        let mut polling = Self { latency: OpenOptions::new().write(true).open(device).ok()? };
        polling.ask(ANY).then_some(polling)
    }

    /// Requests a wakeup latency in microseconds; returns whether that was accepted.
    fn ask(&mut self, microseconds: i32) -> bool {
        self.latency.write_all(&microseconds.to_ne_bytes()).is_ok()
    }
}

impl Aid for IdlePoll {
    fn begin(&mut self) -> bool {
        self.ask(0)
    }

    fn is_a_burden(&mut self) -> bool {
        false
    }

    fn end(&mut self) {
        self.ask(ANY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_oracle::skip;
    use std::io::Read;

    #[test]
    fn it_asks_for_no_latency_and_then_for_any() {
        let file = hectare_oracle::scratch::fresh("latency");
        fs::write(&file, []).unwrap();
        let mut polling = IdlePoll::through(&file).unwrap();
        assert!(polling.begin() && !polling.is_a_burden());
        polling.end();
        assert_eq!(fs::read(&file).unwrap(), [ANY.to_ne_bytes(), [0; 4], ANY.to_ne_bytes()].concat());
        fs::remove_file(&file).unwrap();
    }

    #[test]
    fn a_device_that_takes_nothing_is_none() {
        assert!(IdlePoll::through(Path::new("/dev/full")).is_none());
    }

    /// The strictest request of all programs.
    fn asked() -> i32 {
        let mut bytes = [0; 4];
        File::open(DEVICE).unwrap().read_exact(&mut bytes).unwrap();
        i32::from_ne_bytes(bytes)
    }

    #[test]
    fn the_kernel_understands_it() {
        const NAME: &str = "idle_poll::the_kernel_understands_it";
        let Some(mut polling) = IdlePoll::through(Path::new(DEVICE)) else {
            skip!(NAME, "/dev/cpu_dma_latency can't be opened");
        };
        if asked() < ANY {
            skip!(NAME, "another program asks for a latency");
        }
        assert!(polling.begin());
        assert_eq!(asked(), 0);
        polling.end();
        // Another test's mount may be in a burst.
        hectare_oracle::wait::until(|| asked() == ANY);
        assert!(polling.begin());
        drop(polling);
        hectare_oracle::wait::until(|| asked() == ANY);
    }
}
