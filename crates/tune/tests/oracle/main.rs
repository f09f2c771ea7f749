//! Changes of volumes that others made and filled, judged by e2fsck and the kernel.

mod cases;
mod crash;
mod drawn;
mod support;
