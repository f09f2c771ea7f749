//! The locks of this crate: parking_lot's, which a panic of their holder does not poison.

pub(crate) use parking_lot::Mutex;
