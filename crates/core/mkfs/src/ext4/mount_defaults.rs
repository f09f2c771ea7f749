//! The mount options that a superblock sets by default (`s_default_mount_opts`), by the names of tune2fs(8).

use crate::error::{Error, Result};

/// Name and bits; the journal's modes are two bits together. Source: the kernel's ext4 documentation
/// ("Default mount options") and tune2fs(8).
const NAMES: [(&str, u32); 12] = [
    ("debug", 0x1),
    ("bsdgroups", 0x2),
    ("user_xattr", 0x4),
    ("acl", 0x8),
    ("uid16", 0x10),
    ("journal_data", 0x20),
    ("journal_data_ordered", 0x40),
    ("journal_data_writeback", 0x60),
    ("nobarrier", 0x100),
    ("block_validity", 0x200),
    ("discard", 0x400),
    ("nodelalloc", 0x800),
];

/// Mount options that are on unless a mount says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MountDefaults(u32);

/// Extended attributes and access lists.
impl Default for MountDefaults {
    fn default() -> Self {
        Self(0x4 | 0x8)
    }
}

impl MountDefaults {
    /// Reads a list of names, separated by commas.
    ///
    /// # Errors
    /// If there is no such option.
    pub fn parse(list: &str) -> Result<Self> {
        list.split(',').map(str::trim).filter(|word| !word.is_empty()).try_fold(Self(0), |so_far, word| {
            let (_, bits) = NAMES
                .iter()
                .find(|(name, _)| *name == word)
                .ok_or_else(|| Error::option(format!("default mount option {word}"), "no such option"))?;
            Ok(Self(so_far.0 | bits))
        })
    }

    /// The bits of `s_default_mount_opts`.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_known_by_name() {
        assert_eq!(MountDefaults::parse("acl,user_xattr").unwrap(), MountDefaults::default());
        assert_eq!(MountDefaults::parse("journal_data, acl").unwrap().bits(), 0x28);
        assert!(MountDefaults::parse("acl,foo").unwrap_err().to_string().contains("foo"));
    }
}
