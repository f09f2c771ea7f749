//! Measures one run of a program on an image.
//!
//! Linux keeps the I/O counters of a process until its parent waits for it, so they are read after the
//! process has ended and before the wait; its peak memory is gone then, and read while it runs.

use hectare_oracle::tool;
use hectare_oracle::tool::line_of;
use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde_json::{Value, json};
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The interval between two samples of memory.
const PAUSE: Duration = Duration::from_millis(1);

/// The measurements of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(in crate::bench) struct Figures {
    /// From start to end.
    pub(in crate::bench) seconds: f64,
    /// Seconds of processors, all of its threads together, in whole clock ticks.
    pub(in crate::bench) cpu: f64,
    /// The most resident memory; `None` if the run ended before the first sample.
    pub(in crate::bench) memory_mib: Option<f64>,
    /// Bytes passed to write calls.
    pub(in crate::bench) written: f64,
    /// Write calls.
    pub(in crate::bench) writes: f64,
    /// The file's allocated size afterwards, in bytes.
    pub(in crate::bench) taken: f64,
}

impl Figures {
    pub(in crate::bench) fn json(&self) -> Value {
        json!({
            "seconds": self.seconds, "cpu": self.cpu, "memory_mib": self.memory_mib, "written": self.written,
            "writes": self.writes, "taken": self.taken,
        })
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seconds, memory_mib, written, writes, taken, .. } = self;
        let (written, taken) = (written / 1e6, taken / 1e6);
        let memory = memory_mib.map_or("?".to_owned(), |mib| format!("{mib:.1}"));
        write!(f, "{seconds:.2} s, {memory} MiB, {written:.0} MB in {writes} writes, {taken:.0} MB taken")
    }
}

/// Runs a formatter on a file, with its size after it if that is to be said.
pub(super) fn measure(
    program: &str,
    words: &[&str],
    image: &Path,
    size: Option<u64>,
) -> Result<Figures, String> {
    let mut command = if program.contains('/') {
        Command::new(program)
    } else {
        tool(program).ok_or_else(|| format!("{program} is not installed"))?
    };
    command.args(words).arg(image).args(size.map(|size| format!("{}k", size >> 10)));
    run(command, image)
}

/// Runs a program that writes to an image.
pub(in crate::bench) fn run(mut command: Command, image: &Path) -> Result<Figures, String> {
    let line = line_of(&command);
    let failed = |error: std::io::Error| format!("{line}: {error}");
    let started = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().map_err(failed)?;
    let seen = look(&child);
    let seconds = started.elapsed().as_secs_f64();
    let (written, writes) = (of(&child, "io", "wchar:"), of(&child, "io", "syscw:"));
    let cpu = cpu(&child);
    let status = child.wait().map_err(failed)?;
    if !status.success() {
        return Err(format!("{line}: {status}"));
    }
    let taken = fs::metadata(image).map_err(failed)?.blocks() * 512;
    Ok(Figures {
        seconds,
        cpu: cpu.ok_or("the system does not say how long it ran")?,
        memory_mib: seen.map(|kib| kib / 1024.0),
        written: written.ok_or("the system does not say what was written")?,
        writes: writes.ok_or("the system does not say how often was written")?,
        taken: float(taken),
    })
}

/// Samples a program until it has ended, without reaping it; returns its peak memory, in KiB.
fn look(child: &Child) -> Option<f64> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let mut most = None;
    // A program that can't be sampled is simply waited for.
    while pid.is_some_and(|pid| matches!(waitid(WaitId::Pid(pid), options), Ok(None))) {
        most = of(child, "status", "VmHWM:").or(most); // it only grows
        std::thread::sleep(PAUSE);
    }
    most
}

/// The processor time of a program that has ended, in seconds.
fn cpu(child: &Child) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
    // After the name, which may have spaces, comes the third field; the times are the 14th and 15th.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    let (user, system) = (ticks()?, ticks()?);
    Some((user + system) / float(clock_ticks_per_second()))
}

/// A number from a program's `/proc` file.
fn of(child: &Child, file: &str, name: &str) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{}/{file}", child.id())).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[allow(clippy::cast_precision_loss)] // far below 2^52
fn float(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_writes_is_counted() {
        let folder = hectare_oracle::scratch::fresh("measure");
        fs::create_dir_all(&folder).unwrap();
        let image = folder.join("image");
        // The argument after the script becomes its `$0`.
        let script = "dd if=/dev/zero of=\"$0\" bs=4096 count=64 2>/dev/null; sleep 1";
        let figures = measure("sh", &["-c", script], &image, None).unwrap();
        assert!(figures.taken >= 262_144.0 && figures.seconds >= 1.0, "{figures}");
        assert!(figures.memory_mib.unwrap() > 0.1, "{figures}");
        assert!(figures.written >= 262_144.0 && figures.writes >= 64.0, "{figures}");
        assert!(measure("sh", &["-c", "exit 3"], &image, None).unwrap_err().contains("sh -c"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
