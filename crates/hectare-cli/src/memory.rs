//! `--max-memory`: the memory limit of the process, and of any it starts.
//!
//! The limit is the kernel's (`RLIMIT_DATA`): heap, private writable mappings, stacks of threads. Not counted
//! are the program's own text, mapped image files, and the kernel's page cache. Allocations whose size an
//! image determines are fallible, so that a refusal is an error like any other ([`hectare_units::memory`]).
//! Any other refusal makes the standard library print its own message on standard error, and abort; an abort
//! under a limit ends with exit code 1 here, as other failures do.
//!
//! A command that can put what it has to remember elsewhere keeps a quarter of the limit in memory, and
//! without a limit half of what the machine has free ([`for_staging`]).
//!
//! Other hosts than Linux have no such limit, and refuse the option.
//!
//! What this is not: a promise that a command works within the limit.

use crate::failure::{Failure, Outcome};
use crate::os;
use crate::size_arg::parse_size;
use hectare_engine::OpenOptions;
use hectare_units::Bytes;

/// The smallest limit accepted: no command could do anything with less.
const LEAST: u64 = 32 << 20;
/// Each of a volume's two caches may use this part of the limit.
const CACHE_PART: u64 = 8;
/// What is staged may use this part of the limit, and this part of what is free where there is none.
const STAGED_PART: u64 = 4;
const FREE_PART: u64 = 2;
/// What is taken to be free where the system does not say.
const FREE_UNKNOWN: u64 = 2 << 30;
/// Bytes per inode in the cache.
const INODE_LEN: usize = 1024;

/// How much memory may be used.
#[derive(clap::Args, Clone, Copy, Default)]
pub(crate) struct MaxMemory {
    /// End with an error instead of using more memory than this (suffixes: k, M, G...) [default: no limit]
    #[arg(long, global = true, value_name = "SIZE", value_parser = parse_size)]
    max_memory: Option<u64>,
}

impl MaxMemory {
    /// Sets the limit, permanently. To be called once, before anything is opened.
    pub(crate) fn apply(self) -> Outcome {
        let Some(bytes) = self.max_memory else { return Ok(()) };
        if bytes < LEAST {
            return Err(Failure::Usage(format!("--max-memory: at least {} MiB are needed", LEAST >> 20)));
        }
        os::limit_memory(bytes).map_err(|error| Failure::of("--max-memory", error))
    }
}

/// Options whose caches fit the process's limit.
pub(crate) fn bounded(options: OpenOptions) -> OpenOptions {
    let Some(part) = os::memory_limit().and_then(|limit| usize::try_from(limit / CACHE_PART).ok()) else {
        return options;
    };
    let (cache_bytes, cache_inodes) =
        (options.cache_bytes.min(part), options.cache_inodes.min(part / INODE_LEN));
    OpenOptions { cache_bytes, cache_inodes, ..options }
}

/// Memory for what a command stages and can put elsewhere.
pub(crate) fn for_staging() -> Bytes {
    match os::memory_limit() {
        Some(limit) => Bytes::new(limit / STAGED_PART),
        None => Bytes::new(free() / FREE_PART),
    }
}

/// What the machine has free, or what the container that this runs in may have.
fn free() -> u64 {
    let available = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| available(&text));
    let container = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let container = container.and_then(|text| text.trim().parse().ok());
    available.unwrap_or(FREE_UNKNOWN).min(container.unwrap_or(u64::MAX))
}

/// What `/proc/meminfo` says that programs can have without others giving theirs up.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_memory_is_what_the_system_says() {
        let text = "MemTotal:       24683800 kB\nMemFree:        17898044 kB\nMemAvailable:   22345468 kB\n";
        assert_eq!(available(text), Some(22_345_468 << 10));
        assert_eq!(available("MemFree: 1 kB\n"), None);
        assert!(free() > 0);
    }
}
