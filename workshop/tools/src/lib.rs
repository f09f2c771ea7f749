//! What jobs and tests share: it runs the host's programs, records what was skipped, reads directories, and
//! keeps temporary files.
//!
//! | module | what it has |
//! |---|---|
//! | [`mod@tool`] | the programs of the host, found and run the same way everywhere |
//! | [`mod@skip`], [`ended`] | why a test, a job or a part of one has no result |
//! | [`scratch`], [`job_folder`] | temporary directories of a process, removed although it was killed |
//! | [`steps`] | cargo, the workspace's directories, and options of jobs |
//! | [`mod@walk`], [`entry`], [`xattr`] | what is in a directory, entry by entry |
//! | [`built`] | what jobs run, built with the features of `make test` |
//! | [`hunt`] | the seed of what draws at random, and how much of it is done |
//! | [`install`] | Debian's packages for what the host lacks |
//! | [`workspace`] | the packages of this workspace |
//! | [`wait`] | the wait for what happens at its own time |
//! | [`tree_hash`] | whether sources have changed |
//! | [`error`] | a failure that names the object and the reason |
//!
//! It uses nothing of Hectare's, so that `cargo xtask` compiles in seconds. What this is not: an oracle; what
//! judges volumes is in `hectare-oracle`.

pub mod built;
pub mod ended;
pub mod entry;
pub mod error;
pub mod hunt;
pub mod install;
pub mod job_folder;
pub mod scratch;
pub mod skip;
pub mod sparse;
pub mod steps;
pub mod tool;
pub mod tree_hash;
pub mod wait;
pub mod walk;
pub mod workspace;
pub mod xattr;

pub use entry::{Content, Entry, Kind, Time};
pub use skip::Skip;
pub use tool::{is_root, tool};
pub use wait::until;
pub use walk::walk;
