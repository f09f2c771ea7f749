//! Extended attributes: names with small values, kept in the spare bytes of an inode and in one block beside
//! it.
//!
//! An inode larger than 128 bytes has room after its last fixed field (`i_extra_isize` says where that is);
//! the first four bytes there are a magic number if attributes follow. What does not fit goes to one block of
//! its own (`i_file_acl`), which several inodes with the same attributes may share; it counts them. Both
//! areas look alike: entries grow up from the front, each with the attribute's name, a zero word ends them,
//! and values are packed down from the back. In the block, entries are sorted (the kernel's lookup relies on
//! it) and hashed; in the inode they are neither. A value too big for either can live in an inode of its own
//! (`ea_inode`), which counts its users; such a value is only named here, and read by code that can read
//! files.
//!
//! Hazards:
//! - value offsets count from the first *entry* in an inode, but from the start of the *block* in a block;
//! - names are stored without their usual prefix, which becomes a number ([`Index`]);
//! - POSIX ACLs are stored in a form of their own, see [`crate::acl`];
//! - `system.data` carries the tail of an inline file and must stay in the inode, see [`crate::inline`];
//! - entry hashes exist in two kinds, because names were once hashed as signed characters.
//!
//! Invariants: an [`Area`] was checked whole when it was made, so walking it cannot fail. What [`layout`]
//! gives is what the kernel would have written, had it been handed the same attributes in the same order.
//!
//! What this is not: it neither allocates nor shares blocks, and it decides nothing about permissions.

mod area;
mod block;
mod hash;
mod holder;
mod layout;
mod list;
mod name;
pub mod raw;
mod spill;

pub use area::{
    Area, Entry, ValueRef, collect, detach_in_block, detach_in_inode, renumber_in_block, renumber_in_inode,
};
pub use block::{REFCOUNT_MAX, refcount, seal, set_refcount, verify};
pub use hash::{
    block_hash, entry_hash, entry_hash_signed, held_entry_hash, inode_value_hash, inode_value_matches,
};
pub use holder::{check_holder, check_value, is_lustre, new_holder, set_users, stored_hash, users};
pub use layout::{NoRoom, Placed, layout, needs_block};
pub use list::{Attr, How, SetError, Value, find, remove, set};
pub use name::{Index, Name, NameError};
pub use spill::spilled;

/// Names and values start at multiples of this many bytes.
const ALIGN: usize = 4;

/// `n` rounded up to the alignment of names and values. Saturates; callers compare it with a real length.
const fn aligned(n: usize) -> usize {
    n.saturating_add(ALIGN - 1) & !(ALIGN - 1)
}
