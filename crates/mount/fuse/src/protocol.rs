//! The FUSE protocol: decodes messages of the kernel's `/dev/fuse`, and encodes answers.
//!
//! A message is a header and a body whose form depends on the operation ([`request`]); an answer is a header
//! and a record or bytes ([`reply`]). The first message offers features, of which the answer takes some
//! ([`init`]). Layouts and numbers are those of `include/uapi/linux/fuse.h`, version 7.45 ([`wire`]); used is
//! as much of it as the kernel supports, from version 7.23 on.
//!
//! Nothing here trusts its peer: a message may be short, may lie about its sizes, or name an operation that
//! does not exist. It is refused with an error number; only a message too short for a header gets no answer
//! at all. Whether inodes and offsets make sense is the server's business.
//!
//! What it is not: for machines of either byte order at once. Both sides are the same machine, so that
//! numbers are in its own order.
//!
//! Why not the library `fuser`, which did this before: `docs/decisions/0004-our-own-fuse-protocol.md`.

pub(crate) mod init;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod wire;

/// The number of an inode in the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct NodeId(pub(crate) u64);

impl NodeId {
    /// The root directory, which the kernel never looks up.
    pub(crate) const ROOT: Self = Self(1);
}
