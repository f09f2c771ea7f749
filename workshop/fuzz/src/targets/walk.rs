//! Fuzz target: open a damaged volume for reading and walk everything in it.

use crate::{patch, walk};
use hectare_device::MemoryDevice;
use hectare_engine::{OpenOptions, Volume};
use std::sync::Arc;

pub(super) fn target(bytes: &[u8]) {
    let patched = patch::decode(bytes);
    let device = Arc::new(MemoryDevice::from_bytes(&patched.image));
    let options = OpenOptions { cache_bytes: 1 << 16, cache_inodes: 16, ..OpenOptions::read_only() };
    match Volume::open(Arc::clone(&device) as _, options) {
        Ok(volume) => {
            let met = walk::walk(&volume);
            if patched.intact {
                assert_eq!(met.corrupt, None, "a volume by mke2fs ({})", patched.base.name);
            }
            drop(volume);
        }
        Err(error) => {
            assert!(!patched.intact, "a volume by mke2fs ({}): {error}", patched.base.name);
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
    assert!(device.to_vec() == patched.image, "reading has changed the volume");
}
