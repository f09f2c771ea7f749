//! What other libraries read and write, beside ours, on the same volumes: `cargo hunt peers [--only PART]...
//! [--peer NAME]... [--runs N] [--corpus DIR] [--times]`.
//!
//! | part | what is done |
//! |---|---|
//! | `sound` | volumes of every kind, made by the kernel, by mke2fs and by us: a list of all, every byte digested |
//! | `damaged` | one byte of metadata changed, many times: each content must be right, or an error |
//! | `corpus` | the broken and odd images of e2fsprogs: how each program ends |
//! | `writing` | volumes are changed; then e2fsck judges, and the kernel reads |
//!
//! The peers ([`adapters`]) are programs of a few lines on each library, in `workshop/hunts/peers`, which
//! print what they find ([`listing`]). One that can't be had is skipped by name. The result is the tables of
//! docs/benchmarks/library.md. The job fails if ours is wrong anywhere, or ends badly.
//!
//! What this is not: a judgement of speed. `--only sound --times` prints how long each list took; run it on a
//! machine that does nothing else.

mod adapters;
mod damaged;
mod hectare_adapter;
mod judge;
mod listing;
mod odd;
mod sound;
mod table;
mod writing;

use adapters::{PEERS, Peer};
use hectare_tools::ended::Exit;
use hectare_tools::job_folder::{Scratch, leave_nothing};
use hectare_tools::steps::{parsed, understood, went_well};
use std::path::{Path, PathBuf};

const USAGE: &str = "usage: cargo hunt peers [--only sound|damaged|corpus|writing]... [--peer NAME]... \
                     [--runs N] [--corpus DIR] [--times]";

/// The options of the command line.
#[derive(Debug, PartialEq)]
struct Options {
    /// Parts to run; all if there are none.
    only: Vec<String>,
    /// Peers beside ours; all if there are none.
    peers: Vec<String>,
    /// Damages of each volume.
    runs: u64,
    /// Whose images are read; the oracle's if not given.
    corpus: Option<PathBuf>,
    times: bool,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self { only: vec![], peers: vec![], runs: 60, corpus: None, times: false };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().map(|v| (*v).to_owned()).ok_or(format!("{word} needs a value"));
            match *word {
                "--only" => options.only.push(value()?),
                "--peer" => options.peers.push(value()?),
                "--runs" => options.runs = parsed(word, &value()?)?,
                "--corpus" => options.corpus = Some(value()?.into()),
                "--times" => options.times = true,
                other => return Err(format!("{other} is no option")),
            }
        }
        let known = ["sound", "damaged", "corpus", "writing"];
        if let Some(part) = options.only.iter().find(|part| !known.contains(&part.as_str())) {
            return Err(format!("--only: there is no {part}, but {}", known.join(", ")));
        }
        match options.peers.iter().find(|peer| !PEERS.contains(&peer.as_str())) {
            Some(peer) => Err(format!("--peer: there is no {peer}, but {}", PEERS.join(", "))),
            None => Ok(options),
        }
    }

    fn has(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part)
    }
}

/// Runs the job with its arguments; it ends well if ours was right everywhere.
pub(crate) fn run(words: &[&str]) -> Exit {
    if let ["adapter", rest @ ..] = words {
        return went_well("peers adapter", hectare_adapter::run(rest)).into();
    }
    let Some(options) = understood(Options::parse(words), USAGE) else { return Exit::Usage };
    let done = went_well("peers", compare(&options));
    leave_nothing();
    done.into()
}

/// A part of the comparison.
type Part<'a> = dyn FnMut(&[Peer], &Path) -> Result<(), String> + 'a;

fn compare(options: &Options) -> Result<(), String> {
    let wanted = |name: &str| options.peers.is_empty() || options.peers.iter().any(|peer| peer == name);
    let peers = adapters::prepare(&wanted)?;
    let scratch = Scratch::new(Path::new("/dev/shm"), "hectare-peers")?;
    let mut wrong = Vec::new();
    let mut part = |name: &str, run: &mut Part<'_>| {
        if options.has(name) {
            let done = run(&peers, scratch.path());
            done.unwrap_or_else(|reason| wrong.push(format!("{name}: {reason}")));
        }
    };
    part("sound", &mut |peers, folder| sound::run(peers, folder, options.times));
    part("damaged", &mut |peers, folder| damaged::run(peers, folder, options.runs));
    part("corpus", &mut |peers, folder| odd::run(peers, folder, options.corpus.as_deref()));
    part("writing", &mut writing::run);
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

/// The end of a part: that nothing of ours was wrong, or how much, and the first.
fn none_wrong(ours: &[String]) -> Result<(), String> {
    match ours {
        [] => Ok(()),
        [first, ..] => Err(format!("{} lists of ours are wrong, the first: {first}", ours.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_understood() {
        let options = Options::parse(&["--only", "sound", "--peer", "go-diskfs", "--runs", "5"]).unwrap();
        assert!(options.has("sound") && !options.has("writing") && options.runs == 5);
        assert!(Options::parse(&[]).unwrap().has("writing"));
        for wrong in [&["--only", "all"][..], &["--runs", "x"], &["--peer"], &["--peer", "ext5"], &["--fast"]]
        {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
