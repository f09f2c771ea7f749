//! Crashes: whether a volume survives a power cut at any moment.
//!
//! A [`Workload`] runs on a small volume of some [`Format`], on a device that records every write and flush.
//! Then states are made that a power cut could have left: at every point of the record, all that was written
//! so far, and what storage might have kept of it where nothing had flushed, sectors of 512 bytes torn from
//! writes. Each is opened (which recovers it, and this again may be cut off), looked at, checked, used, and
//! checked again.
//!
//! What must hold is known from what was done: files are written in cells that say what they are, each
//! operation is tied to the place in the record where it began and where it had returned, and of each sync it
//! is known what it promised. After a crash the names must be those after one of the operations that may have
//! reached storage, and every cell of a file what it was after one of those. So nothing durable is lost,
//! nothing removed comes back, and nobody's content shows in another's file.
//!
//! A run follows from its workload and seed alone, so a failure can be looked at again; with several threads
//! it does not, and is kept whole instead ([`Kept`]).
//!
//! Hazard: what is searched by chance is not proven. That the search finds something at all is shown by
//! letting the device lie about flushes ([`Search::flushes_lie`]).

mod content;
mod devices;
mod dice;
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

pub use devices::Image;
pub use explore::{At, Failure, Progress, Search, explore, look_at};
pub use format::{FORMATS, Format};
pub use repro::Kept;
pub use trial::Oracle;
pub use workload::Workload;
