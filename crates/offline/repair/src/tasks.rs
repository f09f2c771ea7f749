//! Inodes that the volume itself uses: their numbers, their fields, and the journal.

mod inodes;
mod journal;
mod numbers;
mod reserved;
