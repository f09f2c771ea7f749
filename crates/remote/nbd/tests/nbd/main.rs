//! The client and the server of this crate with each other, with the servers and the clients of others, and
//! with those that break the rules.

#![allow(clippy::unwrap_used)] // a test that cannot continue fails

mod behaviour;
mod faults;
mod fences;
mod hostile;
mod ours;
mod proxy;
mod servers;
mod theirs;
mod tls;
mod volatile;
