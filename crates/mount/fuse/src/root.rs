//! Whether the process may do without help what only root may.

/// Whether this process can mount without a helper.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
