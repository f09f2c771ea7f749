//! What a partition is meant for, as its table says, and the names of the usual kinds.
//!
//! A table of the older kind has a byte for it, a GPT a GUID. Neither says what the partition holds.

use std::fmt;

/// What a partition is meant for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The byte of a table of the older kind.
    Mbr(u8),
    /// The GUID of a GPT, as it lies on disk.
    Gpt([u8; 16]),
}

/// Kinds of a GPT with the names that people know them by.
const GPT: [(&str, &str); 14] = [
    ("0fc63daf-8483-4772-8e79-3d69d8477de4", "Linux data"),
    ("4f68bce3-e8cd-4db1-96e7-fbcaf984b709", "Linux root (x86-64)"),
    ("b921b045-1df0-41c3-af44-4c6f280d3fae", "Linux root (ARM64)"),
    ("933ac7e1-2eb4-4f13-b844-0e14e2aef915", "Linux home"),
    ("0657fd6d-a4ab-43c4-84e5-0933c84b4f4f", "Linux swap"),
    ("e6d6d379-f507-44c2-a23c-238f2a3df928", "Linux LVM"),
    ("a19d880f-05fc-4d3b-a006-743f0f84911e", "Linux RAID"),
    ("ca7d7ccb-63ed-4c53-861c-1742536059cc", "Linux LUKS"),
    ("bc13c2ff-59e6-4262-a352-b275fd6f7172", "Linux extended boot"),
    ("c12a7328-f81f-11d2-ba4b-00a0c93ec93b", "EFI system"),
    ("21686148-6449-6e6f-744e-656564454649", "BIOS boot"),
    ("ebd0a0a2-b9e5-4433-87c0-68b6b72699c7", "Microsoft data"),
    ("e3c9e316-0b5c-4db8-817d-f92df00215ae", "Microsoft reserved"),
    ("de94bba4-06d1-4d40-a16a-bfd50179d6ac", "Windows recovery"),
];

/// Kinds of the older table.
const MBR: [(u8, &str); 12] = [
    (0x01, "FAT12"),
    (0x04, "FAT16"),
    (0x06, "FAT16"),
    (0x07, "NTFS or exFAT"),
    (0x0b, "FAT32"),
    (0x0c, "FAT32"),
    (0x0e, "FAT16"),
    (0x82, "Linux swap"),
    (0x83, "Linux"),
    (0x8e, "Linux LVM"),
    (0xef, "EFI system"),
    (0xfd, "Linux RAID"),
];

impl Kind {
    /// The code as tools write it: `83`, or a GUID in small letters.
    #[must_use]
    pub fn code(self) -> String {
        match self {
            Self::Mbr(byte) => format!("{byte:02x}"),
            Self::Gpt(bytes) => guid(bytes),
        }
    }

    /// The name of a kind that is known.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Mbr(byte) => MBR.iter().find(|(known, _)| *known == byte).map(|(_, name)| *name),
            Self::Gpt(bytes) => {
                let code = guid(bytes);
                GPT.iter().find(|(known, _)| *known == code).map(|(_, name)| *name)
            }
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "type {}", self.code()),
        }
    }
}

/// A GUID as text: the first three fields are numbers with the lowest byte first.
fn guid(bytes: [u8; 16]) -> String {
    const ORDER: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let digits = hectare_units::hex(&ORDER.map(|at| bytes[at]));
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32];
    parts.map(|part| digits[part].to_owned()).join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guid_has_its_first_fields_turned_round() {
        let bytes =
            [0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4];
        assert_eq!(Kind::Gpt(bytes).to_string(), "Linux data");
        assert_eq!(Kind::Gpt([0; 16]).to_string(), "type 00000000-0000-0000-0000-000000000000");
        assert_eq!(Kind::Mbr(0x83).to_string(), "Linux");
        assert_eq!(Kind::Mbr(0x9).to_string(), "type 09");
    }
}
