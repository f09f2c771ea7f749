//! Names of directories: records whose lengths are wrong, names that are there twice, second names of
//! directories, and where what has no name gets one.

use crate::structures::Case;
use crate::trial::e2fsck;

/// That e2fsck minds an image, and the check, too.
pub(crate) fn assert_minded(case: &Case, place: &str) {
    assert!(e2fsck("-fn", &case.image).code != Some(0), "{place}: e2fsck finds nothing");
    assert!(!is_clean(case), "{place}: the check finds nothing");
}

/// Whether the check finds an image sound.
pub(crate) fn is_clean(case: &Case) -> bool {
    let device = hectare_device::MemoryDevice::from_bytes(&case.bytes());
    hectare_check::check(&device, &hectare_check::Options::default()).unwrap().is_clean()
}
