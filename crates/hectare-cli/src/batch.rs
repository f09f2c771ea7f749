//! The image that a batch of commands works on (`hectare sh`).
//!
//! While a batch runs on this thread, its commands name paths in one image, which stays open between them
//! ([`Image`](crate::image::Image) keeps it). Here is only which one that is, for the parser of arguments.

use std::cell::RefCell;
use std::path::PathBuf;

thread_local! {
    static IMAGE: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// The image of the batch that runs.
pub(crate) fn image() -> Option<PathBuf> {
    IMAGE.with_borrow(Clone::clone)
}

/// Begins a batch: from now on, arguments name paths in this image.
pub(crate) fn begin(image: PathBuf) {
    IMAGE.set(Some(image));
}
