//! Tries one state that a crash left: opened, inspected, compared, used, and checked after each.

use super::devices::{Image, Parts};
use super::expect::{Expected, ThreadFiles};
use super::format::{BALLAST, Format, open_options};
use super::self_describing;
use super::snapshot::{content, look};
use super::tree::EntryKind;
use hectare_check::Options;
use hectare_device::{CrashStates, Device, MemoryDevice, OverlayDevice, RecordDevice};
use hectare_engine::{Creation, OpenOptions, RenameMode, Volume, XattrHow};
use hectare_units::random::SplitMix64;
use hectare_units::{index_of, u64_of};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A state of a volume in memory.
pub(super) type State = OverlayDevice<Arc<MemoryDevice>>;

/// The identity of what is made after the crash.
const AFTER: u32 = 0x00ff_fffe;
/// The number of the operation that writes after the crash.
const LATE: u32 = u32::MAX;
/// Bytes that a file grows by to see what comes to light, more than a block.
const GROWN: u64 = 5 * 1024;
/// Bytes of the file that is made.
const MADE: u64 = 24 << 10;
/// The maximum number of problems reported.
const TOLD_MAX: usize = 6;

/// An oracle for whole volumes beside the checker: `Ok` if the image is clean, or the problem.
pub type Oracle<'a> = dyn Fn(&Image) -> Result<(), String> + Sync + 'a;

/// What is done with a state.
#[derive(Clone, Copy)]
pub(super) struct Trial<'a> {
    pub(super) format: Format,
    pub(super) seed: u64,
    /// Whether the first recovery is cut off as well.
    pub(super) twice: bool,
    /// Whether what was written after the crash is looked at again in the end.
    pub(super) thorough: bool,
    pub(super) oracle: Option<&'a Oracle<'a>>,
}

/// What a job returns; or that it panicked, and why.
pub(super) fn caught<T>(job: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(job)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        format!("panicked: {}", text.unwrap_or("for no reason given"))
    })
}

impl Trial<'_> {
    /// The problem of a state, if any; a panic is one.
    pub(super) fn run(self, state: State, expected: &mut Expected<'_>) -> Result<(), String> {
        let tried = caught(|| self.try_state(state, expected)).and_then(|tried| tried);
        let cut_off = if self.twice { "the first recovery was cut off; " } else { "" };
        tried.map_err(|what| format!("{cut_off}{what}"))
    }

    fn try_state(self, state: State, expected: &mut Expected<'_>) -> Result<(), String> {
        let device: Arc<dyn Device> =
            if self.twice { self.recovery_cut_off(state)? } else { Arc::new(state) };
        let device = Parts::of(self.format.sizes(), &device).map_err(|error| error.to_string())?;
        let tops: Vec<String> = expected.tops().map(str::to_owned).collect();
        let found = self.recovered(&device, &tops)?;
        sound(&device).map_err(|what| format!("after recovery: {what}"))?;
        expected.check(&found)?;
        let kept = self.go_on(&device, &found).map_err(|what| format!("used after recovery: {what}"))?;
        sound(&device).map_err(|what| format!("after recovery and use: {what}"))?;
        if self.thorough {
            self.look_again(&device, &tops, (&found, &kept))
                .map_err(|what| format!("looked at again: {what}"))?;
        }
        if let Some(oracle) = self.oracle {
            oracle(&device.image().map_err(|error| error.to_string())?)?;
        }
        Ok(())
    }

    fn options(self) -> OpenOptions {
        open_options(self.seed)
    }

    fn open(self, device: &Parts) -> Result<Volume, String> {
        device.open(self.options()).map_err(|error| format!("it can't be opened: {error}"))
    }

    /// The state that a crash within the recovery leaves.
    fn recovery_cut_off(self, state: State) -> Result<Arc<dyn Device>, String> {
        let base = state.clone();
        let recorder = Arc::new(RecordDevice::new(Arc::new(state)));
        let device = Parts::recorded(self.format.sizes(), &recorder).map_err(|error| error.to_string())?;
        let volume = self.open(&device)?;
        volume.close().map_err(|error| format!("it can't be closed: {error}"))?;
        let mut random = SplitMix64::stream(self.seed, 3);
        let mut states = CrashStates::new(base, recorder.log());
        let point = index_of(random.below(u64_of(recorder.events()) + 1));
        let state = states.torn(point, random.draw()).map_err(|error| error.to_string())?;
        Ok(Arc::new(state))
    }

    /// Recovers, looks, and closes.
    fn recovered(self, device: &Parts, tops: &[String]) -> Result<Vec<ThreadFiles>, String> {
        let volume = self.open(device)?;
        let found = tops.iter().map(|top| look(&volume, top)).collect::<Result<Vec<_>, _>>()?;
        let root = volume.read_dir("/").map_err(|error| error.to_string())?;
        let known = |name: &[u8]| {
            name == b"lost+found"
                || name == BALLAST.as_bytes()
                || tops.iter().any(|top| top.as_bytes() == name)
        };
        if let Some(entry) = root.iter().find(|entry| !known(&entry.name)) {
            return Err(format!("nobody made /{}", String::from_utf8_lossy(&entry.name)));
        }
        volume.close().map_err(|error| format!("it can't be closed: {error}"))?;
        Ok(found)
    }

    /// Uses the volume; the ids of the files that were left alone.
    fn go_on(self, device: &Parts, found: &[ThreadFiles]) -> Result<HashSet<u32>, String> {
        let volume = self.open(device)?;
        let mut random = SplitMix64::stream(self.seed, 4);
        let files =
            found.iter().flat_map(|found| &found.entries).filter(|entry| entry.kind == EntryKind::File);
        let files: Vec<_> = files.collect();
        let mut kept: HashSet<u32> = files.iter().map(|entry| entry.id).collect();
        let told = |error: hectare_engine::Error| error.to_string();
        if let Some(entry) = random.pick(&files) {
            kept.remove(&entry.id);
            volume.remove_file(&entry.path).map_err(told)?;
        }
        // The checks that follow need some room.
        match volume.remove_file(BALLAST) {
            Ok(()) => volume.sync().map_err(told)?,
            Err(hectare_engine::Error::NotFound) => {}
            Err(error) => return Err(told(error)),
        }
        let left: Vec<_> = files.into_iter().filter(|entry| kept.contains(&entry.id)).collect();
        for grow in [true, false] {
            let Some(entry) = random.pick(&left) else { break };
            kept.remove(&entry.id);
            let change = if grow { grow_file } else { change_file };
            change(&volume, &entry.path, entry.id).map_err(|what| format!("{}: {what}", entry.path))?;
        }
        make_more(&volume).map_err(told)?;
        volume.close().map_err(told)?;
        Ok(kept)
    }

    fn look_again(
        self,
        device: &Parts,
        tops: &[String],
        (before, kept): (&[ThreadFiles], &HashSet<u32>),
    ) -> Result<(), String> {
        let volume = self.open(device)?;
        for (top, before) in tops.iter().zip(before) {
            let now = look(&volume, top)?;
            let differs = |id: &&u32| before.contents.get(*id) != now.contents.get(*id);
            if let Some(id) = before.contents.keys().filter(|id| kept.contains(id)).find(differs) {
                return Err(format!("file {id} changed though nobody touched it"));
            }
        }
        let nr = volume.resolve("after/made", false).map_err(|error| error.to_string())?;
        if content(&volume, nr)? != self_describing::written(AFTER, LATE, 0, MADE) {
            return Err("what was written after the crash is not what was read".into());
        }
        volume.close().map_err(|error| error.to_string())
    }
}

/// The problem of a closed volume, if any.
fn sound(device: &Parts) -> Result<(), String> {
    let report =
        hectare_check::check(&*device.volume, &Options::default()).map_err(|error| error.to_string())?;
    if report.is_clean() {
        return Ok(());
    }
    let told: Vec<String> = report.problems.iter().take(TOLD_MAX).map(ToString::to_string).collect();
    Err(told.join("; "))
}

/// What lies beyond the end of a file must not come to light when it grows.
fn grow_file(volume: &Volume, path: &str, _id: u32) -> Result<(), String> {
    let file = volume.open_file(path).map_err(|error| error.to_string())?;
    let size = file.metadata().map_err(|error| error.to_string())?.size;
    file.set_len(size + GROWN).map_err(|error| error.to_string())?;
    let mut grown = vec![0xff; index_of(GROWN)];
    let read = file.read_at(size, &mut grown).map_err(|error| error.to_string())?;
    match grown.iter().take(read).position(|byte| *byte != 0) {
        None if read == grown.len() => Ok(()),
        None => Err(format!("grown to {} bytes, it ends early", size + GROWN)),
        Some(at) => {
            Err(format!("grown from {size} bytes, it shows old content at byte {}", size + u64_of(at)))
        }
    }
}

/// Overwrites the beginning of a file and appends to it.
fn change_file(volume: &Volume, path: &str, id: u32) -> Result<(), String> {
    let file = volume.open_file(path).map_err(|error| error.to_string())?;
    let size = file.metadata().map_err(|error| error.to_string())?.size;
    for at in [0, size] {
        let written = self_describing::written(id, LATE, at, 1024);
        file.write_all_at(at, &written).map_err(|error| error.to_string())?;
        let mut read = vec![0; written.len()];
        file.read_at(at, &mut read).map_err(|error| error.to_string())?;
        if read != written {
            return Err(format!("what was written at byte {at} reads differently"));
        }
    }
    file.sync().map_err(|error| error.to_string())
}

/// Some of everything, so that inodes and blocks are taken that must be free.
fn make_more(volume: &Volume) -> hectare_engine::Result<()> {
    let creation = Creation { uid: AFTER, ..Creation::default() };
    volume.create_dir("after", creation)?;
    let made = volume.create_file("after/file", creation)?;
    made.write_all_at(0, &self_describing::written(AFTER, LATE, 0, MADE))?;
    drop(made);
    volume.rename_path("after/file", "after/made", RenameMode::Replace)?;
    volume.hard_link("after/made", "after/link")?;
    volume.symlink("s".repeat(100), "after/symlink", creation)?;
    let nr = volume.resolve("after/made", false)?;
    volume.set_xattr(nr, "user.after", &[7; 500], XattrHow::Either)?;
    volume.sync()?;
    volume.remove_file("after/link")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failure_with_its_reason() {
        assert_eq!(caught(|| 7), Ok(7));
        let panicked = caught(|| -> u32 { panic!("block {} is free", 3) });
        assert_eq!(panicked, Err("panicked: block 3 is free".to_owned()));
    }
}
