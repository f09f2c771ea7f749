//! A reproducible failure: the volume before, all writes to it, and what each thread did.
//!
//! In a directory: `base.img` and `state.img` (before the run, and as the crash left it; a journal on a disk
//! of its own comes behind the volume in the first, and is `journal.img` beside the second), `log.bin` (the
//! events), `run.json` (the operations of each thread with their moments) and `history.txt`, the same as
//! text.

use super::at::At;
use super::devices::{Image, Parts};
use super::format::Format;
use super::history::{BEGINS, History, number};
use super::session::{Recording, Setup};
use super::workload::Workload;
use hectare_device::{CrashStates, Device, Event, MemoryDevice, OverlayDevice, Span};
use hectare_tools::error::{Error, Result};
use hectare_units::{Bytes, u64_of};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

/// A run that failed.
pub struct Kept {
    about: About,
    format: Format,
    image: Arc<MemoryDevice>,
    log: Arc<[Event]>,
}

#[derive(Clone, Serialize, Deserialize)]
struct About {
    workload: String,
    format: String,
    seed: u64,
    point: Option<usize>,
    torn: Option<u64>,
    histories: Vec<History>,
}

impl Kept {
    pub(super) fn of(setup: Setup, at: Option<At>, recording: &Recording) -> Self {
        let about = About {
            workload: setup.workload.name().to_owned(),
            format: setup.format.name.to_owned(),
            seed: setup.seed,
            point: at.map(|at| at.point),
            torn: at.and_then(|at| at.torn),
            histories: recording.histories.clone(),
        };
        let (image, log) = (Arc::clone(&recording.image), Arc::clone(&recording.log));
        Self { about, format: setup.format, image, log }
    }

    pub(super) fn seed(&self) -> u64 {
        self.about.seed
    }

    pub(super) fn recording(&self) -> Recording {
        Recording {
            format: self.format,
            full: Workload::by_name(&self.about.workload).is_some_and(Workload::runs_full),
            image: Arc::clone(&self.image),
            log: Arc::clone(&self.log),
            histories: self.about.histories.clone(),
            first: 0,
        }
    }

    /// The crash that was not survived.
    #[must_use]
    pub fn at(&self) -> Option<At> {
        self.about.point.map(|point| At { point, torn: self.about.torn })
    }

    /// The volume as the crash left it.
    #[must_use]
    pub fn state(&self) -> Option<Image> {
        let at = self.at()?;
        let base = OverlayDevice::new(Arc::clone(&self.image));
        let mut states = CrashStates::new(base, Arc::clone(&self.log));
        let state = match at.torn {
            None => states.prefix(at.point),
            Some(seed) => states.torn(at.point, seed),
        };
        let state: Arc<dyn Device> = Arc::new(state.ok()?);
        Parts::of(self.format.sizes(), &state).ok()?.image().ok()
    }

    /// What was done, a line each, with the events of the log it lies between.
    #[must_use]
    pub fn history(&self) -> String {
        let mut text = String::new();
        for history in &self.about.histories {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{} (id {})", history.top, history.id);
            for (n, done) in history.done.iter().enumerate() {
                let _ = writeln!(text, "  {} [{}..{}] {}", number(n), done.began, done.ended, done.op);
            }
        }
        let _ = writeln!(text, "log");
        for (n, event) in self.log.iter().enumerate() {
            let _ = writeln!(text, "  {n} {}", told(event));
        }
        text
    }

    /// Writes it to a directory.
    ///
    /// # Errors
    /// If that can't be written; the error names it.
    pub fn save(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).map_err(|error| Error::at(folder.display().to_string(), error))?;
        let put = |name: &str, bytes: &[u8]| {
            let path = folder.join(name);
            std::fs::write(&path, bytes).map_err(|error| Error::at(path.display().to_string(), error))
        };
        put("base.img", &self.image.to_vec())?;
        if let Some(state) = self.state() {
            put("state.img", &state.volume)?;
            state.journal.map_or(Ok(()), |journal| put("journal.img", &journal))?;
        }
        put("log.bin", &encode(&self.log))?;
        let about = serde_json::to_vec(&self.about).map_err(|error| Error::at("run.json", error))?;
        put("run.json", &about)?;
        put("history.txt", self.history().as_bytes())
    }

    /// Reads it from a directory.
    ///
    /// # Errors
    /// If the directory holds no such failure.
    pub fn load(folder: &Path) -> Result<Self> {
        let get = |name: &str| {
            let path = folder.join(name);
            std::fs::read(&path).map_err(|error| Error::at(path.display().to_string(), error))
        };
        let about = get("run.json")?;
        let about: About = serde_json::from_slice(&about).map_err(|error| Error::at("run.json", error))?;
        let format = Format::by_name(&about.format)
            .ok_or_else(|| Error::at("run.json", format!("there is no format {}", about.format)))?;
        let log = decode(&get("log.bin")?).ok_or_else(|| Error::at("log.bin", "it is cut off"))?;
        let image = Arc::new(MemoryDevice::from_bytes(&get("base.img")?));
        Ok(Self { about, format, image, log: log.into() })
    }
}

fn told(event: &Event) -> String {
    match event {
        Event::Write { at, data, durable } => {
            format!("write {} at {at}{}", data.len(), if *durable { ", durable" } else { "" })
        }
        Event::Zero(span) => format!("zero {} at {}", span.len, span.at),
        Event::Discard(span) => format!("discard {} at {}", span.len, span.at),
        Event::Resize(len) => format!("resize to {len}"),
        Event::Flush => "flush".to_owned(),
        Event::FlushOf(span) => format!("flush of {} at {}", span.len, span.at),
        Event::Mark(BEGINS) => "a sync begins".to_owned(),
        Event::Mark(mark) => format!("operation {mark} has returned"),
    }
}

/// Each event: what it is, two numbers, and the bytes of a write.
fn encode(log: &[Event]) -> Vec<u8> {
    let mut out = Vec::new();
    for event in log {
        let (tag, first, second) = match event {
            Event::Write { at, data, durable } => (u8::from(*durable), at.get(), u64_of(data.len())),
            Event::Zero(span) => (2, span.at.get(), span.len.get()),
            Event::Discard(span) => (3, span.at.get(), span.len.get()),
            Event::Resize(len) => (4, len.get(), 0),
            Event::Flush => (5, 0, 0),
            Event::Mark(mark) => (6, *mark, 0),
            Event::FlushOf(span) => (7, span.at.get(), span.len.get()),
        };
        out.push(tag);
        out.extend_from_slice(&first.to_le_bytes());
        out.extend_from_slice(&second.to_le_bytes());
        if let Event::Write { data, .. } = event {
            out.extend_from_slice(data);
        }
    }
    out
}

fn decode(mut bytes: &[u8]) -> Option<Vec<Event>> {
    let mut log = Vec::new();
    while let Some((tag, rest)) = bytes.split_first() {
        let (first, rest) = rest.split_first_chunk::<8>()?;
        let (second, rest) = rest.split_first_chunk::<8>()?;
        let (first, second) = (u64::from_le_bytes(*first), u64::from_le_bytes(*second));
        let span = Span::new(Bytes::new(first), Bytes::new(second));
        bytes = rest;
        log.push(match tag {
            0 | 1 => {
                let (data, rest) = rest.split_at_checked(usize::try_from(second).ok()?)?;
                bytes = rest;
                Event::Write { at: span.at, data: data.into(), durable: *tag == 1 }
            }
            2 => Event::Zero(span),
            3 => Event::Discard(span),
            4 => Event::Resize(span.at),
            5 => Event::Flush,
            6 => Event::Mark(first),
            7 => Event::FlushOf(span),
            _ => return None,
        });
    }
    Some(log)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_come_back() {
        let span = Span::new(Bytes::new(7), Bytes::new(9));
        let write = |durable| Event::Write { at: Bytes::new(3), data: b"abc".as_slice().into(), durable };
        let log = [
            write(false),
            write(true),
            Event::Zero(span),
            Event::Discard(span),
            Event::Resize(Bytes::new(5)),
            Event::Flush,
            Event::FlushOf(span),
            Event::Mark(77),
        ];
        let bytes = encode(&log);
        assert_eq!(decode(&bytes).unwrap(), log);
        assert_eq!(decode(&bytes[..19]), None);
    }
}
