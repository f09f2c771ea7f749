//! Fuzz target: the checker on a damaged volume: it ends with a report or an error, and changes nothing.

use crate::patch;
use hectare_check::{Options, check};
use hectare_device::MemoryDevice;

pub(super) fn target(bytes: &[u8]) {
    let patched = patch::decode(bytes);
    let device = MemoryDevice::from_bytes(&patched.image);
    match check(&device, &Options::default()) {
        Ok(report) => {
            for problem in &report.problems {
                let line = problem.to_string();
                assert!(!line.contains('\n'), "{line}");
            }
            let clean = report.is_clean();
            assert!(clean || !patched.intact, "a volume by mke2fs ({})", patched.base.name);
        }
        Err(error) => {
            assert!(!patched.intact, "a volume by mke2fs ({}): {error}", patched.base.name);
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
    assert!(device.to_vec() == patched.image, "checking has changed the volume");
}
