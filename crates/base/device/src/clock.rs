//! The passing of time, as a value: what waits for another host or for a server has a [`Clock`] in its options.
//!
//! A clock that runs N times as fast makes each wait N times as short. Tests use one, in one process
//! ([`Clock::fast`]) or in all that they start (`HECTARE_TEST_CLOCK=N` in the environment). Only the passing of
//! time is scaled: intervals that are written to a volume or sent to a server are the same, and so are time
//! stamps.
//!
//! Hazard: the waits keep two hosts from writing to one volume. So every clock of a release build (one without
//! debug assertions) is the real one. So has to be that of a test in which the kernel or e2fsprogs measures
//! time as well; and what waits for a server to do its work is not made fast by the environment, since the
//! server is not.

use crate::os::boot_time;
use std::sync::LazyLock;
use std::time::Duration;

/// The variable that makes the clocks of a debug build fast.
const VARIABLE: &str = "HECTARE_TEST_CLOCK";

/// A clock to wait by. It goes on while the machine is suspended and while the process is stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    /// How many times as fast as the machine's.
    speed: u32,
}

impl Clock {
    /// The machine's own.
    pub const REAL: Self = Self { speed: 1 };

    /// One that runs so many times as fast as the machine's; in a release build, [`Self::REAL`].
    #[must_use]
    pub const fn fast(speed: u32) -> Self {
        if cfg!(debug_assertions) && speed > 1 { Self { speed } } else { Self::REAL }
    }

    /// The time since the machine started, by this clock.
    #[must_use]
    pub fn now(self) -> Duration {
        self.passed(boot_time())
    }

    /// How far this clock goes in a time of the machine's.
    #[must_use]
    pub const fn passed(self, real: Duration) -> Duration {
        real.saturating_mul(self.speed)
    }

    /// How long a time by this clock is by the machine's: for the time-outs of calls that know no other clock.
    #[must_use]
    pub fn real(self, time: Duration) -> Duration {
        time / self.speed
    }

    /// How long it is until a moment, by the machine's clock; zero if it is over.
    #[must_use]
    pub fn until(self, moment: Duration) -> Duration {
        self.real(moment.saturating_sub(self.now()))
    }

    /// Waits.
    pub fn sleep(self, time: Duration) {
        std::thread::sleep(self.real(time));
    }
}

impl Default for Clock {
    /// The real one, unless this is a debug build and the environment asks for a fast one.
    fn default() -> Self {
        static SPEED: LazyLock<u32> =
            LazyLock::new(|| std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(1));
        if cfg!(debug_assertions) { Self::fast(*SPEED) } else { Self::REAL }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_debug_build_has_clocks_that_are_fast() {
        let (fast, second) = (Clock::fast(100), Duration::from_secs(1));
        assert_eq!(fast == Clock::REAL, !cfg!(debug_assertions));
        assert_eq!((Clock::fast(0), Clock::fast(1)), (Clock::REAL, Clock::REAL));
        assert_eq!(fast.real(fast.passed(second)), second);
        assert_eq!((Clock::REAL.real(second), Clock::REAL.passed(second)), (second, second));
    }

    #[test]
    fn a_wait_ends_when_the_clock_says_so() {
        for clock in [Clock::REAL, Clock::fast(50)] {
            let began = clock.now();
            clock.sleep(Duration::from_millis(100));
            assert!(clock.now() >= began + Duration::from_millis(100));
            assert_eq!(clock.until(began), Duration::ZERO);
            let left = clock.until(clock.now() + Duration::from_secs(100));
            assert!(
                left <= clock.real(Duration::from_secs(100)) && left > clock.real(Duration::from_secs(50))
            );
        }
    }
}
