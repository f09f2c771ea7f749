//! Renders the chunks of a plan of any format, by threads that each take the next one.
//!
//! Chunks are independent, and none is rendered twice. What this is not: writing (that is `writer`), or what
//! must be done in order (that is `ends`).

use super::writer::{Out, Writer};
use crate::error::Result;
use crate::progress::{Run, Step};
use hectare_device::Device;
use hectare_units::usize_of;
use std::sync::atomic::{AtomicU32, Ordering};

/// Has every chunk from 0 on rendered once, by as many threads as the run has, with a writer each.
///
/// # Errors
/// The first error of a chunk; the others are then abandoned.
pub(crate) fn each_chunk(
    device: &dyn Device,
    zeroed: bool,
    (chunks, run): (u32, Run<'_>),
    one: &(dyn Fn(u32, &mut Writer<'_>) -> Result<()> + Sync),
) -> Result<()> {
    let (next, done, out) = (AtomicU32::new(0), AtomicU32::new(0), Out::new(device, zeroed));
    let work = || {
        let mut writer = out.writer();
        loop {
            let chunk = next.fetch_add(1, Ordering::Relaxed);
            if chunk >= chunks {
                return writer.flush();
            }
            if let Err(error) = one(chunk, &mut writer) {
                next.store(chunks, Ordering::Relaxed); // the others need not continue
                return Err(error);
            }
            let before = done.fetch_add(1, Ordering::Relaxed);
            run.tell(Step::Write, u64::from(before) + 1, chunks.into());
        }
    };
    let results = std::thread::scope(|scope| {
        let threads = run.threads.clamp(1, usize_of(chunks.max(1)));
        let workers: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut results = vec![work()];
        for worker in workers {
            results.push(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        results
    });
    results.into_iter().collect()
}
