//! Monitors a mount: metrics for Prometheus, a live page, and a control socket.
//!
//! [`Monitor`] watches one mounted volume. It reads existing counters (of requests, in `hectare-fuse`; of the
//! allocator and the journal, in the engine; of the device) once a second for the `history`, and on request
//! for a [`Report`]. Requests come over HTTP (`http`), which is only there if an address was given, or over
//! a socket in a private directory of the user (`control`).
//!
//! Hazard: it has a handle of the volume, whose last handle closes it; the server closes the volume
//! explicitly, and ends the monitor after that. A client that is being served then keeps the volume's memory
//! (and a lock on the image) for some seconds more, unless the process ends, as that of a mount does.
//!
//! Invariant: no client delays a request of the mount. Reports take no lock that is held over I/O, surveys of
//! the free space are limited in time (`survey`), and connections in number, size and time (`http`).

mod control;
mod deadline;
mod history;
mod http;
mod monitor;
mod moves;
mod page;
mod prometheus;
mod report;
#[cfg(test)]
mod served_tests;
mod shared;
mod survey;
mod watched;

pub use control::{
    AskError, ask, explanation, extents, free_runs, gather, may_remount, move_extent, own_folder, sync, tune,
};
pub use http::{BindError, bind};
pub use monitor::Monitor;
pub use moves::{Free, GatherReport};
pub use report::{Caches, ClassUnits, DeviceReport, Journal, Moved, Report, Search, Space};
pub use watched::{ServerReport, Watched};
