//! The caller: the process on whose behalf a mount makes a request.
//!
//! The library's own calls check no permissions: an owner of the image may do anything with it. A mount
//! serves many users and must answer each as the kernel's ext4 would; the operations that distinguish users
//! take a [`Caller`]. This module says who that is; what each may do is decided by the operations
//! ([`crate::attributes::permission`], [`crate::attributes::flags`],
//! [`crate::attributes::xattr_permission`]).
//!
//! The limits of quotas concern operations without a caller, too, and what these do far below. So the caller
//! they apply to is a property of the thread, as in the kernel: an operation is run [`on_behalf`] of a user.

use std::cell::Cell;

bitflags::bitflags! {
    /// What a process may do although it is not the owner: those of the kernel's capabilities that count for
    /// files (capabilities(7)), numbered as there.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Capabilities: u64 {
        /// Give files away.
        const CHOWN = 1;
        /// Read, write and search what permissions forbid.
        const DAC_OVERRIDE = 1 << 1;
        /// Read and search what permissions forbid.
        const DAC_READ_SEARCH = 1 << 2;
        /// Do what only owners may.
        const FOWNER = 1 << 3;
        /// Keep set-id bits.
        const FSETID = 1 << 4;
        /// Change the immutable and append-only flags.
        const LINUX_IMMUTABLE = 1 << 9;
        /// `trusted.` and most `security.` attributes.
        const SYS_ADMIN = 1 << 21;
        /// Change the flag for data through the journal.
        const SYS_RESOURCE = 1 << 24;
        /// Set file capabilities (`security.capability`).
        const SETFCAP = 1 << 31;
    }
}

/// A user making a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller<'a> {
    /// The user.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
    /// Other groups the user is in.
    pub groups: &'a [u32],
    /// The user's capabilities.
    pub capabilities: Capabilities,
}

impl<'a> Caller<'a> {
    /// Root, with all capabilities.
    pub const ROOT: Caller<'static> =
        Caller { uid: 0, gid: 0, groups: &[], capabilities: Capabilities::all() };

    /// A user; root has all capabilities, others none.
    #[must_use]
    pub const fn user(uid: u32, gid: u32, groups: &'a [u32]) -> Self {
        let capabilities = if uid == 0 { Capabilities::all() } else { Capabilities::empty() };
        Self { uid, gid, groups, capabilities }
    }

    /// Whether the user has a capability.
    #[must_use]
    pub const fn may(&self, capability: Capabilities) -> bool {
        self.capabilities.contains(capability)
    }

    /// Whether the user is in a group.
    #[must_use]
    pub fn is_in(&self, group: u32) -> bool {
        self.gid == group || self.groups.contains(&group)
    }

    /// Whether the user is the owner of what `owner` owns, or may act as one.
    #[must_use]
    pub fn acts_as(&self, owner: u32) -> bool {
        self.uid == owner || self.may(Capabilities::FOWNER)
    }
}

thread_local! {
    /// Whether limits apply to what this thread does.
    static LIMITED: Cell<bool> = const { Cell::new(false) };
}

/// Runs operations on behalf of a user: unless that may exceed limits (`CAP_SYS_RESOURCE`), they fail with
/// [`crate::Error::QuotaExceeded`] where the volume's quotas say so. Without this, operations have no limits.
pub fn on_behalf<T>(caller: &Caller<'_>, operation: impl FnOnce() -> T) -> T {
    with_limits(!caller.may(Capabilities::SYS_RESOURCE), operation)
}

/// Runs what was permitted before, and must not fail for limits now.
pub(crate) fn without_limits<T>(operation: impl FnOnce() -> T) -> T {
    with_limits(false, operation)
}

fn with_limits<T>(limited: bool, operation: impl FnOnce() -> T) -> T {
    /// Also if the operation panics.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            LIMITED.set(self.0);
        }
    }
    let _restore = Restore(LIMITED.replace(limited));
    operation()
}

/// Whether limits apply to this thread.
pub(crate) fn is_limited() -> bool {
    LIMITED.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_apply_while_a_user_acts() {
        let user = Caller::user(5, 5, &[]);
        let inside = on_behalf(&user, || {
            (is_limited(), without_limits(is_limited), is_limited(), on_behalf(&Caller::ROOT, is_limited))
        });
        assert_eq!((inside, is_limited()), ((true, false, true, false), false));
    }
}
