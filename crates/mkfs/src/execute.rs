//! Carrying a plan out: threads that render chunks and write them.
//!
//! Order matters only at both ends: old signatures are wiped first, so that a format that is cut short leaves
//! nothing that could be taken for the old volume, and the primary superblock is written last, after
//! everything else is durable, so that a half-made volume is never taken for a whole one. Between them chunks
//! go to the device in any order, neighbouring writes joined into large ones.

use crate::contents::Contents;
use crate::error::Result;
use crate::plan::{Chunk, Payload, Plan, Write};
use hectare_device::Device;
use hectare_units::{Bytes, index_of, u64_of, usize_of};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes wiped at either end: signatures of other formats lie within the first 68 KiB, copies of some at the
/// end.
const WIPE: Bytes = Bytes::kib(128);
/// Bytes gathered before a write.
const GATHER: usize = 1 << 20;

/// Writes the planned volume with `contents` to a device, with up to `threads` threads.
///
/// # Errors
/// If the device fails; what it holds then is not a volume.
pub fn execute(plan: &Plan, device: &dyn Device, contents: &dyn Contents, threads: usize) -> Result<()> {
    wipe(plan, device)?;
    lay_down(plan, device, contents, threads)
}

/// Writes the planned volume over a device that was [wiped](wipe), and that may hold content in places that
/// [`Plan::space`] gave out: whoever fills the volume writes between the two.
///
/// # Errors
/// If the device fails; what it holds then is not a volume.
pub fn lay_down(plan: &Plan, device: &dyn Device, contents: &dyn Contents, threads: usize) -> Result<()> {
    let work = Work { plan, device, contents, next: AtomicU32::new(0), state: Mutex::default() };
    let threads = threads.clamp(1, index_of(plan.chunks().into()));
    let results = std::thread::scope(|scope| {
        let workers: Vec<_> = (1..threads).map(|_| scope.spawn(|| work.run())).collect();
        let mut results = vec![work.run()];
        for worker in workers {
            results.push(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        results
    });
    results.into_iter().collect::<Result<Vec<()>>>()?;
    let state = work.state.into_inner();
    let mut last = None;
    let mut writer = Writer::new(device, plan.is_zeroed());
    plan.finish(state.free_clusters, state.free_inodes, &mut |write| match last.replace(write) {
        Some(before) => writer.put(before),
        None => Ok(()),
    })?;
    writer.flush()?;
    device.flush()?;
    if let Some(Write { at, payload: Payload::Bytes(bytes) }) = last {
        device.write_at(at, &bytes)?;
    }
    device.flush()?;
    Ok(())
}

/// Zeros both ends of the device, where signatures lie, unless the plan says that it reads as zeros anyway.
///
/// # Errors
/// If the device fails.
pub fn wipe(plan: &Plan, device: &dyn Device) -> Result<()> {
    if plan.is_zeroed() {
        return Ok(());
    }
    let len = device.len();
    let head = WIPE.min(len);
    device.zero(Bytes::ZERO, head)?;
    let tail = head.get().max(len.get().saturating_sub(WIPE.get()));
    if tail < len.get() {
        device.zero(Bytes::new(tail), len - Bytes::new(tail))?;
    }
    device.flush()?;
    Ok(())
}

/// What the threads share.
struct Work<'a> {
    plan: &'a Plan,
    device: &'a dyn Device,
    contents: &'a dyn Contents,
    next: AtomicU32,
    state: Mutex<State>,
}

/// Sums, and the descriptor blocks of which some groups are still missing.
#[derive(Default)]
struct State {
    free_clusters: u64,
    free_inodes: u64,
    partial: HashMap<u32, (Vec<u8>, usize)>,
}

impl Work<'_> {
    fn run(&self) -> Result<()> {
        let mut writer = Writer::new(self.device, self.plan.is_zeroed());
        loop {
            let chunk = self.next.fetch_add(1, Ordering::Relaxed);
            if chunk >= self.plan.chunks() {
                return writer.flush();
            }
            if let Err(error) = self.one(chunk, &mut writer) {
                self.next.store(self.plan.chunks(), Ordering::Relaxed); // the others need not go on
                return Err(error);
            }
        }
    }

    fn one(&self, chunk: u32, writer: &mut Writer<'_>) -> Result<()> {
        let rendered = self.plan.render(chunk, self.contents, &mut |write| writer.put(write))?;
        for (index, bytes) in self.collect(rendered) {
            self.plan.render_descriptors(index, bytes, &mut |write| writer.put(write))?;
        }
        Ok(())
    }

    /// Adds a chunk to the sums, and gives the descriptor blocks that are now complete.
    fn collect(&self, chunk: Chunk) -> Vec<(u32, Vec<u8>)> {
        let geometry = self.plan.geometry();
        let mut state = self.state.lock();
        state.free_clusters += chunk.free_clusters;
        state.free_inodes += chunk.free_inodes;
        let (per_block, size) = (geometry.descs_per_block(), usize_of(geometry.desc_size));
        let mut complete = Vec::new();
        let (mut group, mut rest) = (chunk.first, chunk.descriptors.as_slice());
        while !rest.is_empty() {
            let (index, within) = (group / per_block, group % per_block);
            let here = usize_of((per_block - within).min(geometry.groups() - group)).min(rest.len() / size);
            let wanted = usize_of(per_block.min(geometry.groups() - index * per_block));
            let (block, filled) = state.partial.entry(index).or_insert_with(|| (vec![0; wanted * size], 0));
            let at = usize_of(within) * size;
            block[at..at + here * size].copy_from_slice(&rest[..here * size]);
            *filled += here;
            if *filled == wanted {
                complete.extend(state.partial.remove(&index).map(|(block, _)| (index, block)));
            }
            rest = &rest[here * size..];
            group += hectare_units::low32(u64_of(here));
        }
        complete
    }
}

/// Joins neighbouring writes.
struct Writer<'a> {
    device: &'a dyn Device,
    zeroed: bool,
    at: Bytes,
    gathered: Vec<u8>,
}

impl<'a> Writer<'a> {
    fn new(device: &'a dyn Device, zeroed: bool) -> Self {
        Self { device, zeroed, at: Bytes::ZERO, gathered: Vec::new() }
    }

    fn put(&mut self, write: Write) -> Result<()> {
        match write.payload {
            Payload::Zeros(_) if self.zeroed => Ok(()),
            Payload::Zeros(len) => Ok(self.device.zero(write.at, len)?),
            Payload::Bytes(bytes) => {
                let joins = self.at + Bytes::of(self.gathered.len()) == write.at;
                if !joins || self.gathered.len() + bytes.len() > GATHER {
                    self.flush()?;
                    self.at = write.at;
                }
                if self.gathered.is_empty() {
                    self.gathered = bytes;
                } else {
                    self.gathered.extend_from_slice(&bytes);
                }
                Ok(())
            }
        }
    }

    fn flush(&mut self) -> Result<()> {
        if !self.gathered.is_empty() {
            self.device.write_at(self.at, &self.gathered)?;
            self.gathered.clear();
        }
        Ok(())
    }
}
