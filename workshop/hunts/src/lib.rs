//! Hunts: searches for faults that begin with a seed, and end when something was found or the time is up.
//!
//! | hunt | what it searches for |
//! |---|---|
//! | [`crash`] | a state after a power cut that is not survived |
//! | [`remote`] | something acknowledged that a server or network that fails has lost |
//! | [`conform`] | a call on a mount that the kernel's ext4 answers otherwise |
//! | [`stress`] | a volume that is not sound after programs that do everything at once |
//! | [`kill_test`] | something synced that the death of a mount's server has lost ([`durability`] knows what was) |
//!
//! Others have no library of their own: they are jobs of the program (`cargo hunt`). `make hunt` runs those
//! that have a seed, with fresh ones; `make test` runs each for a tenth of its budget, with a seed drawn from
//! the commit.
//!
//! What this is not: a test. What a hunt finds becomes a test with a name, beside the code that was wrong.

pub mod conform;
pub mod crash;
pub mod durability;
pub mod kill_test;
pub mod remote;
pub mod stress;
