//! `SOURCE_DATE_EPOCH`: commands that write an image depend on nothing but the image, their arguments and
//! that time.
//!
//! It stands for the clock in every time that is written, and for the source of arbitrary numbers. Two more
//! things would make a difference: a thread that commits every few seconds, which is not started, and
//! threads that copy content side by side, whose files would get their space in any order; so content is
//! copied by one.
//!
//! What this is not: a description of the host. Users' names, the umask and the sources' own metadata count.

use crate::failure::{Failure, Outcome};
use hectare_engine::{OpenOptions, Timestamp};

/// `SOURCE_DATE_EPOCH` in seconds since 1970, if it is set.
pub(crate) fn epoch() -> Outcome<Option<i64>> {
    hectare_mkfs::source_date_epoch().map_err(|error| Failure::Line(error.to_string()))
}

/// Options that open an image to write it, made to depend on no clock if the variable is set.
pub(crate) fn fixed(options: OpenOptions) -> Outcome<OpenOptions> {
    let Some(epoch) = epoch()? else { return Ok(options) };
    Ok(OpenOptions {
        fixed_time: Some(Timestamp::from_seconds(epoch)),
        seed: Some(epoch.cast_unsigned()),
        commit_interval: None,
        ..options
    })
}
