//! The headings under which the help of a command shows options that many commands share, so that its own
//! options stand by themselves.

/// Where in an image or disk the volume lies.
pub(crate) const PLACE: &str = "Where the volume lies";
/// How a damaged image is read.
pub(crate) const DAMAGED: &str = "Damaged images";
/// How space is allocated.
pub(crate) const ALLOCATION: &str = "Allocation of space";
/// How images that are not files of this machine are used.
pub(crate) const SERVERS: &str = "Images on servers and in object stores";
