//! The calls that sequences are made of.

use rustix::fs::FallocateFlags;

/// Files that are open at once.
pub(super) const SLOTS: usize = 4;
/// No call chooses an offset beyond this, so that volumes of 64 MiB don't fill.
pub(super) const FILE_MAX: u64 = 2 << 20;
/// The modes of `fallocate`. The kernel passes no other mode to a FUSE mount.
pub(super) const MODES: [FallocateFlags; 5] = [
    FallocateFlags::empty(),
    FallocateFlags::KEEP_SIZE,
    FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE),
    FallocateFlags::ZERO_RANGE,
    FallocateFlags::ZERO_RANGE.union(FallocateFlags::KEEP_SIZE),
];
/// Values are shorter: then all attributes of a file fit a block of 1 KiB, with access control lists. Where
/// they fit no single place, the kernel refuses what the engine finds room for.
pub(super) const VALUE_MAX: usize = 140;
/// Those of the system are access control lists.
pub(super) const ATTRIBUTES: [&str; 6] = [
    "user.a",
    "user.longer-name",
    "trusted.b",
    "security.c",
    "system.posix_acl_access",
    "system.posix_acl_default",
];

/// A path of one to three names.
pub(super) type Name = String;

/// One call.
#[derive(Clone, Debug)]
pub(super) enum Call {
    MakeDirectory(Name, u16),
    MakeNode(Name, u8, u16),
    Symlink(Name, Name),
    Link(Name, Name),
    Rename(Name, Name, u8),
    Unlink(Name),
    RemoveDirectory(Name),
    Open(usize, Name, u8),
    OpenNameless(usize, Name),
    LinkOpen(usize, Name),
    Close(usize),
    Write(usize, u64, usize, u8),
    Append(usize, usize, u8),
    Read(usize, u64, usize),
    Truncate(usize, u64),
    TruncateName(Name, u64),
    Allocate(usize, usize, u64, u64),
    Copy(usize, usize, u64, u64, usize),
    Seek(usize, u64),
    Sync(usize, bool),
    Mode(Name, u16),
    Owner(Name, u32, u32),
    Times(Name, i64),
    SetAttribute(Name, usize, usize, u8),
    GetAttribute(Name, usize),
    RemoveAttribute(Name, usize),
    ListAttributes(Name),
    /// The bits that the process clears in modes.
    Umask(u16),
    Stat(Name),
    List(Name),
    ReadLink(Name),
}

impl Call {
    /// Whether the call can move content out of an inode without writing to it.
    pub(super) const fn moves_content_out(&self) -> bool {
        matches!(self, Self::Allocate(..) | Self::Truncate(..) | Self::TruncateName(..))
    }

    /// The first calls of a sequence, so that later ones find files.
    pub(super) fn first() -> Vec<Self> {
        let directories = [("a", 0o1777), ("b", 0o2775), ("a/b", 0o777), ("b/a", 0o755)];
        let directories = directories.into_iter().flat_map(|(name, mode)| {
            let chmod = Self::Mode(name.into(), mode);
            [Self::MakeDirectory(name.into(), mode), Self::Owner(name.into(), 0, 2000), chmod]
        });
        let files = ["c", "a/c", "b/d", "a/b/e"].into_iter().enumerate();
        directories.chain(files.map(|(slot, name)| Self::Open(slot, name.into(), 0))).collect()
    }
}
