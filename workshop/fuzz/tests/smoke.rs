//! Every fuzz target for some seconds, from its kept inputs: no panic, no hang, no amplification.
//!
//! The same inputs come every time (`workshop/fuzz/src/smoke.rs`), more of them on a faster machine. What fails is
//! kept in `workshop/fuzz/artifacts`. `HECTARE_LONG=1` takes half a minute for each target. What searches is
//! `cargo hunt fuzz`.

#![allow(clippy::unwrap_used)] // a test that cannot continue fails

use hectare_tools::hunt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SECONDS: u64 = 2;
const SECONDS_LONG: u64 = 30;
/// Timeout for the very last input, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// An allocation without bound fails at once instead of filling the machine.
const ADDRESS_SPACE_KIB: u64 = 4 << 20;

macro_rules! tests {
    ($($target:ident),* $(,)?) => {
        $(#[test]
        fn $target() {
            holds(stringify!($target));
        })*
    };
}

hectare_fuzz::with_targets!(tests);

fn holds(target: &str) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let work = tempfile::tempdir().unwrap();
    let (input, said) = (work.path().join("input"), work.path().join("said"));
    let seconds = if hunt::is_long() { SECONDS_LONG } else { SECONDS };
    let script = format!("ulimit -v {ADDRESS_SPACE_KIB} && exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_fuzz"), target, "--smoke", &seconds.to_string()]);
    command.arg(here.join("kept").join(target)).arg(&input);
    command.stdin(Stdio::null()).stderr(File::create(&said).unwrap());
    let limit = Duration::from_secs(seconds) + PATIENCE;
    let Some(why) = failure(&mut command, limit) else { return };
    let said = String::from_utf8_lossy(&std::fs::read(&said).unwrap()).into_owned();
    let kept = keep(&input, &here.join("artifacts").join(target));
    panic!("the fuzz target {target} {why} on {}:\n{said}", kept.display());
}

/// How a command failed, if it did.
fn failure(command: &mut Command, limit: Duration) -> Option<String> {
    let mut child = command.spawn().unwrap();
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return (!status.success()).then(|| format!("ended with {status}"));
        }
        if started.elapsed() > limit {
            child.kill().unwrap();
            child.wait().unwrap();
            return Some(format!("did not end within {limit:?}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Puts an input where those that failed are; its path there.
fn keep(input: &Path, folder: &Path) -> PathBuf {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let bytes = std::fs::read(input).unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    let kept = folder.join(format!("smoke-{:016x}", hasher.finish()));
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(&kept, bytes).unwrap();
    kept
}
