//! Delayed allocation: buffers small appends in memory and allocates their blocks later, together.
//!
//! Without it, a log written 100 bytes at a time would take a transaction and an allocation for each write;
//! and many logs growing side by side would be fragmented. So bytes written at the end of a file, a few at a
//! time and into space that is not mapped yet, are kept beside the inode
//! ([`crate::stores::appended::Delayed`]). They are *placed* (written to newly mapped blocks, as by any
//! write) when the file is synced or closed, when they are many or old, and before anything else reads or
//! changes the file's map.
//!
//! Space is counted when bytes are buffered: a claim covers the clusters they need, and the blocks by which
//! the tree may grow in the worst case. So the write itself reports a full volume, and writeback never lacks
//! space. Claims exceed what will be needed; an allocation that finds no space therefore has everything
//! placed before it fails ([`Volume::place_for_space`](crate::Volume)).
//!
//! Invariants, under the file's operation lock:
//! - the bytes begin at the size in the inode; the size that a file reports is where they end;
//! - a file with buffered bytes is on the volume's list and is open: its last close places them.
//!
//! Bytes that can't be written because the device fails are lost, as with the kernel. The error is kept
//! beside the inode and reported once per open file, at fsync or close ([`crate::stores::wb_error`]). The
//! next sync of the volume, or closing it, reports it as well; nothing else can where the last close of a
//! file loses bytes.
//!
//! Locks: a file's state ([`crate::stores::appended::Delayed::state`]) is locked after everything else but
//! groups; never take the inode's data lock under it.

mod buffer;
mod writeback;
