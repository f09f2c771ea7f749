//! What a process may do that makes a request: its capabilities.
//!
//! The kernel passes user and process, and not what the process may do. User 0 says little: root of a
//! container has few capabilities, or none. So they are read from `/proc`, for requests that only a
//! capability permits; the process waits for its answer meanwhile, and stays what it is. Where it can't be
//! seen (no `/proc`, or another PID namespace), it has none.
//!
//! A process has its capabilities in its user namespace. Anybody can make one and have all of them there,
//! and root remains user 0 as the kernel tells it; so a namespace that maps users otherwise than the
//! server's counts for nothing.
//!
//! A server of the kernel (nfsd, ksmbd) and overlayfs make requests as somebody else: then `/proc` has the
//! capabilities of the task and not of the request, which counts as having none.
//!
//! Hazard: two namespaces with the same map look alike. To map all users, a process needs `CAP_SETUID`
//! outside.

use hectare_engine::Capabilities;
use std::fs;

/// The line of `/proc/PID/status`, whose value is a number in hexadecimal digits.
const EFFECTIVE: &str = "CapEff:";
/// That of the users of a process, four numbers.
const USERS: &str = "Uid:";

/// The capabilities of a process, or thread, in the server's user namespace, that makes a request as this user.
pub(super) fn of_process(process: u32, user: u32) -> Capabilities {
    let of = |name: &str| fs::read_to_string(format!("/proc/{process}/{name}")).ok();
    let own = fs::read_to_string("/proc/self/uid_map").ok();
    if own.is_none() || of("uid_map") != own {
        return Capabilities::empty();
    }
    of("status").map_or(Capabilities::empty(), |status| effective(&status, user))
}

fn effective(status: &str, user: u32) -> Capabilities {
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    // Real, effective, saved, and that of the file system, by which a request is made.
    let own = value(USERS).and_then(|users| users.split_whitespace().nth(3)?.parse().ok());
    if own != Some(user) {
        return Capabilities::empty();
    }
    let number = value(EFFECTIVE);
    let bits = number.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    Capabilities::from_bits_truncate(bits.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_those_of_the_process() {
        let status = |number: &str| format!("Name:\tx\nUid:\t1\t2\t3\t4\nCapEff:\t{number}\nSeccomp:\t0\n");
        assert_eq!(effective(&status("000001ffffffffff"), 4), Capabilities::all());
        assert_eq!(effective(&status("0000000000200000"), 4), Capabilities::SYS_ADMIN);
        // A server of the kernel acts for user 1000 with all its own.
        assert_eq!(effective(&status("000001ffffffffff"), 1000), Capabilities::empty());
        for none in [status("0000000000000000"), status("all"), String::new()] {
            assert_eq!(effective(&none, 4), Capabilities::empty(), "{none}");
        }
        assert_eq!(of_process(0, 0), Capabilities::empty(), "a process that is not seen");
    }
}
