//! Volumes and images in object stores: in memory, in a directory, behind faults of every kind, on a web
//! server of the test's own, and on an S3 server where one is installed.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)] // all of this is tests

#[path = "../../../nbd/tests/nbd/behaviour.rs"]
mod behaviour;
mod crash;
mod engine;
mod fault_store;
mod faults;
mod images;
mod kept;
mod local_log;
mod patches;
mod s3;
mod setup;
mod suite;
mod volumes;
mod web;
mod writers;
