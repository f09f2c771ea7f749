//! The monitor of one mount: its sampling thread, its servers, and its orderly end.

use crate::control::Control;
use crate::http::Server;
use crate::shared::Shared;
use crate::watched::Watched;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

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
        let shared = Arc::new(Shared::new(watched));
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
        log::info!(url; "metrics and the live page are served");
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
        self.shared.stop();
        if let Some(sampler) = self.sampler.take() {
            // It ends whatever happened in it.
            let _ = sampler.join();
        }
    }
}
