//! Two openers of one volume, each by a `qemu-nbd` of its own, as on two machines.
//!
//! The second is refused while the first lives. A first that is stopped loses the volume after its heartbeat, and
//! writes nothing when it goes on. The hazard that this has beyond any other server: each `qemu-nbd` keeps
//! unflushed writes in its own memory, and those of the first must not arrive after the second has begun. The
//! exclusive lock of the image, which Ceph gives by default, is what prevents that.

use super::cluster::finished;
use super::volumes::is_clean;
use super::{Bench, Ended, Features, opened};
use hectare_device::Device;
use hectare_oracle::{KernelMount, tool};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::process::{Child, Stdio};

/// The volume, in MiB.
const SIZE: u64 = 64;
/// What the first does: the output of the second line is more than a pipe holds, so it waits there until it is read.
const SCRIPT: &str = "mkdir /before\ncat /big\nmkdir /after\n";

/// A batch that has the volume open, ended with its owner.
struct Waiting(Child);

impl Drop for Waiting {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.0.kill().unwrap_or_default();
        let _ = self.0.wait();
    }
}

impl Waiting {
    /// Starts it, and returns when the volume is open.
    fn start(bench: &Bench, url: &str) -> Result<Self, std::io::Error> {
        let mut command = bench.hectare(&["sh", url]);
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut waiting = Self(pipes.spawn()?);
        if let Some(mut script) = waiting.0.stdin.take() {
            script.write_all(SCRIPT.as_bytes())?;
        }
        if let Some(output) = waiting.0.stdout.as_mut() {
            output.read_exact(&mut [0])?;
        }
        Ok(waiting)
    }

    fn signal(&self, signal: Signal) -> Result<(), String> {
        kill_process(Pid::from_child(&self.0), signal).map_err(|error| error.to_string())
    }

    /// Reads what is left, and returns the exit code and standard error.
    fn end(mut self) -> Result<(Option<i32>, String), std::io::Error> {
        let (mut left, mut said) = (Vec::new(), String::new());
        if let Some(mut output) = self.0.stdout.take() {
            output.read_to_end(&mut left)?;
        }
        if let Some(mut errors) = self.0.stderr.take() {
            errors.read_to_string(&mut said)?;
        }
        Ok((self.0.wait()?.code(), said))
    }
}

/// The second is refused, then takes over; the first writes nothing after that.
pub(super) fn one_is_refused(bench: &Bench) -> Result<String, Ended> {
    let here = bench.image("openers", SIZE, Features::Default)?;
    let there = here.another()?;
    let big = bench.folder.join("big");
    std::fs::write(&big, vec![7; 1 << 20]).map_err(text)?;
    finished(&mut bench.hectare(&["mkfs", "-q", "-E", "mmp_update_interval=1", &here.url()]))?;
    finished(bench.hectare(&["cp"]).arg(&big).arg(format!("{}:/big", here.url())))?;

    let first = Waiting::start(bench, &here.url()).map_err(text)?;
    let mkdir = |how: &[&str], name: &str| {
        tool::run(bench.hectare(&["mkdir"]).args(how).arg(format!("{}:/{name}", there.url())))
    };
    for how in [&[][..], &["--takeover"]] {
        let said = mkdir(how, "refused");
        if said.succeeded() || !said.stderr.contains("in use by host ") {
            return Err(format!("a second opener was not refused {how:?}: {}", said.report()).into());
        }
    }
    first.signal(Signal::STOP)?;
    let said = mkdir(&["--takeover"], "second");
    if !said.succeeded() {
        return Err(format!("the second did not take over: {}", said.report()).into());
    }
    let before = std::fs::read(bench.exported("openers")?).map_err(text)?;
    first.signal(Signal::CONT)?;
    let (code, said) = first.end().map_err(text)?;
    if code != Some(1) || !said.contains("MMP") {
        return Err(format!("the first went on, exit code {code:?}: {said}").into());
    }
    // Whatever the first's server still has in memory arrives now.
    opened(&here.address())?.flush().map_err(|error| error.to_string())?;
    drop((here, there));
    let copy = bench.exported("openers")?;
    if std::fs::read(&copy).map_err(text)? != before {
        return Err("the first changed the volume after it was taken over".to_owned().into());
    }
    is_clean(&copy)?;
    let mount = KernelMount::read_only(&copy, "")?;
    let has = ["before", "second", "after", "refused"].map(|name| mount.path().join(name).exists());
    mount.unmount();
    match has {
        [true, true, false, false] => {
            Ok("refused twice, taken over once; the first wrote nothing then".to_owned())
        }
        _ => Err(format!("of before, second, after and refused there are {has:?}").into()),
    }
}

fn text(error: std::io::Error) -> Ended {
    Ended::Failed(error.to_string())
}
