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

/// The field of the journal's modes.
const JOURNAL_MODE: u32 = 0x60;

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
    /// Reads a list of names, separated by commas; `^` before one takes it back.
    ///
    /// # Errors
    /// If there is no such option.
    pub fn parse(list: &str) -> Result<Self> {
        Ok(Self(Self::edits(list)?.into_iter().fold(0, |bits, (clear, set)| bits & !clear | set)))
    }

    /// The bits that each name of such a list clears and sets. The modes of the journal are one field of two
    /// bits.
    ///
    /// # Errors
    /// If there is no such option.
    pub fn edits(list: &str) -> Result<Vec<(u32, u32)>> {
        let words = list.split(',').map(str::trim).filter(|word| !word.is_empty());
        let edit = |word: &str| {
            let (name, on) = word.strip_prefix('^').map_or((word, true), |name| (name, false));
            let known = NAMES.iter().find(|(known, _)| *known == name);
            let (_, bits) = known
                .ok_or_else(|| Error::option(format!("default mount option {word}"), "no such option"))?;
            let field = if bits & JOURNAL_MODE != 0 { JOURNAL_MODE } else { *bits };
            Ok((field, if on { *bits } else { 0 }))
        };
        words.map(edit).collect()
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
        let bits = |list| MountDefaults::parse(list).unwrap().bits();
        assert_eq!(
            (bits("journal_data,journal_data_writeback"), bits("journal_data,acl,^journal_data")),
            (0x60, 8)
        );
        assert!(MountDefaults::parse("acl,foo").unwrap_err().to_string().contains("foo"));
    }

    #[test]
    fn regression_a_list_may_take_an_option_back() {
        let bits = |list| MountDefaults::parse(list).unwrap().bits();
        assert_eq!((bits("^acl"), bits("acl,user_xattr,^acl"), bits("^acl,acl")), (0, 4, 8));
        assert!(MountDefaults::parse("^foo").unwrap_err().to_string().contains("^foo"));
    }
}
