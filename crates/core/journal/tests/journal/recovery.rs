//! Recovery against the oracles: e2fsck's result, byte for byte, and what the kernel wrote.

mod damaged;
mod debugfs;
mod external;
mod fast;
mod kernel;
mod logs;
mod volume;
mod written;
