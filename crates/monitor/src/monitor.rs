//! The monitor of one mount: its sources, its servers, and its orderly end.

use crate::control::Control;
use crate::history::{History, Look, Sample};
use crate::http::Server;
use crate::report::Report;
use crate::survey::{Survey, Surveyor};
use crate::{page, prometheus};
use hectare_device::{Device, StatsDevice};
use hectare_engine::Volume;
use hectare_fuse::{Counted, MountOptions, Operations};
use parking_lot::{Condvar, Mutex};
use serde::Serialize;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a sample of the history is.
const SAMPLE: Duration = Duration::from_secs(1);

/// The objects to monitor.
pub struct Watched {
    /// The volume.
    pub volume: Volume,
    /// The device under it.
    pub device: Arc<StatsDevice<Arc<dyn Device>>>,
    /// The requests of its mount.
    pub operations: Arc<Operations>,
    /// The image.
    pub image: PathBuf,
    /// The directory it is mounted on.
    pub dir: PathBuf,
    /// The mount options.
    pub options: MountOptions,
}

/// The data of the live page.
#[derive(Serialize)]
struct Live<'a> {
    report: &'a Report,
    state: &'static str,
    kinds: Vec<Kind<'a>>,
    history: Vec<Sample>,
    survey: &'a Survey,
}

/// A kind of requests in short; times in seconds.
#[derive(Serialize)]
struct Kind<'a> {
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

impl<'a> Kind<'a> {
    fn of(counted: &'a Counted, rate: f64) -> Self {
        let Counted { name, times, errors } = counted;
        let quantile = |per_mille| times.quantile(per_mille).as_secs_f64();
        let missing = ["ENOENT", "ENODATA"].iter().filter_map(|errno| errors.get(*errno)).sum();
        let (count, errors) = (times.count(), errors.values().sum());
        Self { name, count, rate, errors, missing, p50: quantile(500), p99: quantile(990) }
    }
}

/// The state shared by all servers of the monitor.
pub(crate) struct Shared {
    pub(crate) watched: Watched,
    began: Instant,
    surveyor: Surveyor,
    history: Mutex<History>,
    /// The URL of the HTTP server.
    url: OnceLock<String>,
    stop: Mutex<bool>,
    stopped: Condvar,
}

/// Monitors a mount until it is dropped.
pub struct Monitor {
    shared: Arc<Shared>,
    sampler: Option<JoinHandle<()>>,
    http: Option<Server>,
    control: Option<Control>,
}

impl Monitor {
    /// Starts the monitor.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(watched: Watched) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            watched,
            began: Instant::now(),
            surveyor: Surveyor::new(),
            history: Mutex::default(),
            url: OnceLock::new(),
            stop: Mutex::new(false),
            stopped: Condvar::new(),
        });
        let sampling = Arc::clone(&shared);
        let sampler =
            thread::Builder::new().name("hectare-sample".into()).spawn(move || sampling.sample())?;
        Ok(Self { shared, sampler: Some(sampler), http: None, control: None })
    }

    /// Serves metrics and the live page over HTTP, on a listener from [`bind`](crate::bind); returns the
    /// address.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn serve_http(&mut self, listener: TcpListener) -> io::Result<SocketAddr> {
        let address = listener.local_addr()?;
        self.http = Some(Server::start(listener, Arc::clone(&self.shared))?);
        let url = self.shared.url.get_or_init(|| format!("http://{address}/"));
        log::info!(url; "figures and the live page are served");
        Ok(address)
    }

    /// Answers clients of [`ask`](crate::ask) for the mount, which must exist by now; returns the socket's
    /// path.
    ///
    /// # Errors
    /// If there is no directory for a socket, or no thread can be started.
    pub fn serve_control(&mut self) -> io::Result<PathBuf> {
        let control = Control::start(&self.shared.watched.dir, Arc::clone(&self.shared))?;
        let path = control.path().to_owned();
        self.control = Some(control);
        Ok(path)
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        drop((self.http.take(), self.control.take()));
        *self.shared.stop.lock() = true;
        self.shared.stopped.notify_all();
        if let Some(sampler) = self.sampler.take() {
            // It ends whatever happened in it.
            let _ = sampler.join();
        }
    }
}

impl Shared {
    /// Takes a sample every second until the end.
    fn sample(&self) {
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
            kinds: kinds.map(|(counted, rate)| Kind::of(counted, rate)).collect(),
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
