//! Multiple-mount protection: refuses a volume that another host has in use, and marks ours as in use.
//!
//! The MMP block holds a number that the user of the volume changes every few seconds, and who that is. To
//! open for writing, the block must say *clean*, or not change for longer than its user may take to change
//! it, which is waited for: a user that crashed leaves the same mark as one that lives. Then our number is
//! written, and after as long a wait it must still be there. While the volume is in use a thread changes it,
//! and closing writes *clean* again. All this is as the kernel does it; reading takes no part in it.
//!
//! - [`enter`] and [`Guard`] are for the engine, which knows of the mark.
//! - [`hold`] gives a device ([`Held`]) to programs that change a volume as a whole and know of no mark,
//!   such as a resize: they find the block *clean*, and may move it, seal it otherwise or take it away.
//! - [`hold_to_repair`] does the same for a volume that is broken, also in its block.
//! - [`refuse_living`] is for programs that destroy what a device holds.
//!
//! What it is not: a lock on this host. That is the device's.

mod block;
mod error;
mod guard;
mod held;
#[cfg(test)]
mod held_tests;
mod lease;
mod repairing;
#[cfg(test)]
mod tests;
mod unmarked;

pub use error::{Error, Result};
pub use guard::{Guard, OnLoss, Options, enter};
pub use held::{Held, Hold, hold};
pub use lease::taken;
pub use repairing::{hold_to_repair, refuse_living};
