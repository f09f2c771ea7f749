//! The block of the mark: where it lies, how it is read and written, and whom it names.

use crate::error::Result;
use hectare_device::Device;
use hectare_ext4::checksum::Seed;
use hectare_ext4::feature::Incompat;
use hectare_ext4::mmp::{Mmp, RawMmp, Status};
use hectare_ext4::superblock::SuperBlock;
use hectare_ext4::time::{SECONDS_MAX, Timestamp};
use hectare_units::{BlockNr, Bytes};
use std::io::IoSlice;

/// Where the block lies, and how it is sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MmpBlock {
    pub(crate) at: Bytes,
    pub(crate) block: BlockNr,
    pub(crate) seed: Option<Seed>,
}

/// Bytes of the block that are read and written.
pub(crate) const LEN: usize = size_of::<RawMmp>();

impl MmpBlock {
    /// That of a volume, if it has one.
    pub(crate) fn of(sb: &SuperBlock) -> Option<Self> {
        if !sb.features().incompat.contains(Incompat::MMP) {
            return None;
        }
        let (size, block) = (sb.geometry().block_size, BlockNr::new(sb.raw().s_mmp_block.get()));
        Some(Self { at: block.offset(size), block, seed: sb.seed() })
    }

    pub(crate) fn read(&self, device: &dyn Device) -> Result<Mmp> {
        Ok(Mmp::parse(&self.read_bytes(device)?, self.block, self.seed)?)
    }

    pub(crate) fn read_bytes(&self, device: &dyn Device) -> Result<[u8; LEN]> {
        let mut bytes = [0; LEN];
        // A device that keeps what it has read would show the mark of a living host as one that stands still.
        device.read_fresh(self.at, &mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn write(&self, device: &dyn Device, mmp: &Mmp) -> Result<()> {
        self.write_bytes(device, &mmp.render(self.seed))
    }

    pub(crate) fn write_bytes(&self, device: &dyn Device, bytes: &[u8; LEN]) -> Result<()> {
        Ok(device.write_durable(self.at, &[IoSlice::new(bytes)])?)
    }
}

/// Who wrote the block, and when.
pub(crate) fn described(mmp: &Mmp) -> String {
    let seconds = i64::try_from(mmp.time).unwrap_or(SECONDS_MAX).min(SECONDS_MAX);
    let time = Timestamp::from_seconds(seconds).utc();
    match &mmp.status {
        Status::InUse { node, device, .. } => match program_of(device) {
            Some((program, process, device)) => {
                format!(
                    "host {node}, program {program} (process {process}), device {device}, last seen {time}"
                )
            }
            None => format!("host {node}, device {device}, last seen {time}"),
        },
        Status::Fsck => format!("e2fsck, since {time}"),
        Status::Clean => format!("nobody, since {time}"),
    }
}

/// The program and process that has the volume, and the last part of the device's name there, for others to
/// read: the block has room for 31 bytes.
pub(crate) fn user_name(device: &str) -> String {
    let path = device.split('?').next().unwrap_or(device);
    let last = path.rsplit('/').next().unwrap_or(path);
    let program = std::fs::read_to_string("/proc/self/comm").unwrap_or_else(|_| "hectare".into());
    format!("{}[{}] {last}", program.trim(), std::process::id())
}

/// The parts of such a name.
pub(crate) fn program_of(name: &str) -> Option<(&str, &str, &str)> {
    let (user, device) = name.split_once(' ')?;
    let (program, process) = user.strip_suffix(']')?.split_once('[')?;
    let is_number = !process.is_empty() && process.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some((program, process, device))
}
