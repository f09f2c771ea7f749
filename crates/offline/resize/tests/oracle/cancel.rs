//! Resizes that are cancelled at any of their checkpoints: the volume is as it was, or has its new size.

use crate::support::{OPTIONS, Pair};
use hectare_device::{Cancel, CancelDevice, Device, FileOptions, Reason, Until};
use hectare_oracle::{Skip, assert_same, fsck, skip};
use hectare_resize::{Error, Target};
use hectare_units::Bytes;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Cancels some resizes of one volume, one after the other, with ever more checkpoints between them and their
/// end, and then lets one come to its end; says how many were refused.
fn cancel_many(pair: &Pair) -> Result<u32, Skip> {
    let image = pair.make()?;
    let before = pair.entries(&image)?;
    let len = fs::metadata(&image).unwrap().len();
    let mut refused = 0;
    let mut checkpoint = 0;
    loop {
        let disk: Arc<dyn Device> = Arc::new(FileOptions::new().write(true).open(&image).unwrap());
        let passed = AtomicU64::new(0);
        let cancel = Cancel::polling(move || passed.fetch_add(1, Ordering::Relaxed) >= checkpoint);
        let guarded = Arc::new(CancelDevice::new(disk, cancel.clone(), Until::FirstFlush));
        let shared: Arc<dyn Device> = Arc::<CancelDevice<_>>::clone(&guarded);
        match hectare_resize::resize(&shared, Target::Bytes(Bytes::mib(pair.to)), true, &OPTIONS) {
            Ok(_) => break,
            Err(error) => {
                assert!(cancel.is_cancelled() && !guarded.is_past(), "{pair:?}, {checkpoint}: {error}");
                if let Error::Device(error) = &error {
                    assert_eq!(*error.reason(), Reason::Cancelled);
                }
                refused += 1;
            }
        }
        drop((shared, guarded));
        assert_eq!(fs::metadata(&image).unwrap().len(), len, "{pair:?}, {checkpoint}");
        if refused % 8 == 0 {
            fsck::assert_clean(&image)?;
        }
        // Densely at first, then a twelfth further each time: there are thousands.
        checkpoint += 1 + checkpoint / 12;
    }
    fsck::assert_clean(&image)?;
    assert_same(&pair.entries(&image)?, &before, pair.compared());
    fs::remove_file(image).unwrap();
    Ok(refused)
}

#[test]
fn a_cancelled_resize_leaves_the_volume_as_it_was() {
    for pair in
        [Pair::new("ext4", &["-g", "2048", "-J", "size=4"], 60, 34), Pair::new("ext4-1k", &[], 24, 60)]
    {
        match cancel_many(&pair) {
            Ok(refused) => assert!(refused > 30, "{pair:?}: {refused}"),
            Err(reason) => skip!("resize cancel::a_cancelled_resize_leaves_the_volume_as_it_was", reason),
        }
    }
}
