//! The block as the reference tool makes it and the kernel keeps it.

use super::*;
use crate::xattr::image::{Image, run, tool};

fn status(image: &Image) -> Status {
    let nr = BlockNr::new(image.header_number("MMP block number"));
    Mmp::parse(&image.block(nr), nr, image.seed()).unwrap().status
}

#[test]
fn the_kernel_marks_a_volume_in_use() {
    for options in [["-O", "mmp"], ["-O", "mmp,^metadata_csum"]] {
        let Some(image) = Image::make("mmp", &options) else { return };
        assert_eq!(status(&image), Status::Clean);
        let host = String::from_utf8(run(tool("uname").arg("-n"))).unwrap();
        match image.mounted(|_| status(&image)) {
            Status::InUse { node, device, sequence } => {
                assert_eq!(node, host.trim());
                assert!(device.starts_with("loop") && sequence > 0, "{device} {sequence}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(status(&image), Status::Clean);
        if image.seed().is_none() {
            let nr = BlockNr::new(image.header_number("MMP block number"));
            image.write(nr.offset(image.block_size()).get() + 4, &SEQUENCE_FSCK.to_le_bytes());
            assert_eq!(status(&image), Status::Fsck);
            let tried =
                tool("mount").args(["-o", "loop"]).arg(image.path()).arg(image.mount_point()).output();
            assert!(!tried.unwrap().status.success(), "the kernel mounts a volume being checked");
        }
    }
}
