//! The structures of ext4: any bytes, and those that the kernel and the reference tools write.

#![allow(clippy::unwrap_used)] // a failing helper fails its test

mod hostile;
mod inode;
mod kernel;
mod oracle;
