//! Crashes: tests whether a volume survives a power cut at any moment.
//!
//! A [`Workload`] runs on a small volume of some [`Format`], on a device that records every write and flush.
//! Then states are made that a power cut could have left: at every point of the record, all writes so far,
//! and what storage might have kept of them without a flush, with sectors of 512 bytes torn from writes. Each
//! is opened (which recovers it, and this again may be interrupted), inspected, checked, used, and checked
//! again.
//!
//! What must hold is known from the operations: files are written in self-describing cells, each operation is
//! tied to the place in the record where it began and where it had returned, and the promise of each sync is
//! known. After a crash the names must be those after one of the operations that may have reached storage,
//! and every cell of a file what it was after one of those. So nothing durable is lost, nothing removed comes
//! back, and no file shows another's content.
//!
//! A run follows from its workload and seed alone, so a failure can be reproduced; with several threads it
//! does not, and the whole run is kept instead ([`Kept`]).
//!
//! Hazard: random search proves nothing. That it finds something at all is shown by letting the device lie
//! about flushes ([`Search::flushes_lie`]).

mod at;
mod content;
mod devices;
mod expect;
mod explore;
mod format;
mod history;
mod op;
mod repro;
mod self_describing;
mod session;
mod snapshot;
mod tree;
mod trial;
mod workload;

pub use at::At;
pub use devices::Image;
pub use explore::{Failure, Progress, Search, explore, look_at};
pub use format::{FORMATS, Format};
pub use repro::Kept;
pub use trial::Oracle;
pub use workload::Workload;
