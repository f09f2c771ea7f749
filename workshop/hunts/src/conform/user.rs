//! Calls by users other than root: a thread assumes the effective identity of a user, and restores its own.
//!
//! The identity is the thread's alone, by the kernel's own calls; those of the C library would change the
//! whole process.

use hectare_oracle::trees::random::Random;
use rustix::fs::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// The user that makes a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum User {
    /// With all capabilities.
    Root,
    /// User 1000 of group 2000, in group 1000 as well.
    One,
    /// User and group 1001, in no other group.
    Other,
}

/// Users that files are given to.
pub(super) const UIDS: [u32; 3] = [0, 1000, 1001];
/// Groups that files are given to; not a user's supplementary group, which FUSE does not pass to the server
/// (`docs/operating.md`).
pub(super) const GIDS: [u32; 3] = [0, 1001, 2000];
/// One of this many calls is made by a user other than root.
const OTHERS: u64 = 5;

impl User {
    pub(super) fn random(r: &mut Random) -> Self {
        match r.below(OTHERS * 2) {
            0 => Self::One,
            1 => Self::Other,
            _ => Self::Root,
        }
    }

    /// Makes a call as this user.
    ///
    /// # Panics
    /// If the thread is not root's, or can't return to root.
    pub(super) fn call<T>(self, call: impl FnOnce() -> T) -> T {
        let (uid, gid, groups): (u32, u32, &[Gid]) = match self {
            Self::Root => return call(),
            Self::One => (1000, 2000, &[Gid::from_raw(1000)]),
            Self::Other => (1001, 1001, &[]),
        };
        let _back = Taken::new(Uid::from_raw(uid), Gid::from_raw(gid), groups);
        call()
    }
}

/// Returns the thread to root when dropped, however the call ends.
struct Taken;

impl Taken {
    fn new(uid: Uid, gid: Gid, groups: &[Gid]) -> Self {
        const ROOT: &str = "only root mounts, and has this run";
        set_thread_groups(groups).expect(ROOT);
        set_thread_res_gid(None, gid, None).expect(ROOT);
        set_thread_res_uid(None, uid, None).expect(ROOT);
        Self
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        const BACK: &str = "the real identity is root's";
        set_thread_res_uid(None, Uid::ROOT, None).expect(BACK);
        set_thread_res_gid(None, Gid::ROOT, None).expect(BACK);
        set_thread_groups(&[]).expect(BACK);
    }
}

/// An access control list, as `setxattr` takes it (`linux/posix_acl_xattr.h`), by a number. Some have no
/// mask, which lists with names must have.
pub(super) fn acl(nr: usize) -> Vec<u8> {
    const ANY: u32 = u32::MAX;
    let rights = |shift: usize| u16::try_from(nr >> shift & 7).unwrap_or(0);
    let mut entries = vec![(0x01, rights(0) | 4, ANY)];
    if nr & 1 == 0 {
        entries.push((0x02, rights(1), 1000)); // a user
    }
    entries.push((0x04, rights(2), ANY));
    if nr & 2 == 0 {
        entries.push((0x08, rights(3), 2000)); // a group
    }
    if nr & 3 != 3 && nr % 16 != 8 {
        entries.push((0x10, rights(4), ANY)); // the mask
    }
    entries.push((0x20, rights(5), ANY));
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        bytes.extend(u16::to_le_bytes(tag));
        bytes.extend(rights.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}
