//! What a disk depends on beside its description.

use crate::identity::Identity;
use hectare_populate::Source;
use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::path::Path;

/// Makes a source of files of an argument as `hectare build --from` takes it. The error is one line.
pub type OpenSource<'a> = dyn Fn(&OsStr) -> Result<Source, String> + 'a;

/// What a plan depends on beside the description.
pub struct Environment<'a> {
    /// Threads that read directories, and later write.
    pub threads: NonZeroUsize,
    /// The value of `SOURCE_DATE_EPOCH`.
    pub epoch: Option<i64>,
    /// Where UUIDs come from.
    pub identity: Identity,
    /// The disk that will be replaced: directories that hold it are read without it.
    pub replaces: Option<&'a Path>,
    /// Opens sources.
    pub open: &'a OpenSource<'a>,
    /// Takes warnings, a line each.
    pub warn: &'a dyn Fn(&str),
}
