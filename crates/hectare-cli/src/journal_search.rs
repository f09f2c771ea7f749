//! Finds an external journal among the block devices of this machine, by UUID or label, as libblkid does.
//!
//! Looked at is every device in `/sys/class/block` that has a size, that `/dev` has under its name and number,
//! and that this process may read: 2 KiB of each. An image file is found only as a loop device. What can't be
//! read is passed over, since it is no business of the caller. On another host than Linux none is looked at.
//!
//! Invariant: two devices with one name (a copy, a path of a multipath device) are an error that names both,
//! for a log that is replayed from the wrong one is lost data.
//!
//! What it is not: a check of the journal, which the engine makes when it opens what was found.

use crate::failure::{Failure, Outcome};
use crate::os;
use hectare_device::os::FileExt;
use hectare_ext4::feature::Incompat;
use hectare_ext4::raw::SuperBlock;
use hectare_ext4::superblock::MAGIC;
use hectare_journal::recovery::uuid_text;
use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use zerocopy::FromBytes;

const SUPERBLOCK_AT: u64 = 1024;

/// What an external journal is known by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// Its UUID.
    Uuid([u8; 16]),
    /// Its label.
    Label(String),
}

impl Wanted {
    /// Parses `UUID=...` or `LABEL=...`; `None` for anything else, which is a path.
    pub(crate) fn parse(text: &str) -> Outcome<Option<Self>> {
        if let Some(uuid) = text.strip_prefix("UUID=") {
            let uuid = hectare_mkfs::parse_uuid("-J device", uuid);
            return uuid.map(|uuid| Some(Self::Uuid(uuid))).map_err(|e| Failure::of("mkfs", e));
        }
        Ok(text.strip_prefix("LABEL=").map(|label| Self::Label(label.to_owned())))
    }

    /// Whether a superblock is that of such a journal.
    fn is(&self, sb: &SuperBlock) -> bool {
        let is_journal =
            Incompat::from_bits_retain(sb.s_feature_incompat.get()).contains(Incompat::JOURNAL_DEV);
        let label = sb.s_volume_name.split(|byte| *byte == 0).next().unwrap_or_default();
        let is_it = match self {
            Self::Uuid(uuid) => sb.s_uuid == *uuid,
            Self::Label(wanted) => label == wanted.as_bytes(),
        };
        sb.s_magic.get() == MAGIC && is_journal && is_it
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(uuid) => write!(f, "the UUID {}", uuid_text(uuid)),
            Self::Label(label) => write!(f, "the label {label:?}"),
        }
    }
}

/// The block device that holds the journal; `None` if none that can be read does.
pub(crate) fn search(wanted: &Wanted) -> Outcome<Option<PathBuf>> {
    let holders = os::block_devices().filter(|(_, device)| holds(device, wanted) == Some(true));
    let mut found: Vec<PathBuf> = holders.map(|(path, _)| path).collect();
    found.sort();
    match &found[..] {
        [one, other, ..] => Err(Failure::of(
            one.display(),
            format_args!(
                "{} has an external journal with {wanted}, too: name the right one",
                other.display()
            ),
        )),
        _ => Ok(found.pop()),
    }
}

/// Whether a device holds the journal; `None` if it can't be read.
fn holds(device: &File, wanted: &Wanted) -> Option<bool> {
    let mut bytes = [0; size_of::<SuperBlock>()];
    device.read_exact_at(&mut bytes, SUPERBLOCK_AT).ok()?;
    Some(wanted.is(&SuperBlock::read_from_bytes(&bytes).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_named_by_uuid_or_label() {
        let uuid = Wanted::parse("UUID=00000000-0000-0000-0000-0000000000ff").unwrap();
        assert_eq!(uuid, Some(Wanted::Uuid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255])));
        assert_eq!(Wanted::parse("LABEL=log").unwrap(), Some(Wanted::Label("log".to_owned())));
        assert_eq!(Wanted::parse("/dev/sda").unwrap(), None);
        assert!(Wanted::parse("UUID=5").is_err());
    }
}
