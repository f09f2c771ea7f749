//! Transactions and recovery on whole volumes.

#![allow(clippy::unwrap_used)] // a failing helper fails its test

mod allocation;
mod recovery;
mod transactions;
