//! What a mount does, for who operates it: figures for Prometheus, a live page, and a control socket.
//!
//! [`Monitor`] watches one mounted volume. It looks at counters that are there anyway (of requests, in
//! `hectare-fuse`; of the allocator and the journal, in the engine; of the device) once a second, to have a
//! [`history`], and whenever somebody asks, to make a [`Report`]. Who asks comes over HTTP ([`http`]), which
//! is only there if an address was given, or over a socket in a folder that is the user's own ([`control`]).
//!
//! Hazard: it holds the volume, whose last holder closes it; whoever serves the volume closes it by itself,
//! and ends the monitor after that. A client that is being served then keeps what is held in memory (and a
//! lock on the image) for some seconds more, unless the process ends, as that of a mount does.
//!
//! Invariant: nothing that a client does holds up a request of the mount. Reports take no lock that is held
//! over I/O, surveys of the free space are limited in time ([`survey`]), and connections in number, size and
//! time ([`http`]).

mod control;
mod deadline;
mod history;
mod http;
mod page;
mod prometheus;
mod report;
mod survey;
mod watch;

pub use control::{AskError, ask, explanation, may_remount, own_folder, sync, tune};
pub use http::{BindError, bind};
pub use report::{Caches, ClassUnits, DeviceReport, Journal, Moved, Report, Search, Space};
pub use watch::{Monitor, Watched};
