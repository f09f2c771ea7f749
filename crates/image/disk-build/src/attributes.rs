//! Flags of partitions by name.
//!
//! Facts: UEFI 2.10, table 5.8 (bits 0 to 2); the discoverable partitions specification (bits 59, 60 and 63).

/// Bit 60: mounted for reading only.
pub(crate) const READ_ONLY: u64 = 1 << 60;
/// Bit 59: its file system is grown to the partition when it is mounted.
pub(crate) const GROW_FS: u64 = 1 << 59;
/// Bit 63: not mounted by itself.
pub(crate) const NO_AUTO: u64 = 1 << 63;

const FLAGS: [(&str, u64); 6] = [
    ("required", 1),
    ("no-block-io", 1 << 1),
    ("legacy-boot", 1 << 2),
    ("grow-fs", GROW_FS),
    ("read-only", READ_ONLY),
    ("no-auto", NO_AUTO),
];

/// The bit of a flag of a GPT.
///
/// # Errors
/// With the names there are.
pub(crate) fn gpt(name: &str) -> Result<u64, String> {
    FLAGS.iter().find(|(known, _)| *known == name).map(|(_, bit)| *bit).ok_or_else(|| {
        let known: Vec<_> = FLAGS.iter().map(|(known, _)| *known).collect();
        format!("{name:?} is no flag of a GPT; there are {}", known.join(", "))
    })
}
