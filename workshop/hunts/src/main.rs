//! The hunts' program: `cargo hunt NAME [OPTIONS]`, or `cargo hunt all --minutes N` (`make hunt`).
//!
//! | hunt | what it does |
//! |---|---|
//! | `all` | runs those that have a seed with fresh ones, for a time, and ends with a table (see [`all`]) |
//! | `boot` | boots a Debian that was built from a container image, in a virtual machine (see [`jobs::boot`]) |
//! | `ceph` | volumes on a Ceph cluster of one node whose servers are killed (see [`jobs::ceph`]) |
//! | `conform` | compares the mount with the kernel's ext4, call by call (see [`jobs::conform`]) |
//! | `corpus` | runs every reading command on every image of a directory, within limits (see [`jobs::corpus`]) |
//! | `crash` | tests the states that power cuts leave, a hundred thousand of them (see [`jobs::crash`]) |
//! | `explore` | schedules of the allocator (see [`jobs::repository`]) |
//! | `fuzz` | builds and runs the fuzz targets (see [`jobs::fuzz`]) |
//! | `killed` | kills the server of a mount in the middle of work, repeatedly (see [`jobs::killed`]) |
//! | `peers` | what other libraries read and write of the same volumes, beside ours (see [`jobs::peers`]) |
//! | `portable` | checks and tests what other hosts than Linux get (see [`jobs::portable`]) |
//! | `remote` | volumes on servers and networks that fail, from seeds (see [`jobs::remote`]) |
//! | `repair` | damages volumes at random and repairs them, beside e2fsck (see [`jobs::repair`]) |
//! | `resize` | judges random resizes against resize2fs, e2fsck and the kernel (see [`jobs::resize`]) |
//! | `salvage` | counts what comes out of damaged volumes, by us and by others (see [`jobs::salvage`]) |
//! | `sanitize` | the library for C under AddressSanitizer, ThreadSanitizer and Miri (see [`jobs::sanitize`]) |
//! | `soak` | threads that do everything at once, for minutes, with every byte checked (see [`jobs::soak`]) |
//! | `stress` | stress programs on a mount of every kind of volume (see [`jobs::stress`]) |
//! | `tests` | the hunts among the tests of the crates, with all of their work (see [`jobs::tests`]) |
//! | `wheel` | the Python package's tests on its wheel (see [`jobs::repository`]) |
//!
//! Exit status: 0 nothing was found, 1 something was or the hunt failed, 2 usage, 3 it can't run here (what
//! it needs is missing, or can't be built).

mod all;
mod jobs;

use hectare_tools::ended::Exit;
use std::process::ExitCode;

/// A hunt: its name, and what runs it with its options.
type Hunt = (&'static str, fn(&[&str]) -> Exit);

const HUNTS: [Hunt; 20] = [
    ("all", all::run),
    ("boot", jobs::boot::run),
    ("ceph", jobs::ceph::run),
    ("conform", jobs::conform::run),
    ("corpus", jobs::corpus::run),
    ("crash", jobs::crash::run),
    ("explore", jobs::repository::explore),
    ("fuzz", jobs::fuzz::run),
    ("killed", jobs::killed::run),
    ("peers", jobs::peers::run),
    ("portable", jobs::portable::run),
    ("remote", jobs::remote::run),
    ("repair", jobs::repair::run),
    ("resize", jobs::resize::run),
    ("salvage", jobs::salvage::run),
    ("sanitize", jobs::sanitize::run),
    ("soak", jobs::soak::run),
    ("stress", jobs::stress::run),
    ("tests", jobs::tests::run),
    ("wheel", jobs::repository::wheel),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (name, rest) = words.split_first().map_or(("", &[][..]), |(name, rest)| (*name, rest));
    let Some((_, run)) = HUNTS.iter().find(|(known, _)| *known == name) else {
        let names: Vec<&str> = HUNTS.iter().map(|(name, _)| *name).collect();
        eprintln!("{name:?} is not a hunt: {}", names.join(", "));
        return Exit::Usage.into();
    };
    run(rest).into()
}
