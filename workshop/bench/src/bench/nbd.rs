//! Compares NBD clients on one server, and servers with one client, in turn: `cargo benchmark nbd [--only NAME]
//! [--pairs N] [--seconds S] [--quick] [--binary FILE] [--list]`.
//!
//! | cases | ours | theirs | on |
//! |---|---|---|---|
//! | `client-random-*` | 4 KiB, 64 at once, by threads | fio's engine `nbd`, depth 64 | qemu-nbd |
//! | `client-read`, `-write` | all of it in pieces of 4 MiB, 4 threads | nbdcopy | qemu-nbd |
//! | `server-*` | `hectare serve` | qemu-nbd, nbdkit's plugin `file` | fio and nbdcopy |
//!
//! The export is a file in memory, full of data, so that neither a disk nor holes are measured. The order of the
//! sides alternates from round to round; the median of the rounds' ratios counts.

use hectare_device::Device;
use hectare_lab::paired_stats::Spread;
use hectare_nbd::{Address, NbdDevice, Options as NbdOptions, Place};
use hectare_oracle::tool::need;
use hectare_tools::ended::Exit;
use hectare_tools::job_folder::Scratch;
use hectare_tools::steps::{parsed, understood};
use hectare_units::random::SplitMix64;
use hectare_units::{Bytes, index_of};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const USAGE: &str = "usage: cargo benchmark nbd [--only NAME]... [--pairs N] [--seconds S] [--quick] \
                     [--binary FILE] [--list]";
const NAME: &str = "hectare-bench-nbd";
/// Requests at once, and their length.
const DEPTH: usize = 64;
const BLOCK: usize = 4096;
/// The pieces of sequential work, and the threads that do them.
const PIECE: u64 = 4 << 20;
const THREADS: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Server {
    Hectare,
    Qemu,
    Nbdkit,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Client {
    Hectare,
    /// fio or nbdcopy.
    Others,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    RandomRead,
    RandomWrite,
    Read,
    Write,
}

type Side = (Server, Client);

/// The cases: a name, the work, and the sides, ours first.
fn cases() -> Vec<(String, Work, Vec<Side>)> {
    let works = [
        ("random-read", Work::RandomRead),
        ("random-write", Work::RandomWrite),
        ("read", Work::Read),
        ("write", Work::Write),
    ];
    let clients = vec![(Server::Qemu, Client::Hectare), (Server::Qemu, Client::Others)];
    let servers = [Server::Hectare, Server::Qemu, Server::Nbdkit].map(|server| (server, Client::Others));
    let of = |(name, work): (&str, Work)| {
        [
            (format!("client-{name}"), work, clients.clone()),
            (format!("server-{name}"), work, servers.to_vec()),
        ]
    };
    works.into_iter().flat_map(of).collect()
}

struct Options {
    only: Vec<String>,
    pairs: u32,
    seconds: u64,
    quick: bool,
    binary: Option<PathBuf>,
    list: bool,
}

fn parse(words: &[&str]) -> Result<Options, String> {
    let mut options =
        Options { only: Vec::new(), pairs: 5, seconds: 5, quick: false, binary: None, list: false };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().copied().ok_or(format!("{word} needs a value"));
        match *word {
            "--only" => options.only.push(value()?.to_owned()),
            "--pairs" => options.pairs = parsed::<u32>(word, value()?)?.max(1),
            "--seconds" => options.seconds = parsed::<u32>(word, value()?)?.max(1).into(),
            "--binary" => options.binary = Some(value()?.into()),
            "--quick" => options.quick = true,
            "--list" => options.list = true,
            other => return Err(format!("{other} is no option")),
        }
    }
    super::known(&options.only, &cases().into_iter().map(|(name, ..)| name).collect::<Vec<_>>())?;
    Ok(options)
}

/// Runs the job with its arguments; it ends well if everything ran.
pub(super) fn run(words: &[&str]) -> Exit {
    let Some(options) = understood(parse(words), USAGE) else { return Exit::Usage };
    let wanted =
        |name: &str| options.only.is_empty() || options.only.iter().any(|only| name.starts_with(only));
    let cases: Vec<_> = cases().into_iter().filter(|(name, ..)| wanted(name)).collect();
    if options.list {
        cases.iter().for_each(|(name, work, sides)| println!("{name:<24} {work:?}: {sides:?}"));
        return Exit::Good;
    }
    let Some(binary) = super::built(options.binary.as_deref()) else { return Exit::NotHere };
    let scratch = match Scratch::new(Path::new("/dev/shm"), NAME) {
        Ok(scratch) => scratch,
        Err(error) => {
            eprintln!("{error}");
            return Exit::Bad;
        }
    };
    let ground = Ground { folder: scratch.path().to_owned(), binary, options };
    cases.iter().fold(true, |good, (name, work, sides)| ground.compare(name, *work, sides) && good).into()
}

struct Ground {
    folder: PathBuf,
    binary: PathBuf,
    options: Options,
}

/// A server that runs, ended when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It ended by itself if it can't be asked.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

impl Ground {
    /// MiB per second of each side, round by round; prints the ratios to ours.
    fn compare(&self, name: &str, work: Work, sides: &[Side]) -> bool {
        let mut figures: Vec<Vec<f64>> = vec![Vec::new(); sides.len()];
        for round in 0..self.options.pairs {
            let mut order: Vec<usize> = (0..sides.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for nr in order {
                match self.measure(work, sides[nr]) {
                    Ok(figure) => figures[nr].push(figure),
                    Err(error) => {
                        println!("{name}: {:?}: FAILED: {error}", sides[nr]);
                        return false;
                    }
                }
            }
        }
        println!("{name}");
        for (side, of_side) in sides.iter().zip(&figures) {
            let median = Spread::of(of_side).map_or(0.0, |spread| spread.median);
            let ratio = Spread::of_ratios(&figures[0], of_side);
            let ratio = ratio.map_or_else(String::new, |of| {
                format!("{:.2} of ours ({:.2} to {:.2})", of.median, of.min, of.max)
            });
            println!("  {:<20} {median:>10.1} MiB/s  {ratio}", format!("{:?}, {:?}", side.0, side.1));
        }
        true
    }

    fn len(&self) -> u64 {
        if self.options.quick { 64 << 20 } else { 1 << 30 }
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    fn file(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.folder.join(name);
        if !path.exists() {
            let failed = |error: std::io::Error| format!("{}: {error}", path.display());
            let mut file = File::create(&path).map_err(failed)?;
            let mut random = SplitMix64::new(1);
            let piece: Vec<u8> = (0..PIECE / 8).flat_map(|_| random.draw().to_le_bytes()).collect();
            (0..self.len() / PIECE).try_for_each(|_| file.write_all(&piece)).map_err(failed)?;
        }
        Ok(path)
    }

    fn serve(&self, server: Server) -> Result<Running, String> {
        let (file, socket) = (self.file("export")?, self.socket());
        let _ = std::fs::remove_file(&socket); // the last server's
        let skipped = |reason| format!("{reason}");
        let mut command = match server {
            Server::Hectare => {
                let mut command = Command::new(&self.binary);
                command.arg("serve").arg(&file).arg("--nbd").arg(format!("unix:{}", socket.display()));
                command
            }
            Server::Qemu => {
                let mut command = need("qemu-nbd").map_err(skipped)?;
                command.args(["-t", "-f", "raw", "-e", "16", "-k"]).arg(&socket).arg(&file);
                command
            }
            Server::Nbdkit => {
                let mut command = need("nbdkit").map_err(skipped)?;
                command
                    .args(["--foreground", "--exit-with-parent", "-U"])
                    .arg(&socket)
                    .arg("file")
                    .arg(&file);
                command
            }
        };
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
        let running = Running(quiet.spawn().map_err(|error| format!("{command:?}: {error}"))?);
        hectare_oracle::until(|| UnixStream::connect(&socket).is_ok());
        Ok(running)
    }

    /// MiB per second.
    fn measure(&self, work: Work, (server, client): Side) -> Result<f64, String> {
        let _server = self.serve(server)?;
        let uri = format!("nbd+unix:///?socket={}", self.socket().display());
        match (client, work) {
            (Client::Hectare, Work::RandomRead | Work::RandomWrite) => self.at_random(work),
            (Client::Hectare, Work::Read | Work::Write) => self.in_order(work),
            (Client::Others, Work::RandomRead | Work::RandomWrite) => self.fio(&uri, work),
            (Client::Others, Work::Read) => self.nbdcopy(&[&uri, "null:"]),
            (Client::Others, Work::Write) => {
                let source = self.file("source")?;
                self.nbdcopy(&["--flush", &source.display().to_string(), &uri])
            }
        }
    }

    fn client(&self) -> Result<NbdDevice, String> {
        let address = Address { place: Place::Unix(self.socket()), export: Vec::new(), tls: None };
        let options = NbdOptions { write: true, ..NbdOptions::default() };
        NbdDevice::open(&address, &options).map_err(|error| error.to_string())
    }

    fn at_random(&self, work: Work) -> Result<f64, String> {
        let (device, blocks) = (self.client()?, self.len() / BLOCK as u64);
        let (began, limit) = (Instant::now(), Duration::from_secs(self.options.seconds));
        let done = AtomicU64::new(0);
        let one = |thread: usize| -> Result<(), String> {
            let mut random = SplitMix64::new(thread as u64 + 1);
            let mut buf = vec![0; BLOCK];
            while began.elapsed() < limit {
                let at = Bytes::new(random.below(blocks) * BLOCK as u64);
                let moved = match work {
                    Work::RandomRead => device.read_at(at, &mut buf),
                    _ => device.write_at(at, &buf),
                };
                moved.map_err(|error| error.to_string())?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        side_by_side(DEPTH, one)?;
        Ok(rate(done.into_inner() * BLOCK as u64, began.elapsed()))
    }

    fn in_order(&self, work: Work) -> Result<f64, String> {
        let (device, pieces) = (self.client()?, self.len() / PIECE);
        let (began, next) = (Instant::now(), AtomicU64::new(0));
        let one = |_: usize| -> Result<(), String> {
            let mut buf = vec![1; index_of(PIECE)];
            loop {
                let turn = next.fetch_add(1, Ordering::Relaxed);
                if turn >= pieces {
                    return Ok(());
                }
                let at = Bytes::new(turn * PIECE);
                let moved = match work {
                    Work::Read => device.read_at(at, &mut buf),
                    _ => device.write_at(at, &buf),
                };
                moved.map_err(|error| error.to_string())?;
            }
        };
        side_by_side(THREADS, one)?;
        device.flush().map_err(|error| error.to_string())?;
        Ok(rate(self.len(), began.elapsed()))
    }

    fn fio(&self, uri: &str, work: Work) -> Result<f64, String> {
        let mut command = need("fio").map_err(|reason| format!("{reason}"))?;
        let kind = if work == Work::RandomRead { "randread" } else { "randwrite" };
        command.args(["--name=x", "--ioengine=nbd", "--bs=4k", "--time_based", "--output-format=json"]);
        command.arg(format!("--uri={uri}")).arg(format!("--rw={kind}")).arg(format!("--iodepth={DEPTH}"));
        command.arg(format!("--runtime={}", self.options.seconds)).arg(format!("--size={}", self.len()));
        let output = command.output().map_err(|error| error.to_string())?;
        // The engine prints a line about its connection first.
        let start = output.stdout.iter().position(|byte| *byte == b'{').unwrap_or(0);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout[start..])
            .map_err(|error| format!("fio: {error}: {}", String::from_utf8_lossy(&output.stderr).trim()))?;
        let side = if work == Work::RandomRead { "read" } else { "write" };
        let bytes = report["jobs"][0][side]["bw_bytes"].as_f64().filter(|bytes| *bytes > 0.0);
        bytes.map(|bytes| bytes / 1_048_576.0).ok_or_else(|| "fio reports no bandwidth".to_owned())
    }

    fn nbdcopy(&self, words: &[&str]) -> Result<f64, String> {
        let mut command = need("nbdcopy").map_err(|reason| format!("{reason}"))?;
        let began = Instant::now();
        let output = command.args(words).output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(rate(self.len(), began.elapsed())),
            false => Err(format!("nbdcopy: {}", String::from_utf8_lossy(&output.stderr).trim())),
        }
    }
}

/// Runs threads; the first error, if any.
fn side_by_side(threads: usize, one: impl Fn(usize) -> Result<(), String> + Sync) -> Result<(), String> {
    std::thread::scope(|scope| {
        let one = &one;
        let all: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one(thread))).collect();
        all.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a panic".to_owned())))
    })
}

#[allow(clippy::cast_precision_loss)] // bytes of a measurement
fn rate(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / 1_048_576.0 / time.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_have_names_of_their_own_and_options_are_understood() {
        let names: Vec<_> = cases().into_iter().map(|(name, ..)| name).collect();
        assert!(names.iter().enumerate().all(|(nr, name)| !names[..nr].contains(name)) && names.len() == 8);
        let options = parse(&["--only", "client", "--pairs", "0", "--quick"]).unwrap();
        assert!(options.pairs == 1 && options.quick);
        assert!(parse(&["--seconds"]).is_err() && parse(&["x"]).is_err() && parse(&["--only", "x"]).is_err());
    }
}
