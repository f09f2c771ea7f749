//! Whether a format would destroy something; [`hectare_probe`] says what a device holds.

use crate::error::{Error, Result};
use hectare_device::Device;
use hectare_probe::{Found, What, probe};

/// Refuses a device that holds something; what an interrupted format left is nothing worth keeping.
///
/// # Errors
/// [`Error::Occupied`] with what it holds, or if the device can't be read.
pub fn refuse_occupied(device: &dyn Device) -> Result<()> {
    match probe(device)? {
        None | Some(Found { what: What::Unfinished, .. }) => Ok(()),
        Some(found) => Err(Error::Occupied { device: device.name().to_owned(), found }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hectare_device::MemoryDevice;
    use hectare_ext4::superblock::UNFINISHED;
    use hectare_units::Bytes;

    fn with(at: u64, magic: &[u8]) -> MemoryDevice {
        let device = MemoryDevice::new(Bytes::mib(1));
        device.write_at(Bytes::new(at), magic).unwrap();
        device
    }

    #[test]
    fn an_empty_device_is_not_refused() {
        assert!(refuse_occupied(&MemoryDevice::new(Bytes::kib(64))).is_ok());
    }

    #[test]
    fn regression_what_was_put_beside_the_mark_of_an_unfinished_format_is_refused() {
        for (mark, at, magic) in [
            (1024, 446 + 4, [0x83].as_slice()),
            (0, 4096, &[0xfc, 0x4e, 0x2b, 0xa9]),
            (0, (1 << 20) - 512, b"EFI PART"),
        ] {
            let device = with(mark, UNFINISHED);
            device.write_at(Bytes::new(at), magic).unwrap();
            device.write_at(Bytes::new(510), &[0x55, 0xaa]).unwrap();
            assert!(refuse_occupied(&device).is_err(), "at {at}");
        }
    }

    #[test]
    fn the_refusal_names_device_kind_and_label() {
        let device = with(0, b"XFSB");
        device.write_at(Bytes::new(108), b"data").unwrap();
        let error = refuse_occupied(&device).unwrap_err().to_string();
        assert!(error.contains("an XFS file system (label data)") && error.contains("--force"), "{error}");
    }
}
