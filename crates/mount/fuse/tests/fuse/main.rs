//! A volume behind a real mount: what programs see, and the state of the volume afterwards, as judged by
//! e2fsck and the kernel's own ext4. Needs `/dev/fuse` and root (else skipped by name). Only `bytes` has no mount.

#![allow(clippy::unwrap_used)] // a test that cannot continue fails

mod buffered;
mod bytes;
mod control;
mod direct;
mod everyday;
mod flags;
mod forbidden;
mod full;
mod handles;
mod listing;
mod options;
mod panics;
mod programs;
mod sharing;
mod space;
mod support;
mod unwritable;
