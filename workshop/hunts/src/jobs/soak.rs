//! A soak test: `cargo hunt soak [--minutes N] [--threads N] [--seed N] [--keep]`.
//!
//! Threads do everything the engine offers at once, on a volume with a journal in memory-backed storage, for
//! minutes: each knows what its own files should be ([`worker`], [`owned`], [`content`]) and checks. Every
//! half minute a line reports the progress and the memory use of the process, which must not keep growing
//! ([`memory`]). In the end the volume is closed, `e2fsck -fn` checks it, and it is opened again, read-only,
//! to check every file once more.
//!
//! The seed determines what each thread does in which order, not how they interleave: a failure may take
//! several runs to recur. `--keep` leaves the image of a run that failed.
//!
//! Hazard: threads that wait for each other for ever. If nothing moves for a minute, the process reports it
//! and ends, without cleaning up more than its directory.

mod content;
mod memory;
mod owned;
mod worker;

use hectare_device::FileOptions;
use hectare_engine::{Creation, OpenOptions, Volume};
use hectare_oracle::{e2fsck, mke2fs, tool};
use hectare_tools::ended::{Ended, Exit};
use hectare_tools::job_folder::{Scratch, leave_nothing, with_path};
use hectare_tools::steps::{minutes, parsed, understood};
use memory::{Verdict, mib, resident_kib};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};
use worker::{Counts, Left, SHARED, Worker};

const USAGE: &str = "usage: cargo hunt soak [--minutes N] [--threads N] [--seed N] [--keep]";
/// The volume's size; the files of 64 threads need half a GiB.
const SIZE: &str = "2G";
/// Between two samples of memory.
const TICK: Duration = Duration::from_secs(1);
/// Between two lines.
const LINE: Duration = Duration::from_secs(30);
/// The longest time without progress.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, PartialEq, Debug)]
struct Options {
    time: Duration,
    threads: u32,
    seed: u64,
    keep: bool,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self { time: Duration::from_secs(600), threads: 64, seed: 1, keep: false };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match *word {
                "--minutes" => options.time = minutes(word, value()?)?,
                "--threads" => {
                    let text = value()?;
                    let threads = text.parse().ok().filter(|threads| (1..=999).contains(threads));
                    options.threads =
                        threads.ok_or_else(|| format!("{word}: {text} is not from 1 to 999"))?;
                }
                "--seed" => options.seed = parsed(word, value()?)?,
                "--keep" => options.keep = true,
                other => return Err(format!("{other} is no option")),
            }
        }
        Ok(options)
    }
}

/// Runs the job with its arguments; it ends well if nothing went wrong.
pub(crate) fn run(words: &[&str]) -> Exit {
    let Some(options) = understood(Options::parse(words), USAGE) else { return Exit::Usage };
    let result = soak(&options);
    leave_nothing();
    Exit::of(&format!("soak --threads {} --seed {}", options.threads, options.seed), result)
}

fn soak(options: &Options) -> Result<(), Ended> {
    let folder = Scratch::new(Path::new("/dev/shm"), "hectare-soak")?;
    let image = folder.path().join("image");
    mke2fs(&["-t", "ext4"], &image, SIZE)?;
    tool::need("e2fsck")?;
    let Options { time, threads, seed, keep } = options;
    println!("soak: {threads} threads, {:.1} minutes, seed {seed}", time.as_secs_f64() / 60.0);
    let result = on_image(&image, options, &folder);
    if result.is_err() && *keep {
        let kept = Path::new("/dev/shm").join("hectare-soak-failed.img");
        std::fs::rename(&image, &kept).map_err(with_path(&kept))?;
        eprintln!("the image stays: {}", kept.display());
    }
    Ok(result?)
}

fn on_image(image: &Path, options: &Options, folder: &Scratch) -> Result<(), String> {
    let device = FileOptions::new().write(true).open(image).map_err(|error| error.to_string())?;
    let open = OpenOptions { discard: true, ..OpenOptions::default() };
    let volume = Volume::open(Arc::new(device), open).map_err(with_path(image))?;
    volume.create_dir(SHARED, Creation::default()).map_err(with_path(image))?;
    let done = AtomicU64::new(0);
    let (worked, closed) = guarded(options, folder, &done, || {
        let worked = work(&volume, options, &done);
        done.fetch_add(1, Ordering::Relaxed);
        (worked, volume.close().map_err(with_path(image)))
    });
    drop(volume);
    // Also after a failure: whether the volume is sound shows where to search.
    let judged = judge(image);
    let (left, samples) = worked?;
    closed?;
    judged?;
    println!("e2fsck: clean");
    look_again(image, &left)?;
    tell(&left);
    match memory::judge(&samples) {
        Verdict::TooShort => println!("memory: not judged in less than a minute"),
        Verdict::Level(early, late) => println!("memory: level, {} then {}", mib(early), mib(late)),
        Verdict::Grows(early, late) => {
            return Err(format!("memory keeps growing, from {} to {}", mib(early), mib(late)));
        }
    }
    Ok(())
}

/// Sets the flag when its thread ends in whatever way.
struct StopsAll<'s>(&'s AtomicBool);

impl Drop for StopsAll<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The files that the threads left, and the samples of memory in KiB.
fn work(volume: &Volume, options: &Options, done: &AtomicU64) -> Result<(Vec<Left>, Vec<u64>), String> {
    let stop = AtomicBool::new(false);
    let workers: Result<Vec<_>, _> =
        (0..options.threads).map(|nr| Worker::new(volume, nr, options.seed)).collect();
    let workers = workers?;
    thread::scope(|scope| {
        let stop = &stop;
        let handles: Vec<_> = workers
            .into_iter()
            .map(|worker| {
                scope.spawn(move || {
                    let _stops = StopsAll(stop);
                    worker.run(stop, done)
                })
            })
            .collect();
        let samples = watch(options, stop, done);
        let joined =
            handles.into_iter().map(|handle| handle.join().unwrap_or(Err("a thread panicked".into())));
        let left: Result<Vec<Left>, String> = joined.collect();
        Ok((left?, samples))
    })
}

/// Does the job, and ends the process if nothing moves for long before its end: calls that wait for each
/// other never return.
fn guarded<T>(options: &Options, folder: &Scratch, done: &AtomicU64, job: impl FnOnce() -> T) -> T {
    let (over, waits) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let (mut moved, mut before) = (Instant::now(), 0);
            while waits.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                let now = done.load(Ordering::Relaxed);
                if now != before {
                    (moved, before) = (Instant::now(), now);
                }
                if moved.elapsed() > PATIENCE {
                    eprintln!("soak FAILED (--seed {}): nothing has moved for a minute", options.seed);
                    folder.remove();
                    leave_nothing();
                    std::process::exit(1);
                }
            }
        });
        let result = job();
        drop(over);
        result
    })
}

/// Samples memory, prints lines, and signals the threads when their time is over.
fn watch(options: &Options, stop: &AtomicBool, done: &AtomicU64) -> Vec<u64> {
    let (started, mut samples, mut lines) = (Instant::now(), Vec::new(), 1);
    while started.elapsed() < options.time && !stop.load(Ordering::Relaxed) {
        thread::sleep(TICK.min(options.time.saturating_sub(started.elapsed())));
        samples.extend(resident_kib());
        if started.elapsed() >= LINE * lines {
            lines += 1;
            line(started.elapsed(), done.load(Ordering::Relaxed), samples.last());
        }
    }
    line(started.elapsed(), done.load(Ordering::Relaxed), samples.last());
    stop.store(true, Ordering::Relaxed);
    samples
}

fn line(elapsed: Duration, operations: u64, resident: Option<&u64>) {
    let (minutes, seconds) = (elapsed.as_secs() / 60, elapsed.as_secs() % 60);
    let resident = resident.map_or("unknown memory".to_owned(), |kib| format!("{} resident", mib(*kib)));
    println!("  {minutes:>3}:{seconds:02}  {operations:>12} operations  {resident}");
}

fn judge(image: &Path) -> Result<(), String> {
    let report = e2fsck(image).map_err(|skip| skip.to_string())?;
    if report.is_sound() {
        return Ok(());
    }
    eprintln!("{}", report.output);
    Err("e2fsck does not find the volume clean".to_owned())
}

/// Checks every file of the closed volume.
fn look_again(image: &Path, left: &[Left]) -> Result<(), String> {
    let device = FileOptions::new().open(image).map_err(|error| error.to_string())?;
    let volume = Volume::open(Arc::new(device), OpenOptions::read_only()).map_err(with_path(image))?;
    let mut buffer = vec![0; 1 << 17];
    let files = || left.iter().flat_map(|left| &left.files);
    for file in files() {
        file.verify_in(&volume, &mut buffer).map_err(|error| format!("opened again: {error}"))?;
    }
    let mut symlinks = left.iter().flat_map(|left| &left.symlinks);
    symlinks
        .try_for_each(|link| link.verify_in(&volume))
        .map_err(|error| format!("opened again: {error}"))?;
    println!("opened again: {} files hold what they should", files().count());
    Ok(())
}

fn tell(left: &[Left]) {
    let mut counts = Counts::new();
    for (name, count) in left.iter().flat_map(|left| &left.counts) {
        *counts.entry(name).or_default() += count;
    }
    for (name, count) in counts {
        println!("  {count:>10}  {name}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_oracle::skip;

    #[test]
    fn words_become_options() {
        let options = Options::parse(&["--minutes", "0.5", "--threads", "3", "--seed", "9"]).unwrap();
        assert_eq!((options.time, options.threads, options.seed), (Duration::from_secs(30), 3, 9));
        for wrong in [&["--minutes"][..], &["--minutes", "-1"], &["--threads", "0"], &["fast"]] {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_second_of_it_is_sound() {
        if tool("mke2fs").is_none() || tool("e2fsck").is_none() {
            skip!("soak::a_second_of_it", "e2fsprogs is not installed");
        }
        let time = Duration::from_secs(1);
        soak(&Options { time, threads: 6, seed: 5, keep: false }).unwrap();
    }
}
