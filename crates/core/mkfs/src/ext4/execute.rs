//! Executes the plan of an ext4 volume: chunks of groups in any order, then descriptors as they become
//! complete, and the primary superblock last.

use super::contents::Contents;
use super::plan::{Chunk, Counts, Plan};
use crate::error::Result;
use crate::executor::{self, Out, Writer, each_chunk};
use crate::progress::Run;
use crate::write::{Payload, Write};
use hectare_device::Device;
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_units::{u64_of, usize_of};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::HashMap;

/// Writes the planned volume with `contents` to a device, after discarding its content if the options say
/// so. `run` may be a number of threads.
///
/// # Errors
/// If the device fails; what it holds then is not a volume.
pub fn execute<'r>(
    plan: &Plan,
    device: &dyn Device,
    contents: &dyn Contents,
    run: impl Into<Run<'r>>,
) -> Result<()> {
    let run = run.into();
    lay_down(&*clear(plan, device, run)?, device, contents, run)
}

/// Writes the planned volume over a device that was [cleared](clear), and that may hold content in places that
/// [`Plan::space`] returned: the contents are written between the two.
///
/// # Errors
/// If the device fails; what it holds then is not a volume.
pub fn lay_down<'r>(
    plan: &Plan,
    device: &dyn Device,
    contents: &dyn Contents,
    run: impl Into<Run<'r>>,
) -> Result<()> {
    let work = Work { plan, contents, state: Mutex::default() };
    each_chunk(device, plan.is_zeroed(), (plan.chunks(), run.into()), &|chunk, writer| {
        work.one(chunk, writer)
    })?;
    let state = work.state.into_inner();
    let mut last = None;
    let out = Out::new(device, plan.is_zeroed());
    let mut writer = out.writer();
    plan.finish(state.counts, &mut |write| match last.replace(write) {
        Some(before) => writer.put(before),
        None => Ok(()),
    })?;
    writer.flush()?;
    if let Some(Write { at, payload: Payload::Bytes(bytes) }) = last {
        executor::seal(device, at, &bytes)?;
    }
    Ok(())
}

/// Zeros what could be taken for an older volume: both ends of the device, where signatures lie, and
/// superblock copies of XFS; unless the plan says that it reads as zeros anyway. Until the superblock takes
/// its place, a mark says that the format is not finished. Then discards what the device holds if the options
/// say so, and gives the plan for what can be read of it now.
///
/// # Errors
/// If the device fails.
pub fn clear<'p, 'r>(plan: &'p Plan, device: &dyn Device, run: impl Into<Run<'r>>) -> Result<Cow<'p, Plan>> {
    executor::wipe(device, plan.is_zeroed(), SUPERBLOCK_OFFSET)?;
    let discards = !plan.is_zeroed() && plan.options().discard;
    Ok(match discards && executor::discard(device, plan.geometry().bytes(), run.into()) {
        true => Cow::Owned(plan.on_zeros()),
        false => Cow::Borrowed(plan),
    })
}

/// What the threads share.
struct Work<'a> {
    plan: &'a Plan,
    contents: &'a dyn Contents,
    state: Mutex<State>,
}

/// Sums, and the runs of descriptor blocks of which some groups are still missing, by the first block: the
/// bytes, and how many groups are there.
#[derive(Default)]
struct State {
    counts: Counts,
    partial: HashMap<u32, (Vec<u8>, usize)>,
}

impl Work<'_> {
    fn one(&self, chunk: u32, writer: &mut Writer<'_>) -> Result<()> {
        let rendered = self.plan.render(chunk, self.contents, &mut |write| writer.put(write))?;
        let complete = self.collect(rendered);
        complete.into_iter().try_for_each(|(first, bytes)| {
            self.plan.render_descriptors(first, bytes, &mut |write| writer.put(write))
        })
    }

    /// Adds a chunk to the sums, and gives the runs of descriptor blocks that are now complete.
    fn collect(&self, chunk: Chunk) -> Vec<(u32, Vec<u8>)> {
        let geometry = self.plan.geometry();
        let mut state = self.state.lock();
        state.counts += chunk.counts;
        let (per_block, size) = (geometry.descs_per_block(), usize_of(geometry.desc_size));
        let mut complete = Vec::new();
        let (mut group, mut rest) = (chunk.first, chunk.descriptors.as_slice());
        while !rest.is_empty() {
            let run = self.plan.descriptor_run(group / per_block);
            let end = geometry.groups().min(run.end.saturating_mul(per_block));
            let (wanted, within) = (end - run.start * per_block, group - run.start * per_block);
            let here = usize_of(end - group).min(rest.len() / size);
            let (bytes, filled) =
                state.partial.entry(run.start).or_insert_with(|| (vec![0; usize_of(wanted) * size], 0));
            let at = usize_of(within) * size;
            bytes[at..at + here * size].copy_from_slice(&rest[..here * size]);
            *filled += here;
            if *filled == usize_of(wanted) {
                complete.extend(state.partial.remove(&run.start).map(|(bytes, _)| (run.start, bytes)));
            }
            rest = &rest[here * size..];
            group += hectare_units::low32(u64_of(here));
        }
        complete
    }
}
