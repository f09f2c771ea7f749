//! The load that the live page is drawn under: threads that write, read, stat and remove files of all sizes,
//! faster and slower in turn.
//!
//! Reads bypass the kernel's cache (`O_DIRECT`), or the mount would see none. Each thread has a directory of
//! its own and keeps a limited number of files in it.

use rustix::fs::OFlags;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const THREADS: u64 = 3;
/// Files that a thread keeps.
const FILES: u64 = 300;
/// The largest file is 4 KiB times 2 to this.
const SIZES: u64 = 11;
/// How long a thread rests after a file, at most.
const REST: Duration = Duration::from_millis(60);
/// Faster, slower, and faster again.
const WAVE: f64 = 35.0;

/// Works on a directory for a time, and continues while `then` runs.
pub(super) fn during(
    dir: &Path,
    time: Duration,
    then: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let work = |number: u64| work(&dir.join(format!("thread-{number}")), number, &stop);
        let workers: Vec<_> = (0..THREADS).map(|number| scope.spawn(move || work(number))).collect();
        thread::sleep(time);
        let done = then();
        stop.store(true, Ordering::Relaxed);
        let worked = workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(worked) => worked.map_err(|error| format!("the load failed: {error}")),
            Err(_) => Err("a thread of the load panicked".into()),
        });
        done.and(worked)
    })
}

fn work(dir: &Path, number: u64, stop: &AtomicBool) -> io::Result<()> {
    fs::create_dir(dir)?;
    let began = Instant::now();
    let data = vec![0x5a_u8; 4096 << SIZES];
    let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number + 1);
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        // xorshift
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let len = 4096_usize << (random % (SIZES + 1)).min(random / 16 % (SIZES + 1));
        one(&name(dir, random % FILES), &data[..len], round % 4 == 0)?;
        look(dir, random / FILES % FILES)?;
        if round % 16 == 0 {
            fs::read_dir(dir)?.try_for_each(|entry| entry?.metadata().map(drop))?;
        }
        let wave = (began.elapsed().as_secs_f64() / WAVE * std::f64::consts::TAU).sin();
        thread::sleep(REST.mul_f64(0.55 - 0.45 * wave));
    }
    Ok(())
}

fn name(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("file-{number:03}"))
}

/// Replaces a file, as careful programs do.
fn one(path: &Path, data: &[u8], durable: bool) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(data)?;
    if durable {
        file.sync_all()?;
    }
    drop(file);
    fs::rename(&new, path)
}

/// Reads a file, if there is one, and then perhaps removes it.
fn look(dir: &Path, number: u64) -> io::Result<()> {
    let path = name(dir, number);
    let direct = OFlags::DIRECT.bits().cast_signed();
    let mut file = match File::options().read(true).custom_flags(direct).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut buffer = vec![0; 1 << 20];
    while file.read(&mut buffer)? > 0 {}
    if number.is_multiple_of(5) { fs::remove_file(&path) } else { Ok(()) }
}
