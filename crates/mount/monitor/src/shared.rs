//! What the servers of a monitor answer from: the objects it reads, the samples so far, and the documents.

use crate::history::{History, Look, Sample};
use crate::report::Report;
use crate::survey::{Survey, Surveyor};
use crate::watched::Watched;
use crate::{page, prometheus};
use hectare_fuse::Counted;
use parking_lot::{Condvar, Mutex};
use serde::Serialize;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long a sample of the history is.
const SAMPLE: Duration = Duration::from_secs(1);

/// The data of the live page.
#[derive(Serialize)]
struct Live<'a> {
    report: &'a Report,
    state: &'static str,
    kinds: Vec<RequestSummary<'a>>,
    history: Vec<Sample>,
    survey: &'a Survey,
}

/// A kind of requests in short; times in seconds.
#[derive(Serialize)]
struct RequestSummary<'a> {
    name: &'a str,
    count: u64,
    /// Requests per second.
    rate: f64,
    errors: u64,
    /// Errors that are ordinary answers: no such name or attribute.
    missing: u64,
    p50: f64,
    p99: f64,
}

impl<'a> RequestSummary<'a> {
    fn of(counted: &'a Counted, rate: f64) -> Self {
        let Counted { name, times, errors } = counted;
        let quantile = |per_mille| times.quantile(per_mille).as_secs_f64();
        let missing = ["ENOENT", "ENODATA"].iter().filter_map(|errno| errors.get(*errno)).sum();
        let (count, errors) = (times.count(), errors.values().sum());
        Self { name, count, rate, errors, missing, p50: quantile(500), p99: quantile(990) }
    }
}

/// What all servers of the monitor answer from.
pub(crate) struct Shared {
    pub(crate) watched: Watched,
    began: Instant,
    surveyor: Surveyor,
    history: Mutex<History>,
    /// The URL of the HTTP server.
    pub(crate) url: OnceLock<String>,
    stop: Mutex<bool>,
    stopped: Condvar,
}

impl Shared {
    /// Nothing sampled yet.
    pub(crate) fn new(watched: Watched) -> Self {
        Self {
            watched,
            began: Instant::now(),
            surveyor: Surveyor::new(),
            history: Mutex::default(),
            url: OnceLock::new(),
            stop: Mutex::new(false),
            stopped: Condvar::new(),
        }
    }

    /// Ends [`Self::sample`].
    pub(crate) fn stop(&self) {
        *self.stop.lock() = true;
        self.stopped.notify_all();
    }

    /// Takes a sample every second until the end.
    pub(crate) fn sample(&self) {
        let mut stop = self.stop.lock();
        while !*stop {
            if !self.stopped.wait_for(&mut stop, SAMPLE).timed_out() {
                continue;
            }
            let (operations, journal) =
                (self.watched.operations.snapshot(), self.watched.volume.journal_stats());
            self.history.lock().add(Look::new(self.began.elapsed(), &operations, journal.commits));
        }
    }

    /// All metrics.
    pub(crate) fn report(&self) -> Report {
        Report::of(&self.watched, self.began.elapsed(), self.url.get().cloned())
    }

    fn live(&self) -> Vec<u8> {
        let (report, survey) = (self.report(), self.surveyor.survey(&self.watched.volume));
        let history = self.history.lock();
        let kinds = report.operations.kinds.iter().zip(history.rates());
        json(&Live {
            state: report.state(),
            kinds: kinds.map(|(counted, rate)| RequestSummary::of(counted, rate)).collect(),
            history: history.samples(),
            report: &report,
            survey: &survey,
        })
    }

    /// The type and content of the document at a path; `None` if there is none.
    pub(crate) fn document(&self, path: &str) -> Option<(&'static str, Vec<u8>)> {
        match path {
            "/" => Some(("text/html; charset=utf-8", page::PAGE.into())),
            "/metrics" => Some((prometheus::CONTENT_TYPE, prometheus::text(&self.report()).into())),
            "/live.json" => Some(("application/json", self.live())),
            _ => None,
        }
    }
}

/// A value as JSON. Ours contain nothing that JSON can't represent.
pub(crate) fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
