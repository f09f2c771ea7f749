//! Drawn sets of options on drawn kinds of volumes: what is not refused is sound, has the same files, and can be
//! written by the kernel.

#[test]
fn placeholder() {}
