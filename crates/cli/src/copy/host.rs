//! A directory of the host as origin or target of a copy, and what is looked up in one.
//!
//! `linux` reaches everything by open directories, and keeps all that a file has. `portable` goes by paths
//! and the standard library, and reports what it loses.

#[cfg(all(target_os = "linux", not(hectare_portable)))]
mod linux;
#[cfg(not(all(target_os = "linux", not(hectare_portable))))]
mod portable;

#[cfg(all(target_os = "linux", not(hectare_portable)))]
pub(crate) use linux::{Below, LocalOrigin, LocalTarget, Node};
#[cfg(not(all(target_os = "linux", not(hectare_portable))))]
pub(crate) use portable::{Below, LocalOrigin, LocalTarget, Node};

/// What an image's files may get on the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rights {
    /// Attributes at all: if so, other users can't access a file before its owner is set.
    pub(crate) attributes: bool,
    /// Set-ID bits and file capabilities, where the owner can be kept.
    pub(crate) set_id: bool,
    /// Device nodes.
    pub(crate) devices: bool,
}
