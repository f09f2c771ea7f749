//! The block as the reference tool makes it and the kernel keeps it.

use crate::kernel::image::{Image, run, tool};
use hectare_ext4::mmp::{Mmp, SEQUENCE_FSCK, Status};
use hectare_oracle::{KernelMount, MountError, mount::Access};
use hectare_units::BlockNr;

/// The shortest, for the kernel waits a few of them before it mounts.
const INTERVAL: &str = "mmp_update_interval=1";

fn status(image: &Image) -> Status {
    let nr = BlockNr::new(image.header_number("MMP block number"));
    Mmp::parse(&image.block(nr), nr, image.seed()).unwrap().status
}

#[test]
fn the_kernel_marks_a_volume_in_use() {
    for options in [["-E", INTERVAL, "-O", "mmp"], ["-E", INTERVAL, "-O", "mmp,^metadata_csum"]] {
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
            let tried = KernelMount::attempt(&image.path(), Access::ReadWrite, "");
            assert!(
                matches!(tried, Err(MountError::Refused { .. })),
                "the kernel mounts a volume being checked"
            );
        }
    }
}
