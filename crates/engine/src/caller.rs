//! The caller: the process on whose behalf a mount makes a request.
//!
//! The library's own calls check no permissions: an owner of the image may do anything with it. A mount
//! serves many users and must answer each as the kernel's ext4 would; the operations that distinguish users
//! take a [`Caller`]. This module says who that is; what each may do is decided by the operations
//! ([`crate::attributes::permission`], [`crate::attributes::flags`],
//! [`crate::attributes::xattr_permission`]).

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
