//! `--max-memory`: the memory limit of the process, and of any it starts.
//!
//! The limit is the kernel's (`RLIMIT_DATA`): heap, private writable mappings, stacks of threads. Not counted
//! are the program's own text, mapped image files, and the kernel's page cache. Allocations whose size an
//! image determines are fallible, so that a refusal is an error like any other ([`hectare_units::memory`]).
//! Any other refusal makes the standard library print its own message on standard error, and abort; an abort
//! under a limit ends with exit code 1 here, as other failures do.
//!
//! What this is not: a promise that a command works within the limit.

use crate::failure::{Failure, Outcome};
use crate::size_arg::parse_size;
use hectare_engine::OpenOptions;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::SIGABRT;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The smallest limit accepted: no command could do anything with less.
const LEAST: u64 = 32 << 20;
/// Each of a volume's two caches may use this part of the limit.
const CACHE_PART: u64 = 8;
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
        let failed = |error: std::io::Error| Failure::of("--max-memory", error);
        let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
        setrlimit(Resource::Data, limit).map_err(|error| failed(error.into()))?;
        let always = Arc::new(AtomicBool::new(true));
        signal_hook::flag::register_conditional_shutdown(SIGABRT, 1, always).map_err(failed)?;
        Ok(())
    }
}

/// Options whose caches fit the process's limit.
pub(crate) fn bounded(options: OpenOptions) -> OpenOptions {
    let limit = getrlimit(Resource::Data).current;
    let Some(part) = limit.and_then(|limit| usize::try_from(limit / CACHE_PART).ok()) else { return options };
    let (cache_bytes, cache_inodes) =
        (options.cache_bytes.min(part), options.cache_inodes.min(part / INODE_LEN));
    OpenOptions { cache_bytes, cache_inodes, ..options }
}
