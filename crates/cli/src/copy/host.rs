//! A directory of the host as origin or target of a copy.

mod linux;

pub(crate) use linux::{LocalOrigin, LocalTarget, Node, Rights};
