//! Directories, archives and container images as sources, and the images made of them.

#![allow(clippy::unwrap_used)] // helpers of tests

mod archive;
mod cancel;
mod common;
mod container;
mod folder;
mod foreign;
mod hostile;
mod image;
mod layers;
mod stacks;
