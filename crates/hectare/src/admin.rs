//! Mending, resizing and tuning of volumes that nobody uses: the crates behind the commands, whole.
//!
//! Each works on a [`Device`](crate::device::Device) that is open for writing and locked, prepares the
//! whole of what it does in memory, and writes only what the checker finds sound.

pub use hectare_repair as repair;
pub use hectare_resize as resize;
pub use hectare_tune as tune;
